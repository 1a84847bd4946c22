"""Memory instructions outside DS: which module binds which encoding.

When the state asks for a profile, ``State.units["global_lines"]`` maps the program counter of each
vector memory instruction to (wave-instructions, lanes, bytes, 64-byte lines, 128-byte lines): what
it asked of global memory, lines being counted once per wave-instruction.
"""

from __future__ import annotations

from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import Step, buffer, flat, scalar_memory


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes a memory instruction, or None for one that is not emulated."""
    if inst.encoding == "SMEM":
        return scalar_memory.bind(inst)
    if inst.encoding == "MUBUF":
        return buffer.bind(inst, target)
    if inst.encoding in ("FLAT", "GLOBAL", "SCRATCH"):
        return flat.bind(inst, target)
    return None  # MTBUF: typed buffers are for graphics
