"""The native form of an ALU instruction: a C function and its operands, for the loop in C.

`bind` returns None for an instruction without a native form, which the loop leaves to its Python
step. An operation of native/valu_*.c or native/salu.c is found by its mnemonic, so none is listed
here. Sources, results and modifiers are resolved as the Python steps resolve them; the differential
test (tests/emulator/units/test_native_alu.py) holds the two equal.
"""

from __future__ import annotations

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.isa.targets import lacks
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.native import salu, valu
from cupygemm.emulator.units.native.form import NativeAlu

__all__ = ["NativeAlu", "bind"]


def bind(inst: Instruction, target: Target) -> NativeAlu | None:
    """Return the native form of an instruction, or None."""
    if lacks(target.name, inst.mnemonic):
        return None
    if inst.encoding in ("SOP1", "SOP2", "SOPC", "SOPK"):
        return salu.bind(inst)
    if inst.encoding in ("VOP1", "VOP2", "VOP3", "VOP3P", "VOPC"):
        return valu.bind(inst, target)
    return None
