"""Accumulation in place, ``out = x1 @ x2 + out``, by every kind of kernel and class of extents.

The epilogue reads an element of ``c`` and overwrites it with the result. So only the lane that
writes an element may read it, and no lane whose own row or column is outside the matrix.
"""

import dataclasses
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.device import device as device_of
from cupygemm._request.call import check_call
from cupygemm._request.options import call_options
from tests.tables import swept

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64, C64 = map(np.dtype, ("f2", "f4", "f8", "c8"))
K = 520
MAINLOOPS = {"register_double_buffer", "direct_to_lds", "direct_to_register", "ping_pong"}
EXTENTS = [(72, 1), (1, 72), (1, 1), (1, 33), (33, 35), (64, 64)]


class Kind(NamedTuple):
    """The properties that distinguish kernels: how the sums are shared, and the mainloop."""

    is_split: bool
    is_persistent: bool
    atomic: bool
    mainloop: str | None
    transposed_c: bool

    @classmethod
    def of(cls, config):
        return cls(
            getattr(config, "split_k", 1) > 1,
            getattr(config, "stream_k", 0) > 0,
            getattr(config, "atomic", False),
            getattr(config, "mainloop", None),
            getattr(config, "transposed_c", False),
        )


def compiled_kinds(backend, request, met, every_kind):
    """Return the kernels for a request: the cheapest of each kind, shared tiles included.

    Kinds in `met` are omitted. Unless every kind is requested, so are kinds whose fields add no new
    value to those of the previous kinds.
    """
    configs = [candidate.config for candidate in backend.candidates(request)]
    configs += [
        dataclasses.replace(config, split_k=1, stream_k=3, **unset)
        for config in configs
        if hasattr(config, "stream_k")
        for unset in [{"atomic": False} if hasattr(config, "atomic") else {}]
    ]
    found = {}
    for config in configs:
        kind = Kind.of(config)
        before = {*met, *found}
        shown = {field for each in before for field in each._asdict().items()}
        if kind in before or (not every_kind and shown.issuperset(kind._asdict().items())):
            continue
        try:
            found[kind] = backend.compile(request, config)
        except ValueError:  # the configuration cannot compute the request
            assert config.stream_k
    return found


def kinds_in_place(cp, m, n, dtype=F16, *, every_kind=True):
    """Accumulate in place by each kind of kernel, and return the kinds."""
    x1, x2 = testing.integer_operands((m, K), (K, n), dtype, seed=m + n)
    before = (np.arange(m * n) % 50).reshape(m, n).astype(F32)
    a, b = cp.asarray(x1), cp.asarray(x2)
    backend = device_of(0).kernels
    kinds = set()
    for reproducible in (True, False):
        out = cp.asarray(before)
        given = call_options({"c": out, "beta": 2.0, "reproducible": reproducible})
        call = check_call(a, b, out, casting="unsafe", given=given)
        assert not call.request.aliased
        compiled_now = compiled_kinds(backend, call.request, kinds, every_kind)
        for name, compiled in compiled_now.items():
            kinds.add(name)
            out.set(before)
            backend.launch(call.request, compiled)(a, b, out, call.arguments)
            testing.assert_gemm_exact(out, x1, x2, c=before, beta=2.0)
    return kinds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "n", "every_kind"),
    [
        (72, 1, False),
        *swept((33, 35, False), *((m, n, True) for m, n in EXTENTS), width=3),
    ],
)
def test_every_kind_of_kernel_accumulates_in_place(cp, device, m, n, every_kind):
    """``make test`` runs kinds that together cover each value of each field of `Kind`."""
    if not device.has_kernels:
        pytest.skip("no kernel of this library runs here")
    kinds = kinds_in_place(cp, m, n, every_kind=every_kind)
    if device_of(0).kernels.name == "cdna":
        assert {kind[:2] for kind in kinds} == {(False, False), (True, False), (False, True)}
        assert any(kind.atomic for kind in kinds)
        wanted = MAINLOOPS if n == 1 else {"register_double_buffer"}
        assert {kind.mainloop for kind in kinds} >= wanted


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("dtype", [BF16, F32, F64, C64, np.dtype(np.int8)], ids=str)
@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [((1, 15), (15, 33)), ((33, 15), (15, 1)), ((15,), (15, 33)), ((33, 15), (15,)),
     ((1, 15), (15, 1)), ((3, 1, 15), (15, 33))],
)  # fmt: skip
def test_one_row_or_column_accumulates_in_place(cp, dtype, shape1, shape2):
    x1, x2 = testing.integer_operands(shape1, shape2, dtype)
    shape = np.matmul(np.empty(shape1), np.empty(shape2)).shape
    before = (np.arange(np.prod(shape)) % 5).reshape(shape).astype(dtype)
    out = cp.asarray(before)
    assert cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, c=out) is out
    testing.assert_gemm_exact(out, x1, x2, c=before)


def test_a_column_of_a_wider_array_accumulates_in_place(cp):
    """Its rows are several elements apart, so no transposition makes it a row."""
    x1, x2 = testing.integer_operands((70, 24), (24, 1), F32)
    block = cp.asarray((np.arange(70 * 9) % 7).reshape(70, 9).astype(F32))
    before = block.get()
    out = block[:, 4:5]
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, c=out)
    testing.assert_gemm_exact(out, x1, x2, c=before[:, 4:5])
    block[:, 4:5] = cp.asarray(before[:, 4:5])
    np.testing.assert_array_equal(block.get(), before)


def test_gemm_accumulates_a_row_in_place(cp):
    x1, x2 = testing.integer_operands((1, 15), (15, 33), F32)
    out = cp.ones((1, 33), F32)
    assert cupygemm.gemm(1, cp.asarray(x1), cp.asarray(x2), 1, out, out=out) is out
    testing.assert_gemm_exact(out, x1, x2, c=np.ones((1, 33), F32))
