"""Conversions of the vector ALU against exact fractions and plain integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator import float_reference as ref
from tests.emulator.float_reference import NAN, Result, canonical, value
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    DEFAULT_MODE,
    M16,
    columns,
    evaluate,
    mismatches,
    signed,
)


def saturate(number: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(number, low), high) & (1 << bits) - 1


def to_integer(a: int, width: int, bits: int, is_signed: bool) -> int:
    x = value(a, width)
    if math.isnan(x):
        return 0
    whole = math.trunc(x) if math.isfinite(x) else int(math.copysign(1 << 80, x))
    return saturate(whole, bits, is_signed)


def from_integer(number: int, width: int, mode: int = ref.NEAREST) -> int:
    return ref.rounded(Fraction(number), width, mode) if number else 0


def floor_to_integer(a: int, offset: Fraction) -> int:
    x = value(a, 32)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return saturate(int(math.copysign(1 << 80, x)), 32, True)
    return saturate(math.floor(Fraction(x) + offset), 32, True)


def normalized(a: int, width: int, is_signed: bool) -> int:
    x = value(a, width)
    if math.isnan(x):
        return 0
    limit = 0x7FFF if is_signed else 0xFFFF
    x = min(max(x, -1.0 if is_signed else 0.0), 1.0)
    return round(Fraction(x) * limit) & M16


def truncated_half(a: int) -> int:
    result = ref.convert(a, 32, 16, ref.TO_ZERO)
    return 0x7E00 if result == NAN else int(result)


def bf16(a: int) -> int:
    """Round an f32 to the nearest bf16; NaN to a quiet one of its sign."""
    if canonical(a, 32) == NAN:
        return a >> 16 | 0x40
    bits, rest = a >> 16, a & M16
    return bits + (rest > 0x8000 or (rest == 0x8000 and bits & 1))


def byte_of(a: int) -> int:
    return to_integer(a, 32, 8, False)


def pack(low: int, high: int) -> int:
    return (low & M16) | (high & M16) << 16


def put_byte(a: int, index: int, rest: int) -> int:
    shift = 8 * (index & 3)
    return rest & ~(0xFF << shift) | byte_of(a) << shift


INTEGERS: dict[str, tuple[int, Callable[[int], int]]] = {
    "v_cvt_i32_f32 v0, v2": (32, lambda a: to_integer(a, 32, 32, True)),
    "v_cvt_u32_f32 v0, v2": (32, lambda a: to_integer(a, 32, 32, False)),
    "v_cvt_i32_f64 v0, v[2:3]": (64, lambda a: to_integer(a, 64, 32, True)),
    "v_cvt_u32_f64 v0, v[2:3]": (64, lambda a: to_integer(a, 64, 32, False)),
    "v_cvt_i16_f16 v0, v2": (16, lambda a: to_integer(a, 16, 16, True)),
    "v_cvt_u16_f16 v0, v2": (16, lambda a: to_integer(a, 16, 16, False)),
    "v_cvt_rpi_i32_f32 v0, v2": (32, lambda a: floor_to_integer(a, Fraction(1, 2))),
    "v_cvt_flr_i32_f32 v0, v2": (32, lambda a: floor_to_integer(a, Fraction(0))),
    "v_cvt_norm_i16_f16 v0, v2": (16, lambda a: normalized(a, 16, True)),
    "v_cvt_norm_u16_f16 v0, v2": (16, lambda a: normalized(a, 16, False)),
}


@pytest.mark.parametrize("text", INTEGERS)
def test_float_to_integer(text: str) -> None:
    width, compute = INTEGERS[text]
    instruction = assemble_all(INTEGERS)[list(INTEGERS).index(text)]
    rows = columns([width], floats=(0,))
    near = [0.5, 1.5, -0.5, -1.0, 2.0**31, 2.0**32, -(2.0**31), 32767.5, 65535.0, 0.99999]
    rows += [
        (
            ref.bits_of(
                float(np.float16(x)) if width == 16 else struct.unpack("f", struct.pack("f", x))[0],
                width,
            ),
        )
        for x in near
        if width > 16 or abs(x) < 65504
    ]
    rows += rows[: -len(rows) % 64]
    got = evaluate(instruction, rows, 32)
    assert not mismatches(got, [compute(*row) for row in rows], rows)


FROM_INTEGERS: dict[str, tuple[int, int, Callable[[int], int]]] = {
    "v_cvt_f32_i32 v0, v2": (32, 32, lambda a: from_integer(signed(a, 32), 32)),
    "v_cvt_f32_u32 v0, v2": (32, 32, lambda a: from_integer(a, 32)),
    "v_cvt_f64_i32 v[0:1], v2": (32, 64, lambda a: from_integer(signed(a, 32), 64)),
    "v_cvt_f64_u32 v[0:1], v2": (32, 64, lambda a: from_integer(a, 64)),
    "v_cvt_f16_i16 v0, v2": (16, 32, lambda a: from_integer(signed(a, 16), 16)),
    "v_cvt_f16_u16 v0, v2": (16, 32, lambda a: from_integer(a, 16)),
    **{
        f"v_cvt_f32_ubyte{i} v0, v2": (32, 32, lambda a, i=i: from_integer(a >> 8 * i & 255, 32))
        for i in range(4)
    },
    "v_cvt_off_f32_i4 v0, v2": (32, 32, lambda a: ref.bits_of(signed(a, 4) / 16, 32)),
}


@pytest.mark.parametrize("text", FROM_INTEGERS)
def test_integer_to_float(text: str) -> None:
    width, result, compute = FROM_INTEGERS[text]
    instruction = assemble_all(FROM_INTEGERS)[list(FROM_INTEGERS).index(text)]
    rows = columns([width])
    got = evaluate(instruction, rows, result)
    assert not mismatches(got, [compute(*row) for row in rows], rows)


FLOATS = {
    "v_cvt_f16_f32 v0, v2": (32, 16),
    "v_cvt_f32_f16 v0, v2": (16, 32),
    "v_cvt_f32_f64 v0, v[2:3]": (64, 32),
    "v_cvt_f64_f32 v[0:1], v2": (32, 64),
}


@pytest.mark.parametrize("rounding", range(4), ids=("nearest", "up", "down", "to_zero"))
@pytest.mark.parametrize("text", FLOATS)
def test_float_to_float(text: str, rounding: int) -> None:
    source, target = FLOATS[text]
    instruction = assemble_all(FLOATS)[list(FLOATS).index(text)]
    rows = columns([source], floats=(0,))
    if source == 32:  # around every boundary of half precision
        halves = [float(x) for x in np.arange(0x7C00, step=97).astype(np.uint16).view(np.float16)]
        rows += [(ref.bits_of(x, 32) + d,) for x in halves for d in (0, 1, 0xFFF, 0x1000, 0x1001)]
        rows += rows[: -len(rows) % 64]
    mode = DEFAULT_MODE | rounding << (0 if target == 32 else 2)
    got = [canonical(bits, target) for bits in evaluate(instruction, rows, target, mode=mode)]
    assert not mismatches(got, [ref.convert(*row, source, target, rounding) for row in rows], rows)


PACKED: dict[str, tuple[str, str, Callable[..., int]]] = {
    "v_cvt_pkrtz_f16_f32 v0, v2, v4": (
        "f32 f32",
        "gfx942",
        lambda a, b: pack(truncated_half(a), truncated_half(b)),
    ),
    "v_cvt_pknorm_i16_f32 v0, v2, v4": (
        "f32 f32",
        "gfx942",
        lambda a, b: pack(normalized(a, 32, True), normalized(b, 32, True)),
    ),
    "v_cvt_pknorm_u16_f32 v0, v2, v4": (
        "f32 f32",
        "gfx942",
        lambda a, b: pack(normalized(a, 32, False), normalized(b, 32, False)),
    ),
    "v_cvt_pknorm_i16_f16 v0, v2, v4": (
        "f16 f16",
        "gfx942",
        lambda a, b: pack(normalized(a, 16, True), normalized(b, 16, True)),
    ),
    "v_cvt_pknorm_u16_f16 v0, v2, v4": (
        "f16 f16",
        "gfx942",
        lambda a, b: pack(normalized(a, 16, False), normalized(b, 16, False)),
    ),
    "v_cvt_pk_i16_i32 v0, v2, v4": (
        "u32 u32",
        "gfx942",
        lambda a, b: pack(*(saturate(signed(x, 32), 16, True) for x in (a, b))),
    ),
    "v_cvt_pk_u16_u32 v0, v2, v4": (
        "u32 u32",
        "gfx942",
        lambda a, b: pack(saturate(a, 16, False), saturate(b, 16, False)),
    ),
    "v_cvt_pk_u8_f32 v0, v2, v4, v6": ("f32 u32 u32", "gfx942", put_byte),
    "v_pack_b32_f16 v0, v2, v4": ("f16 f16", "gfx942", pack),
    "v_pack_b32_f16 v0, -v2, |v4|": (
        "f16 f16",
        "gfx942",
        lambda a, b: pack(a ^ 0x8000, b & 0x7FFF),
    ),
    "v_sat_pk_u8_i16 v0, v2": (
        "u32",
        "gfx942",
        lambda a: saturate(signed(a, 16), 8, False) | saturate(signed(a >> 16, 16), 8, False) << 8,
    ),
    "v_cvt_pk_bf16_f32 v0, v2, v4": ("f32 f32", "gfx950", lambda a, b: pack(bf16(a), bf16(b))),
    "v_cvt_pk_f16_f32 v0, v2, v4": (
        "f32 f32",
        "gfx950",
        lambda a, b: pack(*(half(x) for x in (a, b))),
    ),
    "v_cvt_f32_bf16 v0, v2": (
        "u16",
        "gfx950",
        lambda a: a << 16 | (0x400000 if canonical(a << 16, 32) == NAN else 0),
    ),
    "v_ashr_pk_i8_i32 v0, v2, v4, v6": (
        "u32 u32 u32",
        "gfx950",
        lambda a, b, n: (
            saturate(signed(a, 32) >> (n & 31), 8, True)
            | saturate(signed(b, 32) >> (n & 31), 8, True) << 8
        ),
    ),
    "v_ashr_pk_u8_i32 v0, v2, v4, v6": (
        "u32 u32 u32",
        "gfx950",
        lambda a, b, n: (
            saturate(signed(a, 32) >> (n & 31), 8, False)
            | saturate(signed(b, 32) >> (n & 31), 8, False) << 8
        ),
    ),
}


def half(a: int) -> int:
    result = ref.convert(a, 32, 16)
    return 0x7E00 if result == NAN else int(result)


def without_nan_payloads(bits: int) -> tuple[Result, Result]:
    return canonical(bits & M16, 16), canonical(bits >> 16, 16)


@pytest.mark.parametrize("text", PACKED)
def test_packing(text: str) -> None:
    kinds, target, compute = PACKED[text]
    texts = [other for other in PACKED if PACKED[other][1] == target]
    instruction = assemble_all(texts, target)[texts.index(text)]
    widths = [int(kind[1:]) for kind in kinds.split()]
    rows = columns(widths, floats=[i for i, kind in enumerate(kinds.split()) if kind[0] == "f"])
    got = evaluate(instruction, rows, 32, target=target)
    expected = [compute(*row) for row in rows]
    if "f16_f32" in text:
        assert not mismatches(
            list(map(without_nan_payloads, got)), list(map(without_nan_payloads, expected)), rows
        )
    else:
        assert not mismatches(got, expected, rows)


def test_accumulating_pack_keeps_the_other_bytes() -> None:
    # clang has no builtin for it and LLVM calls it v_cvt_pkaccum_u8_f32.
    (instruction,) = assemble_all(["v_cvt_pkaccum_u8_f32 v0, v2, v4"])
    rows = columns([32, 32], floats=(0,))
    got = evaluate(instruction, rows, 32, old=0xA1B2C3D4)
    assert not mismatches(got, [put_byte(a, i, 0xA1B2C3D4) for a, i in rows], rows)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_stochastic_rounding_is_unbiased(kind: str) -> None:
    (instruction,) = assemble_all([f"v_cvt_sr_{kind}_f32 v0, v2, v4"], "gfx950")
    drop = 13 if kind == "f16" else 16
    step = 1 << drop
    start = 0x3FC00000  # 1.5, a multiple of the step
    rows = [(start + step // 4, k << 22) for k in range(1024)]  # the top bits are the noise
    got = evaluate(instruction, rows, 16, target="gfx950")
    low = ref.bits_of(1.5, 16) if kind == "f16" else start >> 16
    assert set(got) == {low, low + 1}
    assert got.count(low + 1) == 256  # a quarter of the step goes up a quarter of the time
