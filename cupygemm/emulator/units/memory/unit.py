"""Memory instructions other than DS, dispatched to the module that binds their encoding.

When a launch is profiled, ``State.units["global_lines"]`` maps the program counter of each vector
memory instruction to its accesses to global memory: (wave-instructions, lanes, bytes, 64-byte
lines, 128-byte lines). A line is counted once per wave-instruction.
"""

from __future__ import annotations

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.memory import buffer, flat, scalar


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes a memory instruction, or None if it is not emulated."""
    if inst.encoding == "SMEM":
        return scalar.bind(inst)
    if inst.encoding in ("MUBUF", "MTBUF"):
        return buffer.bind(inst, target)
    if inst.encoding in ("FLAT", "GLOBAL", "SCRATCH"):
        return flat.bind(inst, target)
    return None
