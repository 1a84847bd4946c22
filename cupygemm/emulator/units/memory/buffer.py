"""MUBUF and MTBUF instructions: bounds-checked access through a buffer resource.

    address = base + SOFFSET + offset + VGPR offset (OFFEN) + stride * VGPR index (IDXEN)

A raw buffer (no IDXEN) has NUM_RECORDS bytes. The bounds check includes SOFFSET and treats each
dword of a wide access separately; a dword that is only partly inside the buffer is out of bounds. A
structured buffer has NUM_RECORDS elements of STRIDE bytes, and the index is checked. Out-of-bounds
loads return 0 and out-of-bounds stores are dropped. Typed (FORMAT) accesses convert an element, and
a part of one is out of bounds as a whole (native/typed.h). (CDNA3 ISA guide, section 9.1.5.)
"""

from __future__ import annotations

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.lds.unit import m0_mask
from cupygemm.emulator.units.memory.invalidations import invalidate, invalidates
from cupygemm.emulator.units.memory.vector import (
    memory_operation,
    typed_operation,
    vector_memory_step,
)
from cupygemm.emulator.units.memory.write_backs import write_back, writes_back

_CACHE_CONTROL = ("buffer_wbl2", "buffer_invl2")


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes a buffer instruction, or None if it is not emulated."""
    if writes_back(inst):
        return write_back
    if invalidates(inst):
        return invalidate
    if inst.mnemonic.startswith(_CACHE_CONTROL):
        return lambda _group: None  # the emulated memory has no caches
    fields, resource, soffset = inst.fields, inst.operand("srsrc"), inst.operand("soffset")
    if resource is None or soffset is None or soffset.kind == "special":
        return None
    register = soffset.index if soffset.kind == "s" else -1
    to_lds, typed = bool(fields.get("lds")), "_format_" in inst.mnemonic
    if to_lds and typed:
        return None
    operation = (typed_operation if typed else memory_operation)(
        inst,
        "buffer",
        to_lds=to_lds,
        address=fields["vaddr"],
        resource=resource.index,
        scalar=register,
        offset=fields["offset"],
        offen=fields["offen"],
        idxen=fields["idxen"],
        m0_mask=m0_mask(target),
        constant=0 if register >= 0 else constant_bits(soffset, "u32"),
    )
    return vector_memory_step(operation)
