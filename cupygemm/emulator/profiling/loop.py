"""Count what the main loop of a kernel issues, and what share of its cycles the matrix pipe works.

Everything is *computed* from the code object; nothing is executed. The main loop is the one with
the most MFMA cycles in one iteration, and an innermost one. Of its paths the one with the most MFMA
counts. It falls into *segments*, each ended by an s_barrier.

Cycles of an iteration, on one SIMD with `waves_per_simd` waves of one workgroup, in `groups`:

    groups 1   all waves are in the same segment: nothing of it hides another's memory phase
    groups 2   half of the waves were held back by one barrier before the loop, so that they are one
               segment behind: while one half is in segment s, the other is in s - 1

    slot s     lasts the longest of: each group's issue in its segment (`loop_issue.walk`; the MFMA
               of the other waves of a group come on top), the MFMA cycles of all waves on the SIMD,
               their issue slots of VALU and MFMA, and the LDS cycles of all waves of the CU
    exposed    what a wait for global memory lasts beyond the cycles since the load was issued, at
               a latency of `MEMORY_LATENCY`

    efficiency = MFMA cycles of all waves on the SIMD / (sum of the slots + exposed)

It is a bound from the instruction stream, not a prediction: barriers release at once, nothing
queues, the instruction cache always hits, and memory has bandwidth to spare. Other workgroups of
the CU are left out; where waves of theirs fill gaps, efficiency rises up to
`efficiency_of_residents`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.profiling.classify import category, matrix_cycles
from cupygemm.emulator.profiling.control_flow import (
    Loop,
    Node,
    dominates,
    dominators,
    graph,
    heaviest_path,
    loops,
)
from cupygemm.emulator.profiling.loop_issue import (
    SLOT,
    Segment,
    exposed_cycles,
    global_bytes,
    lds_bytes,
    waits,
    walk,
)
from cupygemm.emulator.profiling.occupancy import SIMDS, occupancy
from cupygemm.emulator.state import LANES
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel


@dataclass(frozen=True)
class LoopProfile:
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
        2 if half of them run one segment behind, else 1.
    resident : int
        Workgroups that a CU holds at once.
    segments : tuple of Segment
        What one wave does, between barriers.
    waits : tuple of str
        Its s_waitcnt instructions.
    mfma : int
        Its MFMA instructions.
    global_bytes, lds_bytes : int
        Bytes that it moves by vector memory and by DS instructions.
    slots : tuple of (float, str)
        Cycles of each segment, and what binds them.
    memory_latency : int
        Cycles from a load to its data, assumed.
    exposed_cycles : float
        Of waits for global memory.
    """

    kernel: str
    target: str
    begin: int
    end: int
    threads: int
    waves_per_simd: int
    groups: int
    resident: int
    segments: tuple[Segment, ...] = field(repr=False)
    waits: tuple[str, ...] = field(repr=False)
    mfma: int
    global_bytes: int
    lds_bytes: int
    slots: tuple[tuple[float, str], ...] = field(repr=False)
    memory_latency: int
    exposed_cycles: float

    @property
    def instructions(self) -> dict[str, int]:
        """Return the instructions of a wave by category; those that it has."""
        total: Counter[str] = Counter()
        for segment in self.segments:
            total.update(segment.instructions)
        return dict(total)

    @property
    def mfma_cycles(self) -> int:
        """Return the MFMA cycles of a wave."""
        return sum(segment.mfma_cycles for segment in self.segments)

    @property
    def lds_cycles(self) -> float:
        """Return the LDS cycles of a wave, conflicts included if they are known."""
        return sum(segment.lds_cycles for segment in self.segments)

    @property
    def lds_conflict_cycles(self) -> float:
        """Return the LDS cycles of a wave that bank conflicts add."""
        return sum(segment.lds_conflict_cycles for segment in self.segments)

    @property
    def cycles(self) -> float:
        """Return the cycles of an iteration, for one workgroup alone on its CU."""
        return sum(cycles for cycles, _ in self.slots) + self.exposed_cycles

    @property
    def efficiency(self) -> float:
        """Return the share of the cycles in which the matrix pipe works."""
        return self.waves_per_simd * self.mfma_cycles / self.cycles

    @property
    def efficiency_of_residents(self) -> float:
        """Return the share at best, with all workgroups that a CU holds."""
        return min(1.0, self.resident * self.efficiency)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as numbers, strings, lists and dictionaries, for JSON.

        Returns
        -------
        dict
            The attributes and properties by name.
        """
        names = (
            "instructions", "mfma_cycles", "lds_cycles", "lds_conflict_cycles", "cycles",
            "efficiency", "efficiency_of_residents",
        )  # fmt: skip
        return asdict(self) | {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        from cupygemm.emulator.profiling.loop_table import render

        return render(self)


def count_loop(
    kernel: Kernel, threads: int, staggered: bool | None, latency: int,
    conflicts: Mapping[int, float],
) -> LoopProfile:  # fmt: skip
    """Return the counts; see `cupygemm.emulator.profile_loop`."""
    target, entry = kernel.code_object.target_name, kernel.entry
    nodes = graph(kernel)
    idom = dominators(nodes, entry)
    loop, places = _main_loop(nodes, loops(nodes, idom), target)
    path = _from_barrier([(pc, nodes[pc].inst) for pc in places])
    waves_per_simd = -(-threads // (LANES * SIMDS))
    if staggered is None:
        staggered = waves_per_simd % 2 == 0 and _has_stagger(nodes, idom, loop)
    groups = 2 if staggered else 1
    together = -(-threads // LANES) // groups
    absolute = {entry + offset: cycles for offset, cycles in conflicts.items()}
    segments, events = walk(path, target, together, absolute)
    slots = _slots(segments, groups, together)
    starts = [sum(cycles for cycles, _ in slots[:s]) for s in range(len(slots))]
    period = sum(cycles for cycles, _ in slots)
    room = occupancy(
        kernel, -(-threads // LANES), kernel.lds_bytes, TARGETS[target].num_cus, TARGETS[target]
    )
    return LoopProfile(
        kernel=kernel.name,
        target=target,
        begin=min(loop.body) - entry,
        end=max(pc + nodes[pc].inst.size for pc in loop.body) - entry,
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
        memory_latency=latency,
        exposed_cycles=exposed_cycles(events, starts, period, latency),
    )


def _main_loop(nodes: Mapping[int, Node], found: list[Loop], target: str) -> tuple[Loop, list[int]]:
    """Return the innermost loop with the most MFMA cycles on a path, and that path."""

    def weight(inst: Instruction) -> int:
        return matrix_cycles(inst, target)

    busy = [loop for loop in found if any(weight(nodes[pc].inst) for pc in loop.body)]
    inner = [loop for loop in busy if not any(other.body < loop.body for other in busy)]
    if not inner:
        raise ValueError(
            f"none of the kernel's {len(found)} loops has an MFMA: there is nothing to count"
        )
    paths = [(loop, heaviest_path(nodes, loop, weight)) for loop in inner]
    return max(paths, key=lambda item: sum(weight(nodes[pc].inst) for pc in item[1]))


def _from_barrier(path: list[tuple[int, Instruction]]) -> list[tuple[int, Instruction]]:
    """Rotate an iteration so that it ends with a barrier, if it has one."""
    last = max((i for i, (_, inst) in enumerate(path) if category(inst) == "barrier"), default=-1)
    return path[last + 1 :] + path[: last + 1]


def _has_stagger(nodes: Mapping[int, Node], idom: Mapping[int, int], loop: Loop) -> bool:
    """Tell whether only some paths to the loop pass a certain barrier."""
    for pc, node in nodes.items():
        if category(node.inst) != "barrier" or dominates(idom, pc, loop.head):
            continue
        seen, waiting = {pc}, [pc]
        while waiting:
            for goal in nodes[waiting.pop()].successors:
                if goal not in seen:
                    seen.add(goal)
                    waiting.append(goal)
        if loop.head in seen and pc not in loop.body:
            return True
    return False


def _slots(segments: list[Segment], groups: int, waves: int) -> list[tuple[float, str]]:
    """Return the cycles of each slot and what binds; a group has `waves` on the CU."""
    slots = []
    each = -(-waves // SIMDS)  # on a SIMD
    for s in range(len(segments)):
        together = [segments[s - group] for group in range(groups)]
        needs = {
            "issue": max(p.issue_cycles + (each - 1) * p.mfma_cycles for p in together),
            "MFMA": sum(each * p.mfma_cycles for p in together),
            "VALU": sum(SLOT * each * _on_the_vector_port(p) for p in together),
            "LDS": sum(waves * p.lds_cycles for p in together),
        }
        bound = max(needs, key=lambda name: (needs[name], name == "MFMA"))
        slots.append((float(needs[bound]), bound))
    return slots


def _on_the_vector_port(segment: Segment) -> int:
    return segment.instructions.get("VALU", 0) + segment.instructions.get("MFMA", 0)
