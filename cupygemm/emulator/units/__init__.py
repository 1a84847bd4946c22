"""The execution units. Each turns a decoded instruction into a step over a `Group`.

A unit module has ``bind(inst, target) -> Step | None``. It is called once per instruction and
kernel, so it does all the work that does not depend on register contents (resolving operands,
modifiers and constants), and returns a closure. It returns None for a mnemonic that it does not
have.

A step does the architectural work only. Hazards (reads of registers that were never written or
whose load is still in flight), the wait counters, program counter and statistics are the run
loop's. A branch step returns the new byte offset: an int, or an int64 array (count,) when the waves
disagree; every other step returns None. A step that finds a fault raises `errors.Fault`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.state import Group
from cupygemm.emulator.targets import Target

_UNITS = {
    "SOP1": "scalar", "SOP2": "scalar", "SOPC": "scalar", "SOPK": "scalar", "SOPP": "scalar",
    "VOP1": "vector", "VOP2": "vector", "VOP3": "vector", "VOP3P": "vector", "VOPC": "vector",
    "MFMA": "matrix", "DS": "lds", "SMEM": "memory", "FLAT": "memory", "GLOBAL": "memory",
    "SCRATCH": "memory", "MUBUF": "memory", "MTBUF": "memory",
}  # fmt: skip

Step = Callable[[Group], Any]


def bind(inst: Instruction, target: Target) -> Step:
    """Return the step that executes `inst` on `target`.

    Raises
    ------
    UnsupportedInstruction
        No unit has it.
    """
    name = "matrix" if inst.mnemonic.startswith("v_accvgpr_") else _UNITS[inst.encoding]
    unit = import_module(f"cupygemm.emulator.units.{name}")
    step: Step | None = unit.bind(inst, target)
    if step is None:
        raise UnsupportedInstruction(f"{inst.text}: not implemented for {target.name}")
    return step
