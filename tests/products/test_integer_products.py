"""`matmul` of integers and booleans: NumPy's types and values, whatever multiplies."""

import itertools

import numpy as np
import pytest

import cupygemm

TYPES = [np.dtype(code) for code in "?bBhHiI"]


def random_array(dtype, shape, seed):
    """Return random numbers from the full range of a type."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(TYPES, 2)))
def test_mixed_types_as_numpy(cp, first, second):
    """In both orders: int8 with uint8 gives int16, bool with uint8 uint8; sums wrap."""
    x1, x2 = random_array(first, (5, 9), 1), random_array(second, (9, 6), 2)
    for left, right in ((x1, x2), (x2.T, x1.T)):
        expected = np.matmul(left, right)
        result = cupygemm.matmul(cp.asarray(left), cp.asarray(right))
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(cp.asnumpy(result), expected)


@pytest.mark.slow
def test_booleans_are_any_of_ands(cp):
    x1, x2 = random_array(np.dtype(bool), (3, 40, 5), 3), random_array(np.dtype(bool), (5, 30), 4)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2))
    assert result.dtype == bool
    np.testing.assert_array_equal(cp.asnumpy(result), (x1[..., None] & x2[None, None]).any(axis=-2))


@pytest.mark.parametrize(
    ("operand", "dtype"),
    [("b", "i2"), ("b", "i8"), ("B", "i4"), ("?", "i4"), ("?", "i1"), ("h", "i8"), ("b", "f4")],
)
def test_sums_of_another_type_as_numpy(cp, operand, dtype):
    x1, x2 = (random_array(np.dtype(operand), shape, 5) for shape in ((5, 9), (9, 6)))
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=dtype)
    assert result.dtype == dtype
    np.testing.assert_array_equal(cp.asnumpy(result), np.matmul(x1, x2, dtype=dtype))
