"""The vector ALU: VOP1, VOP2, VOP3, VOP3P (except matrix instructions) and VOPC.

The ``vector_*`` modules hold the operations in tables of `Op`. Comparisons, packed and cross-lane
operations have operands or results of other shapes, so their modules bind them. The matrix unit
implements v_accvgpr_*.
"""

from __future__ import annotations

import functools
from typing import Any

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.isa.targets import lacks
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import lanewise
from cupygemm.emulator.units.lanewise import Op, Step
from cupygemm.emulator.units.relative import indexed_forms
from cupygemm.emulator.units.vector import (
    compare,
    convert,
    cross_lane,
    division,
    floating_point,
    fp8,
    integer,
    packed,
    sad,
)
from cupygemm.emulator.units.vector import dot as vector_dot
from cupygemm.emulator.waves.state import GPR_INDEX, Group

OPS: dict[str, Op] = {
    **integer.OPS,
    **sad.OPS,
    **floating_point.OPS,
    **division.OPS,
    **convert.OPS,
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
        from cupygemm.emulator.units.matrix import unit as matrix

        step: Step | None = matrix.bind(inst, target)
        return step
    if name in _NOTHING:
        return lambda _group: None
    op = OPS.get(name)
    if op is not None:
        return lanewise.bind(inst, op, target)
    return (
        packed.bind(inst)
        or cross_lane.bind(inst)
        or compare.bind(inst)
        or fp8.bind(inst, target)
        or vector_dot.bind(inst)
        or sad.bind(inst)
    )


def _run_indexed(inst: Instruction, target: Target, group: Group) -> None:
    for moved, waves in indexed_forms(inst, group):
        _bind_indexed(moved, target)(waves)
    group.refresh_mask()


@functools.lru_cache(maxsize=1 << 12)
def _bind_indexed(inst: Instruction, target: Target) -> Any:
    return _bind(inst, target)
