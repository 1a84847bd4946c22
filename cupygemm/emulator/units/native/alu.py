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
from cupygemm.emulator.units.native.templates import bind_by_template

_SCALAR = ("SOP1", "SOP2", "SOPC", "SOPK")
_VECTOR = ("VOP1", "VOP2", "VOP3", "VOP3P", "VOPC")
__all__ = ["NativeAlu", "bind"]


def bind(inst: Instruction, target: Target) -> NativeAlu | None:
    """Return the native form of an instruction, or None."""
    if lacks(target.name, inst.mnemonic):
        return None
    if inst.encoding in _SCALAR:
        if inst.encoding == "SOPK":  # whose register may be a field and no operand
            return salu.bind(inst)
        return bind_by_template(inst, salu.bind, "")
    if inst.encoding in _VECTOR:
        if inst.variant or inst.mnemonic.startswith("v_cmpx"):  # the latter sorts its results
            return valu.bind(inst, target)
        return bind_by_template(inst, lambda each: valu.bind(each, target), target.name)
    return None
