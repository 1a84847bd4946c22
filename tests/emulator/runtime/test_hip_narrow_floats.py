"""HIP's floats of 4 and 6 bits: their conversions, their types, and the bits of pairs."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.elementwise import Array, elementwise, elementwise_each

RNG = np.random.default_rng(46)
HEADERS = "#include <hip/hip_fp4.h>\n#include <hip/hip_fp6.h>\n"
ENCODINGS = {
    ("fp4", "e2m1"): ml_dtypes.float4_e2m1fn,
    ("fp6", "e2m3"): ml_dtypes.float6_e2m3fn,
    ("fp6", "e3m2"): ml_dtypes.float6_e3m2fn,
}
NUMBERS = RNG.standard_normal(512) * 2.0 ** RNG.integers(-6, 6, 512)
NUMBERS[:8] = [0, -0.0, np.inf, -np.inf, 1e30, 0.25, 2.5, -3.5]  # and ties
NUMBERS = NUMBERS.astype(np.float32)


def codes_of(numbers: Array, dtype: type) -> Array:
    """Return the codes by ml_dtypes; all of these types saturate."""
    limit = np.float32(ml_dtypes.finfo(dtype).max)
    return np.clip(numbers, -limit, limit).astype(dtype).view(np.uint8)


@pytest.fixture(scope="module")
def encoded(cp: ModuleType) -> Array:
    """For each encoding, the codes of NUMBERS from four types of argument, a byte each."""
    code = """
    unsigned a4 = __hip_cvt_float_to_{0}(a, __HIP_{2}, hipRoundNearest);
    unsigned b4 = __hip_cvt_double_to_{0}(a, __HIP_{2}, hipRoundZero);
    unsigned c4 = __hip_{0}_{1}(__half(a)).__x;
    unsigned d4 = __hip_cvt_bfloat16raw_to_{0}(__hip_bfloat16(a), __HIP_{2}, hipRoundNearest);
    out = a4 | b4 << 8 | c4 << 16 | d4 << 24"""
    calls = [code.format(width, name, name.upper()) for width, name in ENCODINGS]
    return elementwise_each(cp, calls, "uint32", NUMBERS, includes=HEADERS)


@pytest.mark.parametrize("row", range(len(ENCODINGS)), ids=[name for _, name in ENCODINGS])
def test_numbers_round_to_nearest_even_and_saturate(encoded: Array, row: int) -> None:
    dtype = list(ENCODINGS.values())[row]
    with np.errstate(over="ignore"):
        half = NUMBERS.astype(np.float16).astype(np.float32)
    brain = NUMBERS.astype(ml_dtypes.bfloat16).astype(np.float32)
    for place, numbers in enumerate((NUMBERS, NUMBERS, half, brain)):
        found = (encoded[row] >> 8 * place & 0xFF).astype(np.uint8)
        np.testing.assert_array_equal(found, codes_of(numbers, dtype))


@pytest.fixture(scope="module")
def decoded(cp: ModuleType) -> Array:
    """For each encoding, all codes as numbers, by a type's float and by way of half."""
    code = """
    __hip_{0}_{1} x; x.__x = a;
    float b = __half2float(__half(__hip_cvt_{0}_to_halfraw(a, __HIP_{2})));
    double c = x;
    out = b == (float)x && c == (float)x ? (float)x : NAN"""
    calls = [code.format(width, name, name.upper()) for width, name in ENCODINGS]
    return elementwise_each(cp, calls, "float32", np.arange(64, dtype=np.uint16), includes=HEADERS)


@pytest.mark.parametrize("row", range(len(ENCODINGS)), ids=[name for _, name in ENCODINGS])
def test_every_code_is_its_number(decoded: Array, row: int) -> None:
    (width, _), dtype = list(ENCODINGS.items())[row]
    codes = np.arange(16 if width == "fp4" else 64, dtype=np.uint8)
    np.testing.assert_array_equal(decoded[row][: codes.size], codes.view(dtype).astype("f4"))


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS, ids=[name for _, name in ENCODINGS])
def test_pairs_and_fours_keep_their_order(cp: ModuleType, encoding: tuple[str, str]) -> None:
    """The first number has the lowest bits: 4-bit floats without gaps, others in bytes."""
    width, name = encoding
    code = f"""
    __half2 first{{__half(a), __half(b)}}, second{{__half(b), __half(a)}};
    __hip_{width}x2_{name} two(float2{{a, b}}), pair(first);
    __hip_{width}x4_{name} four(float4{{a, b, b, a}}), halves(first, second);
    float4 back = four;
    float2 front = two;
    bool same = back.x == front.x && back.y == front.y && back.z == front.y && back.w == front.x;
    same = same && two.__x == pair.__x && four.__x == halves.__x;
    out = same ? four.__x : 0xffffffffu"""
    other = np.round(NUMBERS[::-1] * 4) / 4  # exact in half precision, or saturated
    numbers = np.round(NUMBERS * 4) / 4
    found = elementwise(cp, code, "uint32", numbers, other, includes=HEADERS)
    step = 4 if width == "fp4" else 8
    low, high = (codes_of(each, ENCODINGS[encoding]).astype("u4") for each in (numbers, other))
    expected = low | high << step | high << 2 * step | low << 3 * step
    np.testing.assert_array_equal(found, expected)


def test_nan_becomes_the_largest_number(cp: ModuleType) -> None:
    code = "out = (float)__hip_fp4_e2m1(a) + 100 * (float)__hip_fp6_e3m2(a)"
    found = elementwise(cp, code, "float32", np.full(4, np.nan, "f4"), includes=HEADERS)
    np.testing.assert_array_equal(found, np.full(4, 6 + 100 * 28, "f4"))
