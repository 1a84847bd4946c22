"""Batches of small matrices on a GPU: exact in every order, and captured into graphs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.small_config import SmallConfig

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = (BF16, np.dtype("f2"), np.dtype("f4"), np.dtype("f8"))


def is_small(a, b, **options):
    return isinstance(cupygemm.explain(a, b, **options).config, SmallConfig)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("extents", "layout"),
    [((16, 16, 16), "NN"), ((32, 32, 32), "TN"), ((13, 15, 7), "NT"), ((40, 33, 70), "NN")],
)
def test_batches_are_exact(cp, dtype, extents, layout):
    m, n, k = extents
    x1, x2 = testing.integer_operands((300, m, k), (300, k, n), dtype)
    a, b = (
        cp.asarray(x) if letter == "N" else cp.asarray(x.swapaxes(1, 2).copy()).swapaxes(1, 2)
        for x, letter in zip((x1, x2), layout, strict=True)
    )
    assert is_small(a, b) or max(extents) > 32
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    again = cupygemm.matmul(a, b)
    assert (again == cupygemm.matmul(a, b)).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_bound_of_errors_holds(cp, dtype):
    x1, x2 = testing.random_operands((200, 48, 64), (200, 64, 48), dtype)
    a, b = cp.asarray(x1), cp.asarray(x2)
    testing.assert_gemm_close(cupygemm.matmul(a, b), x1, x2)


def test_a_batch_is_captured(cp):
    x1, x2 = testing.integer_operands((500, 16, 16), (16, 16), BF16)
    a, b, out = cp.asarray(x1), cp.asarray(x2), cp.zeros((500, 16, 16), BF16)
    cp.cuda.Device().synchronize()
    with cp.cuda.Stream(non_blocking=True) as stream:
        cupygemm.matmul(a, b, out)
        stream.synchronize()
        out[...] = cp.zeros_like(out)
        stream.begin_capture()
        cupygemm.matmul(a, b, out)
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    testing.assert_gemm_exact(out, x1, x2)
