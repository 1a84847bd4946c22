"""Types of products: NumPy's promotion and casting, and where this library rounds less often."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from cupygemm._request.promotion import BF16, F16, F32, product_types

F64, C64, I8, I32, U8 = map(np.dtype, ("f8", "c8", "i1", "i4", "u1"))
NUMPY_TYPES = [np.dtype(code) for code in "?bBhilefdFD"]


@pytest.mark.parametrize(("x1", "x2"), list(itertools.product(NUMPY_TYPES, NUMPY_TYPES)))
def test_result_as_numpy(x1, x2):
    types = product_types(x1, x2)
    assert types.result == np.matmul(np.ones((1, 1), x1), np.ones((1, 1), x2)).dtype
    assert types.operand == types.stored == types.result


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("keyword", ["dtype", "out"])
@pytest.mark.parametrize("x", NUMPY_TYPES)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_casting_as_numpy(x, keyword, casting):
    for given in NUMPY_TYPES:
        _assert_casting_as_numpy(x, given, keyword, casting)


def _assert_casting_as_numpy(x, given, keyword, casting):
    ones = np.ones((1, 1), x)
    numpy_arguments = {"dtype": given} if keyword == "dtype" else {"out": np.empty((1, 1), given)}
    arguments = {"dtype": None, "out": None} | {keyword: given}
    try:
        expected = np.matmul(ones, ones, casting=casting, **numpy_arguments).dtype
    except TypeError:
        with pytest.raises(TypeError, match="cannot cast") as caught:
            product_types(x, x, casting=casting, **arguments)
        assert f"dtype('{given}')" in str(caught.value)
        assert f"'{casting}'" in str(caught.value)
    else:
        assert product_types(x, x, casting=casting, **arguments).result == expected


@pytest.mark.parametrize(
    ("x1", "x2", "dtype", "out", "operand", "stored", "result"),
    [
        (BF16, BF16, None, None, BF16, BF16, BF16),
        (BF16, BF16, F32, None, BF16, F32, F32),
        (BF16, BF16, None, F32, BF16, F32, F32),  # an fp32 out is not fed through bf16
        (BF16, BF16, F32, BF16, BF16, BF16, BF16),  # one rounding, not two
        (BF16, BF16, BF16, F32, BF16, BF16, F32),  # dtype=bf16 asks for the rounding
        (F16, F16, None, BF16, F16, BF16, BF16),
        (F16, F16, F16, BF16, F16, F16, BF16),
        (F16, F16, None, F64, F16, F32, F64),
        (F16, F16, F64, None, F64, F64, F64),
        (F16, F32, None, None, F32, F32, F32),
        (F32, F32, F16, None, F32, F16, F16),  # narrowed last
        (F64, F64, F16, None, F32, F16, F16),  # in what a kernel can round to 16 bits
        (F64, F64, BF16, None, F32, BF16, BF16),
        (I32, F32, F16, None, F32, F16, F16),
        (BF16, I8, None, None, BF16, BF16, BF16),
        (I8, F16, F32, None, F16, F32, F32),
        (I8, I8, I32, None, I8, I32, I32),  # the sums of int8 products
        (I8, I8, None, I32, I8, I8, I32),
        (U8, U8, I32, None, I32, I32, I32),
        (F64, F64, F32, None, F64, F32, F32),
        (I8, I8, F16, None, F16, F16, F16),
        (BF16, F16, F32, None, F32, F32, F32),
        (F16, F16, C64, None, C64, C64, C64),
    ],
)
def test_where_products_are_rounded(x1, x2, dtype, out, operand, stored, result):
    types = product_types(x1, x2, out=out, dtype=dtype)
    assert (types.operand, types.stored, types.result) == (operand, stored, result)


def test_forced_narrowing_converts_the_operands_first():
    types = product_types(F64, F64, dtype=I32, casting="unsafe")
    assert (types.operand, types.stored) == (I32, I32)


def test_operands_without_a_common_type():
    with pytest.raises(TypeError, match="bfloat16 and x2 of dtype float16 have no common dtype"):
        product_types(BF16, F16)


@pytest.mark.parametrize("bad", ["M8[s]", "S3", "O", ml_dtypes.float6_e2m3fn, "i4,i4"])
def test_types_that_have_no_product(bad):
    with pytest.raises(TypeError, match=r"the dtype .* of x2 has no matrix product"):
        product_types(F32, np.dtype(bad))


def test_unknown_casting_rule():
    with pytest.raises(ValueError, match=r"casting must be one of .* \(got 'sometimes'\)"):
        product_types(F32, F32, casting="sometimes")
