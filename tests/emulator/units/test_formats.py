"""Narrow number formats against ml_dtypes, and differences of the hardware's conversions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm.emulator.units import formats
from cupygemm.emulator.units.formats import Format

TWINS: dict[Format, Any] = {
    formats.FP8_FNUZ: ml_dtypes.float8_e4m3fnuz,
    formats.BF8_FNUZ: ml_dtypes.float8_e5m2fnuz,
    formats.FP8: ml_dtypes.float8_e4m3fn,
    formats.BF8: ml_dtypes.float8_e5m2,
    formats.FP6: ml_dtypes.float6_e2m3fn,
    formats.BF6: ml_dtypes.float6_e3m2fn,
    formats.FP4: ml_dtypes.float4_e2m1fn,
}
EIGHT_BIT = [fmt for fmt in TWINS if fmt.bits == 8]
ids = [fmt.name for fmt in TWINS]


def samples(fmt: Format) -> NDArray[np.float32]:
    """Return every value of the format, the midpoints between them, their neighbours, and more."""
    values = formats.decode_table(fmt)
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(20000) * 2.0 ** rng.integers(-20, 18, 20000)
    beyond = np.float32([fmt.max * factor for factor in (1.01, 1.03125, 1.0625, 1.125, 2, 1e20)])
    positive = np.concatenate([finite, middles, beyond, spread.astype(np.float32)])
    exact = np.concatenate([positive, -positive])
    return np.concatenate([exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)])


@pytest.mark.parametrize(("fmt", "twin"), TWINS.items(), ids=ids)
def test_decode_agrees_with_ml_dtypes(fmt: Format, twin: Any) -> None:
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    expected = codes.view(twin).astype(np.float32)
    np.testing.assert_array_equal(formats.decode(codes, fmt), expected)
    signs = np.signbit(formats.decode(codes, fmt)) == np.signbit(expected)
    assert (signs | np.isnan(expected)).all()


@pytest.mark.parametrize(("fmt", "twin"), TWINS.items(), ids=ids)
def test_encode_rounds_as_ml_dtypes_does(fmt: Format, twin: Any) -> None:
    values = samples(fmt)
    if fmt.special == "none":  # the emulator's saturate beyond the largest
        values = np.clip(values, -fmt.max, fmt.max)
    expected = values.astype(twin).view(np.uint8)
    np.testing.assert_array_equal(formats.encode(values, fmt), expected)


@pytest.mark.parametrize("fmt", TWINS, ids=ids)
def test_encode_inverts_decode(fmt: Format) -> None:
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    values = formats.decode(codes, fmt)
    kept = ~np.isnan(values)
    np.testing.assert_array_equal(formats.encode(values, fmt)[kept], codes[kept])


@pytest.mark.parametrize("fmt", EIGHT_BIT, ids=[fmt.name for fmt in EIGHT_BIT])
def test_saturation_keeps_inf_and_nan(fmt: Format) -> None:
    values = np.float32([1e9, -1e9, fmt.max * 1.001, np.inf, -np.inf, np.nan])
    plain = formats.decode(formats.encode(values, fmt), fmt)
    saturated = formats.decode(formats.encode(values, fmt, saturate=True), fmt)
    np.testing.assert_array_equal(saturated[:3], [fmt.max, -fmt.max, fmt.max])
    infinite = np.float32([np.inf, -np.inf]) if fmt.special == "ieee" else np.float32([np.nan] * 2)
    np.testing.assert_array_equal(plain[:2], infinite)
    np.testing.assert_array_equal(plain[2], fmt.max)
    np.testing.assert_array_equal(saturated[3:5], infinite)
    np.testing.assert_array_equal(plain[3:5], infinite)
    assert np.isnan(saturated[5])


@pytest.mark.parametrize("fmt", [formats.FP6, formats.BF6, formats.FP4], ids=lambda fmt: fmt.name)
def test_formats_without_inf_always_saturate(fmt: Format) -> None:
    values = np.float32([1e9, -1e9, np.inf, -np.inf])
    found = formats.decode(formats.encode(values, fmt), fmt)
    np.testing.assert_array_equal(found, [fmt.max, -fmt.max, fmt.max, -fmt.max])


def test_known_codes() -> None:
    one, largest, nan = np.uint8([0x40, 0x38]), np.uint8([0x7F, 0x7E]), np.uint8([0x80, 0x7F])
    for index, fnuz in enumerate((True, False)):
        fmt = formats.fp8_format("fp8", fnuz)
        assert formats.decode(one[index], fmt) == 1.0
        assert formats.decode(largest[index], fmt) == (240.0, 448.0)[index]
        assert np.isnan(formats.decode(nan[index], fmt))
        assert formats.encode(np.float32(1), fmt) == one[index]
        assert formats.encode(np.float32(np.nan), fmt) == nan[index]
    assert formats.decode(0x7B, formats.fp8_format("bf8", False)) == 57344.0
    assert formats.decode(0x7F, formats.fp8_format("bf8", True)) == 57344.0
    assert formats.decode(0x7C, formats.fp8_format("bf8", False)) == np.inf


def test_fnuz_has_no_negative_zero() -> None:
    values = np.float32([-0.0, -1e-30])
    assert (formats.encode(values, formats.fp8_format("fp8", True)) == 0).all()
    assert (formats.encode(values, formats.fp8_format("fp8", False)) == 0x80).all()


@pytest.mark.parametrize("fmt", EIGHT_BIT, ids=[fmt.name for fmt in EIGHT_BIT])
def test_stochastic_rounding_is_up_as_often_as_the_value_is_near(fmt: Format) -> None:
    width = 21 if fmt.mantissa_bits == 2 else 20
    smallest = float(formats.decode_table(fmt)[1])
    for low, unit in ((1.0, 2.0**-fmt.mantissa_bits), (smallest, smallest), (0.0, smallest)):
        for eighths in (0, 1, 4, 7):
            value = np.float32(low + unit * eighths / 8)
            threshold = (8 - eighths) << width - 3  # the least random number that rounds up
            random = np.uint32([0, max(threshold - 1, 0), min(threshold, (1 << width) - 1)])
            codes = formats.encode(np.full(3, value), fmt, random=random << np.uint32(32 - width))
            expected = [low, low, low + unit if eighths else low]
            np.testing.assert_array_equal(formats.decode(codes, fmt), np.float32(expected))


def test_stochastic_rounding_carries_into_the_exponent() -> None:
    fmt = formats.fp8_format("fp8", False)
    code = formats.encode(np.float32(1.99), fmt, random=np.uint32(0xFFFFFFFF))
    assert formats.decode(code, fmt) == 2.0


def test_block_scales() -> None:
    codes = np.arange(256)
    values = formats.e8m0_to_f32(codes)
    expected = codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(values, expected)


def test_bf16() -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 100_000, np.uint32)
    values = bits.view(np.float32)
    number = ~np.isnan(values)
    expected = values[number].astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(formats.f32_to_bf16(values)[number], expected)
    codes = np.arange(1 << 16)
    np.testing.assert_array_equal(formats.bf16_to_f32(codes).view(np.uint32), codes << 16)


def test_bf16_nan_becomes_quiet_and_keeps_its_payload() -> None:
    values = np.uint32([0x7F800001, 0xFFA50000, 0x7FFFFFFF]).view(np.float32)
    np.testing.assert_array_equal(formats.f32_to_bf16(values), [0x7FC0, 0xFFE5, 0x7FFF])


def test_bf16_stochastic_rounding() -> None:
    value = np.uint32([0x3F804000] * 3).view(np.float32)  # a quarter of the way up
    found = formats.f32_to_bf16(value, random=np.uint32([0xFFFF, 0xBFFFFFFF, 0xC0000000]))
    np.testing.assert_array_equal(found, [0x3F80, 0x3F80, 0x3F81])


def test_f16() -> None:
    codes = np.uint16([0x3C00, 0xFBFF, 0x7C00, 1, 0])
    expected = np.float32([1, -65504, np.inf, 2.0**-24, 0])
    np.testing.assert_array_equal(formats.f16_to_f32(codes), expected)
