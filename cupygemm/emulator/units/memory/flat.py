"""GLOBAL, FLAT and SCRATCH instructions.

GLOBAL adds a signed 13-bit offset to a 64-bit VGPR pair, or to an SGPR pair plus an unsigned 32-bit
VGPR. FLAT adds an unsigned 12-bit offset to a 64-bit VGPR pair, ignores its SADDR field, and
reaches LDS and private memory through apertures. SCRATCH accesses the lane's private memory at
SADDR + VGPR + offset, where SADDR or VGPR may be absent. Targets with architected flat scratch use
the VGPR when the SVE bit is set; others use it when there is no SADDR, and the same bit of their
encoding selects a load to LDS. (CDNA3 ISA guide, chapter 10; LLVM's FLATInstructions.td.)
"""

from __future__ import annotations

from typing import Any

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.lds.profile import ConflictCounter
from cupygemm.emulator.units.lds.unit import m0_mask
from cupygemm.emulator.units.memory.vector import memory_operation, vector_memory_step

_NO_SADDR = 0x7F


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes the instruction, or None if it is not emulated."""
    fields = inst.fields
    where: dict[str, Any] = {"m0_mask": m0_mask(target), "address": fields["addr"]}
    to_lds = False
    if inst.encoding == "FLAT":
        where |= {"offset": fields["offset"] & 0xFFF, "wide": True}
    else:
        where["offset"] = ((fields["offset"] & 0x1FFF) ^ 0x1000) - 0x1000
        if fields["saddr"] != _NO_SADDR:
            where["scalar"] = fields["saddr"]
        to_lds = bool(fields["sve"]) and not target.architected_flat_scratch
    if inst.encoding == "GLOBAL":
        where["wide"] = fields["saddr"] == _NO_SADDR
    elif inst.encoding == "SCRATCH":
        if target.architected_flat_scratch:
            uses_vector = bool(fields["sve"])
        else:
            uses_vector = fields["saddr"] == _NO_SADDR
        if not uses_vector:
            where["address"] = -1
    operation = memory_operation(inst, inst.encoding.lower(), to_lds=to_lds, **where)
    step = vector_memory_step(operation)
    if step is not None and inst.encoding == "FLAT":
        step.profiler = ConflictCounter(step.operation, target, step.profiler)
    return step
