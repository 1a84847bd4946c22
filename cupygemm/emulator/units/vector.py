"""The vector ALU: VOP1, VOP2, VOP3, VOP3P (except matrix instructions) and VOPC.

The ``vector_*`` modules hold the operations in tables of `Op`. Comparisons, packed and cross-lane
operations have operands or results of other shapes, so their modules bind them. The matrix unit
implements v_accvgpr_*.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa import AGPR0, M0, Instruction, Operand
from cupygemm.emulator.isa_targets import lacks
from cupygemm.emulator.state import GPR_INDEX, Group
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import (
    cross_lane,
    lanewise,
    vector_compare,
    vector_convert,
    vector_division,
    vector_dot,
    vector_float,
    vector_fp8,
    vector_integer,
    vector_packed,
    vector_sad,
)
from cupygemm.emulator.units.lanewise import Op, Step

OPS: dict[str, Op] = {
    **vector_integer.OPS,
    **vector_sad.OPS,
    **vector_float.OPS,
    **vector_division.OPS,
    **vector_convert.OPS,
}
_NOTHING = frozenset(("v_nop", "v_clrexcp"))  # exceptions are not modelled


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step of a vector instruction, or None if `target` does not have it."""
    plain = None if lacks(target.name, inst.mnemonic) else _bind(inst, target)
    if plain is None:
        return None

    def step_or_indexed(group: Group) -> None:
        if group.state.mode & GPR_INDEX:
            _run_indexed(inst, target, group)
        else:
            plain(group)

    return step_or_indexed


def _bind(inst: Instruction, target: Target) -> Step | None:
    name = inst.mnemonic
    if name.startswith("v_accvgpr_"):
        from cupygemm.emulator.units import matrix

        step: Step | None = matrix.bind(inst, target)
        return step
    if name in _NOTHING:
        return lambda _group: None
    op = OPS.get(name)
    if op is not None:
        return lanewise.bind(inst, op, target)
    return (
        vector_packed.bind(inst)
        or cross_lane.bind(inst)
        or vector_compare.bind(inst)
        or vector_fp8.bind(inst, target)
        or vector_dot.bind(inst)
        or vector_sad.bind(inst)
    )


# -- relative register indexing --------------------------------------------------------------------
# s_set_gpr_idx_on sets a bit of MODE. M0 then holds the index of each wave and, in bits 12 to 15,
# the operands to which it is added. The waves are split by index, and the instruction is bound once
# for each index.

_INDEXED_FIELDS = {"src0": 1, "src1": 2, "src2": 4, "vdst": 8}


def indexed_forms(inst: Instruction, group: Group) -> list[tuple[Instruction, Group]]:
    """Return an instruction with the registers that M0 selects, and the waves that it is for."""
    m0 = group.s(M0)
    forms = []
    for value in np.unique(m0):
        waves = group.wave_ids[m0 == value]
        moved = _move(inst, int(value) & 0xFF, int(value) >> 12 & 15)
        forms.append((moved, Group(group.state, waves, len(waves))))
    return forms


def _run_indexed(inst: Instruction, target: Target, group: Group) -> None:
    for moved, waves in indexed_forms(inst, group):
        _bind_indexed(moved, target)(waves)
    group.refresh_mask()


@functools.lru_cache(maxsize=1 << 12)
def _bind_indexed(inst: Instruction, target: Target) -> Any:
    return _bind(inst, target)


@functools.lru_cache(maxsize=1 << 12)
def _move(inst: Instruction, offset: int, enabled: int) -> Instruction:
    def moved(op: Operand) -> Operand:
        if op.kind != "v" or not _INDEXED_FIELDS.get(op.field, 0) & enabled:
            return op
        file, first = ("a", AGPR0) if op.index >= AGPR0 else ("v", 0)
        last = op.index + offset + op.count - 1
        if last >= first + AGPR0:
            raise Fault(
                "relative index past the vector registers",
                f"{op.field} {file}{op.index - first} plus the index {offset} of M0 reaches "
                f"{file}{last - first}",
            )
        return replace(op, index=op.index + offset)

    return replace(inst, dst=tuple(map(moved, inst.dst)), src=tuple(map(moved, inst.src)))
