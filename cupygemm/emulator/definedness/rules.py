"""Rules: how the undefined bits of a vector operation's result follow from those of its sources.

`rule_of` returns the rule of an instruction. A rule takes the undefined bits of the sources and
functions that fetch their values, which only a few rules need. It returns undefined bits as wide as
the result, or an array of bools that tells which lanes are undefined as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.definedness.bits import (
    RELATIONS,
    anywhere,
    comparison,
    logic,
    table_of,
    upward,
)
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.vector import unit as vector

Rule = Callable[[list[Any], list[Callable[[], Any]]], Any]
_U32 = np.uint32


def rule_of(inst: Instruction) -> tuple[Rule, bool]:
    """Return the rule of an instruction, and whether the instruction only moves bits."""
    name = inst.mnemonic
    rule = _MOVES.get(name) or _COMPUTES.get(name)
    if name.startswith("v_bitop3_"):
        rule = _bitop3(inst)
    elif name.startswith("v_cmp"):
        rule = _comparison(name)
    return rule or either, name in _MOVES


def either(bits: list[Any], _values: Any) -> Any:
    """Return the lanes in which any bit of a source is undefined."""
    found: Any = False
    for source_bits in bits:
        found = found | (source_bits != 0)
    return found


def copied(bits: list[Any], _values: Any) -> Any:
    """Return the undefined bits of the only source."""
    return bits[0]


def summed(bits: list[Any], _values: Any) -> Any:
    """Return the undefined bits of a sum or a product."""
    return upward(functools.reduce(lambda a, b: a | b, bits))


def _sum_with_carry(bits: list[Any], _values: Any) -> Any:
    total = upward(bits[0] | bits[1])
    return total if len(bits) == 2 else np.where(bits[2], ~_U32(0), total)


def _sum24(bits: list[Any], _values: Any) -> Any:
    low = _U32(0xFFFFFF)
    return upward(functools.reduce(lambda a, b: a | b, [bits[0] & low, bits[1] & low, *bits[2:]]))


def summed_in_64_bits(bits: list[Any], _values: Any) -> Any:
    """Return the undefined bits of a 64-bit sum."""
    return upward(functools.reduce(lambda a, b: a | b, [b.astype(np.uint64) for b in bits]))


class Table:
    """The rule of a bitwise function, by its truth table."""

    def __init__(self, table: int) -> None:
        self.table = table

    def __call__(self, bits: list[Any], values: list[Callable[[], Any]]) -> Any:
        """Return the bits of the result that undefined bits can change."""
        return logic(self.table, [value() for value in values], bits)


def _table(function: Callable[..., int], inputs: int) -> Rule:
    return Table(table_of(function, inputs))


class Moving:
    """The rule of an operation that moves bits of its data under control of its other sources."""

    def __init__(self, name: str, *data: int) -> None:
        operation = vector.OPS[name]
        assert operation.function is not None
        kinds = operation.sources.split() or ["i32" if name.endswith("_i32") else "u32"]
        self.data = data
        self._function = operation.function
        self._signed = [kind[0] == "i" for kind in kinds] + [False] * (3 - len(kinds))

    def __call__(self, bits: list[Any], values: list[Callable[[], Any]]) -> Any:
        """Return the moved bits; an undefined control bit makes all of them undefined."""
        operands = [bits[i] if i in self.data else values[i]() for i in range(len(bits))]
        moved = self._function(
            *[
                _signed(x) if is_signed else x
                for x, is_signed in zip(operands, self._signed, strict=False)
            ]
        )
        moved = moved.view(f"u{moved.dtype.itemsize}")
        for i, control in enumerate(bits):
            if i not in self.data:
                moved = moved | anywhere(control, moved.dtype)
        return moved


def _signed(array: Any) -> Any:
    return array.view(f"i{array.dtype.itemsize}")


def _permute(bits: list[Any], values: list[Callable[[], Any]]) -> Any:
    """Move bytes; a selector of 12 or more produces a constant."""
    moved, selector = Moving("v_perm_b32", 0, 1)(bits, values), values[2]()
    constant: Any = _U32(0)
    for byte in range(4):
        picks = selector >> _U32(8 * byte) & _U32(0xFF)
        constant = constant | np.where(picks >= 12, _U32(0xFF << 8 * byte), _U32(0))
    return moved & ~constant | anywhere(bits[2], _U32)


def _shift_or(bits: list[Any], values: list[Callable[[], Any]]) -> Any:
    shifted = bits[0] << (values[1]() & _U32(31))
    low = values[0]() << (values[1]() & _U32(31))
    both = logic(_OR, [low, values[2]()], [shifted, bits[2]])
    return both | anywhere(bits[1], _U32)


def shifted_and_summed(bits: list[Any], values: list[Callable[[], Any]]) -> Any:
    """Return the undefined bits of a sum whose first term is shifted to the left."""
    width = bits[2].dtype.type
    distance = values[1]().astype(width) & width(31)
    return upward(bits[0] << distance | bits[2]) | anywhere(bits[1], width)


def _add_shift(bits: list[Any], values: list[Callable[[], Any]]) -> Any:
    return upward(bits[0] | bits[1]) << (values[2]() & _U32(31)) | anywhere(bits[2], _U32)


def select(bits: list[Any], values: list[Callable[[], Any]]) -> Any:
    """Select; an undefined selector makes the bits undefined in which the two values differ."""
    first, second, selector = bits
    chosen = np.where(values[2](), second, first)
    unsure = (values[0]() ^ values[1]()) | first | second
    return np.where(selector, unsure, chosen)


def _packed_half(bits: list[Any], _values: Any) -> Any:
    return bits[0].astype(_U32) | bits[1].astype(_U32) << _U32(16)


def _byte(number: int) -> Rule:
    return lambda bits, _values: bits[0] >> _U32(8 * number) & _U32(0xFF) != 0


class Comparison:
    """The rule of a comparison of two integers."""

    def __init__(self, relation: str, *, signed: bool) -> None:
        self.relation, self.signed = relation, signed

    def __call__(self, bits: list[Any], values: list[Callable[[], Any]]) -> Any:
        """Return the lanes in which undefined bits can change the result."""
        return comparison(self.relation, [value() for value in values], bits, signed=self.signed)


def _comparison(name: str) -> Rule | None:
    relation, _, kind = (
        name.partition("_cmp")[2].removeprefix("x").removeprefix("_").rpartition("_")
    )
    if relation not in RELATIONS or kind[:1] not in ("i", "u"):
        return None
    return Comparison(relation, signed=kind[0] == "i")


def _bitop3(inst: Instruction) -> Rule:
    fields = inst.fields
    table = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]
    return Table(table)


_OR = table_of(lambda a, b: a | b, 2)
_SHIFTS = """
v_lshlrev_b16 v_lshlrev_b32 v_lshlrev_b64
v_lshrrev_b16 v_lshrrev_b32 v_lshrrev_b64
v_ashrrev_i16 v_ashrrev_i32 v_ashrrev_i64
"""
_COPIES = "v_mov_b32 v_mov_b64 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32"
_SUMS = """
v_add_u32 v_sub_u32 v_subrev_u32 v_add_i32 v_sub_i32 v_add3_u32 v_xad_u32 v_mul_lo_u32
"""
_MOVES: dict[str, Rule] = {
    **{name: Moving(name, 1) for name in _SHIFTS.split()},
    **dict.fromkeys(_COPIES.split(), copied),
    "v_and_b32": _table(lambda a, b: a & b, 2),
    "v_or_b32": _table(lambda a, b: a | b, 2),
    "v_and_or_b32": _table(lambda a, b, c: a & b | c, 3),
    "v_or3_b32": _table(lambda a, b, c: a | b | c, 3),
    "v_bfi_b32": _table(lambda a, b, c: a & b | ~a & c, 3),
    "v_bfrev_b32": Moving("v_bfrev_b32", 0),
    "v_bfe_u32": Moving("v_bfe_u32", 0),
    "v_bfe_i32": Moving("v_bfe_i32", 0),
    "v_alignbit_b32": Moving("v_alignbit_b32", 0, 1),
    "v_alignbyte_b32": Moving("v_alignbyte_b32", 0, 1),
    "v_perm_b32": _permute,
    "v_lshl_or_b32": _shift_or,
    "v_cndmask_b32": select,
    "v_pack_b32_f16": _packed_half,
}
_COMPUTES: dict[str, Rule] = {
    "v_not_b32": copied,
    "v_xor_b32": _table(lambda a, b: a ^ b, 2),
    "v_xnor_b32": _table(lambda a, b: ~(a ^ b), 2),
    **dict.fromkeys(_SUMS.split(), summed),
    **{
        f"v_{name}_co_u32": _sum_with_carry
        for name in ("add", "sub", "subrev", "addc", "subb", "subbrev")
    },
    **dict.fromkeys(("v_mul_u32_u24", "v_mul_i32_i24", "v_mad_u32_u24", "v_mad_i32_i24"), _sum24),
    **dict.fromkeys(("v_mad_u64_u32", "v_mad_i64_i32"), summed_in_64_bits),
    "v_lshl_add_u32": shifted_and_summed,
    "v_lshl_add_u64": shifted_and_summed,
    "v_add_lshl_u32": _add_shift,
    **{f"v_cvt_f32_ubyte{i}": _byte(i) for i in range(4)},
}
