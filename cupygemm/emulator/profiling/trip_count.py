"""Find a loop's trip count in machine code: a counter with constant bounds.

s_mov_b32 s4, 0             the only value at the loop's entry
loop:
...
s_add_i32 s4, s4, 32      the only instruction of the loop that writes the counter
s_cmp_lg_u32 s4, 256
s_cbranch_scc1 loop       the only branch back, and the loop's only exit
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping

from cupygemm.emulator.code_object.control_flow import Loop, Node, dominates, predecessors
from cupygemm.emulator.isa.instruction import Instruction, Operand, signed
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.scalar.scc import writes_scc

_MOST = 1 << 16
_ALL = 0xFFFFFFFF
_COMPARE = re.compile(r"s_cmp(k?)_(lt|le|gt|ge|eq|lg)_([iu])32")
_OPERATORS = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "lg": operator.ne,
}
_ADD = re.compile(r"s_(add|sub)_[iu]32|s_addk_i32")


def trip_count(nodes: Mapping[int, Node], idom: Mapping[int, int], loop: Loop) -> int | None:
    """Return a loop's trip count; None if it cannot be derived from the code."""
    if len(loop.latches) > 1:
        return None
    (latch,) = loop.latches
    branch = nodes[latch].inst
    before = predecessors(nodes)
    exits = [pc for pc in loop.body if any(g not in loop.body for g in nodes[pc].successors)]
    compare_pc = _last_scc_writer(nodes, before, latch)
    if exits != [latch] or not branch.mnemonic.startswith("s_cbranch_scc") or compare_pc is None:
        return None
    compare = nodes[compare_pc].inst
    match = _COMPARE.fullmatch(compare.mnemonic)
    register = _counter(compare)
    if match is None or register is None or compare_pc not in loop.body:
        return None
    writers = [pc for pc in loop.body if nodes[pc].inst.scalar_writes >> register & 1]
    start = _value_at_entry(nodes, before, loop, register)
    if len(writers) != 1 or start is None or not dominates(idom, writers[0], latch):
        return None
    step = _step(nodes[writers[0]].inst, register)
    if step is None or _is_inside_inner_loop(nodes, loop, writers[0]):
        return None
    early = dominates(idom, writers[0], compare_pc)  # the counter is compared after its update
    is_signed, value = match[3] == "i", start
    for count in range(1, _MOST):
        compared = value + step if early else value
        value += step
        holds = _compares(compare, match, compared, is_signed=is_signed)
        if holds != branch.mnemonic.endswith("1"):
            return count
    return None


def _compares(compare: Instruction, match: re.Match[str], counter: int, *, is_signed: bool) -> bool:
    """Return the comparison's result for a value of the counter."""
    if match[1]:
        sides = [counter, compare.signed_immediate if is_signed else compare.fields["simm16"]]
    else:
        sides = [
            counter if (found := _constant(op)) is None else found
            for op in (compare.operand("src0"), compare.operand("src1"))
        ]
    first, second = (signed(side & _ALL, 32) if is_signed else side & _ALL for side in sides)
    return bool(_OPERATORS[match[2]](first, second))


def _counter(compare: Instruction) -> int | None:
    """Return the only register that an instruction reads; None if it reads several or none."""
    registers = {op.index for op in compare.src if op.kind == "s"}
    return registers.pop() if len(registers) == 1 else None


def _last_scc_writer(
    nodes: Mapping[int, Node], before: Mapping[int, list[int]], pc: int
) -> int | None:
    """Return the instruction that sets SCC for a branch, if only one path joins them."""
    while len(before[pc]) == 1:
        (pc,) = before[pc]
        if writes_scc(nodes[pc].inst):
            return pc
    return None


def _value_at_entry(
    nodes: Mapping[int, Node], before: Mapping[int, list[int]], loop: Loop, register: int
) -> int | None:
    """Return the constant in a register at the loop's entry."""
    waiting = [pc for pc in before[loop.head] if pc not in loop.body]
    seen, values = set(waiting), set[int | None]()
    while waiting:
        pc = waiting.pop()
        if nodes[pc].inst.scalar_writes >> register & 1:
            values.add(_moved_constant(nodes[pc].inst))
        elif pc in loop.body or not before[pc]:
            values.add(None)  # from the loop itself, or from the kernel's entry
        else:
            fresh = set(before[pc]) - seen
            seen |= fresh
            waiting += fresh
    return values.pop() if len(values) == 1 else None


def _moved_constant(inst: Instruction) -> int | None:
    if inst.mnemonic == "s_movk_i32":
        return inst.signed_immediate
    return _constant(inst.operand("src0")) if inst.mnemonic == "s_mov_b32" else None


def _step(inst: Instruction, register: int) -> int | None:
    """Return the constant that an instruction adds to a register."""
    if (match := _ADD.fullmatch(inst.mnemonic)) is None:
        return None
    if inst.mnemonic == "s_addk_i32":
        return inst.signed_immediate
    first, second = inst.operand("src0"), inst.operand("src1")
    if first is None or second is None:
        return None
    if first.kind == "s" and first.index == register:
        constant = _constant(second)
        return -constant if constant is not None and match[1] == "sub" else constant
    if match[1] == "add" and second.kind == "s" and second.index == register:
        return _constant(first)
    return None


def _is_inside_inner_loop(nodes: Mapping[int, Node], loop: Loop, pc: int) -> bool:
    """Tell whether an instruction can repeat without passing the loop's header."""
    if pc == loop.head:
        return False
    seen: set[int] = set()
    waiting = [pc]
    while waiting:
        for goal in nodes[waiting.pop()].successors:
            if goal == pc:
                return True
            if goal in loop.body and goal != loop.head and goal not in seen:
                seen.add(goal)
                waiting.append(goal)
    return False


def _constant(op: Operand | None) -> int | None:
    return constant_bits(op, "u32") if op is not None and op.kind == "imm" else None
