"""The arithmetic of the scalar unit: tables that map a mnemonic to a function on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Width = Literal[32, 64]
Compare = Callable[[Any, Any], Any]
Single = Callable[[Any], tuple[Any, Any]]
Pair = Callable[[Any, Any, Any], tuple[Any, Any]]


class SingleOp(NamedTuple):
    """An operation on one operand of `width` bits: value -> (result, new SCC or None)."""

    function: Single
    width: Width = 32


class PairOp(NamedTuple):
    """An operation on two operands: (left, right, SCC) -> (result, new SCC or None).

    Attributes
    ----------
    function : callable
    width : {32, 64}
        Width of the operands.
    counts : bool
        The right operand is a count or a control word, always of 32 bits.
    """

    function: Pair
    width: Width = 32
    counts: bool = False


class CompareOp(NamedTuple):
    """A comparison of two operands: (left, right) -> SCC. `width` is that of the left one."""

    function: Compare
    width: Width = 32


_U32, _U64, _I32, _I64 = np.uint32, np.uint64, np.int32, np.int64


def _signed(value: Any) -> Any:
    value = np.asarray(value)
    return value.view(_I64 if value.dtype == _U64 else _I32)


def _unsigned(value: Any) -> Any:
    value = np.asarray(value)
    return value.view(_U64 if value.dtype.itemsize == 8 else _U32)


def _bits(value: Any) -> int:
    return int(np.asarray(value).dtype.itemsize * 8)


def _nonzero(value: Any) -> tuple[Any, Any]:
    return value, value != 0


# -- two operands ----------------------------------------------------------------------------------

LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andn1": lambda a, b: ~a & b,
    "orn1": lambda a, b: ~a | b,
}
"""Bitwise functions by the part of the mnemonic that names them."""


def _add(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
    wide = np.asarray(a, _U64) + np.asarray(b, _U64)
    return wide.astype(_U32), wide >> _U64(32) != 0


def _addc(a: Any, b: Any, scc: Any) -> tuple[Any, Any]:
    wide = np.asarray(a, _U64) + np.asarray(b, _U64) + scc.astype(_U64)
    return wide.astype(_U32), wide >> _U64(32) != 0


def _sub(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
    return np.subtract(a, b, dtype=_U32), np.asarray(b) > np.asarray(a)


def _subb(a: Any, b: Any, scc: Any) -> tuple[Any, Any]:
    borrow = np.asarray(b, _U64) + scc.astype(_U64)
    return (np.asarray(a, _U64) - borrow).astype(_U32), borrow > np.asarray(a, _U64)


def _signed_sum(sign: int) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        exact = _signed(a).astype(_I64) + sign * _signed(b).astype(_I64)
        result = exact.astype(_U32)
        return result, _signed(result) != exact

    return operation


def _select(pick_left: Callable[[Any, Any], Any], signed: bool) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        left = (
            pick_left(_signed(a), _signed(b)) if signed else pick_left(np.asarray(a), np.asarray(b))
        )
        return np.where(left, a, b), left

    return operation


def _logic(function: Callable[[Any, Any], Any]) -> Pair:
    return lambda a, b, _: _nonzero(np.asarray(function(a, b)))


def _shift(direction: str) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        a = np.asarray(a)
        amount = (np.asarray(b) & _U32(_bits(a) - 1)).astype(a.dtype)
        if direction == "left":
            return _nonzero(a << amount)
        if direction == "right":
            return _nonzero(a >> amount)
        return _nonzero(_unsigned(_signed(a) >> _signed(amount)))

    return operation


def _bitfield_mask(width: Width) -> Pair:
    kind: Any = _U64 if width == 64 else _U32

    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        size, offset = (np.asarray(x).astype(kind) & kind(width - 1) for x in (a, b))
        return ((kind(1) << size) - kind(1)) << offset, None

    return operation


def _extract(signed: bool) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        a = np.asarray(a)
        kind, bits = a.dtype.type, _bits(a)
        control = np.asarray(b)
        offset = (control & _U32(bits - 1)).astype(kind)
        size = np.minimum((control >> _U32(16)) & _U32(0x7F), _U32(bits)).astype(kind)
        left = kind(bits) - size  # shift the field to the top, then down again
        field = np.where(size == 0, kind(0), (a >> offset) << (left % kind(bits)))
        down = left % kind(bits)
        result = _unsigned(_signed(field) >> _signed(down)) if signed else field >> down
        result = np.where(size == 0, kind(0), result)
        return _nonzero(result)

    return operation


def _multiply(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
    return (np.asarray(a, _U64) * np.asarray(b, _U64)).astype(_U32), None


def _multiply_high(signed: bool) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        if signed:
            product = _signed(a).astype(_I64) * _signed(b).astype(_I64)
            return (product >> _I64(32)).astype(_U32), None
        return (np.asarray(a, _U64) * np.asarray(b, _U64) >> _U64(32)).astype(_U32), None

    return operation


def _shift_add(amount: int) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        wide = (np.asarray(a, _U64) << _U64(amount)) + np.asarray(b, _U64)
        return wide.astype(_U32), wide >> _U64(32) != 0

    return operation


def _absolute_difference(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
    difference = np.subtract(a, b, dtype=_U32)
    return _nonzero(np.where(_signed(difference) < 0, np.negative(difference), difference))


def _pack(a_high: bool, b_high: bool) -> Pair:
    def operation(a: Any, b: Any, _: Any) -> tuple[Any, Any]:
        low = np.asarray(a) >> _U32(16) if a_high else np.asarray(a) & _U32(0xFFFF)
        high = np.asarray(b) & _U32(0xFFFF0000) if b_high else np.asarray(b) << _U32(16)
        return low | high, None

    return operation


def _conditional_select(a: Any, b: Any, scc: Any) -> tuple[Any, Any]:
    return np.where(scc, a, b), None


PAIRS: dict[str, PairOp] = {
    "s_add_u32": PairOp(_add),
    "s_addc_u32": PairOp(_addc),
    "s_sub_u32": PairOp(_sub),
    "s_subb_u32": PairOp(_subb),
    "s_add_i32": PairOp(_signed_sum(1)),
    "s_sub_i32": PairOp(_signed_sum(-1)),
    "s_min_i32": PairOp(_select(np.less, signed=True)),
    "s_min_u32": PairOp(_select(np.less, signed=False)),
    "s_max_i32": PairOp(_select(np.greater, signed=True)),
    "s_max_u32": PairOp(_select(np.greater, signed=False)),
    "s_cselect_b32": PairOp(_conditional_select),
    "s_cselect_b64": PairOp(_conditional_select, width=64),
    "s_bfm_b32": PairOp(_bitfield_mask(32)),
    "s_bfm_b64": PairOp(_bitfield_mask(64)),
    "s_mul_i32": PairOp(_multiply),
    "s_mul_hi_u32": PairOp(_multiply_high(signed=False)),
    "s_mul_hi_i32": PairOp(_multiply_high(signed=True)),
    "s_absdiff_i32": PairOp(_absolute_difference),
    "s_pack_ll_b32_b16": PairOp(_pack(a_high=False, b_high=False)),
    "s_pack_lh_b32_b16": PairOp(_pack(a_high=False, b_high=True)),
    "s_pack_hh_b32_b16": PairOp(_pack(a_high=True, b_high=True)),
    "s_bfe_u32": PairOp(_extract(signed=False), counts=True),
    "s_bfe_i32": PairOp(_extract(signed=True), counts=True),
    "s_bfe_u64": PairOp(_extract(signed=False), width=64, counts=True),
    "s_bfe_i64": PairOp(_extract(signed=True), width=64, counts=True),
    "s_ashr_i32": PairOp(_shift("arithmetic"), counts=True),
    "s_ashr_i64": PairOp(_shift("arithmetic"), width=64, counts=True),
}
for _name in ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor"):
    PAIRS[f"s_{_name}_b32"] = PairOp(_logic(LOGIC[_name]))
    PAIRS[f"s_{_name}_b64"] = PairOp(_logic(LOGIC[_name]), width=64)
for _direction, _name in (("left", "lshl"), ("right", "lshr")):
    PAIRS[f"s_{_name}_b32"] = PairOp(_shift(_direction), counts=True)
    PAIRS[f"s_{_name}_b64"] = PairOp(_shift(_direction), width=64, counts=True)
for _amount in (1, 2, 3, 4):
    PAIRS[f"s_lshl{_amount}_add_u32"] = PairOp(_shift_add(_amount))


# -- one operand -----------------------------------------------------------------------------------


def _move(value: Any) -> tuple[Any, Any]:
    return value, None


def _invert(value: Any) -> tuple[Any, Any]:
    return _nonzero(~np.asarray(value))


def _reverse(value: Any) -> tuple[Any, Any]:
    value = np.atleast_1d(np.asarray(value))
    octets = np.ascontiguousarray(value).view(np.uint8).reshape(value.size, -1)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1]
    return np.packbits(bits, axis=1, bitorder="little").view(value.dtype)[:, 0], None


def _count(ones: bool) -> Single:
    def operation(value: Any) -> tuple[Any, Any]:
        value = np.asarray(value)
        found = np.bitwise_count(value if ones else ~value).astype(_U32)
        return _nonzero(found)

    return operation


def _lowest(value: Any) -> Any:
    """Return the index of the lowest set bit, or -1 if no bit is set."""
    value = np.asarray(value)
    isolated = value & np.negative(value)
    return np.where(value == 0, -1, np.bitwise_count(isolated - value.dtype.type(1)).astype(_I32))


def _leading_zeros(value: Any) -> Any:
    """Return the number of zeros above the highest set bit, or -1 if no bit is set."""
    value = np.asarray(value)
    filled, shift = value.copy(), 1
    while shift < _bits(value):
        filled |= filled >> value.dtype.type(shift)
        shift *= 2
    return np.where(value == 0, -1, _bits(value) - np.bitwise_count(filled).astype(_I32))


def _find_first(ones: bool) -> Single:
    return lambda value: (_lowest(value if ones else ~np.asarray(value)).astype(_U32), None)


def _find_last(value: Any) -> tuple[Any, Any]:
    return _leading_zeros(value).astype(_U32), None


def _find_sign(value: Any) -> tuple[Any, Any]:
    value = np.asarray(value)
    return _leading_zeros(np.where(_signed(value) < 0, ~value, value)).astype(_U32), None


def _extend(kind: type) -> Single:
    return lambda value: (np.asarray(value).astype(kind).astype(_I32).view(_U32), None)


def _absolute(value: Any) -> tuple[Any, Any]:
    value = np.asarray(value)
    return _nonzero(np.where(_signed(value) < 0, np.negative(value), value))


def _quads(value: Any) -> Any:
    """Return a mask whose bit 4i tells whether any of the bits 4i to 4i + 3 is set."""
    value = np.asarray(value)
    kind = value.dtype.type
    pairs = value | value >> kind(1)
    return (pairs | pairs >> kind(2)) & kind(0x1111111111111111 & (1 << _bits(value)) - 1)


def _whole_quad(value: Any) -> tuple[Any, Any]:
    quads = _quads(value)
    return _nonzero(quads * quads.dtype.type(15))


def _quad_mask(value: Any) -> tuple[Any, Any]:
    quads = _quads(value)
    kind = quads.dtype.type
    gathered = np.zeros_like(quads)
    for i in range(_bits(quads) // 4):
        gathered |= (quads >> kind(3 * i)) & (kind(1) << kind(i))
    return _nonzero(gathered)


def _replicate(value: Any) -> tuple[Any, Any]:
    """Repeat every bit: bit i goes to bits 2i and 2i + 1."""
    value = np.asarray(value, _U64)
    result = np.zeros_like(value)
    for i in range(32):
        result |= (value >> _U64(i) & _U64(1)) * _U64(3) << _U64(2 * i)
    return result, None


SINGLES: dict[str, SingleOp] = {
    "s_sext_i32_i8": SingleOp(_extend(np.int8)),
    "s_sext_i32_i16": SingleOp(_extend(np.int16)),
    "s_abs_i32": SingleOp(_absolute),
    "s_flbit_i32": SingleOp(_find_sign),
    "s_flbit_i32_i64": SingleOp(_find_sign, width=64),
    "s_flbit_i32_b32": SingleOp(_find_last),
    "s_flbit_i32_b64": SingleOp(_find_last, width=64),
    "s_bitreplicate_b64_b32": SingleOp(_replicate),
}
_WIDTHS: tuple[tuple[str, Width], ...] = (("b32", 32), ("b64", 64))
for _type, _width in _WIDTHS:
    SINGLES[f"s_mov_{_type}"] = SingleOp(_move, _width)
    SINGLES[f"s_not_{_type}"] = SingleOp(_invert, _width)
    SINGLES[f"s_wqm_{_type}"] = SingleOp(_whole_quad, _width)
    SINGLES[f"s_quadmask_{_type}"] = SingleOp(_quad_mask, _width)
    SINGLES[f"s_brev_{_type}"] = SingleOp(_reverse, _width)
    for _digit in (0, 1):
        SINGLES[f"s_bcnt{_digit}_i32_{_type}"] = SingleOp(_count(_digit == 1), _width)
        SINGLES[f"s_ff{_digit}_i32_{_type}"] = SingleOp(_find_first(_digit == 1), _width)


# -- comparisons -----------------------------------------------------------------------------------


def _bit_compare(expected: int) -> Compare:
    def operation(a: Any, b: Any) -> Any:
        a = np.asarray(a)
        kind = a.dtype.type
        position = np.asarray(b).astype(kind) & kind(_bits(a) - 1)
        return (a >> position & kind(1)) == kind(expected)

    return operation


def _as_signed(compare: Compare) -> Compare:
    return lambda a, b: compare(_signed(a), _signed(b))


COMPARES: dict[str, CompareOp] = {
    "s_cmp_eq_u64": CompareOp(np.equal, width=64),
    "s_cmp_lg_u64": CompareOp(np.not_equal, width=64),
    "s_bitcmp0_b32": CompareOp(_bit_compare(0)),
    "s_bitcmp1_b32": CompareOp(_bit_compare(1)),
    "s_bitcmp0_b64": CompareOp(_bit_compare(0), width=64),
    "s_bitcmp1_b64": CompareOp(_bit_compare(1), width=64),
}
_RELATIONS: dict[str, Compare] = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
for _name, _compare in _RELATIONS.items():
    COMPARES[f"s_cmp_{_name}_u32"] = CompareOp(_compare)
    COMPARES[f"s_cmp_{_name}_i32"] = CompareOp(_as_signed(_compare))
