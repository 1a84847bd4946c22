"""LU factors with pivots from windows of rows, and the refinement that they precondition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from cupygemm._solvers.common import blocks, kernels
from cupygemm._solvers.common.products import ROUNDINGS
from cupygemm._solvers.refinement import butterflies, windowed_lu
from tests.solvers.test_accuracy import backward_error

TILE = windowed_lu.TILE
NONE = 0xFFFFFFFF


def factor_tile(cp, window, first=0):
    """Return L^-1, U^-1, the moves and the info of a window of rows."""
    count, pitch = len(window), TILE + 4
    a = cp.zeros((count, pitch), "f")
    a[:, :TILE] = cp.asarray(window)
    lower, upper = cp.zeros((2, TILE, TILE), "f")
    moves, info = cp.zeros((512, 2), "uint32"), cp.zeros(1, "int32")
    launch = kernels.load(kernels.WINDOWED_TILE, np.dtype("f"), 512, rows=5, groups=16)
    triangles = lower.data.ptr, upper.data.ptr, TILE
    launch((1, 1), a.data.ptr, pitch, *triangles, moves.data.ptr, info.data.ptr, first, count)
    return lower.get(), upper.get(), moves.get().astype("int64"), int(info[0])


def moved(rows, moves, first):
    """Return the rows of a window in the order after the moves."""
    rows, done = rows.copy(), rows.copy()
    for to, source in moves[moves[:, 0] != NONE] - first:
        done[to] = rows[source]
    return done


@pytest.mark.slow
@pytest.mark.parametrize("count", [128, 141, 160])
def test_a_tile_has_the_pivots_of_its_window(cp, draw, count):
    window, first = draw((count, TILE), "f"), 256
    lower, upper, moves, info = factor_tile(cp, window, first)
    order = moved(np.arange(count), moves, first)
    assert sorted(order) == list(range(count))
    expected, pivots = scipy.linalg.lu_factor(window)
    of_lapack = np.arange(count)
    for row, other in enumerate(pivots):
        of_lapack[[row, other]] = of_lapack[[other, row]]
    assert (order[:TILE] == of_lapack[:TILE]).all()
    assert info == 0
    u = np.triu(expected[:TILE])
    l_of_lapack = np.tril(expected[:TILE], -1) + np.eye(TILE)
    assert (np.triu(lower, 1) == 0).all()
    assert (np.tril(upper, -1) == 0).all()
    assert abs(lower @ l_of_lapack - np.eye(TILE)).max() < 1e-4
    assert abs(lower @ window[order[:TILE]] @ upper - np.eye(TILE)).max() < 1e-2
    assert abs(upper @ u - np.eye(TILE)).max() < 1e-2


@pytest.mark.parametrize("zero", [0, 77])
def test_the_first_column_without_a_pivot_is_reported(cp, draw, zero):
    window = draw((160, TILE), "f")
    window[:, zero] = 0
    assert factor_tile(cp, window, 384)[3] == 384 + zero + 1


def test_pivots_of_equal_size_are_the_first(cp):
    window = np.zeros((160, TILE), "f")
    window[32:] = np.eye(TILE)
    window[:32, :32] = -np.eye(32)
    *_, moves, info = factor_tile(cp, window)
    order = moved(np.arange(160), moves, 0)
    assert (order[:TILE] == [*range(32), *range(64, 160)]).all()
    assert info == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [160, 77])
def test_the_next_window_follows_from_a_tile(cp, draw, count):
    first, pitch = 128, 2 * TILE + 132
    a = draw((first + TILE + count, pitch), "f")
    tile, behind = slice(first, first + TILE), slice(first + TILE, first + 2 * TILE)
    lower, upper, moves, _ = factor_tile(cp, a[first : first + 160, tile], first)
    window = cp.full((161, TILE), np.nan, "f")
    on_device = [cp.asarray(x) for x in (a, lower, upper, moves.astype("uint32"))]
    matrix, *triangles, planned = (x.data.ptr for x in on_device)
    launch = kernels.load(kernels.NEXT_WINDOW, np.dtype("f"), 1024, rows=160, across=4)
    places = planned, window.data.ptr
    launch((TILE // 4, 1), matrix, pitch, *triangles, TILE, *places, first, count)
    rows = moved(a[first:].astype("d"), moves, first)
    solved = upper.astype("d") @ (lower @ rows[:TILE, behind])
    expected = rows[TILE:, behind] - rows[TILE:, tile] @ solved
    bound = abs(rows[TILE:, tile]) @ (abs(upper) @ (abs(lower) @ abs(rows[:TILE, behind])))
    found = window.get()
    assert (abs(found[:count] - expected) <= 1e-5 * (bound + abs(expected))).all()
    assert np.isnan(found[count:]).all()


def mixed(cp, a, rows=1.0, columns=1.0):
    n = len(a)
    both = windowed_lu.workspace(windowed_lu.padded(n))
    scales = (cp.full(n, x) for x in (rows, columns))
    butterflies.transform(cp.asarray(a), *scales, both)
    return both


def test_butterflies_mix_a_system_whose_solution_they_mix_back(cp, draw):
    n, k = 45, 3
    a, b = draw((n, n)) + 2 * np.sqrt(n) * np.eye(n), draw((k, n))
    both = mixed(cp, a, rows=2.0, columns=0.5)
    size = both.m
    system = both.array[0, :, :size].get().astype("d")
    scale, left = cp.asarray([1.0, 2.0, 0.5]), cp.empty((size, k), "f")
    butterflies.left(2 * cp.asarray(b), scale, left)
    y = np.linalg.solve(system, left.get().astype("d"))
    x = cp.empty((k, n))
    butterflies.right(cp.asarray(y.astype("f")), scale, x)
    assert abs(0.5 * x.get() - np.linalg.solve(a, b.T).T).max() < 1e-5


def test_butterflies_are_nearly_orthogonal(cp):
    system = mixed(cp, np.eye(512)).array[0, :, :512].get().astype("d")
    values = np.linalg.svd(system, compute_uv=False)
    assert values.max() / values.min() < 1.05**8
    assert (np.count_nonzero(abs(system) > 1e-6, axis=1) > 1).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "n", [512, *(pytest.param(n, marks=pytest.mark.sweep) for n in (1024, 1100))]
)
@pytest.mark.parametrize("precision", ["float32", pytest.param("tf32x3", marks=pytest.mark.sweep)])
def test_factors_solve(cp, draw, n, precision):
    both = mixed(cp, draw((n, n)))
    size = both.m
    a = both.array[0, :, :size].get().astype("d")
    found = windowed_lu.factor(both, ROUNDINGS[precision])
    order, b = found.order.get(), draw((size, 2), "f")
    assert sorted(order) == list(range(size))
    assert found.info.get() == 0
    x = cp.asarray(b[order])
    found.solve(x)
    assert backward_error(a, x.get().astype("d"), b) < 1e-5


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, windowed=1))


@pytest.mark.slow
def test_a_matrix_with_singular_leading_blocks_is_solved_from_mixed_rows(cp, draw, windows):
    """Without the mixture, no column of the first 256 has a pivot in its window."""
    n, zero = 600, np.zeros((300, 300))
    a, b = np.block([[zero, draw((300, 300))], [draw((300, 300)), zero]]), draw((n, 2))
    x, info = linalg.solve(cp.asarray(a), cp.asarray(b), precision="tf32x3", full_output=True)
    assert info.path == "refined"
    assert info.precision == "tf32x3"
    assert backward_error(a, x.get(), b) <= 2e-15


@pytest.mark.sweep
@pytest.mark.parametrize("n", [200, 700])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16", "tf32"])
def test_precisions_reach_the_error_of_float64_from_windows(cp, draw, windows, n, precision):
    a, b = draw((n, n)) + np.sqrt(n) * np.eye(n), draw(n)
    x, info = linalg.solve(cp.asarray(a), cp.asarray(b), precision=precision, full_output=True)
    assert info.path == "refined"
    assert backward_error(a, x.get()[:, None], b[:, None]) <= 2e-15


@pytest.mark.slow
def test_a_singular_matrix_is_singular_from_windows_too(cp, windows):
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        linalg.solve(cp.zeros((40, 40)), cp.ones(40), precision="tf32x3")
