"""Which bits of a register are undefined: what an instruction reads of them, and what it hands on.

Compilers keep two 16-bit values, or a value and nothing, in one register: they mask, shift and
merge words of which one half was never written, and use the other half alone. So the hazard checks
follow single bits through the instructions that move bits about: ANDs, ORs and shifts. Undefined
bits are given as uint32 (wave,) of one register each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.isa import Instruction, Operand
from cupygemm.emulator.state import Group
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.operands import position

Bits = NDArray[np.uint32]  # (wave,)

ALL = 0xFFFFFFFF
_NARROW_STORES = {"_short": 0xFFFF, "_byte": 0xFF, "_b16": 0xFFFF, "_b8": 0xFF}
_LEFT = ("v_lshlrev_b32", "v_lshlrev_b64")
_RIGHT = ("v_lshrrev_b32", "v_lshrrev_b64")
SHIFTS = (*_LEFT, *_RIGHT, "v_lshl_or_b32")


def amount_field(mnemonic: str) -> str:
    """Return the operand of a shift that tells how far."""
    return "src1" if mnemonic == "v_lshl_or_b32" else "src0"


def bits_read(inst: Instruction, op: Operand) -> int:
    """Return the bits of each register of a source that an instruction looks at."""
    place = position(op)
    if inst.variant == "SDWA" and place < 2:
        selector = inst.fields[f"src{place}_sel"]
        if selector == 6:
            return ALL
        return 0xFF << 8 * selector if selector < 4 else 0xFFFF << 16 * (selector - 4)
    if op.field in ("data", "data0", "vdata"):
        name = inst.mnemonic.removesuffix("_d16_hi")
        for suffix, bits in _NARROW_STORES.items():
            if name.endswith(suffix):
                high = 16 if name != inst.mnemonic else 0
                return bits << high
    if op.bits == 16 and place < 3 and inst.encoding in ("VOP1", "VOP2", "VOP3", "VOPC"):
        return 0xFFFF << 16 * (inst.fields.get("opsel", 0) >> place & 1)
    return ALL


def handed_on(group: Group, inst: Instruction, op: Operand, undefined: list[Bits]) -> list[Bits]:
    """Return which bits of the result are undefined because bits of a source are.

    Parameters
    ----------
    group : Group
    inst : Instruction
        One that hands undefined bits on.
    op : Operand
        The source.
    undefined : list of ndarray
        Its undefined bits, a register at a time from the lowest.
    """
    name = inst.mnemonic
    if inst.variant:
        return [_anywhere(bits & np.uint32(bits_read(inst, op))) for bits in undefined]
    if name == "v_and_b32":
        return [undefined[0] & _known(group, _other(inst, op), np.uint32(ALL))]
    if name == "v_or_b32":
        return [undefined[0] & ~_known(group, _other(inst, op), np.uint32(0))]
    if name in SHIFTS and op.field == ("src0" if name == "v_lshl_or_b32" else "src1"):
        amount = inst.operand(amount_field(name))
        distance = None if amount is None else _known(group, amount, None)
        if distance is None:
            return [_anywhere(bits) for bits in undefined]
        return _shifted(undefined, distance, left=name not in _RIGHT)
    return undefined


def _other(inst: Instruction, op: Operand) -> Operand:
    """Return the other source of two."""
    return next(source for source in inst.src if source is not op)


def _known(group: Group, op: Operand, otherwise: Any) -> Any:
    """Return the value of a constant or scalar register; a vector register's is `otherwise`."""
    if op.kind == "imm":
        return np.uint32(constant_bits(op, "u32"))
    return group.s(op.index) if op.kind == "s" else otherwise


def _anywhere(bits: Bits) -> Bits:
    """Return all bits of the waves that have any."""
    return np.where(bits != 0, np.uint32(ALL), np.uint32(0))


def _shifted(undefined: list[Bits], distance: Any, *, left: bool) -> list[Bits]:
    width = 32 * len(undefined)
    value = np.zeros(undefined[0].shape, np.uint64)
    for place, bits in enumerate(undefined):
        value |= bits.astype(np.uint64) << np.uint64(32 * place)
    places = np.uint64(distance) & np.uint64(width - 1)
    value = value << places if left else value >> places
    return [(value >> np.uint64(32 * place)).astype(np.uint32) for place in range(len(undefined))]
