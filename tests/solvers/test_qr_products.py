"""Blocks of a QR factorisation that are factored by products of their columns."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm._solvers.common.kernels import QR_PANEL, QR_TOP, REFLECTOR, load
from cupygemm._solvers.common.matrices import copied, zeros
from cupygemm._solvers.common.teams import Workspace
from cupygemm._solvers.qr import blocks
from tests.solvers.conftest import unit
from tests.tables import swept

WIDTH = 32


def factored(cp, a, *, threads=64, rows=2, by_products=True):
    """Return R with V below its diagonal, V, T and tau, of a block of all columns."""
    (m, n), dtype = a.shape, a.dtype
    a, v, t = cp.array(a), cp.full(a.shape, cp.nan, dtype), cp.zeros((n, n), dtype)
    tau = cp.zeros(n, dtype)
    launch = load(QR_PANEL, dtype, threads, width=n, rows=rows, team=1, by_products=by_products)
    at = [each.data.ptr for each in (a, v, tau, t)]
    launch((1, 1), at[0], n, 0, at[1], n, 0, at[2], 0, at[3], n, 0, 0, 0, 0, m, n, 1, 1)
    return [each.get() for each in (a, v, t, tau)]


def check(a, found):
    """Check that the factors are those of a matrix, column by column, and orthogonal."""
    (m, n), (qr, v, t, tau) = a.shape, found
    u = unit(a.dtype)
    q = np.eye(m) - v.astype("d") @ t @ v.T
    scale = np.linalg.norm(a.astype("d"), axis=0)
    assert (abs(q[:, :n] @ np.triu(qr[:n]) - a) <= 10 * n * u * scale).all()
    assert abs(q.T @ q - np.eye(m)).max() <= 10 * n * u
    assert (np.tril(qr, -1) == np.tril(v, -1)).all()
    assert (np.diag(v) == 1).all()
    assert not np.triu(v, 1).any()
    assert (tau == np.diag(t)).all()
    assert not np.tril(t, -1).any()


def drawn(m, n, dtype="d"):
    return np.random.default_rng(m).standard_normal((m, n)).astype(dtype)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize(
    ("m", "n", "threads", "rows"),
    [(120, 32, 64, 2), (128, 32, 64, 2), *swept((250, 16, 256, 1), (64, 8, 64, 1), width=4)],
)
@pytest.mark.parametrize("dtype", "fd")
def test_a_block_is_factored_by_products(cp, m, n, threads, rows, dtype):
    a = drawn(m, n, dtype)
    found = factored(cp, a, threads=threads, rows=rows)
    check(a, found)
    by_columns = factored(cp, a, threads=threads, rows=rows, by_products=False)
    assert (found[0] != by_columns[0]).any()
    for one, other in zip(found, by_columns, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=500 * unit(dtype) * abs(other).max())


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("kind", ["dependent", "zero", "nan", "triangular", "nearly dependent"])
@pytest.mark.parametrize("dtype", "fd")
def test_other_columns_are_reflected_one_by_one(cp, kind, dtype):
    a = drawn(100, WIDTH, dtype)
    if kind == "dependent":
        a[:, 20] = a[:, 3]
    elif kind == "zero":
        a[:, 7] = 0
    elif kind == "nan":
        a[50, 5] = np.nan
    elif kind == "triangular":
        a = np.triu(a)
    else:
        a[:, 31] = a[:, 30] * (1 + 2 * unit(dtype) ** 0.5 * a[:, 31])
    found, expected = (factored(cp, a, by_products=way) for way in (True, False))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("angle", [0, 0.1, 0.15, 0.2])
@pytest.mark.parametrize("least", [1, 1e-12, 1e-17])
@pytest.mark.parametrize("dtype", "fd")
def test_nearly_orthogonal_columns_of_any_norm(cp, angle, least, dtype):
    """Angles of 0.1 take one pass and 0.15 two, and so do norms of 1e-17 in float32."""
    generator = np.random.default_rng(7)
    q = np.linalg.qr(generator.standard_normal((120, WIDTH)))[0]
    a = (q + angle * q[:, :1]) * np.geomspace(1, least, WIDTH)
    check(a.astype(dtype), factored(cp, a.astype(dtype)))


@pytest.mark.parametrize("condition", [1e3, 1e6])
def test_ill_conditioned_and_graded_columns(cp, condition):
    generator = np.random.default_rng(5)
    q = np.linalg.qr(generator.standard_normal((120, WIDTH)))[0]
    p = np.linalg.qr(generator.standard_normal((WIDTH, WIDTH)))[0]
    scales = np.geomspace(1, 1 / condition, WIDTH)
    a = (q * scales) @ p * np.geomspace(1e-100, 1e100, WIDTH)
    found = factored(cp, a)
    check(a, found)
    assert (found[0] != factored(cp, a, by_products=False)[0]).any()


def reflected(cp, a):
    """Return S R, V, T and tau of all columns from the kernels that do not divide by W, or None."""
    n, dtype = a.shape[1], a.dtype
    gram = a.T @ a
    top, products, factor = cp.array(a[:n]), cp.array(gram), cp.array(np.linalg.cholesky(gram))
    v, w, t = cp.full((n, n), cp.nan, dtype), cp.empty((n, n), dtype), cp.zeros((n, n), dtype)
    flag, tau = cp.full(1, 7, "uint32"), cp.zeros(n, dtype)
    places = [each.data.ptr for each in (top, products, factor, v, w)]
    launch = load(QR_TOP, dtype, n * 4, rows=n // 32, groups=n // 8)
    launch((1, 1), *(word for place in places for word in (place, n)), flag.data.ptr)
    if not flag.get()[0]:
        assert (top.get() == a[:n]).all()
        assert cp.isnan(v).all()
        return None
    below = np.linalg.solve(np.triu(w.get()).T, a[n:].T).T
    whole = np.vstack([v.get(), below])
    products = cp.array(whole.T @ whole)
    at = [each.data.ptr for each in (products, t, flag, tau)]
    load(REFLECTOR, dtype, 256, width=WIDTH, most=n // WIDTH)(
        (1, 1), at[0], n, 0, at[1], n, 0, at[2], at[3], n, 0
    )
    packed = np.tril(whole, -1)
    packed[:n] += top.get()
    return packed, whole, t.get(), tau.get()


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("n", [128, *swept(64, width=1)])
@pytest.mark.parametrize("dtype", "fd")
def test_reflections_from_the_first_rows(cp, n, dtype):
    a = drawn(700, n, dtype)
    check(a, reflected(cp, a))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ill-conditioned", "triangular"])
def test_columns_whose_reflections_the_first_rows_do_not_give(cp, kind):
    a = drawn(700, 128)
    if kind == "triangular":
        a = np.triu(a) + 20 * np.eye(700, 128)
    else:
        a[:, 77] = a[:, 3] + 1e-4 * a[:, 77]
    assert reflected(cp, a) is None


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
def test_launches_that_stand_by(cp, is_done):
    whole = drawn(90, 40)
    half = range(40)
    a = copied(cp.array(whole)[None], whole.dtype)
    v, t = zeros(1, 90, 40, a.dtype), zeros(1, 40, 40, a.dtype)
    tau, flag = cp.zeros((1, 40)), cp.array([is_done], "uint32")
    max_cluster = 1
    shape = blocks.panel_blocks(90, a.dtype, max_cluster, 32)
    workspace = Workspace(shape, 40, 8, batches=1)
    blocks.factor_blocks(a, tau, v, t, 0, half, workspace, flag.data.ptr)
    if is_done:
        assert (a.view.get() == whole).all()
        assert not v.view.get().any()
        assert not tau.get().any()
    else:
        expected = np.linalg.qr(whole, mode="r")
        np.testing.assert_allclose(np.triu(a.view[0, :40].get()), expected, rtol=0, atol=1e-12)
