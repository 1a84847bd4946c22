"""The execution units. Each turns a decoded instruction into a step over a `Group`.

A unit module has a function ``bind(inst, target) -> Step | None``. It is called once per
instruction and kernel, does all the work that does not depend on register contents (resolving
operands, modifiers and constants), and returns a closure. It returns None for a mnemonic that the
unit does not implement.

A step does the architectural work only. The run loop takes care of hazards (reads of registers that
were never written or whose load is still in flight), wait counters, the program counter and
statistics. A branch step returns the new byte offset: an int, or an int64 array (count,) when the
waves disagree. Every other step returns None. A step that finds a fault raises `errors.Fault`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.waves.state import Group

_ENCODINGS = {
    "scalar": "SOP1 SOP2 SOPC SOPK SOPP",
    "vector": "VOP1 VOP2 VOP3 VOP3P VOPC",
    "matrix": "MFMA",
    "lds": "DS",
    "memory": "SMEM FLAT GLOBAL SCRATCH MUBUF MTBUF",
}
_UNITS = {encoding: unit for unit, names in _ENCODINGS.items() for encoding in names.split()}

Step = Callable[[Group], Any]


def bind(inst: Instruction, target: Target) -> Step:
    """Return the step that executes `inst` on `target`.

    Raises
    ------
    UnsupportedInstruction
        No unit implements the instruction.
    """
    step: Step | None = _unit(_UNITS[inst.encoding]).bind(inst, target)
    if step is None:
        raise UnsupportedInstruction(f"{inst.text}: not emulated on {target.name}")
    return step


@functools.cache
def _unit(name: str) -> Any:
    return import_module(f"cupygemm.emulator.units.{name}.unit")
