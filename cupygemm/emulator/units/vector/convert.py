"""Conversions of the vector ALU between integers, f16, bf16, f32, f64 and packed forms of them.

A conversion from float to integer truncates, saturates and converts NaN to 0. f32 to f16 rounds
according to MODE, and the packed form v_cvt_pkrtz rounds towards zero. fp8.py has the
conversions to and from 8-bit floats and the scaled ones of CDNA4.
Source: AMD's pseudocode in the CDNA instruction-set guides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.units import formats
from cupygemm.emulator.units.lanewise import Function, Op
from cupygemm.emulator.units.vector.functions import TO_ZERO, Array, float_to_half

_F32, _F64, _U32, _I32, _U16, _I16 = (
    np.float32,
    np.float64,
    np.uint32,
    np.int32,
    np.uint16,
    np.int16,
)


def to_integer(values: Array, dtype: Any) -> Array:
    """Truncate floats to an integer type of up to 32 bits, saturating; NaN becomes 0."""
    limits = np.iinfo(dtype)
    wide = values.astype(_F64)  # holds every limit
    clipped = np.minimum(np.maximum(wide, float(limits.min)), float(limits.max))  # NaN stays
    result: Array = np.where(np.isnan(wide), 0.0, clipped).astype(np.int64).astype(dtype)
    return result


def _to(dtype: Any) -> Function:
    return lambda a: to_integer(a, dtype)


def _unsigned_byte(index: int) -> Function:
    return lambda a: (a >> _U32(8 * index) & _U32(0xFF)).astype(_F32)


def _four_bit_offset(a: Array) -> Array:
    """Convert the low four bits, a signed number of sixteenths."""
    value = (a & 15).astype(_I32)
    return ((value ^ 8) - 8).astype(_F32) / _F32(16)


def _normalized(dtype: Any) -> Function:
    """Return the map of [-1, 1] or [0, 1] to the range of a 16-bit integer, to nearest even."""
    high = np.iinfo(dtype).max
    low = -high if np.iinfo(dtype).min else 0

    def normalize(a: Array) -> Array:
        scaled = np.rint(np.nan_to_num(a.astype(_F64)) * high)
        return np.clip(scaled, low, high).astype(np.int64).astype(dtype)

    return normalize


def pack_halves(low: Array, high: Array) -> Array:
    """Combine two arrays of 16-bit values into uint32."""
    return low.view(_U16).astype(_U32) | high.view(_U16).astype(_U32) << _U32(16)


def _half_towards_zero(a: Array) -> Array:
    return float_to_half(a, TO_ZERO)


def _pack(convert: Function) -> Function:
    return lambda a, b: pack_halves(convert(a), convert(b))


def _clip_to(dtype: Any) -> Function:
    limits = np.iinfo(dtype)
    return lambda a: np.clip(a, a.dtype.type(limits.min), a.dtype.type(limits.max)).astype(dtype)


def _pack_unsigned_byte(a: Array, index: Array, rest: Array) -> Array:
    shift = (index & _U32(3)) << _U32(3)
    byte = to_integer(a, np.uint8).astype(_U32)
    result: Array = rest & ~(_U32(0xFF) << shift) | byte << shift
    return result


def _saturate_pack_bytes(a: Array) -> Array:
    """Return the two signed 16-bit halves clamped to unsigned bytes, packed in 16 bits."""
    low = np.clip(a.astype(_U16).view(_I16), _I16(0), _I16(255))
    high = np.clip((a >> _U32(16)).astype(_U16).view(_I16), _I16(0), _I16(255))
    return low.view(_U16) | high.view(_U16) << _U16(8)


def _shift_pack(low: int, high: int) -> Function:
    """Return v_ashr_pk: two shifted integers, saturated to bytes and packed in 16 bits."""

    def shift_pack(a: Array, b: Array, shift: Array) -> Array:
        amount = (shift & _U32(31)).view(_I32)
        first, second = (
            np.clip(value >> amount, _I32(low), _I32(high)).astype(np.uint8).astype(_U16)
            for value in (a, b)
        )
        result: Array = first | second << _U16(8)
        return result

    return shift_pack


def _half_stochastic(a: Array, random: Array) -> Array:
    """Round f32 to f16 values by adding random bits below the last place.

    The top 13 bits of the random number are added to the 13 bits that a normal result drops.
    """
    magnitude = np.abs(a.astype(_F64))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, -14)
    units = np.ldexp(np.where(np.isfinite(magnitude), magnitude, 0), 10 - exponent)
    noise = np.ldexp((random >> _U32(19)).astype(_F64), -13)
    value = np.ldexp(np.floor(units + noise), exponent - 10)
    value = np.where(value > 65504.0, np.inf, value)
    return np.where(np.isfinite(a), np.copysign(value, a), a).astype(_F32)


def _bf16_stochastic(a: Array, random: Array) -> Array:
    a, random = np.broadcast_arrays(a, random)
    return formats.f32_to_bf16(a, random=random)


OPS: dict[str, Op] = {
    # integers and floats
    "v_cvt_i32_f32": Op(_to(_I32), exact=True),
    "v_cvt_u32_f32": Op(_to(_U32), exact=True),
    "v_cvt_i32_f64": Op(_to(_I32), exact=True),
    "v_cvt_u32_f64": Op(_to(_U32), exact=True),
    "v_cvt_i16_f16": Op(_to(_I16), exact=True),
    "v_cvt_u16_f16": Op(_to(_U16), exact=True),
    "v_cvt_rpi_i32_f32": Op(lambda a: to_integer(np.floor(a.astype(_F64) + 0.5), _I32), exact=True),
    "v_cvt_flr_i32_f32": Op(lambda a: to_integer(np.floor(a), _I32), exact=True),
    "v_cvt_f32_i32": Op(lambda a: a.astype(_F32)),
    "v_cvt_f32_u32": Op(lambda a: a.astype(_F32)),
    "v_cvt_f64_i32": Op(lambda a: a.astype(_F64)),
    "v_cvt_f64_u32": Op(lambda a: a.astype(_F64)),
    "v_cvt_f16_i16": Op(lambda a: a.astype(_F32)),
    "v_cvt_f16_u16": Op(lambda a: a.astype(_F32)),
    **{f"v_cvt_f32_ubyte{i}": Op(_unsigned_byte(i), exact=True) for i in range(4)},
    "v_cvt_off_f32_i4": Op(_four_bit_offset, exact=True),
    "v_cvt_norm_i16_f16": Op(_normalized(_I16), exact=True),
    "v_cvt_norm_u16_f16": Op(_normalized(_U16), exact=True),
    # floats and floats
    "v_cvt_f16_f32": Op(lambda a: a),
    "v_cvt_f32_f16": Op(lambda a: a * _F32(1)),  # the product quiets NaN
    "v_cvt_f32_f64": Op(lambda a: a.astype(_F32)),
    "v_cvt_f64_f32": Op(lambda a: a.astype(_F64)),
    "v_cvt_f32_bf16": Op(lambda a: a * _F32(1), exact=True),
    "v_cvt_sr_f16_f32": Op(_half_stochastic, exact=True, keep_high=True),
    "v_cvt_sr_bf16_f32": Op(_bf16_stochastic, "f32 u32", "u16", keep_high=True),
    # two results in one register
    "v_cvt_pkrtz_f16_f32": Op(_pack(_half_towards_zero)),
    "v_cvt_pk_f16_f32": Op(_pack(float_to_half)),
    "v_cvt_pk_bf16_f32": Op(_pack(formats.f32_to_bf16)),
    "v_cvt_pknorm_i16_f32": Op(_pack(_normalized(_I16))),
    "v_cvt_pknorm_u16_f32": Op(_pack(_normalized(_U16))),
    "v_cvt_pknorm_i16_f16": Op(_pack(_normalized(_I16))),
    "v_cvt_pknorm_u16_f16": Op(_pack(_normalized(_U16))),
    "v_cvt_pk_i16_i32": Op(_pack(_clip_to(_I16))),
    "v_cvt_pk_u16_u32": Op(_pack(_clip_to(_U16))),
    "v_cvt_pk_u8_f32": Op(_pack_unsigned_byte),
    "v_cvt_pkaccum_u8_f32": Op(_pack_unsigned_byte),
    "v_pack_b32_f16": Op(pack_halves, "u16 u16", signed=True),
    "v_sat_pk_u8_i16": Op(_saturate_pack_bytes, "u32", "u16"),
    "v_ashr_pk_i8_i32": Op(_shift_pack(-128, 127), "i32 i32 u32", "u16", keep_high=True),
    "v_ashr_pk_u8_i32": Op(_shift_pack(0, 255), "i32 i32 u32", "u16", keep_high=True),
}
