"""Integer operations of the vector ALU: arithmetic, shifts, bit fields, counting.

Every entry follows the pseudocode of AMD's CDNA instruction-set guides. Arrays wrap at their own
width. An operation that the clamp bit may saturate is also correct on int64 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.lanewise import Function, Op
from cupygemm.emulator.units.vector import functions as native
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.waves.state import LANES

_U32, _U64, _I32, _I64 = np.uint32, np.uint64, np.int32, np.int64
_LOW5, _LOW6, _LOW4 = _U32(31), _U32(63), _U32(15)
_MASK24, _SIGN24 = _I32(0xFFFFFF), _I32(0x800000)
_ALL = _U32(0xFFFFFFFF)
# For each lane, a mask of the lanes below it, in the low and in the high half of the wave.
_BELOW = (np.uint64(1) << np.arange(LANES, dtype=np.uint64)) - np.uint64(1)
_BELOW_LOW, _BELOW_HIGH = _BELOW.astype(np.uint32), (_BELOW >> np.uint64(32)).astype(np.uint32)


def _reverse(function: Function) -> Function:
    return lambda a, b: function(b, a)


# -- carries ---------------------------------------------------------------------------------------


def _add_carry(inst: Instruction, target: Target) -> Function:
    clamp = bool(inst.fields.get("clmp"))

    def add(a: Array, b: Array, carry_in: Array | None = None) -> tuple[Array, Array]:
        total = a + b
        carry = total < a
        if carry_in is not None:
            total = total + carry_in
            carry = carry | carry_in & (total == 0)
        return (np.where(carry, _ALL, total) if clamp else total), carry

    return add


def _subtract_borrow(reverse: bool) -> Any:
    def make(inst: Instruction, target: Target) -> Function:
        clamp = bool(inst.fields.get("clmp"))

        def subtract(a: Array, b: Array, borrow_in: Array | None = None) -> tuple[Array, Array]:
            if reverse:
                a, b = b, a
            difference, borrow = a - b, b > a
            if borrow_in is not None:
                borrow = borrow | borrow_in & (difference == 0)
                difference = difference - borrow_in
            return (np.where(borrow, _U32(0), difference) if clamp else difference), borrow

        return subtract

    return make


def _mad_u64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(_U64) * b
    total = product + c
    return total, total < product


def _mad_i64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(_I64) * b
    total = product + c
    overflow = ((product ^ total) & (c ^ total)) < 0
    return total, (total < 0) ^ overflow  # bit 64 of the 65-bit sum


# -- bit fields ------------------------------------------------------------------------------------


def _sext24(a: Array) -> Array:
    return ((a & _MASK24) ^ _SIGN24) - _SIGN24


def _bfe_u32(a: Array, offset: Array, width: Array) -> Array:
    result: Array = (a >> (offset & _LOW5)) & ((_U32(1) << (width & _LOW5)) - _U32(1))
    return result


def _bfe_i32(a: Array, offset: Array, width: Array) -> Array:
    width = (width & _LOW5).view(_I32)
    field = a >> (offset & _LOW5).view(_I32)
    up = _I32(32) - width & _I32(31)
    return np.where(width == 0, _I32(0), (field << up) >> up)


def _align(a: Array, b: Array, shift: Array) -> Array:
    both = a.astype(_U64) << _U64(32) | b
    return (both >> shift).astype(_U32)


def _reverse_bits(a: Array) -> Array:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        a = (a >> _U32(shift) & _U32(mask)) | (a & _U32(mask)) << _U32(shift)
    return a.byteswap()


def _bitop3(inst: Instruction, target: Target) -> Function:
    """Return the function whose truth table the modifier fields hold, with bit 4a + 2b + c."""
    fields = inst.fields
    table = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]

    def bitop3(a: Array, b: Array, c: Array) -> Array:
        result: Array = np.zeros((1, 1), a.dtype)
        for row in range(8):
            if table >> row & 1:
                term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
                result = result | term
        return result

    return bitop3


# -- counting --------------------------------------------------------------------------------------


def _leading_zeros(a: Array) -> Array:
    """Return the number of zeros above the highest set bit, or -1 if no bit is set."""
    length = np.frexp(a.astype(np.float64))[1]
    return np.where(a == 0, _I32(-1), _I32(32) - length)


def _leading_signs(a: Array) -> Array:
    return _leading_zeros((a ^ (a >> _I32(31))).view(_U32))


def _trailing_zeros(a: Array) -> Array:
    lowest = a & (~a + _U32(1))
    return np.where(a == 0, _I32(-1), np.bitwise_count(lowest - _U32(1)).astype(_I32))


def _count_below(lanes: Array) -> Function:
    return lambda a, b: np.bitwise_count(a & lanes) + b


# -- three operands --------------------------------------------------------------------------------


def _median(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _min3(a: Array, b: Array, c: Array) -> Array:
    return np.minimum(np.minimum(a, b), c)


def _max3(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.maximum(a, b), c)


def _mad(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


OPS: dict[str, Op] = {
    "v_mov_b32": Op(lambda a: a),
    "v_mov_b64": Op(lambda a: a),
    "v_cndmask_b32": Op(lambda a, b, mask: np.where(mask, b, a), signed=True),
    # bitwise
    "v_not_b32": Op(np.invert),
    "v_and_b32": Op(np.bitwise_and),
    "v_or_b32": Op(np.bitwise_or),
    "v_xor_b32": Op(np.bitwise_xor),
    "v_xnor_b32": Op(lambda a, b: ~(a ^ b)),
    "v_and_or_b32": Op(lambda a, b, c: (a & b) | c),
    "v_or3_b32": Op(lambda a, b, c: a | b | c),
    "v_bfi_b32": Op(lambda a, b, c: (a & b) | (~a & c)),
    "v_bitop3_b32": Op(make=_bitop3),
    "v_bitop3_b16": Op(make=_bitop3, keep_high=True),
    # sums
    "v_add_u32": Op(np.add),
    "v_sub_u32": Op(np.subtract),
    "v_subrev_u32": Op(_reverse(np.subtract)),
    "v_add_i32": Op(np.add),
    "v_sub_i32": Op(np.subtract),
    "v_add_u16": Op(np.add),
    "v_sub_u16": Op(np.subtract),
    "v_subrev_u16": Op(_reverse(np.subtract)),
    "v_add_i16": Op(np.add, keep_high=True),
    "v_sub_i16": Op(np.subtract, keep_high=True),
    "v_add_co_u32": Op(make=_add_carry),
    "v_addc_co_u32": Op(make=_add_carry),
    "v_sub_co_u32": Op(make=_subtract_borrow(reverse=False)),
    "v_subb_co_u32": Op(make=_subtract_borrow(reverse=False)),
    "v_subrev_co_u32": Op(make=_subtract_borrow(reverse=True)),
    "v_subbrev_co_u32": Op(make=_subtract_borrow(reverse=True)),
    "v_add3_u32": Op(lambda a, b, c: a + b + c),
    "v_xad_u32": Op(lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u32": Op(lambda a, b, c: (a << (b & _LOW5)) + c),
    "v_add_lshl_u32": Op(lambda a, b, c: (a + b) << (c & _LOW5)),
    "v_lshl_or_b32": Op(lambda a, b, c: (a << (b & _LOW5)) | c),
    "v_lshl_add_u64": Op(lambda a, b, c: (a << (b & _U32(7))) + c),
    # products
    "v_mul_lo_u32": Op(np.multiply),
    "v_mul_hi_u32": Op(lambda a, b: (a.astype(_U64) * b >> _U64(32)).astype(_U32)),
    "v_mul_hi_i32": Op(lambda a, b: (a.astype(_I64) * b >> _I64(32)).astype(_I32)),
    "v_mul_u32_u24": Op(lambda a, b: (a & _U32(0xFFFFFF)) * (b & _U32(0xFFFFFF))),
    "v_mul_i32_i24": Op(lambda a, b: _sext24(a) * _sext24(b)),
    "v_mul_hi_u32_u24": Op(
        lambda a, b: ((a & _U32(0xFFFFFF)).astype(_U64) * (b & _U32(0xFFFFFF)) >> _U64(32)).astype(
            _U32
        )
    ),
    "v_mul_hi_i32_i24": Op(
        lambda a, b: (_sext24(a).astype(_I64) * _sext24(b) >> _I64(32)).astype(_I32)
    ),
    "v_mad_u32_u24": Op(lambda a, b, c: (a & _U32(0xFFFFFF)) * (b & _U32(0xFFFFFF)) + c),
    "v_mad_i32_i24": Op(lambda a, b, c: _sext24(a) * _sext24(b) + c),
    "v_mad_u64_u32": Op(_mad_u64),
    "v_mad_i64_i32": Op(_mad_i64),
    "v_mul_lo_u16": Op(np.multiply),
    "v_mad_u16": Op(_mad, keep_high=True),
    "v_mad_i16": Op(_mad, keep_high=True),
    "v_mad_legacy_u16": Op(_mad, "u16 u16 u16", "u16"),
    "v_mad_legacy_i16": Op(_mad, "i16 i16 i16", "i16"),
    "v_mad_u32_u16": Op(lambda a, b, c: a.astype(_U32) * b + c if a.dtype != _I64 else a * b + c),
    "v_mad_i32_i16": Op(lambda a, b, c: a.astype(_I32) * b + c if a.dtype != _I64 else a * b + c),
    # shifts
    "v_lshlrev_b32": Op(lambda a, b: b << (a & _LOW5)),
    "v_lshrrev_b32": Op(lambda a, b: b >> (a & _LOW5)),
    "v_ashrrev_i32": Op(lambda a, b: b >> (a & _LOW5).view(_I32), "u32 i32"),
    "v_lshlrev_b64": Op(lambda a, b: b << (a & _LOW6)),
    "v_lshrrev_b64": Op(lambda a, b: b >> (a & _LOW6)),
    "v_ashrrev_i64": Op(lambda a, b: b >> (a & _LOW6), "u32 i64"),
    "v_lshlrev_b16": Op(lambda a, b: b << (a & np.uint16(15))),
    "v_lshrrev_b16": Op(lambda a, b: b >> (a & np.uint16(15))),
    "v_ashrrev_i16": Op(lambda a, b: b >> (a & np.uint16(15)).view(np.int16), "u16 i16"),
    # minima, maxima, medians
    **{
        f"v_{name}_{kind}": Op(function, keep_high=kind.endswith("16") and name.endswith("3"))
        for name, function in (
            ("min", np.minimum),
            ("max", np.maximum),
            ("min3", _min3),
            ("max3", _max3),
            ("med3", _median),
        )
        for kind in ("i32", "u32", "i16", "u16")
    },
    # bit fields
    "v_bfe_u32": Op(_bfe_u32),
    "v_bfe_i32": Op(_bfe_i32),
    "v_bfm_b32": Op(lambda a, b: ((_U32(1) << (a & _LOW5)) - _U32(1)) << (b & _LOW5)),
    "v_alignbit_b32": Op(lambda a, b, c: _align(a, b, c & _LOW5)),
    "v_alignbyte_b32": Op(lambda a, b, c: _align(a, b, (c & _U32(3)) << _U32(3))),
    "v_perm_b32": Op(native.permute_bytes),
    "v_bfrev_b32": Op(_reverse_bits),
    # counting
    "v_ffbh_u32": Op(_leading_zeros),
    "v_ffbh_i32": Op(_leading_signs),
    "v_ffbl_b32": Op(_trailing_zeros),
    "v_bcnt_u32_b32": Op(lambda a, b: np.bitwise_count(a) + b),
    "v_mbcnt_lo_u32_b32": Op(_count_below(_BELOW_LOW)),
    "v_mbcnt_hi_u32_b32": Op(_count_below(_BELOW_HIGH)),
    "v_prng_b32": Op(lambda a: (a << _U32(1)) ^ np.where(a >> _U32(31), _U32(197), _U32(0))),
}
