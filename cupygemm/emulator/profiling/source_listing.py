"""The source lines of a profiled kernel, with notes about the instructions of each line.

    ; scale.hip: wave-instructions by line
           3        6  float value = x[i];       VALU 3, VMEM 1, waitcnt 2; 256 B/wave, ...

The text of a line is shown if the code object contains it, or its file can be read.
"""

from __future__ import annotations

from cupygemm.emulator.profiling import modelled
from cupygemm.emulator.profiling.counts import GlobalCounts, LdsCounts
from cupygemm.emulator.profiling.kernel_counts import (
    InstructionProfile,
    KernelCounts,
    mix,
    sum_waits,
)
from cupygemm.emulator.profiling.listing import lds_note, memory_note

_TEXT_WIDTH = 64


def source_listing(profile: KernelCounts) -> str:
    """Return the executed lines of each source file of a kernel."""
    lines = [f"; {profile.kernel} on emulated {profile.target}"]
    if not profile.by_source():
        lines.append("; no source lines are known: compile with -gline-tables-only")
    last = ""
    for (file, number), instructions in profile.by_source().items():
        if file != last:
            last = file
            lines.append(f"; {file}: wave-instructions by line")
        text = instructions[0].quote
        executions = sum(inst.executions for inst in instructions)
        shown = f"{text:.{_TEXT_WIDTH}}"
        note = _note(instructions, profile)
        lines.append(f"{number:>8} {executions:>8}  {shown:<{_TEXT_WIDTH}}  {note}".rstrip())
    return "\n".join(lines) + "\n"


def _note(instructions: list[InstructionProfile], profile: KernelCounts) -> str:
    memory, lds = GlobalCounts(), LdsCounts()
    for inst in instructions:
        if inst.global_memory is not None:
            memory.add(inst.global_memory)
        if inst.lds is not None:
            lds.add(inst.lds)
    notes = [", ".join(f"{name} {count}" for name, count in mix(instructions).items() if count)]
    if memory.instructions:
        notes.append(memory_note(memory))
    if lds.instructions:
        notes.append(lds_note(lds))
    waits = sum_waits(wait for inst in instructions for wait in inst.waits)
    notes += [f"{wait.counter} waited for by {wait.waves} waves" for wait in waits]
    notes.append(modelled.note(instructions, profile))
    return "; ".join(filter(None, notes))
