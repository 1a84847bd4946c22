"""Registers that M0 selects: s_movrels, s_movreld, and vector instructions in index mode.

s_set_gpr_idx_on sets a bit of MODE. M0 then holds the index of each wave and, in bits 12 to 15, the
operands of vector instructions to which it is added. s_movrels adds M0 to its source, s_movreld to
its destination. The waves are split by index; each part has an instruction of its own. (CDNA3 ISA
guide, sections 3.6.7 and 5.2.)
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa.instruction import (
    AGPR0,
    M0,
    VCC,
    Instruction,
    Operand,
    masks_of,
    register_name,
)
from cupygemm.emulator.waves.state import GPR_INDEX, Group

_VECTOR = ("VOP1", "VOP2", "VOP3", "VOP3P", "VOPC")
_INDEXED_FIELDS = {"src0": 1, "src1": 2, "src2": 4, "vdst": 8}
_MOVED_FIELDS = {"s_movrels": "src0", "s_movreld": "sdst"}


def is_selected(inst: Instruction, mode: int) -> bool:
    """Return whether M0 selects registers of an instruction that executes in a mode."""
    if inst.encoding in _VECTOR:
        return bool(mode & GPR_INDEX)
    return inst.mnemonic.startswith(tuple(_MOVED_FIELDS))


def indexed_forms(inst: Instruction, group: Group) -> list[tuple[Instruction, Group]]:
    """Return an instruction with the registers that M0 selects, and the waves that execute it.

    Parameters
    ----------
    inst : Instruction
        A vector instruction, of a group in index mode, or a relative move.
    group : Group

    Raises
    ------
    Fault
        A register number is out of range.
    """
    m0 = group.s(M0)
    forms = []
    for value in np.unique(m0):
        waves = group.wave_ids[m0 == value]
        forms.append((_selected(inst, int(value)), Group(group.state, waves, len(waves))))
    return forms


@functools.lru_cache(maxsize=1 << 12)
def _selected(inst: Instruction, m0: int) -> Instruction:
    field = _MOVED_FIELDS.get(inst.mnemonic[:9])
    offset, kinds = (m0 & 0xFF, m0 >> 12 & 15) if field is None else (m0, 0)

    def moved(op: Operand) -> Operand:
        is_vector = op.kind == "v" and _INDEXED_FIELDS.get(op.field, 0) & kinds
        if not is_vector and not (op.kind == "s" and op.field == field):
            return op
        first = AGPR0 if is_vector and op.index >= AGPR0 else 0
        last = op.index + offset + op.count - 1
        if last >= (first + AGPR0 if is_vector else VCC + 2):
            names = [register_name(op.kind, op.index)]
            names.append(f"{names[0].rstrip('0123456789')}{last - first}")
            raise Fault(
                f"relative index past the {'vector' if is_vector else 'scalar'} registers",
                f"{op.field} {names[0]} plus the index {offset} of M0 reaches {names[1]}",
            )
        return replace(op, index=op.index + offset)

    dst, src = tuple(map(moved, inst.dst)), tuple(map(moved, inst.src))
    vector_reads, scalar_reads = masks_of(src)
    vector_writes, scalar_writes = masks_of(dst)
    return replace(
        inst,
        dst=dst,
        src=src,
        vector_reads=vector_reads,
        vector_writes=vector_writes,
        scalar_reads=scalar_reads,
        scalar_writes=scalar_writes,
    )
