"""Operands that are not registers: inline constants, literals and hardware values.

The *kind* of an operand is the type that an operation reads: ``u32 i32 f32 u64 i64 f64 u16 i16 f16
bf16``, or ``mask`` for one bool per lane from a scalar register pair. Operand codes: AMD's CDNA3
instruction-set guide, section 5.2.
"""

from __future__ import annotations

import struct

from cupygemm.emulator.isa.instruction import APERTURE_PRIVATE, APERTURE_SHARED, Operand

WIDTH = {
    **dict.fromkeys(("u16", "i16", "f16", "bf16"), 16),
    **dict.fromkeys(("u32", "i32", "f32"), 32),
    **dict.fromkeys(("u64", "i64", "f64", "mask"), 64),
}
FLOATS = frozenset(("f32", "f64", "f16", "bf16"))
VCCZ, EXECZ, SCC = 251, 252, 253
APERTURES = {
    235: APERTURE_SHARED,
    236: APERTURE_SHARED | 0xFFFFFFFF,
    237: APERTURE_PRIVATE,
    238: APERTURE_PRIVATE | 0xFFFFFFFF,
}
"""Base and limit of the apertures through which flat instructions reach LDS and private memory."""
_FLOAT_INLINE = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INVERSE_TWO_PI = {"f16": 0x3118, "bf16": 0x3E22, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}


def constant_bits(op: Operand, kind: str) -> int:
    """Return the bits of an inline constant or literal as an operand of `kind`.

    An inline float has the operand's width; a 16-bit integer operand reads the half-precision
    pattern. A literal is the high half of an f64 operand. For other 64-bit operands it is extended
    by the operand's signedness.
    """
    width = WIDTH[kind]
    all_ones = (1 << width) - 1
    code = op.index
    if code == 255:
        if kind == "f64":
            return op.literal << 32
        if kind == "i64" and op.literal >> 31:
            return op.literal | 0xFFFFFFFF << 32
        return op.literal & all_ones
    if code <= 192:
        return code - 128
    if code <= 208:
        return (192 - code) & all_ones
    as_float = kind if kind in FLOATS else {16: "f16", 32: "f32", 64: "f64"}[width]
    if code == 248:
        return _INVERSE_TWO_PI[as_float]
    return float_bits(_FLOAT_INLINE[code], as_float)


def float_bits(value: float, kind: str) -> int:
    """Return the bits of a value that `kind` can represent exactly."""
    if kind == "bf16":
        return float_bits(value, "f32") >> 16
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[kind]
    return int.from_bytes(struct.pack(code, value), "little")
