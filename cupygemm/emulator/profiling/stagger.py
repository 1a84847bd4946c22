"""Determine whether some waves of a workgroup run one barrier behind the others.

The waves of a ping-pong kernel are *staggered*: before the main loop, half of them pass a barrier
that the others skip. A branch around a barrier staggers waves only if its condition depends on the
wave. A condition computed from kernel arguments or workgroup ids is the same in all waves.

    v0 (work-item ids) ─► registers that depend on it ─► branches that depend on it ─► barriers
                                                                                       on one side

The analysis follows registers along the control flow. It does not follow values through memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cupygemm.emulator.code_object.control_flow import Loop, Node, dominators
from cupygemm.emulator.isa.instruction import EXEC, VCC, Instruction
from cupygemm.emulator.profiling.classify import category
from cupygemm.emulator.units.scalar.scc import reads_scc, writes_scc
from cupygemm.emulator.waves.marks import SCC

_EXEC, _SCC = 3 << EXEC, 1 << SCC
_CONDITIONS = {
    "s_cbranch_scc0": _SCC,
    "s_cbranch_scc1": _SCC,
    "s_cbranch_vccz": 3 << VCC,
    "s_cbranch_vccnz": 3 << VCC,
    "s_cbranch_execz": _EXEC,
    "s_cbranch_execnz": _EXEC,
}
"""The scalar registers on which each conditional branch depends."""


class Registers(NamedTuple):
    """Bit masks of vector registers and of scalar registers, including SCC."""

    vector: int
    scalar: int


_WORK_ITEM_IDS = Registers(vector=1, scalar=0)  # v0 holds the work-item ids at the kernel's entry


def is_staggered(nodes: Mapping[int, Node], entry: int, loop: Loop) -> bool:
    """Tell whether the number of barriers on the paths to a loop depends on the wave."""
    before = _way_to(nodes, entry, loop.head)
    reversed_nodes = {pc: Node(nodes[pc].inst, ()) for pc in before}
    for pc in before:
        for goal in _successors(nodes, before, pc, loop.head):
            known = reversed_nodes[goal]
            reversed_nodes[goal] = Node(known.inst, (*known.successors, pc))
    meets = dominators(reversed_nodes, loop.head)  # where the paths from a branch reconverge
    dependent = wave_dependent(nodes, entry)
    for pc in before:
        goals = _successors(nodes, before, pc, loop.head)
        if len(goals) < 2 or not _depends(nodes[pc].inst, dependent[pc]):
            continue
        region = _reachable(nodes, before, goals, meets[pc])
        barriers = {at for at in region if category(nodes[at].inst) == "barrier"}
        without = _reachable(nodes, before - barriers, set(goals) - barriers, meets[pc])
        around = meets[pc] in goals or any(meets[pc] in nodes[at].successors for at in without)
        if barriers and around:
            return True
    return False


def wave_dependent(nodes: Mapping[int, Node], entry: int) -> dict[int, Registers]:
    """Return the registers that depend on the wave, before each instruction."""
    found: dict[int, Registers] = {entry: _WORK_ITEM_IDS}
    waiting = [entry]
    while waiting:
        pc = waiting.pop()
        after = _after(nodes[pc].inst, found[pc])
        for goal in nodes[pc].successors:
            old = found.get(goal)
            new = after
            if old is not None:
                new = Registers(old.vector | after.vector, old.scalar | after.scalar)
            if new != old:
                found[goal] = new
                waiting.append(goal)
    return found


def _after(inst: Instruction, dependent: Registers) -> Registers:
    """Return the registers that depend on the wave after an instruction."""
    vector, scalar = dependent
    compares = inst.encoding.startswith("VOP") and bool(inst.scalar_writes)
    compares = compares and "lane" not in inst.mnemonic  # reads of one lane ignore EXEC
    if "_saveexec_" in inst.mnemonic:
        return Registers(vector, _after_saveexec(inst, scalar))
    reads = inst.scalar_reads
    if inst.mnemonic == "s_or_b64" and inst.scalar_writes == _EXEC:
        reads &= ~_EXEC  # restores the lanes that were active before a branch
    if compares:
        reads |= _EXEC
    if reads_scc(inst):
        reads |= _SCC
    carries = (
        bool(inst.vector_reads & vector)
        or bool(reads & scalar)
        or inst.mnemonic.startswith("s_getreg_")  # such as the id of the wave's slot
    )
    writes = inst.scalar_writes | (_SCC if writes_scc(inst) else 0)
    if carries:
        return Registers(vector | inst.vector_writes, scalar | writes)
    partial = bool(scalar & _EXEC) or bool(inst.variant) or "writelane" in inst.mnemonic
    if not partial:
        vector &= ~inst.vector_writes
    return Registers(vector, scalar & ~writes)


def _after_saveexec(inst: Instruction, scalar: int) -> int:
    """Return the scalar registers after EXEC was saved and narrowed."""
    saved = inst.scalar_writes & ~_EXEC
    before = bool(scalar & _EXEC)
    after = bool(inst.scalar_reads & scalar)
    scalar = scalar | saved if before else scalar & ~saved
    return scalar | _EXEC | _SCC if after else scalar & ~(_EXEC | _SCC)


def _depends(branch: Instruction, dependent: Registers) -> bool:
    """Tell whether the condition of a branch depends on the wave."""
    return bool(dependent.scalar & _CONDITIONS.get(branch.mnemonic, 0))


def _successors(nodes: Mapping[int, Node], within: set[int], pc: int, head: int) -> tuple[int, ...]:
    """Return the successors of an instruction on the paths to a loop."""
    return () if pc == head else tuple(g for g in nodes[pc].successors if g in within)


def _way_to(nodes: Mapping[int, Node], entry: int, head: int) -> set[int]:
    """Return the instructions on the paths from the entry to a loop's first iteration."""
    forward, waiting = {entry}, [entry]
    while waiting:
        pc = waiting.pop()
        fresh = set(nodes[pc].successors) - forward if pc != head else set()
        forward |= fresh
        waiting += fresh
    predecessors: dict[int, list[int]] = {pc: [] for pc in forward}
    for pc in forward - {head}:
        for goal in nodes[pc].successors:
            predecessors[goal].append(pc)
    backward, waiting = {head}, [head]
    while waiting:
        fresh = set(predecessors[waiting.pop()]) - backward
        backward |= fresh
        waiting += fresh
    return backward


def _reachable(
    nodes: Mapping[int, Node], within: set[int], starts: Iterable[int], end: int
) -> set[int]:
    """Return the instructions reachable from `starts` without passing `end`."""
    found = set(starts) - {end}
    waiting = list(found)
    while waiting:
        fresh = (set(nodes[waiting.pop()].successors) & within) - found - {end}
        found |= fresh
        waiting += fresh
    return found
