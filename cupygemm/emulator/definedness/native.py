"""The second run of an instruction in C: its record for native/second_run.c.

`second_run_of` returns the record of most instructions of the vector ALU and most memory accesses;
`uses.follow` handles all others, and defines what each of them means. A differential test
(tests/emulator/definedness/test_second_run.py) holds the two equal.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cupygemm.emulator.definedness import rules
from cupygemm.emulator.definedness.uses import ADDRESSES, DATA, EXCHANGES, MEMORY, VECTOR
from cupygemm.emulator.definedness.vector import (
    SPECIAL,
    is_packed,
    part_of_register,
    selected,
    unsigned_kinds,
)
from cupygemm.emulator.isa.instruction import EXEC, Instruction, Operand, registers
from cupygemm.emulator.units.lanewise import source_operands
from cupygemm.emulator.units.native.form import address_of
from cupygemm.emulator.units.native.operands import (
    CONSTANT,
    TO_B16,
    TO_B32,
    TO_B64,
    TO_MASK,
    Operation,
    Source,
    renamed,
    set_part,
    source_of,
    word_of,
)
from cupygemm.emulator.units.operands import written_part
from cupygemm.emulator.units.structures import members
from cupygemm.emulator.units.vector import unit as vector
from cupygemm.emulator.waves.marks import ALL, COMPUTED, FIRST_SCALAR

_RULES = "either same sum shifted_sum logic select compare move read_lane write_lane access"
_RULE = {name: value for value, name in enumerate(_RULES.split())}
_BY_FUNCTION = {
    rules.either: "either",
    rules.copied: "same",
    rules.summed: "sum",
    rules.summed_in_64_bits: "sum",
    rules.shifted_and_summed: "shifted_sum",
    rules.select: "select",
}
_ONE_LANE = {"v_readlane_b32": "read_lane", "v_writelane_b32": "write_lane"}
_MOST_REGISTERS = 16
_RELATION = {"eq": 0, "ne": 0, "lg": 0, "lt": 1, "ge": 1, "le": 2, "gt": 2}  # enum relation
_SIGNED = 4


class _Registers(ctypes.Structure):
    """``struct registers``."""

    _fields_ = [*members("int32 count"), ("number", ctypes.c_int32 * _MOST_REGISTERS)]


class SecondRun(ctypes.Structure):
    """``struct second_run``."""

    _fields_ = [
        *members("int32 rule origin_flags\nuint32 moves table"),
        ("addresses", _Registers),
        ("sources", _Registers),
        ("targets", _Registers),
        ("operation", Operation),
    ]


class _InPython(Exception):
    """The second run of an instruction is executed in Python."""


@functools.lru_cache(maxsize=1 << 14)
def second_run_of(inst: Instruction) -> SecondRun | None:
    """Return the record of an instruction's second run, or None if it runs in Python."""
    try:
        if inst.encoding in MEMORY:
            return _access(inst)
        if inst.encoding in VECTOR and inst.variant != "DPP":
            return _alu(inst)
    except _InPython:
        pass
    return None


# -- registers -------------------------------------------------------------------------------------


def _numbers(operands: Iterable[Operand]) -> list[int]:
    """Return the registers of operands, numbered as in C."""
    return [
        register + (FIRST_SCALAR if op.kind == "s" else 0)
        for op in operands
        if op.kind in ("v", "s")
        for register in range(op.index, op.index + op.count)
    ]


def _listed(numbers: list[int]) -> _Registers:
    if len(numbers) > _MOST_REGISTERS:
        raise _InPython
    found = _Registers(count=len(numbers))
    found.number[: len(numbers)] = numbers
    return found


# -- accesses to memory ----------------------------------------------------------------------------


def _access(inst: Instruction) -> SecondRun:
    name = inst.mnemonic
    if name.startswith(EXCHANGES):
        raise _InPython
    if inst.encoding == "DS" and not name.startswith(("ds_read", "ds_write")):
        raise _InPython
    data = _numbers(op for op in inst.src if op.field in DATA)
    return SecondRun(
        rule=_RULE["access"],
        addresses=_listed(_numbers(op for op in inst.src if op.field in ADDRESSES)),
        sources=_listed(data),
        targets=_listed([each for each in registers(inst.vector_writes) if each not in data]),
    )


# -- vector ALU ------------------------------------------------------------------------------------


def _alu(inst: Instruction) -> SecondRun:
    if any(op.kind == "s" and op.index == EXEC for op in inst.dst):
        raise _InPython
    if inst.mnemonic in _ONE_LANE:
        return _one_lane(inst)
    if inst.mnemonic in SPECIAL:
        raise _InPython
    return _pairs(inst) if is_packed(inst) else _lanewise(inst)


def _record(
    inst: Instruction, rule: str, operation: Any, *, moves: bool, read: Sequence[Operand] = ()
) -> SecondRun:
    return SecondRun(
        rule=_RULE[rule],
        origin_flags=0 if moves else COMPUTED,
        sources=_listed(_numbers(read or inst.src)),
        targets=_listed(_numbers(inst.dst)),
        operation=operation,
    )


def _operation(inst: Instruction, operands: list[Operand], kinds: list[str]) -> Any:
    """Return an operation without a result: its undefined bits, and its values."""
    found: Any = Operation(num_sources=len(operands), passes=1, result=-1, mask=-1, mask2=-1)
    for place, (op, kind) in enumerate(zip(operands, kinds, strict=True)):
        value = source_of(inst, op, kind)
        found.sources[1][place] = found.sources[0][place] = value
        if op.kind not in ("v", "s"):
            found.sources[0][place] = Source(file=CONSTANT, type=value.type)
    return found


def _lanewise(inst: Instruction) -> SecondRun:
    function, moves = rules.rule_of(inst)
    operands = source_operands(inst)
    operation = _operation(inst, operands, unsigned_kinds(inst, operands))
    _set_results(inst, operation)
    if isinstance(function, rules.Table):
        found = _record(inst, "logic", operation, moves=moves)
        found.table = function.table
    elif isinstance(function, rules.Comparison):
        found = _record(inst, "compare", operation, moves=moves)
        found.table = _RELATION[function.relation] | function.signed * _SIGNED
    elif isinstance(function, rules.Moving):
        operation.function = address_of(f"op_{renamed(inst.mnemonic)}")
        if not operation.function:
            raise _InPython
        found = _record(inst, "move", operation, moves=moves)
        found.moves = sum(1 << place for place in function.data)
    elif function in _BY_FUNCTION:
        found = _record(inst, _BY_FUNCTION[function], operation, moves=moves)
    else:
        raise _InPython
    return found


def _set_results(inst: Instruction, operation: Any) -> None:
    """Set the destinations: a register or a pair, a lane mask, or both."""
    results = sorted(inst.dst, key=lambda op: op.field != "vdst")
    op = vector.OPS.get(inst.mnemonic)
    for result in results:
        if result.kind == "s" and result.count == 2 and operation.mask < 0:
            operation.mask = result.index
        elif result.kind == "v" and result.count <= 2 and operation.result < 0:
            if part_of_register(inst, result) != ALL or inst.mnemonic == "v_bitop3_b16":
                raise _InPython
            kind = {16: "u16", 64: "u64"}.get(result.bits, "u32")
            operation.result = result.index
            operation.result_type = {"u16": TO_B16, "u32": TO_B32, "u64": TO_B64}[kind]
            keeps = op is not None and op.keep_high
            set_part(operation, written_part(inst, kind, keep_high=keeps))
        else:
            raise _InPython
    if operation.result < 0:
        operation.result_type = TO_MASK


def _pairs(inst: Instruction) -> SecondRun:
    """Return the second run of a packed operation on pairs of registers."""
    operands, fields = source_operands(inst), inst.fields
    moves = inst.mnemonic == "v_pk_mov_b32"
    if inst.dst[0].count != 2 or moves or any(op.count != 2 for op in operands if op.kind == "v"):
        raise _InPython
    halves = (fields["opsel"], fields["opsel_hi"] | fields["opsel_hi2"] << 2)
    operation: Any = Operation(num_sources=len(operands), passes=2, mask=-1, mask2=-1)
    operation.result, operation.result_type = inst.dst[0].index, TO_B32
    for half, chosen in enumerate(halves):
        for place, op in enumerate(operands):
            own = half if op.field == "vdst" else chosen >> place & 1
            source = Source(file=CONSTANT)
            if op.kind in ("v", "s"):
                source = word_of(op, own if op.count == 2 else 0)
            operation.sources[half][place] = source
    registers_read = selected(inst)
    read = [
        op
        for whole in inst.src
        for op in _each_register(whole)
        if (op.kind, op.index) in registers_read
    ]
    return _record(inst, "either", operation, moves=False, read=read)


def _each_register(op: Operand) -> list[Operand]:
    return [replace(op, index=op.index + place, count=1) for place in range(op.count)]


def _one_lane(inst: Instruction) -> SecondRun:
    operand, selector = operands = source_operands(inst)[:2]
    if selector.kind == "v" or (inst.mnemonic == "v_readlane_b32") != (operand.kind == "v"):
        raise _InPython
    operation = _operation(inst, operands, ["u32", "u32"])
    operation.result = inst.dst[0].index
    return _record(inst, _ONE_LANE[inst.mnemonic], operation, moves=True)
