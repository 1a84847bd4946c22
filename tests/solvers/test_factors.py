"""SciPy's factorisations and the solutions with them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from tests.solvers.conftest import assert_like
from tests.solvers.test_systems import MOST_TYPES, TYPES, definite, well_conditioned
from tests.tables import swept


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["f", "d", *swept("F", "D")])
@pytest.mark.parametrize(("m", "n"), [(7, 7), (20, 9), (9, 20), (33, 34)])
def test_lu_factor(cp, draw, dtype, m, n):
    a = draw((m, n), dtype)
    expected, expected_pivots = scipy.linalg.lu_factor(a)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    assert_like(lu, expected, factor=2000)
    assert pivots.dtype == np.int32
    assert (pivots.get() == expected_pivots).all()


@pytest.mark.slow
@pytest.mark.one_in(10)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("trans", [0, 1, 2])
def test_lu_solve(cp, draw, dtype, trans):
    a, b = well_conditioned(draw, (11, 11), dtype), draw((11, 3), dtype)
    expected = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans=trans)
    factors = linalg.lu_factor(cp.asarray(a))
    assert_like(linalg.lu_solve(factors, cp.asarray(b), trans=trans), expected)
    expected = scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b[:, 0], trans=trans)
    assert_like(linalg.lu_solve(factors, cp.asarray(b[:, 0]), trans=trans), expected)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_no_right_hand_sides(cp, trans):
    a, none = cp.eye(3) * 4, cp.zeros((3, 0))
    assert linalg.lu_solve(linalg.lu_factor(a), none, trans).shape == (3, 0)
    assert linalg.cho_solve(linalg.cho_factor(a), none).shape == (3, 0)
    assert linalg.solve_triangular(a, none, trans).shape == (3, 0)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("n", [128, 130])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operands_stay_and_may_be_views(cp, draw, dtype, n):
    """Matrices whose rows are aligned are read in place."""
    every_other = cp.asarray(draw((2 * n, 2 * n), dtype))[::2, ::2] + 4 * n * cp.eye(n, dtype=dtype)
    wide = cp.zeros((n, 2 * n), dtype)
    wide[:, ::2] = every_other + every_other.T
    b = cp.asarray(draw((n, 20), dtype))
    for matrix in (
        wide[:, ::2],
        cp.ascontiguousarray(wide[:, ::2]),
        cp.asfortranarray(every_other),
    ):
        a, right = matrix.get(), b.get()
        x = linalg.solve_triangular(matrix, b, lower=True)
        assert_like(x, scipy.linalg.solve_triangular(a, right, lower=True))
        definite_matrix = a + a.T
        assert_like(linalg.cholesky(matrix + matrix.T), np.linalg.cholesky(definite_matrix))
        assert (matrix.get() == a).all()
        assert (b.get() == right).all()


def test_one_factorisation_serves_a_stack(cp, draw):
    a, b = draw((5, 5)), draw((3, 5, 2))
    factors = linalg.lu_factor(cp.asarray(a))
    assert_like(linalg.lu_solve(factors, cp.asarray(b)), np.linalg.solve(a, b), factor=2000)
    many = draw((3, 5, 5))
    factors = linalg.lu_factor(cp.asarray(many))
    for right in (b, b[0]):
        got = linalg.lu_solve(factors, cp.asarray(right))
        assert_like(got, np.linalg.solve(many, right), factor=2000)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["d", pytest.param("D", marks=pytest.mark.sweep)])
def test_lu_in_small_blocks(cp, draw, small_blocks, dtype):
    """37 rows are more than the threads of a panel, two blocks of columns, and a part of one."""
    a, b = draw((2, 37, 37), dtype), draw((2, 37, 9), dtype)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    for i in range(2):
        expected, expected_pivots = scipy.linalg.lu_factor(a[i])
        assert (pivots[i].get() == expected_pivots).all()
        assert_like(lu[i], expected, factor=2000)
    for trans, matrix in ((0, a), (2, a.conj().swapaxes(-1, -2))):
        got = linalg.lu_solve((lu, pivots), cp.asarray(b), trans=trans)
        assert_like(got, np.linalg.solve(matrix, b), factor=20000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "dtype"), [(6, "int64"), (6, "uint8"), (6, "float64"), (300, "int32")]
)
def test_pivots_of_any_order_and_type(cp, draw, n, dtype):
    """Rows may be swapped with earlier ones, even of another block, unlike in `lu_factor`."""
    lu, b = draw((n, n)) / n + np.eye(n), draw((n, 2))
    pivots = np.random.default_rng(n).integers(0, n, n).astype(dtype)
    for trans in (0, 1):
        expected = scipy.linalg.lu_solve((lu, pivots), b, trans)
        got = linalg.lu_solve((cp.asarray(lu), cp.asarray(pivots)), cp.asarray(b), trans)
        assert_like(got, expected, factor=2000)


@pytest.mark.parametrize("wrong", [-1, 3, 1 << 30, 1 << 32])
def test_pivots_that_are_no_rows(cp, wrong):
    pivots = cp.asarray([[0, 1, 2], [0, wrong, 2]])
    factors = (cp.stack([cp.eye(3), 2 * cp.eye(3)]), pivots)
    b = cp.asarray([[1.0], [2.0], [3.0]])
    with pytest.raises(ValueError, match="lu_solve: piv has a pivot that is no row of the matrix"):
        linalg.lu_solve(factors, b)
    got = linalg.lu_solve(factors, b, check_finite=False)  # the device is not queried
    assert got.get()[..., 0].tolist() == [[1, 2, 3], [0.5, 1, 1.5]]


def test_pivots_of_ties_and_of_zeros(cp):
    a = np.array([[1.0, 2, 3], [-1, 1, 1], [1, 5, 2]])
    assert linalg.lu_factor(cp.asarray(a))[1].get().tolist() == [0, 1, 2]
    with pytest.warns(RuntimeWarning, match="Diagonal number 2 is exactly zero"):
        lu, pivots = linalg.lu_factor(cp.ones((3, 3)))
    assert lu.get().tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert pivots.get().tolist() == [0, 1, 2]


@pytest.mark.slow
def test_pivots_that_differ_in_their_last_bits(cp):
    """A column has 25 elements with the same high word, and no update changes them."""
    rng = np.random.default_rng(0)
    m, n = 300, 12
    rows = np.arange(m)
    a = np.zeros((m, n))
    a[rows, rows % n] = (1 + rng.integers(0, 8, m) * 2.0**-50) * rng.choice([-1, 1], m)
    expected, expected_pivots = scipy.linalg.lu_factor(a)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    assert (pivots.get() == expected_pivots).all()
    assert_like(lu, expected)


def test_tiny_and_huge_pivots(cp):
    """The reciprocal of a subnormal number overflows."""
    a = np.array([[3e-310, 1], [1.5e-310, 2]])
    assert_like(linalg.lu_factor(cp.asarray(a))[0], np.array([[3e-310, 1], [0.5, 1.5]]))
    a = np.array([[1e300, 1e300], [5e299, -1e300]])
    assert_like(linalg.lu_factor(cp.asarray(a))[0], scipy.linalg.lu_factor(a)[0])


@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", MOST_TYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky(cp, draw, dtype, lower):
    a, b = definite(draw, (12, 12), dtype), draw((12, 3), dtype)
    c, got_lower = linalg.cho_factor(cp.asarray(a), lower=lower)
    assert got_lower is lower
    factor = np.linalg.cholesky(a, upper=not lower)
    assert_like(c, factor)
    expected = scipy.linalg.cho_solve(scipy.linalg.cho_factor(a, lower=lower), b)
    assert_like(linalg.cho_solve((c, lower), cp.asarray(b)), expected, factor=20000)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("dtype", MOST_TYPES)
@pytest.mark.parametrize("trans", ["N", "T", "C"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("columns", [1, 9])
def test_solve_triangular(cp, draw, dtype, trans, lower, columns):
    a, b = well_conditioned(draw, (10, 10), dtype), draw((10, columns), dtype)
    for unit in (False, True):
        expected = scipy.linalg.solve_triangular(a, b, trans, lower, unit_diagonal=unit)
        got = linalg.solve_triangular(cp.asarray(a), cp.asarray(b), trans, lower, unit)
        assert_like(got, expected, factor=2000)


@pytest.mark.slow
@pytest.mark.one_in(5)
@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("lower", [False, True])
def test_triangles_in_small_blocks(cp, draw, small_blocks, trans, lower):
    a = draw((2, 37, 37), "D") / 37 + 2 * np.eye(37)
    for columns in (1, 10):
        b = draw((2, 37, columns), "D")
        got = linalg.solve_triangular(cp.asarray(a), cp.asarray(b), trans, lower)
        triangle = np.tril(a) if lower else np.triu(a)
        triangle = (
            triangle if trans == 0 else (triangle.conj() if trans == 2 else triangle)
        ).swapaxes(-1, -2 if trans else -1)
        assert_like(got, np.linalg.solve(triangle, b), factor=2000)


def test_errors(cp):
    square = cp.eye(3)
    with pytest.raises(ValueError, match="infs or NaNs"):
        linalg.lu_factor(square * cp.inf)
    with pytest.raises(ValueError, match="trans is 3"):
        linalg.lu_solve(linalg.lu_factor(square), square, trans=3)
    with pytest.raises(np.linalg.LinAlgError, match="resolution failed at diagonal 1"):
        linalg.solve_triangular(cp.asarray(np.diag([1.0, 0.0, 1.0])), square)
    several = cp.asarray(np.diag(np.arange(200) % 90 != 70).astype(float))  # zeros at 70 and 160
    with pytest.raises(np.linalg.LinAlgError, match="resolution failed at diagonal 70"):
        linalg.solve_triangular(several, several)
    stack = cp.stack([cp.eye(5), cp.diag(cp.asarray([1.0, 1, 1, 0, 0])), cp.eye(5)])
    with pytest.raises(np.linalg.LinAlgError, match="resolution failed at diagonal 3"):
        linalg.solve_triangular(stack, stack)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        linalg.cho_factor(-square)
    with pytest.raises(ValueError, match="must have 3 rows"):
        linalg.cho_solve((square, True), cp.ones((2, 2)))
    with pytest.raises(TypeError, match=r"c_and_lower is a cupy\.ndarray; pass the pair"):
        linalg.cho_solve(square, square)
    with pytest.raises(TypeError, match="lu_and_piv is a tuple of 1; pass the pair that lu_factor"):
        linalg.lu_solve((square,), square)
    with pytest.raises(ValueError, match="piv must have shape"):
        linalg.lu_solve((square, cp.zeros(2, "int32")), square)


# SciPy warns from version 1.18 on.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Calling .* with arguments of dtype:DeprecationWarning")
@pytest.mark.parametrize("dtype", ["float16", "bool", "int8", "uint16", "int32"])
def test_types_are_those_of_scipy(cp, dtype):
    """Types of at most 16 bits are factored in float32, and wide integers in float64."""
    a = np.array([[3, 1], [1, 2]], dtype) if dtype != "bool" else np.eye(2, dtype=bool)
    on_device = cp.asarray(a)
    lu, _ = linalg.lu_factor(on_device)
    assert_like(lu, scipy.linalg.lu_factor(a)[0])
    factor = linalg.cho_factor(on_device)
    assert factor[0].dtype == scipy.linalg.cho_factor(a)[0].dtype
    assert_like(
        linalg.cho_solve(factor, on_device), scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), a)
    )
    assert_like(linalg.solve_triangular(on_device, on_device), scipy.linalg.solve_triangular(a, a))
