"""cuBLASLt's products on a GPU: exact in every layout, and captured into graphs."""

from __future__ import annotations

import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cublaslt.library import library
from cupygemm._backends.device import device
from cupygemm._tuning.product import Product

TYPES = ("f4", "f8", "F", "D")


def integers(cp, shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape).astype(dtype)
    if x.dtype.kind == "c":
        x += 1j * rng.integers(-4, 5, shape).astype(x.real.dtype)
    return cp.asarray(x), x


def cublaslt():
    """Return the backend; skip without the library, as on the modelled GPU."""
    try:
        library()
    except OSError as err:
        pytest.skip(str(err))
    return next(backend for backend in device(0).backends if backend.name == "cublaslt")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", [(65, 33, 129), (4, 32, 48, 16), (64, 64, 4096)])
def test_every_offered_algorithm_is_exact(cp, dtype, layout, shape):
    backend = cublaslt()
    product = Product(shape, np.dtype(dtype), None, layout)
    *batch, m, n, k = shape
    a, x1 = integers(cp, (*batch, m, k), dtype, 1)
    b, x2 = integers(cp, (*batch, k, n), dtype, 2)
    if layout[0] == "T":
        a = cp.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout[1] == "T":
        b = cp.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    expected = x1 @ x2
    request = product.request
    for candidate in backend.candidates(request):
        run = backend.launch(request, backend.compile(request, candidate.config))
        np.testing.assert_array_equal(cp.asnumpy(run(a, b, None)), expected)


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k"),
    [
        ("f8", 2048, 2048, 256),
        ("f8", 64, 64, 8192),
        ("D", 300, 300, 300),
        ("D", 64, 64, 8192),
        ("F", 64, 64, 8192),
        ("f4", 1000, 1000, 1000),
        ("f4", 64, 64, 8192),
    ],
)
def test_every_product_is_captured(cp, dtype, m, n, k):
    """A replayed product is exact, and writes nowhere else: a graph's workspace is its own."""
    cublaslt()
    a, x1 = integers(cp, (m, k), dtype, 1)
    b, x2 = integers(cp, (k, n), dtype, 2)
    out, expected = cp.empty((m, n), dtype), x1 @ x2
    cp.cuda.Device().synchronize()
    with cp.cuda.Stream(non_blocking=True) as stream:
        cupygemm.matmul(a, b, out)
        stream.synchronize()
        stream.begin_capture()
        cupygemm.matmul(a, b, out)
        graph = stream.end_capture()
        others = cp.full(1 << 22, 7.0)  # in what the pool has free
        for _ in range(3):
            out.fill(0)
            graph.launch(stream)
            graph.launch(stream)
            np.testing.assert_array_equal(cp.asnumpy(out), expected)
        assert (others == 7).all()
