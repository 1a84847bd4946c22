"""Solvers that are recorded in a graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from tests.solvers.conftest import assert_like
from tests.solvers.test_systems import definite, well_conditioned

N = 45
FUNCTIONS = {
    "cholesky": (linalg.cholesky, np.linalg.cholesky),
    "lu_factor": (lambda a: linalg.lu_factor(a)[0], lambda a: scipy.linalg.lu_factor(a)[0]),
    "solve": (lambda a: linalg.solve(a, a[0]), lambda a: np.linalg.solve(a, a[0])),
    "inv": (linalg.inv, np.linalg.inv),
    "det": (linalg.det, np.linalg.det),
    "slogdet": (lambda a: linalg.slogdet(a)[1], lambda a: np.linalg.slogdet(a)[1]),
    "qr": (lambda a: linalg.qr(a)[1], lambda a: np.linalg.qr(a)[1]),
    "pinv": (linalg.pinv, np.linalg.pinv),
    "solve_triangular": (
        lambda a: linalg.solve_triangular(a, a[0]),
        lambda a: scipy.linalg.solve_triangular(a, a[0]),
    ),
    "lu_solve": (
        lambda a: linalg.lu_solve(linalg.lu_factor(a), a[0]),
        lambda a: np.linalg.solve(a, a[0]),
    ),
    "cho_solve": (
        lambda a: linalg.cho_solve(linalg.cho_factor(a), a[0]),
        lambda a: np.linalg.solve(a, a[0]),
    ),
}
IN_EVERY_RUN = {"cholesky", "lu_factor", "solve"}


def recorded(cp, function, a):
    """Return a graph of a call, the stream it was recorded on, its result, and its memory."""
    stream, pool = cp.cuda.Stream(non_blocking=True), cp.cuda.MemoryPool()
    cp.cuda.get_current_stream().synchronize()
    with cp.cuda.using_allocator(pool.malloc), stream:
        function(a)  # loads the kernels, and leaves the memory that the graph uses in the pool
        stream.synchronize()
        stream.begin_capture()
        try:
            result = function(a)
        finally:
            graph = stream.end_capture()
    return graph, stream, result, pool


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.sweep)
        for name in FUNCTIONS
    ],
)
def test_a_graph_factors_what_the_operand_holds_when_it_is_launched(cp, draw, small_blocks, name):
    ours, numpys = FUNCTIONS[name]
    make = definite if name.startswith("cho") else well_conditioned
    first, second = make(draw, (N, N), "d"), make(draw, (N, N), "d")
    a = cp.asarray(first)
    graph, stream, result, _ = recorded(cp, ours, a)
    for values in (first, second):
        a.set(values)
        graph.launch(stream)
        stream.synchronize()
        assert_like(result, numpys(values), factor=20000)


def test_a_recorded_factorisation_does_not_raise(cp, small_blocks):
    a = cp.eye(N)
    graph, stream, result, _ = recorded(cp, linalg.cholesky, a)
    a *= -1
    cp.cuda.get_current_stream().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert bool(cp.isnan(result).any())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: linalg.solve(a, a, precision="float16"), "refinement cannot be recorded"),
        (lambda a: linalg.lstsq(a, a), r"lstsq cannot be recorded.*rank is a number on the host"),
    ],
)
def test_what_waits_for_the_device_cannot_be_recorded(cp, function, message):
    a, stream = cp.eye(3), cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(ValueError, match=message):
                function(a)
        finally:
            stream.end_capture()
