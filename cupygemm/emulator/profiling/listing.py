"""The annotated disassembly of a profiled kernel.

    ; saxpy.hip:4
         16  +0x0010  global_load_dword v2, v[0:1], off    256 B/wave, 2.0 lines, coalescing 100.0 %
         16  +0x0018  s_waitcnt vmcnt(0)                   vmcnt for +0x0010, 0 instr. between

The first column is the number of waves that executed the instruction; a dot means none did.
"""

from __future__ import annotations

from cupygemm.emulator.profiling import modelled
from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts, Wait, percent
from cupygemm.emulator.profiling.kernel_counts import (
    InstructionProfile,
    KernelCounts,
    iterate_lines,
)

_TEXT_WIDTH = 56


def listing(profile: KernelCounts) -> str:
    """Return the disassembly of a kernel with notes about each instruction."""
    grid, block = ("x".join(map(str, extent)) for extent in (profile.grid, profile.block))
    title = f"; {profile.kernel} on emulated {profile.target}: {profile.launches} launch(es), "
    title += f"grid {grid}, block {block}, {profile.waves} waves"
    lines = [title, ";  waves  offset   instruction"]
    for source, inst in iterate_lines(profile):
        if source:
            lines.append(f"; {source}")
        lines.append(_line(inst, profile))
    return "\n".join(lines) + "\n"


def _line(inst: InstructionProfile, profile: KernelCounts) -> str:
    count = str(inst.executions) if inst.executions else "."
    sign = "-" if inst.offset < 0 else "+"
    place = f"{sign}0x{abs(inst.offset):04x}"
    note = "; ".join(filter(None, [*_notes(inst), modelled.note([inst], profile)]))
    return f"{count:>8}  {place}  {inst.text:<{_TEXT_WIDTH}}  {note}".rstrip()


def _notes(inst: InstructionProfile) -> list[str]:
    notes = []
    if inst.global_memory is not None:
        notes.append(memory_note(inst.global_memory))
    if inst.lds is not None:
        notes.append(lds_note(inst.lds))
    notes += [_wait_note(wait, inst.executions) for wait in inst.waits]
    if inst.category == "waitcnt" and inst.executions and not inst.waits:
        notes.append("nothing outstanding")
    if inst.lanes and inst.category == "VALU" and inst.lanes < 64 * inst.executions:
        notes.append(f"{inst.lanes / inst.executions:.1f} of 64 lanes on")
    return notes


def memory_note(counts: GlobalCounts) -> str:
    """Return a short note about the global memory accesses of some instructions."""
    parts = [
        f"{counts.bytes / counts.instructions:.0f} B/wave",
        f"{counts.traffic.requests / counts.instructions:.1f} lines",
        f"coalescing {percent(counts.coalescing)}",
    ]
    if counts.traffic.l1_reads:
        parts.append(f"vL1D {percent(counts.l1_hit_rate)}")
    if counts.traffic.l2_requests:
        parts.append(f"L2 {percent(counts.l2_hit_rate)}")
    return ", ".join(parts)


def lds_note(counts: LdsCounts) -> str:
    """Return a short note about the cycles of LDS instructions."""
    each, lost = (n / counts.instructions for n in (counts.cycles, counts.conflict_cycles))
    return f"LDS {each:.1f} cycles" + (f", {lost:.1f} of them bank conflicts" if lost else "")


def _wait_note(wait: Wait, executions: int) -> str:
    operations = ", ".join(
        f"{'-' if at < 0 else '+'}0x{abs(at):04x}"
        for at in sorted(wait.operations, key=lambda at: -wait.operations[at])[:4]
    )
    more = len(wait.operations) - 4
    text = f"{wait.counter} for {operations}" + (f" and {more} more" if more > 0 else "")
    if wait.waves < executions:
        text += f", in {wait.waves} waves"
    return f"{text}, {wait.distance / wait.waves:.0f} instr. between"
