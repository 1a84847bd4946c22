"""Solvers on a GPU: panels of one thread block and of clusters, and look-ahead on two streams."""

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers.common.products import subtract_product, usual

ORDERS = [300, 700, 1500, 2500, 5000]
"""Panels of 1, 4, 8, 16 and 16 thread blocks with one or two rows for each thread."""


def unit(dtype):
    return float(np.finfo(dtype).eps) / 2


def drawn(cp, m, n, dtype):
    a = cp.random.default_rng(3).standard_normal((m, n))
    if np.dtype(dtype).kind == "c":
        a = a + 1j * cp.random.default_rng(4).standard_normal((m, n))
    return a.astype(dtype)


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("n", ORDERS)
def test_systems_of_every_panel(cp, n, dtype):
    a, b = drawn(cp, n, n, dtype), drawn(cp, n, 3, dtype)
    x = linalg.solve(a, b)
    error = abs(a @ x - b).max() / (abs(a).sum(axis=1).max() * abs(x).max())
    assert error <= 10 * n * unit(dtype)


@pytest.mark.parametrize("columns", [64, 61])
@pytest.mark.parametrize("k", [32, 256, 700])
def test_updates_by_small_products(cp, k, columns):
    """One tf32 term of each number would give errors of 0.004 and more."""
    a, b, c = (drawn(cp, *shape, "f") for shape in ((300, k), (k, columns), (300, columns)))
    expected = c.astype("d") - a.astype("d") @ b.astype("d")
    subtract_product(a, b, c, usual(c.dtype))
    assert abs(c - expected).max() < 2e-4


@pytest.mark.parametrize("dtype", "fdFD")
def test_factors_of_a_definite_matrix(cp, dtype):
    a = drawn(cp, 2500, 2500, dtype)
    a = a @ a.conj().T / 2500 + cp.eye(2500, dtype=dtype)
    factor = linalg.cholesky(a)
    assert abs(factor @ factor.conj().T - a).max() <= 10 * 2500 * unit(dtype) * abs(a).max()


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("n", [17, 48, 63, 96, 128])
def test_factors_of_a_stack(cp, n, dtype):
    a = drawn(cp, 300 * n, n, dtype).reshape(300, n, n)
    a = a @ a.swapaxes(-1, -2) / n + cp.eye(n, dtype=dtype)
    factors = linalg.cholesky(a)
    assert abs(factors @ factors.swapaxes(-1, -2) - a).max() <= 10 * n * unit(dtype) * abs(a).max()
    assert not cp.triu(factors, 1).any()
    a[170, n - 1, n - 1] = -1
    with pytest.raises(np.linalg.LinAlgError, match=f"minor of order {n} is not"):
        linalg.cholesky(a)


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("shape", [(2500, 2000), (700, 900)])
def test_orthogonal_factors(cp, shape, dtype):
    a = drawn(cp, *shape, dtype)
    q, r = linalg.qr(a)
    bound = 10 * max(shape) * unit(dtype)
    assert abs(q @ r - a).max() <= bound * abs(a).max()
    assert abs(q.conj().T @ q - cp.eye(q.shape[1])).max() <= bound


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("n", [1024, 2048, 4096])
def test_errors_of_orthogonal_factors_have_either_sign(cp, n, dtype):
    """The errors of n reflections then grow like the square root of n; of one sign, like n.

    At most 1.3 sqrt(n) units were measured. Sums that are truncated rather than rounded made
    columns shorter, by up to 9 sqrt(n).
    """
    q, _ = linalg.qr(drawn(cp, n, n, dtype))
    q = q.astype("d")
    assert abs(q.T @ q - cp.eye(n)).max() <= 3 * n**0.5 * unit(dtype)


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize("m", [600, 1000, 2000, 4000, 8000, 12000])
def test_blocks_that_a_cluster_factors_by_products(cp, m, dtype):
    """Of 2, 4, 8 and 16 thread blocks, with up to four rows for each thread."""
    a = drawn(cp, m, 96, dtype)
    check_orthogonal(cp, a, *linalg.qr(a))


@pytest.mark.parametrize("kind", ["dependent", "zero", "triangular", "graded", "nearly dependent"])
@pytest.mark.parametrize("m", [1000, 6000])
def test_blocks_whose_products_are_not_accurate(cp, m, kind):
    a = drawn(cp, m, 96, "d")
    if kind == "dependent":
        a[:, 40] = a[:, 35]
    elif kind == "zero":
        a[:, 7] = 0
    elif kind == "triangular":
        a = cp.triu(a)
    elif kind == "graded":
        a *= 10.0 ** cp.linspace(-60, 60, 96)
    else:
        a[:, 32:] = a[:, :1] + 1e-9 * a[:, 32:]
    q, r = linalg.qr(a)
    check_orthogonal(cp, a, q, r)
    if kind == "triangular":
        assert (r == a[:96]).all()


@pytest.mark.parametrize("dtype", "fd")
@pytest.mark.parametrize(
    "kind", ["random", "columns", "rows", "dependent", "zero", "triangular", "nearly dependent"]
)
def test_halves_of_panels(cp, dtype, kind):
    """They are factored at once, or block by block where that would not be accurate."""
    n = 700
    a = drawn(cp, 2000, n, dtype)
    if kind == "columns":
        a *= (2.0 ** cp.linspace(0, -60, n)).astype(dtype)
    elif kind == "rows":
        a *= (2.0 ** cp.linspace(0, -60, len(a))).astype(dtype)[:, None]
    elif kind == "dependent":
        a[:, 400] = a[:, 390]
    elif kind == "zero":
        a[:, 130] = 0
    elif kind == "triangular":
        a = cp.triu(a)
    elif kind == "nearly dependent":
        a[:, 1:] = a[:, :1] + a.dtype.type(1e-3) * a[:, 1:]
    q, r = linalg.qr(a)
    check_orthogonal(cp, a, q, r)
    assert not cp.tril(r, -1).any()
    if kind == "triangular":
        assert (r == a[:n]).all()


@pytest.mark.parametrize("dtype", "fd")
def test_reflections_of_halves_are_those_of_lapack(cp, dtype):
    a = drawn(cp, 1500, 640, dtype)
    found = linalg.qr(a, mode="raw")
    expected = np.linalg.qr(a.get().astype("d"), mode="raw")
    for one, other in zip(found, expected, strict=True):
        tolerance = 10 * len(a) * unit(dtype) * abs(other).max()
        np.testing.assert_allclose(one.get(), other, rtol=0, atol=tolerance)


def check_orthogonal(cp, a, q, r):
    bound = 10 * len(a) * unit(a.dtype)
    scale = cp.linalg.norm(a, axis=0)
    assert (abs(q @ r - a) <= bound * scale).all()
    assert abs(q.T @ q - cp.eye(q.shape[1])).max() <= bound


@pytest.mark.parametrize("kind", ["random", "graded", "nearly dependent"])
def test_wide_products_of_float32(cp, kind):
    """By tf32 terms: they are as exact as sums in float32."""
    a = drawn(cp, 2500, 2000, "f")
    if kind == "graded":
        a *= (2.0 ** cp.linspace(0, -60, 2000)).astype("f")
    elif kind == "nearly dependent":
        a[:, 1:] = a[:, :1] + cp.float32(1e-3) * a[:, 1:]
    check_orthogonal(cp, a, *linalg.qr(a))


@pytest.mark.parametrize("dtype", "fd")
def test_the_same_bits_each_time(cp, dtype):
    a = drawn(cp, 3000, 3000, dtype)
    for factor in (linalg.lu_factor, linalg.qr):
        first = factor(a)[0]
        for _ in range(3):  # a graph computes some of them
            assert (factor(a)[0] == first).all()


@pytest.mark.parametrize("dtype", "fd")
def test_repeated_factorisations_of_other_matrices(cp, dtype):
    matrices = [drawn(cp, 1300, 1100, dtype) * (number + 1) for number in range(5)]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    cp.cuda.Device().synchronize()
    found = []
    for number, a in enumerate(matrices):
        with streams[number == 3]:
            found.append(linalg.qr(a))
    cp.cuda.Device().synchronize()
    for a, (q, r) in zip(matrices, found, strict=True):
        check_orthogonal(cp, a, q, r)
