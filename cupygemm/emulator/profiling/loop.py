"""Count the instructions of a kernel's main loop, and the MFMA pipe's share of its cycles.

Everything is *computed* from the code object; nothing is executed. The main loop is the innermost
loop with the most MFMA cycles in one iteration. If its trip count follows from the code
(`trip_count`), the loop around it is counted instead, with all iterations of the inner one, and so
on outwards. Of the paths through an iteration, the one with the most MFMA cycles counts. It
consists of *segments*, each of which ends with an s_barrier.

Cycles of an iteration, on one SIMD with `waves_per_simd` waves of one workgroup, in `groups`:

    groups 1   All waves are in the same segment: a memory phase of one hides nothing of another.
    groups 2   One barrier before the loop holds back half of the waves (`stagger`), so that they
               are one segment behind: while one half is in segment s, the other is in s - 1.

    slot s     The maximum of: the issue cycles of each group in its segment (`loop_issue.walk`;
               the MFMA cycles of the group's other waves are added), the MFMA cycles of all waves
               on the SIMD, their issue slots of VALU and MFMA, and the LDS cycles of all waves of
               the CU.
    exposed    The cycles by which a wait for global memory outlasts the time since the load was
               issued, at a latency of `MEMORY_LATENCY`.

    efficiency = MFMA cycles of all waves on the SIMD / (sum of the slots + exposed)

The efficiency is a bound from the instruction stream, not a prediction: barriers release
immediately, no queue fills, the instruction cache always hits, and memory bandwidth is unlimited.
Other workgroups of the CU are not counted. If their waves fill gaps, the efficiency rises up to
`efficiency_of_residents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.control_flow import (
    Loop,
    Node,
    dominators,
    graph,
    heaviest_path,
    loops,
)
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.profiling.classify import category, matrix_cycles
from cupygemm.emulator.profiling.loop_counts import LoopCounts, Slot
from cupygemm.emulator.profiling.loop_issue import (
    SLOT,
    Segment,
    exposed_cycles,
    global_bytes,
    lds_bytes,
    waits,
    walk,
)
from cupygemm.emulator.profiling.loop_table import render
from cupygemm.emulator.profiling.occupancy import SIMDS, occupancy
from cupygemm.emulator.profiling.stagger import is_staggered
from cupygemm.emulator.profiling.trip_count import trip_count
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.waves.state import LANES

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

_LONGEST_ITERATION = 4096
"""Instructions of an iteration, with all repetitions of inner loops, that are counted at most."""


@dataclass(frozen=True, kw_only=True)
class LoopProfile(LoopCounts):
    """One iteration of a kernel's main loop.

    Attributes
    ----------
    kernel, target : str
    begin, end : int
        Bytes from the kernel's entry to the loop's first instruction and past its last.
    threads : int
        Work-items of a workgroup.
    waves_per_simd : int
        Waves of one workgroup on a SIMD.
    groups : int
        2 if half of the waves run one segment behind the others, else 1.
    resident : int
        Workgroups that a CU holds at a time.
    segments : tuple of Segment
        What one wave does between barriers.
    waits : tuple of str
        The s_waitcnt instructions of a wave.
    mfma : int
        The MFMA instructions of a wave.
    global_bytes, lds_bytes : int
        Bytes that a wave moves by vector memory and by DS instructions.
    slots : tuple of (float, str)
        Cycles of each segment, and the resource that binds them.
    memory_latency : int
        Cycles from a load to its data; an assumption.
    exposed_cycles : float
        Cycles of waits for global memory.
    enclosing : (int, int) or None
        Bytes from the kernel's entry to the first instruction and past the last of the enclosing
        loop, which is not counted because this loop's trip count is unknown.
    """

    def __str__(self) -> str:
        return render(self)


def count_loop(
    kernel: Kernel,
    *,
    threads: int,
    staggered: bool | None,
    memory_latency: int,
    conflicts: Mapping[int, float],
) -> LoopProfile:
    """Return the counts; see `cupygemm.emulator.profile_loop`."""
    target, entry = kernel.code_object.target_name, kernel.entry
    nodes = graph(kernel)
    main = _main_loop(nodes, entry, target)
    path = _from_barrier([(pc, nodes[pc].inst) for pc in main.path])
    waves = -(-threads // LANES)
    waves_per_simd = -(-threads // (LANES * SIMDS))
    if staggered is None:
        staggered = waves_per_simd % 2 == 0 and is_staggered(nodes, entry, main.loop)
    groups = 2 if staggered else 1
    absolute = {entry + offset: cycles for offset, cycles in conflicts.items()}
    segments, events = walk(path, target, waves // groups, absolute)
    slots = _slots(segments, groups, waves // groups)
    starts = [sum(slot.cycles for slot in slots[:s]) for s in range(len(slots))]
    period = sum(slot.cycles for slot in slots)
    room = occupancy(
        kernel,
        TARGETS[target],
        waves_per_workgroup=waves,
        lds_bytes=kernel.lds_bytes,
        workgroups=TARGETS[target].num_cus,
    )
    begin, end = _extent(nodes, entry, main.loop)
    return LoopProfile(
        kernel=kernel.name,
        target=target,
        begin=begin,
        end=end,
        threads=threads,
        waves_per_simd=waves_per_simd,
        groups=groups,
        resident=room.workgroups,
        segments=tuple(segments),
        waits=tuple(waits(path)),
        mfma=sum(matrix_cycles(inst, target) > 0 for _, inst in path),
        global_bytes=sum(global_bytes(inst) for _, inst in path),
        lds_bytes=sum(lds_bytes(inst) for _, inst in path),
        slots=tuple(slots),
        memory_latency=memory_latency,
        exposed_cycles=exposed_cycles(events, starts, period, memory_latency),
        enclosing=None if main.enclosing is None else _extent(nodes, entry, main.enclosing),
    )


@dataclass(frozen=True)
class _MainLoop:
    """The loop that is counted.

    Attributes
    ----------
    loop : Loop
    path : list of int
        Program counters of one iteration, in order.
    enclosing : Loop or None
        The next enclosing loop, which cannot be counted.
    """

    loop: Loop
    path: list[int]
    enclosing: Loop | None


def _main_loop(nodes: Mapping[int, Node], entry: int, target: str) -> _MainLoop:
    """Choose the loop to count; see the module docstring."""

    def cycles(inst: Instruction) -> int:
        return matrix_cycles(inst, target)

    idom = dominators(nodes, entry)
    found = loops(nodes, idom)
    busy = [loop for loop in found if any(cycles(nodes[pc].inst) for pc in loop.body)]
    inner = [loop for loop in busy if not any(other.body < loop.body for other in busy)]
    if not inner:
        what = (
            f"none of the kernel's {len(found)} loops has an MFMA"
            if found
            else "the kernel has no loop"
        )
        raise ValueError(f"{what}: there is nothing to count")
    paths = {loop: heaviest_path(nodes, loop, cycles) for loop in inner}
    chosen = max(inner, key=lambda loop: sum(cycles(nodes[pc].inst) for pc in paths[loop]))
    path = paths[chosen]

    def iteration(loop: Loop) -> list[int] | None:
        """Return one iteration with those of inner loops; None if a trip count is unknown."""
        steps: list[int] | None = heaviest_path(nodes, loop, cycles)
        for child in _directly_inside(found, loop):
            if steps is None or child.head not in steps:
                continue
            count, repeated = trip_count(nodes, idom, child), iteration(child)
            if count is None or repeated is None:
                return None
            if len(repeated) * count > _LONGEST_ITERATION:
                return None
            first = steps.index(child.head)
            after = [pc for pc in steps[first:] if pc not in child.body]
            steps = [*steps[:first], *repeated * count, *after]
        return steps

    while (enclosing := _directly_around(found, chosen)) is not None:
        longer = iteration(enclosing)
        if longer is None or len(longer) > _LONGEST_ITERATION:
            break
        chosen, path = enclosing, longer
    return _MainLoop(chosen, path, enclosing)


def _directly_inside(found: list[Loop], loop: Loop) -> list[Loop]:
    """Return the loops nested directly inside a loop."""
    inside = [other for other in found if other.body < loop.body]
    return [one for one in inside if not any(one.body < other.body for other in inside)]


def _directly_around(found: list[Loop], loop: Loop) -> Loop | None:
    """Return the innermost loop around a loop, or None."""
    around = [other for other in found if loop.body < other.body]
    return min(around, key=lambda other: len(other.body), default=None)


def _extent(nodes: Mapping[int, Node], entry: int, loop: Loop) -> tuple[int, int]:
    """Return the bytes from the entry to a loop's first instruction, and past its last."""
    return min(loop.body) - entry, max(pc + nodes[pc].inst.size for pc in loop.body) - entry


def _from_barrier(path: list[tuple[int, Instruction]]) -> list[tuple[int, Instruction]]:
    """Rotate an iteration so that it ends with a barrier if it has one."""
    last = max((i for i, (_, inst) in enumerate(path) if category(inst) == "barrier"), default=-1)
    return path[last + 1 :] + path[: last + 1]


def _slots(segments: list[Segment], groups: int, waves: int) -> list[Slot]:
    """Return the slots of an iteration; a group has `waves` on the CU."""
    slots = []
    each = -(-waves // SIMDS)  # waves of a group on a SIMD
    for s in range(len(segments)):
        together = [segments[s - group] for group in range(groups)]
        needs = {
            "issue": max(p.issue_cycles + (each - 1) * p.mfma_cycles for p in together),
            "MFMA": sum(each * p.mfma_cycles for p in together),
            "VALU": sum(SLOT * each * _on_the_vector_port(p) for p in together),
            "LDS": sum(waves * p.lds_cycles for p in together),
        }
        bound = max(needs, key=lambda name: (needs[name], name == "MFMA"))
        slots.append(Slot(float(needs[bound]), bound))
    return slots


def _on_the_vector_port(segment: Segment) -> int:
    return segment.instructions.get("VALU", 0) + segment.instructions.get("MFMA", 0)
