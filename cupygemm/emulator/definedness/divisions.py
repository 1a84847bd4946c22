"""Integer divisions by zero, whose results are undefined.

The hardware has no integer division. LLVM computes a reciprocal of the divisor in floating point
and corrects the quotient, and a divisor of 0 gives some number. Two instructions appear nowhere
else: v_rcp_iflag_f32, whose source is then 0, and, in divisions of 64 bits, a product by 2**64
rounded down, whose other factor is then infinite. What they give in such a lane is undefined, so
that a division whose result is not used, or is chosen by a condition, is no finding.
"""

from __future__ import annotations

from typing import Any

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.operands import source
from cupygemm.emulator.waves.state import Group

_BELOW_2_64 = 0x5F7FFFFC
_INFINITE = 0x7F800000  # as in native/scoreboard.c
_ALL_BUT_SIGN = 0x7FFFFFFF


def is_of_32_bits(inst: Instruction) -> bool:
    """Tell whether an instruction takes the reciprocal of a divisor of up to 32 bits."""
    return inst.mnemonic == "v_rcp_iflag_f32" and _is_plain(inst)


def is_of_64_bits(inst: Instruction) -> bool:
    """Tell whether an instruction scales the reciprocal of a divisor of 64 bits."""
    scaled = inst.mnemonic == "v_mul_f32" and any(op.literal == _BELOW_2_64 for op in inst.src)
    return scaled and _is_plain(inst)


def _is_plain(inst: Instruction) -> bool:
    return not inst.variant and sum(op.kind == "v" for op in inst.src) == 1


def by_zero(inst: Instruction, group: Group) -> Any:
    """Return where an instruction of a division divides by zero: bools (waves, 64)."""
    (operand,) = (op for op in inst.src if op.kind == "v")
    bits = source(inst, operand, "u32")(group) & _ALL_BUT_SIGN
    return (bits == (0 if is_of_32_bits(inst) else _INFINITE)) & group.mask
