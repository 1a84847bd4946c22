"""`cholesky`, `solve`, `inv`, `det` and `slogdet` against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from tests.solvers.conftest import assert_like
from tests.tables import swept

TYPES = "fdFD"
# `make test` leaves complex128 to tests of inverses, least squares and structures.
MOST_TYPES = ["f", "d", "F", *swept("D")]


def well_conditioned(draw, shape, dtype):
    return draw(shape, dtype) + 4 * np.eye(shape[-1], dtype=dtype)


def definite(draw, shape, dtype):
    a = draw(shape, dtype)
    return a @ a.conj().swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype)


@pytest.mark.covering
@pytest.mark.parametrize("dtype", MOST_TYPES)
@pytest.mark.parametrize("n", [1, 19])
def test_solve(cp, draw, dtype, n):
    a, b = well_conditioned(draw, (n, n), dtype), draw((n, 3), dtype)
    got = linalg.solve(cp.asarray(a), cp.asarray(b))
    assert_like(got, np.linalg.solve(a, b))
    got = linalg.solve(cp.asarray(a), cp.asarray(b[:, 0]))
    assert_like(got, np.linalg.solve(a, b[:, 0]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", TYPES)
def test_inverse_and_determinant(cp, draw, dtype):
    a = well_conditioned(draw, (2, 9, 9), dtype)
    x = cp.asarray(a)
    assert_like(linalg.inv(x), np.linalg.inv(a))
    assert_like(linalg.det(x), np.linalg.det(a))
    for got, expected in zip(linalg.slogdet(x), np.linalg.slogdet(a), strict=True):
        assert_like(got, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_cholesky(cp, draw, dtype):
    a = definite(draw, (2, 13, 13), dtype)
    lower = np.tril(a) + 7 * np.triu(np.ones((13, 13), dtype), 1)  # the rest is not read
    assert_like(linalg.cholesky(cp.asarray(lower)), np.linalg.cholesky(a))
    got = linalg.cholesky(cp.asarray(lower.conj().swapaxes(-1, -2)), upper=True)
    assert_like(got, np.linalg.cholesky(a, upper=True))


@pytest.mark.parametrize(
    ("shape", "rhs"),
    [((3, 1, 5, 5), (2, 5, 4)), ((5, 5), (2, 3, 5, 2)), ((2, 5, 5), (5,)), ((1, 5, 5), (3, 5, 1))],
)
def test_leading_axes_broadcast(cp, draw, shape, rhs):
    a, b = well_conditioned(draw, shape, "d"), draw(rhs)
    assert_like(linalg.solve(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a, b))


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((0, 0), (0, 2)), ((0, 3, 3), (0, 3, 2)), ((3, 3), (3, 0))]
)
def test_empty_operands(cp, a_shape, b_shape):
    a, b = np.broadcast_to(np.eye(a_shape[-1]), a_shape), np.ones(b_shape)
    assert_like(linalg.solve(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a + 0, b))
    if a.size == 0:
        x = cp.asarray(a)
        assert_like(linalg.inv(x), np.linalg.inv(a))
        assert_like(linalg.det(x), np.linalg.det(a))
        assert_like(linalg.slogdet(x)[1], np.linalg.slogdet(a)[1])
        assert_like(linalg.cholesky(x), np.linalg.cholesky(a))


def test_strides_and_operands_are_kept(cp, draw):
    x = cp.asarray(well_conditioned(draw, (14, 14), "d"))
    columns = cp.ascontiguousarray(x.T).T
    for a in (columns, x[::2, ::2], x[::-1, ::-1], x.T):
        b = cp.asarray(draw((a.shape[0], 6)))[:, ::3]
        before = a.get(), b.get()
        got = linalg.solve(a, b, overwrite_a=True, overwrite_b=True)
        assert_like(got, np.linalg.solve(*before))
        assert (a.get() == before[0]).all()
        assert (b.get() == before[1]).all()


@pytest.mark.parametrize("kind", ["int32", "bool", "uint8"])
def test_integers_are_solved_in_float64(cp, kind):
    a = np.array([[2, 1], [0, 3]], kind)
    b = np.array([1, 1], kind)
    if kind == "bool":
        a = np.array([[1, 1], [0, 1]], kind)
    assert_like(linalg.solve(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a, b))
    assert_like(linalg.det(cp.asarray(a)), np.linalg.det(a))


def test_types_promote_as_numpys(cp, draw):
    a, b = well_conditioned(draw, (4, 4), "f"), draw((4, 2), "F")
    assert_like(linalg.solve(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a, b))
    b = draw((4, 2), "d")
    assert_like(linalg.solve(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a, b))


def test_float16_is_refused_as_by_numpy(cp):
    with pytest.raises(TypeError, match="takes no float16"):
        linalg.inv(cp.ones((2, 2), "float16"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "assume", ["pos", "sym", "her", "upper triangular", "lower triangular", "diagonal", "gen"]
)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_structures(cp, draw, assume, lower, transposed):
    dtype = "d" if transposed else "D"  # SciPy transposes real matrices only
    a = definite(draw, (6, 6), dtype)
    if assume == "sym":
        a = a + a.T
    b = draw((6, 2), dtype)
    keep = {"diagonal": np.eye(6)}.get(assume, 1)
    keep = np.tri(6) if "lower" in assume else np.tri(6).T if "upper" in assume else keep
    a = a * keep
    expected = scipy.linalg.solve(a, b, lower=lower, assume_a=assume, transposed=transposed)
    got = linalg.solve(
        cp.asarray(a), cp.asarray(b), lower=lower, assume_a=assume, transposed=transposed
    )
    assert_like(got, expected, factor=2000)


SINGULAR = r"Singular matrix \(number 1 of the stack\): it is exactly singular, as pivot 1 is zero"


@pytest.mark.parametrize("function", [linalg.solve, linalg.inv])
def test_singular_matrices(cp, function):
    a = np.ones((2, 3, 3))
    a[0] = np.eye(3)
    x = cp.asarray(a)
    with pytest.raises(np.linalg.LinAlgError, match=SINGULAR):
        function(x) if function is linalg.inv else function(x, x)
    assert_like(linalg.det(x), np.linalg.det(a))
    sign, log = linalg.slogdet(x)
    assert_like(sign, [1.0, 0.0])
    assert log.get().tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 0.0, -0.0])
@pytest.mark.parametrize("dtype", "fd")
def test_slogdet_of_infinities_and_nan(cp, value, dtype):
    a = np.diag([-3.0, value]).astype(dtype)
    with np.errstate(invalid="ignore"):
        numpys = np.linalg.slogdet(a)
    for got, expected in zip(linalg.slogdet(cp.asarray(a)), numpys, strict=True):
        assert got.get().tolist() == pytest.approx(float(expected), nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", "fdFD")
def test_only_the_determinant_itself_overflows_or_underflows(cp, dtype):
    large = 1e30 if dtype in "fF" else 1e300
    pivots = [large, large, 1 / large, 1 / large, -3]
    for factors in (pivots, pivots[::-1], [large, 1 / large] * 20, [large, large], [1 / large] * 2):
        a = np.diag(factors).astype(dtype)
        if dtype in "FD":
            a *= 0.6 + 0.8j
        with np.errstate(over="ignore"):
            expected = np.linalg.det(a)
        np.testing.assert_allclose(linalg.det(cp.asarray(a)).get(), expected, rtol=1e-4)


def test_singular_matrices_with_no_right_hand_sides(cp):
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        linalg.solve(cp.zeros((3, 3)), cp.zeros((3, 0)))
    assert linalg.solve(cp.eye(3), cp.zeros((3, 0))).shape == (3, 0)


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (0, 2, 3)])
@pytest.mark.parametrize("dtype", ["i", "f"])
def test_the_type_of_an_empty_pseudo_inverse(cp, shape, dtype):
    expected = np.linalg.pinv(np.empty(shape, dtype))
    got = linalg.pinv(cp.empty(shape, dtype))
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("stack", [(), (2,)])
def test_solutions_are_in_c_order(cp, draw, stack):
    """Kernels of users take a pointer and expect no gaps between rows."""
    a, wide = draw((*stack, 5, 5)) + 5 * np.eye(5), cp.asarray(draw((*stack, 3, 5)))
    a, b = cp.asarray(a), cp.asarray(a[..., :3])
    definite = a @ a.swapaxes(-1, -2)
    found = {
        "solve": linalg.solve(a, b),
        "positive": linalg.solve(definite, b, assume_a="pos"),
        "triangular": linalg.solve(a, b, assume_a="upper triangular"),
        "refined": linalg.solve(a, b, precision="float32"),
        "lu_solve": linalg.lu_solve(linalg.lu_factor(a), b),
        "cho_solve": linalg.cho_solve(linalg.cho_factor(definite), b),
        "solve_triangular": linalg.solve_triangular(a, b),
        "inv": linalg.inv(a),
        "pinv": linalg.pinv(wide),
    }
    if not stack:
        found["vector"] = linalg.lu_solve(linalg.lu_factor(a), b[:, 0])
        found["lstsq"] = linalg.lstsq(wide, wide[:, 0])[0]
    assert [name for name, x in found.items() if not x.flags.c_contiguous] == []


def test_matrices_that_are_not_definite(cp):
    a = cp.asarray(np.diag([1.0, 2.0, -1.0, 3.0]))
    with pytest.raises(np.linalg.LinAlgError, match=r"not positive definite.*order 3"):
        linalg.cholesky(a)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        linalg.solve(a, a, assume_a="pos")


def test_wrong_arguments(cp):
    square, tall = cp.ones((3, 3)), cp.ones((4, 3))
    with pytest.raises(np.linalg.LinAlgError, match=r"\(4, 3\); the last two extents"):
        linalg.inv(tall)
    with pytest.raises(np.linalg.LinAlgError, match="stack of matrices"):
        linalg.det(cp.ones(3))
    with pytest.raises(ValueError, match="must have 3 rows"):
        linalg.solve(square, tall)
    with pytest.raises(ValueError, match=r"solve: .*\(2, 3, 3\) and b has shape \(4, 3, 1\)"):
        linalg.solve(cp.ones((2, 3, 3)), cp.ones((4, 3, 1)))
    with pytest.raises(ValueError, match="assume_a is 'round'"):
        linalg.solve(square, square, assume_a="round")
    with pytest.raises(ValueError, match="infs or NaNs"):
        linalg.solve(square * cp.nan, square, check_finite=True)
    with pytest.raises(TypeError, match=r"not a cupy\.ndarray"):
        linalg.solve(np.ones((2, 2)), np.ones(2))


@pytest.mark.slow
@pytest.mark.one_in(8)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("stack", [(), (2,)])
def test_every_path_in_small_blocks(cp, draw, small_blocks, dtype, stack):
    n = 45
    a, b = well_conditioned(draw, (*stack, n, n), dtype), draw((*stack, n, 11), dtype)
    x = linalg.solve(cp.asarray(a), cp.asarray(b))
    assert_like(x, np.linalg.solve(a, b), factor=3000)
    a = definite(draw, (*stack, n, n), dtype)
    assert_like(linalg.cholesky(cp.asarray(a)), np.linalg.cholesky(a), factor=3000)


def test_results_are_the_same_bits_each_time(cp, draw, small_blocks):
    a, b = cp.asarray(draw((45, 45))), cp.asarray(draw((45, 11)))
    first = linalg.solve(a, b)
    assert (linalg.solve(a, b) == first).all()


def test_a_stream(cp, draw):
    a, b = well_conditioned(draw, (9, 9), "d"), draw((9, 2))
    stream = cp.cuda.Stream(non_blocking=True)
    x, y = cp.asarray(a), cp.asarray(b)
    cp.cuda.get_current_stream().synchronize()
    got = linalg.solve(x, y, stream=stream)
    stream.synchronize()
    assert_like(got, np.linalg.solve(a, b))
