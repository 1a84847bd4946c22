"""Operations that move values between lanes, or between vector and scalar registers.

v_readlane and v_writelane ignore EXEC. v_readfirstlane reads the lowest active lane, or lane 0 if
no lane is active. The permlane swaps of CDNA4 exchange rows of 16 or halves of 32 lanes between two
registers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.lanewise import Step, source_operands
from cupygemm.emulator.units.operands import source
from cupygemm.emulator.waves.state import LANES, Group

_LANE = np.arange(LANES)


def _read_first_lane(inst: Instruction) -> Step:
    (operand,) = source_operands(inst)
    value, index = source(inst, operand, "u32"), inst.dst[0].index

    def step(group: Group) -> None:
        lanes = np.broadcast_to(value(group), (group.count, LANES))
        first = np.argmax(group.mask, axis=1)  # 0 where no lane is active
        group.set_s(index, lanes[np.arange(group.count), first])

    return step


def _read_lane(inst: Instruction) -> Step:
    operand, selector = source_operands(inst)[:2]
    value, lane = source(inst, operand, "u32"), source(inst, selector, "u32")
    index = inst.dst[0].index

    def step(group: Group) -> None:
        lanes = np.broadcast_to(value(group), (group.count, LANES))
        chosen = (lane(group)[:, 0] & np.uint32(LANES - 1)).astype(np.intp)
        group.set_s(index, lanes[np.arange(group.count), chosen])

    return step


def _write_lane(inst: Instruction) -> Step:
    operand, selector = source_operands(inst)[:2]
    value, lane = source(inst, operand, "u32"), source(inst, selector, "u32")
    index = inst.dst[0].index

    def step(group: Group) -> None:
        chosen = lane(group) & np.uint32(LANES - 1)  # (waves, 1) or (1, 1)
        mask = np.broadcast_to(chosen == _LANE, (group.count, LANES))
        group.set_v(index, value(group), mask)

    return step


def _swap(inst: Instruction) -> Step:
    left, right = inst.dst[0].index, source_operands(inst)[0].index

    def step(group: Group) -> None:
        first, second = group.v(left).copy(), group.v(right).copy()
        group.set_v(left, second)
        group.set_v(right, first)

    return step


def _permlane_swap(width: int) -> Callable[[Instruction], Step]:
    """Return the binder of a swap: odd groups of `width` lanes of vdst with even ones of src0."""
    partner = _LANE ^ width
    odd = (_LANE & width) != 0

    def bind_swap(inst: Instruction) -> Step:
        left, right = inst.dst[0].index, source_operands(inst)[0].index

        def step(group: Group) -> None:
            first, second = group.v(left).copy(), group.v(right).copy()
            active = group.mask & group.mask[:, partner]
            group.set_v(left, np.take(second, partner, axis=1), active & odd)
            group.set_v(right, np.take(first, partner, axis=1), active & ~odd)

        return step

    return bind_swap


_BINDERS: dict[str, Callable[[Instruction], Step]] = {
    "v_readfirstlane_b32": _read_first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_swap_b32": _swap,
    "v_permlane16_swap_b32": _permlane_swap(16),
    "v_permlane32_swap_b32": _permlane_swap(32),
}


def bind(inst: Instruction) -> Step | None:
    """Return the step of a cross-lane instruction, or None if it is not one."""
    binder = _BINDERS.get(inst.mnemonic)
    return binder(inst) if binder is not None else None
