"""Source operands of scalar instructions: one value per wave, or one constant for all waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import EXEC, VCC, Operand
from cupygemm.emulator.units.constants import APERTURES, EXECZ, SCC, VCCZ, constant_bits
from cupygemm.emulator.units.scalar.arithmetic import Width
from cupygemm.emulator.waves.state import Group

Source = Callable[[Group], Any]


def scalar_source(op: Operand, width: Width | None = None) -> Source:
    """Return a function that fetches a scalar operand as an array (count,) or a NumPy scalar.

    Parameters
    ----------
    op : Operand
    width : {32, 64}, optional
        Width of the value. The default is the operand's own width.
    """
    wide = (width or (64 if op.count == 2 or op.bits == 64 else 32)) == 64
    if op.kind == "s":
        index = op.index
        return (lambda group: group.s64(index)) if wide else (lambda group: group.s(index))
    if op.kind == "special":
        return _special_source(op.index, wide=wide)
    constant: Any = np.uint32(constant_bits(op, "u32"))
    if wide:  # a literal is extended by the operand's signedness
        constant = np.uint64(constant_bits(op, "i64" if op.fmt.startswith("I") else "u64"))
    return lambda _group: constant


def _special_source(code: int, *, wide: bool) -> Source:
    if code == VCCZ:
        return lambda group: (group.s64(VCC) == 0).astype(np.uint32)
    if code == EXECZ:
        return lambda group: (group.s64(EXEC) == 0).astype(np.uint32)
    if code == SCC:
        return lambda group: group.scc.astype(np.uint32)
    if code not in APERTURES:
        raise UnsupportedInstruction(f"scalar source operand {code} is not emulated")
    value: Any = np.uint64(APERTURES[code]) if wide else np.uint32(APERTURES[code] & 0xFFFFFFFF)
    return lambda _group: value
