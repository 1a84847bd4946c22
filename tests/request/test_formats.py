"""Names of 8-bit floats and of precisions, and the types of products that they give."""

import ml_dtypes
import numpy as np
import pytest

from cupygemm._records import formats as _formats
from cupygemm._records.dtypes import FLOAT8
from cupygemm._records.formats import moduli_of, operand_dtype, parse_dtype, parse_precision
from cupygemm._request.promotion import BF16, F16, F32, product_types

F64, U8, I8 = map(np.dtype, ("f8", "u1", "i1"))
E4M3, E5M2 = FLOAT8["e4m3fn"], FLOAT8["e5m2"]


@pytest.mark.parametrize("name", FLOAT8)
def test_every_way_to_name_a_format(name):
    dtype = np.dtype(getattr(ml_dtypes, f"float8_{name}"))
    for given in (name, f"float8_{name}", dtype, dtype.type):
        assert operand_dtype("x1", "format_a", U8, given) == dtype
        assert parse_dtype(given) == dtype
    assert operand_dtype("x1", "format_a", dtype, name) == dtype
    assert operand_dtype("x1", "format_a", dtype, None) == dtype
    assert _formats.container(dtype) == U8


@pytest.mark.parametrize("given", ["e4m3", "fp8", "float16", np.float16, 8, "", "float8_"])
def test_what_is_no_format(given):
    with pytest.raises(TypeError, match=r"format_a = .* is not a format .* 'e4m3fn', 'e5m2'"):
        operand_dtype("x1", "format_a", U8, given)


@pytest.mark.parametrize("dtype", [I8, F16, E5M2])
def test_a_tag_on_what_holds_something_else(dtype):
    with pytest.raises(TypeError, match=rf"format_b = 'e4m3fn' .* x2 has dtype {dtype}; pass a u"):
        operand_dtype("x2", "format_b", dtype, "e4m3fn")


def test_untagged_types_are_numpys():
    assert operand_dtype("x1", "format_a", U8, None) == U8
    assert (parse_dtype(None), parse_dtype("f4"), parse_dtype(int)) == (None, F32, np.dtype(int))
    with pytest.raises(TypeError, match="'float8' is not a type"):
        parse_dtype("float8")


def test_precisions():
    assert parse_precision(None) == parse_precision("ieee") == "ieee"
    assert parse_precision("tf32") == parse_precision("xf32") == "tf32"
    assert parse_precision("tf32x3") == "tf32x3"
    assert [moduli_of(parse_precision(name)) for name in ("int8x9", "int8x16", None)] == [9, 16, 0]
    for bad in ("fp32", "", 32, ["tf32"], np.float32):
        with pytest.raises(ValueError, match="precision must be one of None, 'ieee', 'tf32'"):
            parse_precision(bad)


@pytest.mark.parametrize(
    ("x1", "x2", "dtype", "out", "stored"),
    [
        (E4M3, E4M3, None, None, F32),
        (E4M3, E5M2, None, None, F32),
        (E4M3, E5M2, BF16, None, BF16),
        (E5M2, E4M3, E4M3, None, E4M3),
        (E5M2, E5M2, None, F16, F16),
        (E5M2, E5M2, E4M3, E4M3, E4M3),
        (BF16, BF16, E4M3, None, E4M3),
        (F16, F32, E4M3, None, E4M3),
        (F32, F32, None, E5M2, E5M2),
    ],
)
def test_types_of_products_with_8_bit_floats(x1, x2, dtype, out, stored):
    types = product_types(x1, x2, out=out, dtype=dtype)
    assert (types.stored, types.result) == (stored, stored)
    if x1 in FLOAT8.values():
        assert (types.x1, types.x2) == (x1, x2)
    else:
        assert types.x1 == types.x2 == np.result_type(x1, x2)


@pytest.mark.parametrize(
    ("x1", "x2", "dtype", "out", "text"),
    [
        (E4M3, U8, None, None, "x1 of dtype float8_e4m3fn and x2 of dtype uint8 .* format_b"),
        (F16, E4M3, None, None, "x1 of dtype float16 and x2 of dtype float8_e4m3fn .* convert one"),
        (E4M3, E4M3, F64, None, "float8_e4m3fn cannot be rounded to float64; it can to float32"),
        (E4M3, E4M3, None, U8, "cannot be rounded to uint8"),
        (F64, F64, E4M3, None, "a product of float64 cannot be rounded to float8_e4m3fn"),
        (I8, I8, E4M3, None, "a product of int8 cannot be rounded to float8_e4m3fn"),
        (E4M3, E4M3, E4M3, E5M2, "out has dtype float8_e5m2, not the float8_e4m3fn"),
        (E4M3, E4M3, F32, BF16, "out has dtype bfloat16, not the float32"),
    ],
)
def test_products_with_8_bit_floats_that_are_refused(x1, x2, dtype, out, text):
    with pytest.raises(TypeError, match=text):
        product_types(x1, x2, out=out, dtype=dtype)


def test_casting_of_8_bit_floats():
    """To float32 all is exact; to fewer bits it takes ``same_kind``, as between NumPy's floats."""
    product_types(E4M3, E4M3, casting="safe")
    for x, dtype in ((E4M3, BF16), (E4M3, E4M3), (F16, E4M3)):
        product_types(x, x, dtype=dtype)
        product_types(x, x, dtype=dtype, casting="unsafe")
    for x, dtype, casting in ((E4M3, BF16, "safe"), (F16, E4M3, "safe"), (E4M3, F32, "no")):
        with pytest.raises(TypeError, match=rf"cannot cast output .*'{dtype}'.* '{casting}'"):
            product_types(x, x, dtype=dtype, casting=casting)
