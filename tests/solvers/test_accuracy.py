"""Backward errors on matrices that are hard to factor, compared with SciPy's.

Each bound is ten times n units of roundoff, relative to the norms in the algorithm's analysis: for
LU that is |L| |U|, which includes growth.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from tests.solvers.conftest import unit

N = 24
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Diagonal number"),
    pytest.mark.filterwarnings("ignore:An ill-conditioned matrix"),
]


def kahan(n, theta=1.2):
    s, c = np.sin(theta), np.cos(theta)
    return np.diag(s ** np.arange(n)) @ (np.eye(n) - c * np.triu(np.ones((n, n)), 1))


def wilkinson(n):
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    return a


def random(n):
    return np.random.default_rng(5).standard_normal((n, n))


def singular(n):
    a = random(n)
    a[:, 3] = a[:, 7]
    a[5] = 0
    return a


MATRICES = {
    "random": random,
    "graded": lambda n: np.diag(10.0 ** -np.arange(n / 4, step=0.25)) @ random(n),
    "graded columns": lambda n: random(n) * 10.0 ** -np.arange(n / 4, step=0.25),
    "Hilbert": scipy.linalg.hilbert,
    "Kahan": kahan,
    "Wilkinson": wilkinson,
    "singular": singular,
    "nearly singular": lambda n: random(n)[:, :2] @ random(n)[:2] + 1e-13 * random(n),
}
SMALL_OR_NOT = pytest.mark.parametrize("blocks", ["whole", "small"])


@pytest.fixture
def matrix(request):
    return MATRICES[request.param](N)


every_matrix = pytest.mark.parametrize("matrix", MATRICES, indirect=True)


def norm(a):
    return float(np.abs(a).sum(axis=1).max())


@pytest.mark.slow
@pytest.mark.one_in(7)
@every_matrix
@SMALL_OR_NOT
def test_lu(cp, request, matrix, blocks):
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    for dtype in "fd":
        a = matrix.astype(dtype)
        lu, pivots = (x.get() for x in linalg.lu_factor(cp.asarray(a)))
        error, growth = lu_error(a, lu, pivots)
        reference, reference_growth = lu_error(a, *scipy.linalg.lu_factor(a))
        bound = 10 * N * unit(dtype)
        assert error <= max(bound, 2 * reference)
        assert growth <= 2 * reference_growth


def lu_error(a, lu, pivots):
    """Return the error of P A = L U relative to |L| |U|, and the growth of elements."""
    order = np.arange(len(a))
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    lower = np.tril(lu.astype("d"), -1) + np.eye(len(a))
    upper = np.triu(lu.astype("d"))
    error = norm(a[order] - lower @ upper) / norm(np.abs(lower) @ np.abs(upper))
    return error, np.abs(upper).max() / np.abs(a).max()


@pytest.mark.one_in(6)
@every_matrix
def test_solve(cp, matrix):
    for dtype in "fd":
        a = matrix.astype(dtype)
        b = np.random.default_rng(6).standard_normal((N, 2)).astype(dtype)
        try:
            expected = scipy.linalg.solve(a, b, assume_a="gen")
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError):
                linalg.solve(cp.asarray(a), cp.asarray(b))
            continue
        got = linalg.solve(cp.asarray(a), cp.asarray(b)).get()
        bound = max(10 * N * unit(dtype), 10 * backward_error(a, expected, b))
        assert backward_error(a, got, b) <= bound


def backward_error(a, x, b):
    """Return the normwise backward error of a solution."""
    a, x, b = (each.astype("d") for each in (a, x, b))
    return norm(b - a @ x) / (norm(a) * norm(x) + norm(b))


@pytest.mark.slow
@pytest.mark.one_in(7)
@every_matrix
@SMALL_OR_NOT
def test_qr(cp, request, matrix, blocks):
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    for dtype in "fd":
        a = matrix.astype(dtype)
        q, r = (x.get().astype("d") for x in linalg.qr(cp.asarray(a)))
        bound = 10 * N * unit(dtype)
        assert norm(a - q @ r) <= bound * norm(a)
        assert norm(q.T @ q - np.eye(N)) <= bound


@pytest.mark.slow
@pytest.mark.one_in(7)
@every_matrix
@SMALL_OR_NOT
def test_cholesky(cp, request, matrix, blocks):
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    for dtype in "fd":
        shift = 10 * N * unit(dtype) * norm(matrix) ** 2
        a = (matrix @ matrix.T + shift * np.eye(N)).astype(dtype)
        lower = linalg.cholesky(cp.asarray(a)).get().astype("d")
        assert norm(a - lower @ lower.T) <= 10 * N * unit(dtype) * norm(a)


@pytest.mark.slow
@pytest.mark.one_in(6)
@every_matrix
def test_triangular_systems(cp, matrix):
    """Substitution has a small error for every triangle, however ill-conditioned."""
    for dtype in "fd":
        a = (np.triu(matrix) + np.diag(np.diag(matrix) == 0)).astype(dtype)
        b = np.random.default_rng(6).standard_normal((N, 9)).astype(dtype)
        x = linalg.solve_triangular(cp.asarray(a), cp.asarray(b), check_finite=False).get()
        a, x, b = (each.astype("d") for each in (a, x, b))
        if np.isfinite(x).all():
            assert (np.abs(b - a @ x) <= 10 * N * unit(dtype) * (np.abs(a) @ np.abs(x))).all()


@pytest.mark.slow
@pytest.mark.one_in(7)
@every_matrix
@pytest.mark.parametrize("trans", [0, 1])
def test_solutions_with_factors(cp, matrix, trans):
    """Relative to |L| |U| |x|, which includes growth; a singular matrix has no solution."""
    for dtype in "fd":
        a = matrix.astype(dtype)
        b = np.random.default_rng(6).standard_normal((N, 2)).astype(dtype)
        factors = linalg.lu_factor(cp.asarray(a))
        x = linalg.lu_solve(factors, cp.asarray(b), trans).get().astype("d")
        lu = np.abs(factors[0].get().astype("d"))
        size = (np.tril(lu, -1) + np.eye(N)) @ np.triu(lu)
        if np.isfinite(x).all():
            a = (a.T if trans else a).astype("d")
            size = size.T if trans else size
            assert norm(b - a @ x) <= 10 * N * unit(dtype) * (norm(size) * norm(x) + norm(b))


@pytest.mark.slow
@pytest.mark.one_in(6)
@every_matrix
def test_solutions_of_definite_systems(cp, matrix):
    for dtype in "fd":
        shift = 10 * N * unit(dtype) * norm(matrix) ** 2
        a = (matrix @ matrix.T + shift * np.eye(N)).astype(dtype)
        b = np.random.default_rng(6).standard_normal((N, 2)).astype(dtype)
        x = linalg.cho_solve(linalg.cho_factor(cp.asarray(a)), cp.asarray(b)).get()
        y = linalg.solve(cp.asarray(a), cp.asarray(b), assume_a="pos").get()
        assert max(backward_error(a, each, b) for each in (x, y)) <= 10 * N * unit(dtype)


@pytest.mark.slow
@pytest.mark.one_in(8)
@every_matrix
def test_inverses(cp, matrix):
    """Each column solves a system, with a backward error as small as that of SciPy's."""
    for dtype in "fd":
        a = matrix.astype(dtype)
        try:
            expected = scipy.linalg.inv(a)
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError):
                linalg.inv(cp.asarray(a))
            continue
        got = linalg.inv(cp.asarray(a)).get()
        reference = inverse_error(a, expected)
        assert inverse_error(a, got) <= max(10 * N * unit(dtype), 10 * reference)


def inverse_error(a, x):
    """Return the smaller residual, relative to the norms: no method makes both small."""
    a, x = a.astype("d"), x.astype("d")
    residuals = norm(a @ x - np.eye(len(a))), norm(x @ a - np.eye(len(a)))
    return min(residuals) / (norm(a) * norm(x))


@every_matrix
@SMALL_OR_NOT
def test_determinants(cp, request, matrix, blocks):
    """The determinant is that of a matrix as near as the factors', whose pivots are multiplied."""
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    for dtype in "fd":
        a = cp.asarray(matrix.astype(dtype))
        lu, pivots = (each.get() for each in linalg.lu_factor(a))
        diagonal = np.diag(lu).astype("g")
        expected = (-1) ** (pivots != np.arange(N)).sum() * diagonal.prod()
        smallest = float(np.finfo(dtype).smallest_subnormal)
        error = abs(float(linalg.det(a)) - expected)
        assert error <= 2 * N * unit(dtype) * abs(expected) + smallest
        sign, log = linalg.slogdet(a)
        assert float(sign) == np.sign(expected)
        if expected == 0:
            assert float(log) == -np.inf
            continue
        logs = np.log(np.abs(diagonal))
        assert abs(float(log) - logs.sum()) <= 2 * N * unit(dtype) * np.abs(logs).sum()


@pytest.mark.slow
@pytest.mark.one_in(7)
@every_matrix
@pytest.mark.parametrize("columns", [N, N - 7])
def test_least_squares(cp, matrix, columns):
    for dtype in "fd":
        a = matrix[:, :columns].astype(dtype)
        b = np.random.default_rng(6).standard_normal(N).astype(dtype)
        x = linalg.lstsq(cp.asarray(a), cp.asarray(b))[0].get()
        expected = np.linalg.lstsq(a, b, rcond=None)[0]
        bound = max(10 * N * unit(dtype), 2 * least_squares_error(a, expected, b))
        assert least_squares_error(a, x, b) <= bound


def least_squares_error(a, x, b):
    """Return the normwise backward error relative to A (Walden, Karlson and Sun, 1995)."""
    a, x, b = (each.astype("d") for each in (a, x, b))
    r = b - a @ x
    of_system = np.linalg.norm(r) / np.linalg.norm(x)  # solves it with this error of A
    others = np.eye(N) - np.outer(r, r) / (r @ r)
    singular_values = np.linalg.svd(np.hstack([a, of_system * others]), compute_uv=False)
    return min(of_system, singular_values[-1]) / np.linalg.norm(a)


@pytest.mark.slow
@pytest.mark.one_in(6)
@every_matrix
def test_pseudo_inverses(cp, matrix):
    """A X A = A, relative to the norms, with singular values below 10 n u cut off."""
    for dtype in "fd":
        a, cutoff = matrix.astype(dtype), 10 * N * unit(dtype)
        x = linalg.pinv(cp.asarray(a), rcond=cutoff).get().astype("d")
        expected = np.linalg.pinv(a, rcond=cutoff).astype("d")
        a = a.astype("d")
        error, reference = (norm(a @ y @ a - a) / norm(a) for y in (x, expected))
        scale = norm(a) * norm(x)
        assert error <= max(10 * N * unit(dtype) * scale, 2 * reference)
