"""Refinement of one system with one right-hand side, by launches that are prepared once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers.common import blocks, kernels
from cupygemm._solvers.refinement import one_vector
from tests.solvers.test_accuracy import backward_error

LARGEST, LEAST = 2.0**900, 2.0**-900


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize(("m", "k", "pitch"), [(37, 300, 304), (9, 45, 47)])
def test_rows_are_multiplied(cp, draw, dtype, m, k, pitch):
    a, x, b, scale = (draw(shape, dtype) for shape in ((m, pitch), k, m, m))
    launch = kernels.load(kernels.ROW_PRODUCTS, np.dtype(dtype), 256)
    left, right, base, rows = map(cp.asarray, (a, x, b, scale))
    y = cp.zeros(m, dtype)
    places = left.data.ptr, right.data.ptr
    grid, rest = (-(-m // 8), 1), (y.data.ptr, pitch, m, k)
    tolerance = 1e3 * np.finfo(dtype).eps
    launch(grid, *places, 0, 0, *rest)
    assert abs(y.get() - a[:, :k] @ x).max() < tolerance
    launch(grid, *places, base.data.ptr, rows.data.ptr, *rest)
    assert abs(y.get() - scale * (b - a[:, :k] @ x)).max() < tolerance


@pytest.mark.parametrize("dtype", "fd")
def test_norms_of_rows(cp, draw, dtype):
    a, rows, columns = draw((70, 70), dtype), *abs(draw((2, 70), dtype))
    sums, scaled = one_vector._row_norms(*map(cp.asarray, (a, rows, columns))).get()
    np.testing.assert_allclose(sums, abs(a).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(scaled, rows * (abs(a) @ columns), rtol=1e-5)


@pytest.mark.parametrize(("steps", "repeats"), [(1, False), (5, False), (16, False), (4, True)])
def test_a_cycle_ends_with_the_least_norm(cp, draw, steps, repeats):
    most, n = one_vector.LONGEST_CYCLE + 1, 300
    h = np.triu(draw((steps + 1, steps)), -1)
    if repeats:  # the third vector solves the system
        h[3:, 2:] = h[:, 3:] = 0
    columns = np.full((most, most), np.nan)
    columns[:steps, : steps + 1] = h.T
    columns[-1, 0] = norm = 3.0
    directions, x = draw((steps, n)), draw(n)
    found, small, vectors = map(cp.asarray, (x, columns, directions))
    launch = kernels.load(kernels.KRYLOV_END, np.dtype("d"), 256, most=most, maxima=6)
    places = small.data.ptr, vectors.data.ptr, found.data.ptr
    launch((2, 1), *places, n, n, steps, 0, 0)
    right = np.zeros(steps + 1)
    right[0] = norm
    weights = np.linalg.lstsq(h, right, rcond=1e-12)[0]
    np.testing.assert_allclose(found.get(), x + weights @ directions, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, LARGEST, LEAST])
def test_a_vector_is_solved_for(cp, draw, monkeypatch, scale):
    """The norms of scaled right-hand sides have no squares."""
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, windowed=1))
    n = 260
    a, b = draw((n, n)) + np.sqrt(n) * np.eye(n), draw(n) * scale
    x, info = linalg.solve(cp.asarray(a), cp.asarray(b), precision="tf32x3", full_output=True)
    assert info.path == "refined"
    assert info.iterations > 1
    assert backward_error(a, x.get()[:, None] / scale, b[:, None] / scale) <= 2e-15
    assert backward_error(a, x.get()[:, None] / scale, b[:, None] / scale) == pytest.approx(
        float(info.backward_error), abs=1e-15
    )


@pytest.mark.slow
def test_an_infinity_is_found(cp, draw, monkeypatch):
    monkeypatch.setattr(blocks, "LIMITS", replace(blocks.LIMITS, windowed=1))
    a, b = draw((64, 64)), draw(64)
    b[63] = np.inf
    with pytest.raises(ValueError, match="infs or NaNs"):
        linalg.solve(cp.asarray(a), cp.asarray(b), precision="tf32x3", check_finite=True)
