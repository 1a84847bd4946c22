"""HIP's conversions with a rounding or an encoding in their name, and its comparisons with NaN."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from cupygemm.emulator.runtime.compile import preprocess_program
from tests.emulator.elementwise import Array, elementwise, elementwise_each

RNG = np.random.default_rng(12)
FP8 = "#include <hip/hip_fp8.h>\n"
ENCODINGS = {
    "__HIP_E4M3": ml_dtypes.float8_e4m3fn,
    "__HIP_E5M2": ml_dtypes.float8_e5m2,
    "__HIP_E4M3_FNUZ": ml_dtypes.float8_e4m3fnuz,
    "__HIP_E5M2_FNUZ": ml_dtypes.float8_e5m2fnuz,
}


@pytest.fixture(scope="module")
def encoded(cp: ModuleType) -> tuple[Array, dict[str, Array]]:
    """Numbers, and for each encoding their codes by four functions, one byte each."""
    numbers = RNG.standard_normal(256) * 2.0 ** RNG.integers(-12, 20, 256)
    numbers[:6] = [1e30, -1e30, np.nan, 0, 1 + 2**-4 + 2**-40, 464 + 2**-40]
    code = """
    unsigned char nearest = __hip_cvt_double_to_fp8(a, __HIP_NOSAT, {0});
    unsigned char within = __hip_cvt_double_to_fp8(a, __HIP_SATFINITE, {0});
    float b = (float)a;
    unsigned char half = __hip_cvt_halfraw_to_fp8(__half(b), __HIP_NOSAT, {0});
    unsigned char brain = __hip_cvt_bfloat16raw_to_fp8(__hip_bfloat16(b), __HIP_NOSAT, {0});
    out = (unsigned)nearest | within << 8 | half << 16 | (unsigned)brain << 24"""
    codes = elementwise_each(cp, [*map(code.format, ENCODINGS)], "uint32", numbers, includes=FP8)
    return numbers, dict(zip(ENCODINGS, codes, strict=True))


@pytest.fixture(scope="module")
def decoded(cp: ModuleType) -> dict[str, Array]:
    """All codes of each encoding as numbers."""
    code = "out = __half2float(__half(__hip_cvt_fp8_to_halfraw(a, {})))"
    values = np.arange(256, dtype=np.uint16)
    found = elementwise_each(cp, [*map(code.format, ENCODINGS)], "float32", values, includes=FP8)
    return dict(zip(ENCODINGS, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_codes_of_an_encoding(
    encoded: tuple[Array, dict[str, Array]], decoded: dict[str, Array], encoding: str
) -> None:
    """Each source type is rounded once, and ml_dtypes, which does not saturate, agrees."""
    dtype = ENCODINGS[encoding]
    numbers, codes = encoded[0], encoded[1][encoding]
    found = [(codes >> shift & 0xFF).astype(np.uint8).view(dtype) for shift in (0, 8, 16, 24)]
    single = numbers.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = single.astype(np.float16).astype(np.float32)
    limit = float(ml_dtypes.finfo(dtype).max)
    expected = [
        _once(numbers, dtype),
        _once(np.clip(numbers, -limit, limit), dtype),
        _once(halves, dtype),
        _once(single.astype(ml_dtypes.bfloat16), dtype),
    ]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.astype(np.float32), theirs.astype(np.float32))
    np.testing.assert_array_equal(
        decoded[encoding], np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("target", "ocp", "fnuz"), [("gfx90a", 1, 1), ("gfx942", 0, 1), ("gfx950", 1, 0)]
)
def test_programs_see_the_encoding_of_the_target(target: str, ocp: int, fnuz: int) -> None:
    source = FP8 + "int kinds = 10 * HIP_FP8_TYPE_OCP + HIP_FP8_TYPE_FNUZ;"
    text = preprocess_program(source, "kinds.hip", target_name=target)
    assert f"int kinds = 10 * {ocp} + {fnuz};" in text


def _once(numbers: Array, dtype: type) -> Array:
    """Round to an 8-bit type once: a number between two floats is made odd before."""
    exact = np.asarray(numbers, np.float64)
    with np.errstate(over="ignore"):
        single = exact.astype(np.float32)
    inexact = np.isfinite(single) & (single.astype(np.float64) != exact)
    bits = single.view(np.uint32).copy()
    bits[inexact & (np.abs(single.astype(np.float64)) > np.abs(exact))] -= 1
    bits[inexact] |= 1
    return bits.view(np.float32).astype(dtype)


def test_pairs_of_codes(cp: ModuleType) -> None:
    x = RNG.standard_normal(64).astype(np.float32)
    code = """
    __hip_fp8x2_e4m3 p(make_float2(a, -2 * a));
    __hip_fp8x4_e4m3 q(__half2(a, 1), __half2(2, a));
    __half2_raw back = __hip_cvt_fp8x2_to_halfraw2(p.__x, p.__default_interpret);
    float2 direct = p;
    float4 four = q;
    out = __hip_cvt_float2_to_fp8x2(make_float2(a, -2 * a), p.__default_saturation, __HIP_E4M3)
              != p.__x ? 1000 : direct.x + 2 * (float)__half2(back).y + four.x - four.w + four.y"""
    rounded = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    second = (-2 * x).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    found = elementwise(cp, code, "float32", x, includes=FP8)
    np.testing.assert_array_equal(found, rounded + 2 * second + 1)


@pytest.mark.parametrize(
    ("call", "source", "to"),
    [
        ("__float2half", "float32", np.float16),
        ("__int2half", "int32", np.float16),
        ("__ull2half", "uint64", np.float16),
        ("__int2float", "int32", np.float32),
        ("__ll2float", "int64", np.float32),
        ("__ull2double", "uint64", np.float64),
        ("__double2float", "float64", np.float32),
    ],
)
def test_a_rounding_in_the_name(cp: ModuleType, call: str, source: str, to: type) -> None:
    if source.startswith("float"):
        x = (RNG.standard_normal(128) * 2.0 ** RNG.integers(-30, 14, 128)).astype(source)
        x[:3] = [0, 1, -1]
    else:
        info = np.iinfo(source)
        width = RNG.integers(1, 17 if to is np.float16 else info.bits, 128)
        shift = (info.bits - 1 - width).clip(0).astype(source)
        x = RNG.integers(info.min, info.max, 128, dtype=source) >> shift
        x[:2] = [0, 1]
    name = np.dtype(to).name
    suffixes = ("rd", "ru", "rz")
    each = elementwise_each(cp, [f"out = {call}_{suffix}(a)" for suffix in suffixes], name, x)
    for suffix, found in zip(suffixes, each, strict=True):
        for value, result in zip(map(_exact, x), found, strict=True):
            down = suffix == "rd" or (suffix == "rz" and value >= 0)
            with np.errstate(over="ignore"):
                beyond = _exact(np.nextafter(result, to(np.inf if down else -np.inf)))
            inner = _exact(result)
            assert inner <= value < beyond if down else beyond < value <= inner, (suffix, value)


def _exact(number: np.generic) -> Fraction | float:
    return Fraction(number.item()) if np.isfinite(number) else float(number)


@pytest.mark.parametrize(
    ("prefix", "pair"), [("__half", "__half2"), ("__hip_bfloat16", "__hip_bfloat162")]
)
def test_comparisons_with_nan(cp: ModuleType, prefix: str, pair: str) -> None:
    a = np.array([1, 2, np.nan, 1, np.nan], np.float32)
    b = np.array([1, 1, 1, np.nan, np.nan], np.float32)
    functions = {"eq": np.equal, "gt": np.greater}
    codes = [
        f"""
        {prefix} x(a), y(b), one(1.0f);
        {pair} v(x, one), w(y, one);
        out = __h{name}(x, y) + 10 * __h{name}u(x, y) + 100 * __hb{name}2(v, w)
              + 1000 * __hb{name}u2(v, w) + 10000 * (int)(float)__h{name}u2(v, w).x
              + 100000 * (int)(float)__hisnan2(v).x"""
        for name in functions
    ]
    each = elementwise_each(cp, codes, "int32", a, b, includes="#include <hip/hip_bf16.h>\n")
    for (name, reference), found in zip(functions.items(), each, strict=True):
        ordered, either = reference(a, b), reference(a, b) | np.isnan(a) | np.isnan(b)
        same = name == "eq"  # the second components are equal
        expected = ordered + 10 * either + same * (100 * ordered + 1000 * either)
        expected = expected + 10000 * either + 100000 * np.isnan(a)
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_bits_by_their_number(cp: ModuleType) -> None:
    mask = RNG.integers(0, 2**63, 64, dtype=np.uint64)
    base = RNG.integers(0, 64, 64, dtype=np.int32)
    offsets = (0, 1, 3, -2)
    codes = [f"out = __fns64(a, b, {offset})" for offset in offsets]
    each = elementwise_each(cp, codes, "int32", mask, base)
    for offset, found in zip(offsets, each, strict=True):
        for bits, start, position in zip(mask.tolist(), base.tolist(), found.tolist(), strict=True):
            order = range(start, 64) if offset >= 0 else range(start, -1, -1)
            places = [i for i in order if bits >> i & 1]
            if offset == 0:
                places = places[:1] if places[:1] == [start] else []
            wanted = max(abs(offset), 1) - 1
            assert position == (places[wanted] if wanted < len(places) else -1)


def test_lanes_with_equal_values(cp: ModuleType) -> None:
    x = RNG.integers(0, 4, 64).astype(np.int32)
    found = elementwise(cp, "out = __match_any(a)", "uint64", x)
    masks = {v: sum(1 << i for i in np.flatnonzero(x == v)) for v in set(x.tolist())}
    np.testing.assert_array_equal(found, np.array([masks[v] for v in x.tolist()], np.uint64))
    code = """
    int same, other;
    bool all = __match_all(7.5, &same) == ~0ull, none = __match_all(a, &other) == 0;
    out = (all && none) + 2 * same + 4 * other + 8 * (__hip_readfirstlane(a) == __shfl(a, 0))"""
    assert set(elementwise(cp, code, "int32", x)) == {11}
