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
    "lstsq": (
        lambda a: linalg.lstsq(a[:, :9], a[:, 9])[0],
        lambda a: np.linalg.lstsq(a[:, :9], a[:, 9], rcond=None)[0],
    ),
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
        a.set(values, stream=stream)
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


def test_a_recorded_least_squares_problem_leaves_its_rank_on_the_device(cp, draw, small_blocks):
    full, b = draw((12, 4), "d"), cp.asarray(draw((12, 2), "d"))
    a = cp.asarray(full)
    graph, stream, found, _ = recorded(cp, lambda a: linalg.lstsq(a, b), a)
    for values, rank in ((full[:, [0, 1, 2, 0]], 3), (full, 4)):
        a.set(values, stream=stream)
        graph.launch(stream)
        stream.synchronize()
        assert int(found[2]) == rank
        squares = ((b - a @ found[0]) ** 2).sum(axis=0)
        np.testing.assert_allclose(found[1].get(), squares.get(), rtol=1e-9)


def test_refinement_cannot_be_recorded(cp):
    a, stream = cp.eye(3), cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(ValueError, match="refinement cannot be recorded"):
                linalg.solve(a, a, precision="float16")
        finally:
            stream.end_capture()
