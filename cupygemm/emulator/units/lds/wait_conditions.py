"""Which values of a flag in LDS end the loops that wait for it.

    loop:  ds_read_b32 v1, v2
           s_waitcnt lgkmcnt(0)
           v_cmp_gt_i32 vcc, s6, v1      the loop ends when the flag is s6 or more
           s_cbranch_vccnz loop

A loop that ends at a value would have ended at an earlier one that passes the same comparison, had
the wave come then. What the flag orders at the earliest such value is all that the wave can rely on
(native/lds_flags.h). This holds if the value is not used for anything else: a wave that takes as
many tiles as the flag counts relies on what it has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cupygemm.emulator.code_object.control_flow import Node
from cupygemm.emulator.isa.instruction import EXEC, VCC, Instruction, Operand
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.scalar.scc import writes_scc

UNKNOWN = 0
# A condition in 64 bits: which of <, = and > are true (1, 2, 4), whether they are unsigned, whether
# the loop goes on where they are true, whether the operand is a scalar register, and the operand.
_LESS, _EQUAL, _GREATER, _UNSIGNED, _STAYS, _REGISTER, _OPERAND_AT = 1, 2, 4, 8, 16, 32, 32
_TRUE_FOR = {
    "lt": _LESS,
    "eq": _EQUAL,
    "le": _LESS | _EQUAL,
    "gt": _GREATER,
    "ne": _LESS | _GREATER,
    "lg": _LESS | _GREATER,
    "ge": _EQUAL | _GREATER,
}
_MIRRORED = {_LESS: _GREATER, _GREATER: _LESS}
_EXEC_BITS, _VCC_BITS = 3 << EXEC, 3 << VCC
_READS = ("ds_read_b32", "flat_load_dword")
_LARGEST = 4096  # (instruction, state) pairs that are searched for other uses of a value


def condition(
    nodes: Mapping[int, Node], order: Sequence[int], read: int, goes_on: frozenset[int]
) -> int:
    """Return the condition under which a wait goes on, as native/lds_flags.h decodes it.

    Parameters
    ----------
    nodes : mapping of int to Node
        The control flow of the function.
    order : sequence of int
        The program counters of one iteration of the loop, or of its first test.
    read : int
        That of the instruction that reads the flag.
    goes_on : frozenset of int
        The successors of the branch at which the wave still waits.

    Returns
    -------
    int
        `UNKNOWN` if the value is compared in another way, or used for something else.
    """
    code = {pc: nodes[pc].inst for pc in order if pc in nodes}
    branches = [pc for pc, inst in code.items() if inst.mnemonic.startswith("s_cbranch")]
    if len(branches) != 1 or len(code) != len(order) or code[read].mnemonic not in _READS:
        return UNKNOWN
    value, (branch,) = code[read].vector_writes, branches
    found = _comparison({pc: inst for pc, inst in code.items() if read < pc <= branch}, value)
    if found is None:
        return UNKNOWN
    compare, bits, scalar = found
    changed = any(inst.scalar_writes >> (bits >> _OPERAND_AT) & 1 for inst in code.values())
    if bits & _REGISTER and changed:
        return UNKNOWN
    taken = _taken_if_true(code, compare, branch)
    ahead, goal = nodes[branch].successors
    if taken is None or len({ahead, goal} & goes_on) != 1:
        return UNKNOWN
    if any(_is_used(nodes, pc, value, scalar) for pc in (ahead, goal)):
        return UNKNOWN
    return bits | (_STAYS if (goal in goes_on) == taken else 0)


def _comparison(code: Mapping[int, Instruction], value: int) -> tuple[int, int, int] | None:
    """Return the only use of a value, the condition that it computes, and a scalar copy."""
    if any(inst.vector_writes & value for inst in code.values()):
        return None
    scalar = 0
    uses = [pc for pc, inst in code.items() if inst.vector_reads & value]
    if len(uses) == 1 and code[uses[0]].mnemonic == "v_readfirstlane_b32":
        scalar = code[uses[0]].scalar_writes
        uses = [pc for pc, inst in code.items() if inst.scalar_reads & scalar]
    bits = _condition_of(code[uses[0]], scalar) if len(uses) == 1 else None
    return None if bits is None else (uses[0], bits, scalar)


def _condition_of(inst: Instruction, scalar: int) -> int | None:
    """Return what a comparison of a value with a scalar or a constant computes."""
    kind, _, name = inst.mnemonic.partition("_cmp_")
    relation, _, type_ = name.partition("_")
    is_scalar = kind == "s" and scalar
    if (kind != "v" and not is_scalar) or relation not in _TRUE_FOR or type_ not in ("i32", "u32"):
        return None
    sources = [op for op in inst.src if op.field.startswith(("src", "ssrc", "vsrc"))]
    if inst.variant or len(sources) != 2:
        return None
    holds = [_holds(op, scalar) for op in sources]
    if holds.count(True) != 1:
        return None
    operand = _encoded(sources[holds.index(False)])
    if operand is None:
        return None
    true_for = _TRUE_FOR[relation]
    if holds[1]:
        outer = true_for & (_LESS | _GREATER)
        true_for = true_for & _EQUAL | _MIRRORED.get(outer, outer)
    is_register, place = operand
    flags = (_UNSIGNED if type_ == "u32" else 0) | (_REGISTER if is_register else 0)
    return true_for | flags | place << _OPERAND_AT


def _holds(op: Operand, scalar: int) -> bool:
    return op.kind == "s" and scalar >> op.index & 1 == 1 if scalar else op.kind == "v"


def _encoded(op: Operand) -> tuple[bool, int] | None:
    """Return a scalar register's number, or a constant's 32 bits; None for other operands."""
    if op.kind == "imm":
        return False, constant_bits(op, "u32")
    return (True, op.index) if op.kind == "s" and op.count == 1 else None


def _taken_if_true(code: Mapping[int, Instruction], compare: int, branch: int) -> bool | None:
    """Return whether a branch is taken where a comparison is true; None if others decide it."""
    test = code[branch].mnemonic.removeprefix("s_cbranch_")
    is_vector = code[compare].mnemonic.startswith("v_")
    if test not in (("vccnz", "vccz") if is_vector else ("scc1", "scc0")) or branch < compare:
        return None
    if is_vector and code[compare].scalar_writes != _VCC_BITS:
        return None
    for pc, inst in code.items():
        between = compare < pc < branch
        if between and (inst.scalar_writes & _VCC_BITS if is_vector else writes_scc(inst)):
            only_active = inst.mnemonic == "s_and_b64" and inst.scalar_writes == _VCC_BITS
            if not (only_active and inst.scalar_reads == _VCC_BITS | _EXEC_BITS):
                return None
    return test in ("vccnz", "scc1")


def _is_used(nodes: Mapping[int, Node], start: int, vector: int, scalar: int) -> bool:
    """Return whether a register may be read from a place on, before it is written again.

    A write under a narrower EXEC leaves the old value in other lanes, which a read finds again once
    EXEC is wider.
    """
    waiting = [(start, vector, scalar, True, False)]
    seen: set[tuple[int, int, int, bool, bool]] = set()
    while waiting:
        state = waiting.pop()
        pc, vector, scalar, all_lanes, is_hidden = state
        if state in seen or pc not in nodes:
            continue
        seen.add(state)
        inst = nodes[pc].inst
        name = inst.mnemonic
        calls = name.startswith(("s_swappc", "s_setpc", "s_call"))
        is_read = inst.vector_reads & vector and not is_hidden
        if is_read or inst.scalar_reads & scalar or calls or len(seen) > _LARGEST:
            return True
        if inst.vector_writes & vector:
            vector, is_hidden = (0, False) if all_lanes else (vector, True)
        scalar &= ~inst.scalar_writes
        if inst.scalar_writes & _EXEC_BITS:
            is_hidden = is_hidden and name.startswith("s_and")
            all_lanes = all_lanes and name == "s_or_b64"
        if vector or scalar:
            after = nodes[pc].successors
            waiting += [(pc, vector, scalar, all_lanes, is_hidden) for pc in after]
    return False
