"""Operations on the four bytes of a register: sums of absolute differences, and averages.

Source: AMD's pseudocode in the CDNA instruction-set guides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.lanewise import Function, Op, Step, source_operands
from cupygemm.emulator.units.operands import source
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.waves.state import Group

_U8, _U32, _U64 = np.uint8, np.uint32, np.uint64


def bytes_of(a: Array) -> Array:
    """View uint32 (..., n) as uint8 (..., n, 4)."""
    return np.ascontiguousarray(a).view(_U8).reshape(*a.shape, 4)


def from_bytes(a: Array) -> Array:
    """Pack bytes (..., n, 4) into uint32 (..., n)."""
    return np.ascontiguousarray(a, _U8).view(_U32)[..., 0]


def _difference(a: Array, b: Array) -> Array:
    return np.where(a > b, a - b, b - a)


def _sad_u8(a: Array, b: Array, c: Any) -> Array:
    result: Array = _difference(bytes_of(a), bytes_of(b)).sum(axis=-1, dtype=_U32) + c
    return result


def _msad_u8(a: Array, b: Array, c: Array) -> Array:
    reference = bytes_of(b)
    terms = np.where(reference == 0, _U8(0), _difference(bytes_of(a), reference))
    result: Array = terms.sum(axis=-1, dtype=_U32) + c
    return result


def _sad_u16(a: Array, b: Array, c: Array) -> Array:
    low = _difference(a & _U32(0xFFFF), b & _U32(0xFFFF))
    return low + _difference(a >> _U32(16), b >> _U32(16)) + c


def _sliding(sad: Function) -> Function:
    """Return the packed form: four 16-bit sums over the bytes 0..3, 1..4, 2..5 and 3..6 of a."""

    def packed(a: Array, b: Array, c: Array) -> Array:
        result: Any = _U64(0)
        for i in range(4):
            window = (a >> _U64(8 * i)).astype(_U32)
            start = (c >> _U64(16 * i)).astype(_U32) & _U32(0xFFFF)
            result = result | (sad(window, b, start) & _U32(0xFFFF)).astype(_U64) << _U64(16 * i)
        total: Array = result
        return total

    return packed


def _lerp_u8(a: Array, b: Array, c: Array) -> Array:
    total = bytes_of(a).astype(np.uint16) + bytes_of(b) + (bytes_of(c) & _U8(1))
    return from_bytes((total >> np.uint16(1)).astype(_U8))


def bind(inst: Instruction) -> Step | None:
    """Return the step of v_mqsad_u32_u8, which has four accumulators, or None for others."""
    if inst.mnemonic != "v_mqsad_u32_u8":
        return None
    window, reference, accumulators = source_operands(inst)
    first, second = source(inst, window, "u64"), source(inst, reference, "u32")
    start, index = accumulators.index, inst.dst[0].index

    def step(group: Group) -> None:
        bytes_, pattern = first(group), second(group)
        sums = [
            _msad_u8((bytes_ >> _U64(8 * i)).astype(_U32), pattern, group.v(start + i))
            for i in range(4)
        ]
        for i, total in enumerate(sums):
            group.set_v(index + i, total)

    return step


OPS: dict[str, Op] = {
    "v_sad_u8": Op(_sad_u8),
    "v_sad_hi_u8": Op(lambda a, b, c: (_sad_u8(a, b, _U32(0)) << _U32(16)) + c),
    "v_sad_u16": Op(_sad_u16),
    "v_sad_u32": Op(lambda a, b, c: _difference(a, b) + c),
    "v_msad_u8": Op(_msad_u8),
    "v_qsad_pk_u16_u8": Op(_sliding(_sad_u8)),
    "v_mqsad_pk_u16_u8": Op(_sliding(_msad_u8)),
    "v_lerp_u8": Op(_lerp_u8),
}
