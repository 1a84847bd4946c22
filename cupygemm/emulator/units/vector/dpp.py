"""Data-parallel primitives (DPP): the lane from which an instruction reads src0.

`pattern` returns the source lane that a dpp_ctrl gives each of the 64 lanes, or -1 for none. A
source lane that is out of range or switched off by EXEC is invalid: with bound_ctrl the lane reads
0, without it the lane is not written. row_mask and bank_mask exclude lanes from being written.
Source: AMD's CDNA3 instruction-set guide, section on DPP; LLVM's AMDGPU operand syntax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.state import LANES, Group, Mask, pack_mask

ROW, BANK = 16, 4


def pattern(control: int) -> NDArray[np.intp]:
    """Return the source lane of each lane as an array (64,), with -1 for none.

    Raises
    ------
    UnsupportedInstruction
        The value of dpp_ctrl is reserved.
    """
    lane = np.arange(LANES)
    row, within = lane & -ROW, lane % ROW
    amount = control & 15
    if control <= 0xFF:  # quad_perm
        source = (lane & -4) + (control >> 2 * (lane & 3) & 3)
    elif 0x101 <= control <= 0x10F:  # row_shl
        source = np.where(within + amount < ROW, lane + amount, -1)
    elif 0x111 <= control <= 0x11F:  # row_shr
        source = np.where(within >= amount, lane - amount, -1)
    elif 0x121 <= control <= 0x12F:  # row_ror
        source = row + (within - amount) % ROW
    elif 0x150 <= control <= 0x15F:  # row_newbcast
        source = row + amount
    elif control in _WHOLE_WAVE:
        source = _WHOLE_WAVE[control](lane)
    else:
        raise UnsupportedInstruction(f"dpp_ctrl 0x{control:x} is reserved")
    return np.asarray(source, np.intp)


_WHOLE_WAVE: dict[int, Callable[[Any], Any]] = {
    0x130: lambda lane: np.where(lane < LANES - 1, lane + 1, -1),  # wave_shl
    0x134: lambda lane: (lane + 1) % LANES,  # wave_rol
    0x138: lambda lane: lane - 1,  # wave_shr
    0x13C: lambda lane: (lane - 1) % LANES,  # wave_ror
    0x140: lambda lane: lane ^ (ROW - 1),  # row_mirror
    0x141: lambda lane: lane ^ (ROW // 2 - 1),  # row_half_mirror
    0x142: lambda lane: (lane & -ROW) - 1,  # row_bcast:15, the last lane of the previous row
    0x143: lambda lane: np.where(lane < 32, -1, 31),  # row_bcast:31
}


def source(inst: Instruction, index: int) -> Callable[[Group], NDArray[np.uint32]]:
    """Return a function that reads register `index` through the instruction's lane pattern."""
    lanes = pattern(inst.fields["dpp"])
    from_lane = np.maximum(lanes, 0)
    if not inst.fields["bc"]:
        return lambda group: np.take(group.v(index), from_lane, axis=1)
    valid = _valid_lanes(lanes)
    return lambda group: np.where(
        valid(group), np.take(group.v(index), from_lane, axis=1), np.uint32(0)
    )


def enabled_lanes(inst: Instruction) -> Callable[[Group], Mask] | None:
    """Return a function for the lanes that an instruction writes, or None without DPP."""
    if inst.variant != "DPP":
        return None
    chosen = _chosen(inst)
    if inst.fields["bc"]:
        return lambda group: group.mask & chosen
    valid = _valid_lanes(pattern(inst.fields["dpp"]))
    return lambda group: group.mask & chosen & valid(group)


def _chosen(inst: Instruction) -> NDArray[np.bool_]:
    """Return the lanes that row_mask and bank_mask select."""
    lane = np.arange(LANES)
    rows = inst.fields["row_mask"] >> lane // ROW & 1
    banks = inst.fields["bank_mask"] >> lane % ROW // BANK & 1
    chosen: NDArray[np.bool_] = (rows & banks) != 0
    return chosen


def chosen_lanes(inst: Instruction) -> int:
    """Return the lanes that row_mask and bank_mask select, a bit each."""
    return int(pack_mask(_chosen(inst)[None])[0])


def _valid_lanes(lanes: NDArray[np.intp]) -> Callable[[Group], Mask]:
    in_range, from_lane = lanes >= 0, np.maximum(lanes, 0)
    return lambda group: in_range & group.mask[:, from_lane]
