"""The issue cycles of a wave's instructions between the barriers of a loop. *Computed*.

The walk follows one wave in program order. Each instruction takes an issue slot of 4 cycles (64
lanes on 16 units). In addition:

    MFMA            An MFMA starts when the wave's last one has left the matrix pipe. It blocks the
                    issue for only one slot, so that later instructions issue in its shadow.
    s_nop n         It takes n + 1 slots.
    DS write        It blocks the issue for one more slot per dword that a lane sends.
    s_waitcnt       A wait for LDS ends when the data arrive: `LDS_LATENCY` after LDS has served the
                    access and all earlier ones, of which every wave of the group makes one.

Not included are the latencies of global memory (`loop` counts the exposed part), of scalar loads
and of instruction fetch, stalls on full queues, and the release time of a barrier.

Sources: ROCm's Gluon tutorials (`calibration.figures.GT` names the repository),
docs/lds_throughput.md (4-cycle issue; LDS answers 50 to 70 cycles after the issue; LDS serves the
four SIMDs in turn) and its thread traces (a ds_write_b128 takes about 20 cycles to issue; narrower
writes are assumed to scale).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cupygemm.emulator.isa.instruction import Instruction, wait_counts
from cupygemm.emulator.profiling.classify import category, matrix_cycles
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.lds.profile import phases
from cupygemm.emulator.waves.state import LANES

SLOT = 4
LDS_LATENCY = 64
WARM_UP, AVERAGED = 4, 8
"""Iterations until loads in flight repeat, and over which their waits are averaged."""
_DS = re.compile(r"ds_(read|write)(2?)(?:st64)?_(?:b64_tr_b\d+|b96_tr_b6|[biuf](\d+))")
_VMEM = re.compile(r"_(load|store|atomic)_.*?(?:dword(?:x(\d))?|(s?short|ushort)|([us]?byte))")
_TO_LDS = re.compile(r"_lds_(?:dword(?:x(\d))?|\w*short|\w*byte)")


@dataclass
class Segment:
    """The instructions and cycles of one wave between two barriers of a loop.

    Attributes
    ----------
    instructions : dict of str to int
        By category, as in `classify.CATEGORIES`.
    mfma_cycles : int
        Cycles of the matrix pipe.
    lds_cycles, lds_conflict_cycles : float
        Cycles of the LDS pipe, and those of them that bank conflicts add.
    issue_cycles : int
        Cycles from the first instruction to the barrier, both included, with the waits for LDS.
    stall_cycles : int
        Those of the issue cycles that are spent in waits for LDS.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    mfma_cycles: int = 0
    lds_cycles: float = 0.0
    lds_conflict_cycles: float = 0.0
    issue_cycles: int = 0
    stall_cycles: int = 0


@dataclass(frozen=True)
class GlobalEvent:
    """A vector memory instruction or a wait for one: its segment, and its cycle in the segment."""

    segment: int
    cycle: int
    wait: int | None  # None for an access, else the awaited vmcnt


def walk(
    path: Sequence[tuple[int, Instruction]],
    target: str,
    waves: int,
    conflicts: Mapping[int, float],
) -> tuple[list[Segment], list[GlobalEvent]]:
    """Follow one wave through an iteration, which starts after a barrier if it has one.

    Parameters
    ----------
    path : sequence of (int, Instruction)
        Program counters and instructions.
    target : str
    waves : int
        Waves of the workgroup in the same segment; LDS serves them all.
    conflicts : mapping of int to float
        LDS cycles that bank conflicts add, by program counter.
    """
    segments, events = [Segment()], []
    clock = pipe_free = lds_free = 0
    arrivals: list[int] = []  # arrival times of the data of LDS accesses in flight
    for number, (pc, inst) in enumerate(path):
        current, kind = segments[-1], category(inst)
        current.instructions[kind] = current.instructions.get(kind, 0) + 1
        if kind == "MFMA":
            clock = max(clock, pipe_free)
            cycles = matrix_cycles(inst, target)
            pipe_free = clock + cycles
            current.mfma_cycles += cycles
        if served := lds_cycles(inst, target):
            extra = conflicts.get(pc, 0.0)
            current.lds_cycles += served + extra
            current.lds_conflict_cycles += extra
            lds_free = max(lds_free, clock) + int((served + extra) * waves)
            if kind == "LDS":
                arrivals.append(lds_free + LDS_LATENCY)
        if kind == "VMEM":
            events.append(GlobalEvent(len(segments) - 1, clock, None))
        if kind == "waitcnt":
            vm, lgkm = wait_counts(inst.fields["simm16"])
            if lgkm < len(arrivals):
                done = max(arrivals[: len(arrivals) - lgkm])
                del arrivals[: len(arrivals) - lgkm]
                current.stall_cycles += max(0, done - clock)
                clock = max(clock, done)
            events.append(GlobalEvent(len(segments) - 1, clock, vm))
        clock += issue_cycles(inst)
        if kind == "barrier" and number + 1 < len(path):
            current.issue_cycles = clock
            segments.append(Segment())
            clock, pipe_free, lds_free, arrivals = 0, 0, 0, [0] * len(arrivals)
    segments[-1].issue_cycles = clock
    return segments, events


def issue_cycles(inst: Instruction) -> int:
    """Return the cycles until the wave can issue its next instruction."""
    if inst.mnemonic == "s_nop":
        return SLOT * (inst.fields["simm16"] + 1)
    if (found := _DS.fullmatch(inst.mnemonic)) and found[1] == "write":
        dwords = max(1, int(found[3] or 64) // 32) * (2 if found[2] else 1)
        return SLOT * (1 + dwords)
    return SLOT


def lds_cycles(inst: Instruction, target: str) -> int:
    """Return the LDS cycles of a wave's instruction without conflicts; 0 if it has none."""
    banks = TARGETS[target].lds_banks
    if inst.encoding == "DS":
        found = _DS.fullmatch(inst.mnemonic)
        reads = found is None or found[1] == "read"
        size = int(found[3] or 64) // 8 if found else 4
        times = 2 if found and found[2] else 1
        return times * len(phases(max(size, 4), reads=reads, banks=banks))
    if inst.fields.get("lds") or _TO_LDS.search(inst.mnemonic):
        size = global_bytes(inst) // LANES
        return len(phases(max(size, 4), reads=False, banks=banks))
    return 0


def lds_bytes(inst: Instruction) -> int:
    """Return the bytes that a wave reads from or writes to LDS by a DS instruction."""
    if inst.encoding != "DS" or (found := _DS.fullmatch(inst.mnemonic)) is None:
        return 0
    return LANES * int(found[3] or 64) // 8 * (2 if found[2] else 1)


def global_bytes(inst: Instruction) -> int:
    """Return the bytes that all lanes of a wave move by a vector memory instruction."""
    if category(inst) != "VMEM":
        return 0
    if found := _TO_LDS.search(inst.mnemonic):
        return LANES * 4 * int(found[1] or 1)
    if (found := _VMEM.search(inst.mnemonic)) is None:
        return 0
    if found[3] or found[4]:
        return LANES * (2 if found[3] else 1)
    return LANES * 4 * int(found[2] or 1)


def exposed_cycles(
    events: Sequence[GlobalEvent], starts: Sequence[float], period: float, latency: int
) -> float:
    """Return the mean cycles of an iteration in which a wave waits for global memory.

    Parameters
    ----------
    events : sequence of GlobalEvent
    starts : sequence of float
        The start of each segment.
    period : float
        Cycles of an iteration, excluding these waits.
    latency : int
        Cycles from the issue of an access to its end.
    """
    exposed = 0.0
    before = 0.0
    in_flight: list[float] = []
    for iteration in range(WARM_UP + AVERAGED):
        if iteration == WARM_UP:
            before = exposed
        for event in events:
            now = iteration * period + starts[event.segment] + event.cycle + exposed
            if event.wait is None:
                in_flight.append(now + latency)
            elif event.wait < len(in_flight):
                due = in_flight[len(in_flight) - event.wait - 1]
                exposed += max(0.0, due - now)
                del in_flight[: len(in_flight) - event.wait]
    return (exposed - before) / AVERAGED


def waits(path: Sequence[tuple[int, Instruction]]) -> Iterator[str]:
    """Yield the texts of an iteration's waits."""
    return (inst.text for _, inst in path if category(inst) == "waitcnt")
