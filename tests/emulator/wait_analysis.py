"""Find registers that a kernel uses while a load into them may be in flight, without running it.

This is a forward dataflow analysis over machine code, like LLVM's pass that inserts s_waitcnt: each
register with a load in flight has the number of younger operations of its counter, and a wait for n
clears those with n or more. Where paths merge, the youngest load counts. It does not use the
emulator's own bookkeeping, so it can check the emulator's reports and their absence.

Scalar loads return in any order, so only lgkmcnt(0) clears them, and while one is outstanding
lgkmcnt(n) clears nothing. FLAT loads may come from memory or from LDS and wait for both counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction

_NO_COUNTER = ("buffer_inv", "buffer_wb", "s_dcache", "ds_nop")
_LANE_MOVES = ("permute_b32", "swizzle_b32")  # counted like LDS accesses, but none of them
# Stand-ins for operations without a register: LDS accesses, and loads directly to LDS.
LDS_ACCESS, LOAD_TO_LDS = "LDS accesses", "loads to LDS"
Place = tuple[str, int | str]  # register file and number, or "memory" and one of the above
Key = tuple[str, Place]  # a counter and a place
State = dict[Key, int]  # younger operations of that counter


@dataclass(frozen=True)
class Findings:
    """The result of an analysis.

    Attributes
    ----------
    hazards : frozenset of (int, str)
        Program counters at which a register is used too early, and the register.
    crossings : frozenset of (int, str)
        Barriers that a wave may pass with such accesses in flight.
    """

    hazards: frozenset[tuple[int, str]]
    crossings: frozenset[tuple[int, str]]


@dataclass(frozen=True)
class Node:
    """An instruction and its successors."""

    inst: Instruction
    successors: tuple[int, ...]


def program(code: bytes, start: int, size: int, target: str) -> dict[int, Node]:
    """Decode a function into a graph by program counter.

    Raises
    ------
    ValueError
        It calls another function, which the analysis does not follow.
    """
    nodes: dict[int, Node] = {}
    pc = start
    while pc < start + size:
        inst = decode(code, pc, target)
        name, after = inst.mnemonic, pc + inst.size
        if name.startswith(("s_setpc", "s_swappc", "s_call")):
            raise ValueError(f"the function calls another at 0x{pc:x}")
        successors: tuple[int, ...] = (after,)
        if name.startswith(("s_branch", "s_cbranch")):
            offset = inst.fields["simm16"]
            goal = after + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
            successors = (goal,) if name == "s_branch" else (after, goal)
        elif name.startswith("s_endpgm"):
            successors = ()
        nodes[pc] = Node(inst, tuple(pc for pc in successors if pc < start + size))
        pc = after
    return nodes


def analyse(nodes: dict[int, Node], entry: int) -> Findings:
    """Return the hazards of a program that starts at `entry`."""
    states: dict[int, State] = {entry: {}}
    waiting = [entry]
    hazards: set[tuple[int, str]] = set()
    crossings: set[tuple[int, str]] = set()
    while waiting:
        pc = waiting.pop()
        node = nodes[pc]
        state = states[pc]
        hazards |= {(pc, name) for name in used_in_flight(node.inst, state)}
        if node.inst.mnemonic == "s_barrier":
            crossings |= {(pc, str(place[1])) for _, place in state if place[0] == "memory"}
        after = step(node.inst, state)
        for successor in node.successors:
            known = states.get(successor)
            merged = after if known is None else _merge(known, after)
            if merged != known:
                states[successor] = merged
                waiting.append(successor)
    return Findings(frozenset(hazards), frozenset(crossings))


def _merge(one: State, other: State) -> State:
    return {
        key: min(one.get(key, 1 << 30), other.get(key, 1 << 30))
        for key in one.keys() | other.keys()
    }


def _registers(vector: int, scalar: int) -> Iterable[Place]:
    for file, mask in (("v", vector), ("s", scalar)):
        left = mask
        while left:
            low = left & -left
            yield file, low.bit_length() - 1
            left ^= low


def used_in_flight(inst: Instruction, state: State) -> set[str]:
    """Return the registers that an instruction reads or overwrites while a load is in flight."""
    reads = set(_registers(inst.vector_reads, inst.scalar_reads))
    writes = set(_registers(inst.vector_writes, inst.scalar_writes))
    in_order = _counters(inst) in (("vm",), ("lgkm",)) and inst.encoding != "SMEM"
    found = set()
    for counter, place in state:
        scalar = counter == "smem"
        if place in reads or (place in writes and not (in_order and not scalar)):
            found.add(f"{place[0]}{place[1]}")
    return found


def _counters(inst: Instruction) -> tuple[str, ...]:
    if inst.mnemonic.startswith(_NO_COUNTER):
        return ()
    return {
        "DS": ("lgkm",),
        "SMEM": ("smem",),
        "FLAT": ("vm", "lgkm"),
        "GLOBAL": ("vm",),
        "SCRATCH": ("vm",),
        "MUBUF": ("vm",),
    }.get(inst.encoding, ())


def families(inst: Instruction) -> set[str]:
    """Return the hardware counters that an instruction increments."""
    return {"lgkm" if counter == "smem" else counter for counter in _counters(inst)}


def step(inst: Instruction, state: State) -> State:
    """Return the operations in flight after an instruction."""
    if inst.mnemonic == "s_waitcnt":
        simm16 = inst.fields["simm16"]
        return {
            (counter, place): age
            for (counter, place), age in state.items()
            if not waits_for(simm16, counter, age, state)
        }
    written = set(_registers(inst.vector_writes, inst.scalar_writes))
    counters, counted = _counters(inst), families(inst)
    if not counters:
        return {key: age for key, age in state.items() if key[1] not in written}
    after = {
        (counter, place): age + (("lgkm" if counter == "smem" else counter) in counted)
        for (counter, place), age in state.items()
    }
    places: list[Place] = list(written)
    if inst.encoding in ("DS", "FLAT") and not inst.mnemonic.endswith(_LANE_MOVES):
        places.append(("memory", LDS_ACCESS))
    if inst.fields.get("lds") or "_load_lds_" in inst.mnemonic:
        places.append(("memory", LOAD_TO_LDS))
    for counter in counters:
        for place in places:
            if place[1] != LDS_ACCESS or counter == "lgkm":
                after[counter, place] = 0
    return after


def waits_for(simm16: int, counter: str, age: int, state: State) -> bool:
    """Return whether s_waitcnt waits for an operation with `age` younger ones of its counter."""
    vmcnt, lgkmcnt = simm16 & 0xF | simm16 >> 10 & 0x30, simm16 >> 8 & 0xF
    if counter == "vm":
        return age >= vmcnt
    unordered = any(other == "smem" for other, _ in state)
    return lgkmcnt == 0 or (not unordered and age >= lgkmcnt)
