"""Values from lanes that are switched off, and values of variables that nothing has written.

`looked_at` says which instructions may give such values, or divide by zero (see `divisions`).

DPP with ``bound_ctrl`` reads 0 in a lane that is switched off, and v_readlane reads what its
register happens to hold there: the compiler may have moved the computation of the value after the
condition. Results computed from either are undefined, as with a lane exchange in
native/lds_exchange.h. Sums and similar operations are exempt: a lane that gives 0 adds nothing.
A lane that DPP's pattern does not have is no fault: its 0 is the purpose of ``bound_ctrl``.

The *marker* stands for the value of a variable that nothing has written (runtime/unwritten.py). It
is a v_mov_b32 that writes no lane, so its register keeps whatever it happens to hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.definedness.divisions import is_of_32_bits, is_of_64_bits
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.lanewise import source_operands
from cupygemm.emulator.units.operands import source
from cupygemm.emulator.units.vector import dpp
from cupygemm.emulator.waves.state import Group

NEVER, IF_PARTIAL, ANYHOW, IF_ZERO, IF_INFINITE = range(5)  # as in native/loop.h

# With 0 as src0, these give src1, or the third operand.
_ADDS_NOTHING = ("v_add", "v_subrev", "v_or_", "v_xor_", "v_max_u", "v_mac_", "v_fmac_")


def looked_at(inst: Instruction) -> int:
    """Return when an instruction is examined although none of its registers is undefined."""
    if is_marker(inst):
        return ANYHOW
    if is_of_32_bits(inst):
        return IF_ZERO
    if is_of_64_bits(inst):
        return IF_INFINITE
    reads = inst.mnemonic == "v_readlane_b32" or (
        inst.variant == "DPP" and inst.fields["bc"] and not inst.mnemonic.startswith(_ADDS_NOTHING)
    )
    return IF_PARTIAL if reads else NEVER


def is_marker(inst: Instruction) -> bool:
    """Tell whether an instruction is the marker of a variable that nothing has written."""
    return (
        inst.mnemonic == "v_mov_b32"
        and inst.variant == "DPP"
        and not inst.fields["row_mask"] | inst.fields["bank_mask"]
        and inst.src[0].index == inst.dst[0].index
    )


def switched_off(inst: Instruction, group: Group) -> Any:
    """Return where an instruction reads a lane that is off: bools (waves, 64), or (waves, 1)."""
    if inst.mnemonic == "v_readlane_b32":
        lane = source(inst, source_operands(inst)[1], "u32")(group)[:, :1].astype(np.intp) & 63
        lane = np.broadcast_to(lane, (group.count, 1))
        runs = group.mask.any(axis=1, keepdims=True)
        return ~np.take_along_axis(group.mask, lane, axis=1) & runs
    lanes = dpp.pattern(inst.fields["dpp"])
    enabled = dpp.enabled_lanes(inst)
    assert enabled is not None
    return (lanes >= 0) & ~group.mask[:, np.maximum(lanes, 0)] & enabled(group)
