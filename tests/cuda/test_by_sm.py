"""Kernels that give each SM the tile of its number: exact beside other work, and in graphs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper import by_sm
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.plan import choose
from tests.backends.hopper.test_hopper_plan import layout_of

cp = pytest.importorskip("cupy")
BF16 = np.dtype(ml_dtypes.bfloat16)
EXTENTS = [(1, 4608, 4096), (7, 9728, 1024), (64, 4608, 2048), (200, 3072, 3072)]


def operands(m, n, k):
    x1, x2 = testing.integer_operands((m, k), (k, n), BF16)
    return x1, x2, cp.asarray(x1), cp.asarray(x2), cp.zeros((m, n), BF16)


@pytest.mark.parametrize("extents", EXTENTS)
def test_repeated_launches_are_exact_and_leave_no_marks(extents):
    m, n, k = extents
    assert choose(layout_of((m, k), (k, n), BF16), HopperArch()).by_sm
    x1, x2, a, b, out = operands(m, n, k)
    for _ in range(50):
        cupygemm.matmul(a, b, out)
    testing.assert_gemm_exact(out, x1, x2)
    address = by_sm.marks(cp.cuda.get_current_stream().ptr)
    words = cp.ndarray(9, np.uint32, by_sm._memory(cp.cuda.Device().id))
    assert address == words.data.ptr
    assert not words.get().any()


def test_launches_beside_each_other_are_exact():
    """Two streams share the SMs, so that blocks of a launch run on one SM after each other."""
    cases = [operands(*extents) for extents in EXTENTS]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    cp.cuda.Device().synchronize()
    for _ in range(100):
        for number, stream in enumerate(streams):
            with stream:
                for _, _, a, b, out in cases[number:] + cases[:number]:
                    cupygemm.matmul(a, b, out) if number == 0 else cupygemm.matmul(a, b)
    cp.cuda.Device().synchronize()
    for x1, x2, _, _, out in cases:
        testing.assert_gemm_exact(out, x1, x2)


def test_a_graph_is_exact():
    x1, x2, a, b, out = operands(*EXTENTS[0])
    cupygemm.matmul(a, b, out)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(3):
            cupygemm.matmul(a, b, out)
        graph = stream.end_capture()
        out[...] = 0
        for _ in range(20):
            graph.launch(stream)
        stream.synchronize()
    testing.assert_gemm_exact(out, x1, x2)
