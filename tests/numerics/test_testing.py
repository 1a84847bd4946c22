"""The test helpers: bounds that hold for right products, and refuse wrong ones."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg.blas import dgemm, sgemm

from cupygemm import testing

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = map(np.dtype, ("f2", "f4", "f8"))
TYPES = pytest.mark.parametrize("dtype", [BF16, F16, F32])


@TYPES
@pytest.mark.parametrize("k", [0, 1, 7, 1000, 70000])
def test_integer_products_are_exact_in_any_order(dtype, k):
    x1, x2 = testing.integer_operands((3, k), (k, 4), dtype)
    assert x1.dtype == x2.dtype == dtype
    exact = testing.reference_matmul(x1, x2)
    forward = sgemm(1.0, x1.astype(F32), x2.astype(F32)) if k else np.zeros((3, 4))
    order = np.random.default_rng(0).permutation(k)
    shuffled = np.zeros((3, 4), F32)
    for index in order[:2000]:
        shuffled += np.outer(x1[:, index], x2[index]).astype(F32)
    np.testing.assert_array_equal(forward, exact)
    if k <= 2000:
        np.testing.assert_array_equal(shuffled, exact)
    assert not k or len(np.unique(x1)) > 1
    testing.assert_gemm_exact(exact.astype(dtype), x1, x2)


def test_integer_operands_that_cannot_be_exact():
    with pytest.raises(ValueError, match="k = 16777217"):
        testing.integer_operands((0, 2**24 + 1), (2**24 + 1, 0), F16)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "?"])
def test_integer_operands_of_integer_types(dtype):
    x1, x2 = testing.integer_operands((3, 20), (20, 4), dtype)
    assert x1.dtype == dtype
    testing.assert_gemm_exact(np.matmul(x1.astype("i8"), x2.astype("i8")), x1, x2)


def test_operands_repeat():
    for make in (testing.random_operands, testing.integer_operands):
        first, again = make((3, 4), (4, 5), BF16, seed=7), make((3, 4), (4, 5), BF16, seed=7)
        other = make((3, 4), (4, 5), BF16, seed=8)
        assert first[0].tobytes() == again[0].tobytes() != other[0].tobytes()
        assert first[1].tobytes() == again[1].tobytes() != other[1].tobytes()


@TYPES
@pytest.mark.parametrize("k", [1, 8, 129, 4096])
def test_right_products_are_close(dtype, k):
    x1, x2 = testing.random_operands((5, k), (k, 6), dtype)
    in_float32 = sgemm(1.0, x1.astype(F32), x2.astype(F32))
    for out in (dtype, F32):
        testing.assert_gemm_close(in_float32.astype(out), x1, x2)


def test_float64_is_held_to_float64():
    x1, x2 = testing.random_operands((5, 50), (50, 6), F64)
    testing.assert_gemm_close(dgemm(1.0, x1, x2), x1, x2)
    with pytest.raises(AssertionError, match="30 of 30"):
        testing.assert_gemm_close(dgemm(1.0, x1, x2) * (1 + 1e-9), x1, x2)


def test_sums_rounded_to_16_bits_on_the_way_are_refused():
    x1, x2 = testing.random_operands((8, 512), (512, 8), BF16)
    halves = [
        testing.reference_matmul(x1[:, part], x2[part]).astype(BF16)
        for part in (np.s_[:256], np.s_[256:])
    ]
    with pytest.raises(AssertionError, match="of 64 elements of the bfloat16 product are wrong"):
        testing.assert_gemm_close((halves[0].astype(F32) + halves[1]).astype(BF16), x1, x2)


def test_a_product_rounded_twice_is_refused():
    x1, x2 = testing.random_operands((16, 16), (16, 16), F16)
    rounded = testing.reference_matmul(x1, x2).astype(F16).astype(F32)
    with pytest.raises(AssertionError):
        testing.assert_gemm_close(rounded, x1, x2)


def test_a_wrong_element_is_found_and_named():
    x1, x2 = testing.integer_operands((10, 20), (20, 30), F16)
    product = testing.reference_matmul(x1, x2).astype(F32)
    product[7, 11] += 1
    product[3, 12] += 2
    for assertion in (testing.assert_gemm_close, testing.assert_gemm_exact):
        with pytest.raises(AssertionError, match="2 of 300 elements") as caught:
            assertion(product, x1, x2)
        assert "within [3..7, 11..12]" in str(caught.value)
        assert "worst at (3, 12)" in str(caught.value)


def test_a_wrong_shape_is_refused():
    x1, x2 = testing.integer_operands((2, 3), (3, 2), F16)
    for assertion in (testing.assert_gemm_close, testing.assert_gemm_exact):
        with pytest.raises(AssertionError, match=r"shape \(2,\), not \(2, 2\)"):
            assertion(np.zeros(2, F16), x1, x2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bais": 1.0}, TypeError, "'bais' is not an option of an epilogue; the options are"),
        ({"dtype": "float32"}, TypeError, "'dtype' is not an option"),
        ({"alpha": "2"}, TypeError, "alpha is a str, not a number"),
        ({"beta": 2}, ValueError, "beta = 2 multiplies c, but c is missing"),
        ({"activation": "tanh"}, ValueError, "activation must be one of 'relu'"),
        ({"clamp": (2, 1)}, ValueError, "the first must not exceed the second"),
        ({"bias": np.ones(7)}, ValueError, r"bias has shape \(7,\), which does not fit \(3, 5\)"),
    ],
)
@pytest.mark.parametrize("check", [testing.assert_gemm_close, testing.assert_gemm_exact])
def test_an_epilogue_that_matmul_refuses_is_refused(check, options, error, message):
    x1, x2 = testing.integer_operands((3, 4), (4, 5), np.float32)
    with pytest.raises(error, match=message):
        check(x1 @ x2, x1, x2, **options)


def test_options_without_an_effect_change_no_reference():
    x1, x2 = testing.integer_operands((3, 4), (4, 5), np.float32)
    unread = np.full((3, 5), np.nan)  # with beta = 0, c is not read
    testing.assert_gemm_exact(x1 @ x2, x1, x2, alpha=None, beta=0, c=unread, clamp=None)


def test_nan_and_infinity_must_be_where_they_belong():
    x1, x2 = testing.random_operands((4, 5), (5, 4), F16)
    x1[1, 2] = np.nan
    x2[3, 2] = np.inf
    with np.errstate(invalid="ignore"):
        right = testing.reference_matmul(x1, x2).astype(F32)
    assert np.isnan(right[1]).all()
    assert np.isinf(right[0, 2])
    testing.assert_gemm_close(right, x1, x2)
    for place, value in (
        ((1, 1), 0),
        ((0, 2), -right[0, 2]),
        ((0, 2), np.nan),
        ((0, 0), np.nan),
        ((0, 0), np.inf),
        ((0, 2), 1),
    ):
        wrong = right.copy()
        wrong[place] = value
        with pytest.raises(AssertionError, match="1 of 16"):
            testing.assert_gemm_close(wrong, x1, x2)


def test_overflow_must_give_infinity():
    x1, x2 = np.full((1, 4), 200, F16), np.full((4, 2), 100, F16)
    x2[:, 1] *= -1
    testing.assert_gemm_close(np.array([[np.inf, -np.inf]], F16), x1, x2)
    for wrong in ([65504, -np.inf], [-np.inf, -np.inf], [np.nan, -np.inf]):
        with pytest.raises(AssertionError, match="1 of 2"):
            testing.assert_gemm_close(np.array([wrong], F16), x1, x2)


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64])
def test_half_ulp_is_half_the_distance_to_the_next_number(dtype):
    info = ml_dtypes.finfo(dtype)
    values = np.array([1, 1.5, 3, 1000, 0, float(info.tiny), float(info.smallest_subnormal) * 3])
    bits = values.astype(dtype).view(f"u{dtype.itemsize}")
    following = (bits + 1).view(dtype).astype(np.longdouble)
    expected = (following - values.astype(dtype).astype(np.longdouble)) / 2
    np.testing.assert_array_equal(
        testing.half_ulp(values.astype(dtype).astype(F64), dtype), expected
    )
    np.testing.assert_array_equal(testing.half_ulp([np.inf, np.nan], dtype), 0)


@given(st.floats(-1e4, 1e4), st.sampled_from([BF16, F16, F32]))
def test_rounding_errs_by_half_an_ulp_at_most(value, dtype):
    assert abs(float(np.float64(value).astype(dtype)) - value) <= testing.half_ulp(value, dtype)


def test_gamma():
    assert testing.gamma(0) == 0
    assert testing.gamma(1) == pytest.approx(2.0**-24)
    assert testing.gamma(2**23) == 1
    assert testing.gamma(2**24) == np.inf
