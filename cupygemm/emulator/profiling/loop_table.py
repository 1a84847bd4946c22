"""The counts of a main loop as text."""

from __future__ import annotations

from collections import Counter

from cupygemm.emulator.profiling.classify import CATEGORIES
from cupygemm.emulator.profiling.loop_counts import LoopCounts
from cupygemm.emulator.waves.state import LANES

KIND = (
    "computed from the code object; a bound that the instructions set, not a time: see "
    "docs/reference/profile_figures.rst"
)


def render(loop: LoopCounts) -> str:
    """Return a table with a row for each metric: name, value and note."""
    rows = [
        *_matrix(loop),
        *_instructions(loop),
        *_memory(loop),
        *_cycles(loop),
    ]
    names, values = (max(len(row[i]) for row in rows) for i in (0, 1))
    title = (
        f"main loop of {loop.kernel} for {loop.target}: +0x{loop.begin:04x} to +0x{loop.end:04x}, "
        f"{loop.threads} threads"
    )
    lines = [f"{name:<{names}}  {value:>{values}}  {note}".rstrip() for name, value, note in rows]
    return "\n".join([title, *lines, KIND])


def _matrix(loop: LoopCounts) -> list[tuple[str, str, str]]:
    pattern = {1: "in step", 2: "in two groups, one segment apart"}[loop.groups]
    alone = f"of {loop.cycles:,.0f} cycles, for {loop.waves_per_simd} wave(s) per SIMD, {pattern}"
    rows = [
        ("MFMA issue efficiency", f"{loop.efficiency:.1%}", alone),
    ]
    if loop.resident > 1:
        note = f"at best, if the {loop.resident} workgroups of a CU fill each other's gaps"
        rows.append(("  with residents", f"{loop.efficiency_of_residents:.1%}", note))
    if loop.enclosing is not None:
        note = "around this one, not counted: the code does not tell how often this one repeats"
        begin, end = loop.enclosing
        rows.append(("Another loop", f"+0x{begin:04x}..+0x{end:04x}", note))
    note = f"{loop.mfma_cycles:,} cycles of the matrix pipe"
    return [*rows, ("MFMA of a wave", f"{loop.mfma:,}", note)]


def _instructions(loop: LoopCounts) -> list[tuple[str, str, str]]:
    counts = loop.instructions
    named = ", ".join(f"{counts[name]} {name}" for name in CATEGORIES if name in counts)
    kinds = Counter(loop.waits)
    waits = ", ".join(
        text.removeprefix("s_waitcnt ") + (f" x{n}" if n > 1 else "") for text, n in kinds.items()
    )
    return [
        ("Instructions of a wave", f"{sum(counts.values()):,}", named),
        ("Waits", f"{len(loop.waits)}", waits),
    ]


def _memory(loop: LoopCounts) -> list[tuple[str, str, str]]:
    waves = -(-loop.threads // LANES)
    lost = waves * loop.lds_conflict_cycles
    note = f"{lost:,.0f} of them bank conflicts" if lost else "without bank conflicts"
    return [
        ("LDS cycles", f"{waves * loop.lds_cycles:,.0f}", f"of the workgroup, {note}"),
        ("LDS bytes per MFMA", f"{loop.lds_bytes / loop.mfma:,.0f}", ""),
        ("Global bytes per MFMA", f"{loop.global_bytes / loop.mfma:,.0f}", ""),
    ]


def _cycles(loop: LoopCounts) -> list[tuple[str, str, str]]:
    rows = [
        (
            "Exposed memory latency",
            f"{loop.exposed_cycles:,.0f}",
            f"cycles, at {loop.memory_latency} from load to data",
        ),
    ]
    for number, (segment, (cycles, bound)) in enumerate(
        zip(loop.segments, loop.slots, strict=True)
    ):
        note = f"cycles, bound by {bound}: issue {segment.issue_cycles:,}"
        if segment.stall_cycles:
            note += f" ({segment.stall_cycles:,} waiting for LDS)"
        note += f", MFMA {segment.mfma_cycles:,}, LDS {segment.lds_cycles:,.0f} of a wave"
        rows.append((f"Segment {number}", f"{cycles:,.0f}", note))
    return rows
