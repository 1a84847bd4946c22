"""Undefined bits through matrix instructions: the elements of D that depend on undefined values.

The instruction itself is executed twice more, once for A and once for B, on a copy of the
registers. In the copy, the elements of a lane of A (or B) are 1 if the lane has undefined bits and
0 otherwise, and all elements of the other operand are 1. Thus an element of D is nonzero if and
only if an undefined element contributes to it, and layouts, broadcasts and sparse indices need no
second implementation. The addend has the layout of D. Lanes are treated as a whole because a lane
of A holds elements of a single row. Integers are treated one by one, and those known to be 0 as
defined, since 0 times anything is 0.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.units.matrix import unit as matrix
from cupygemm.emulator.units.matrix.step import mfma_run
from cupygemm.emulator.waves.marks import ALL, Marks
from cupygemm.emulator.waves.state import LANES, Group, State


def run(marks: Marks, group: Group, inst: Instruction) -> None:
    """Set the undefined bits of D, before the instruction executes."""
    state, op = group.state, matrix.describe(inst, group.state.target)
    a, b, d = inst.operand("src0"), inst.operand("src1"), inst.dst[0]
    assert a is not None
    assert b is not None
    tainted = [_lanes(marks, group, operand) for operand in (a, b)]
    integers = [_bytes(marks, group, operand) for operand in (a, b)] if op.a.bias == 0 else None
    result = np.zeros((d.count, group.count, LANES), np.uint32)
    if op.c_reg >= 0:
        rows = marks.undefined[op.c_reg : op.c_reg + d.count][:, group.waves]
        result |= np.where(rows != 0, np.uint32(ALL), np.uint32(0))
    for place, lanes in enumerate(tainted):
        if lanes.any():
            result |= _reached(state, group, op, (a, b), lanes, place, integers)
    for operand in inst.src:  # block scales and sparse indices affect many elements
        if operand.field.startswith("scale_") or operand.index == op.index_reg:
            whole = _lanes(marks, group, operand).any(axis=1)
            result |= np.where(whole, np.uint32(ALL), np.uint32(0))[None, :, None]
    marks.undefined[d.index : d.index + d.count, group.waves] = result


def _lanes(marks: Marks, group: Group, op: Operand) -> Any:
    """Return which lanes of an operand have undefined bits, as bool (count, 64)."""
    if op.kind != "v":
        return np.zeros((group.count, LANES), bool)
    return (marks.undefined[op.index : op.index + op.count][:, group.waves] != 0).any(axis=0)


def _bytes(marks: Marks, group: Group, op: Operand) -> tuple[Any, Any]:
    """Return registers with 1 in the undefined bytes, and others with 1 in the nonzero ones too."""
    rows = slice(op.index, op.index + op.count)
    undefined = _ones_of(marks.undefined[rows][:, group.waves])
    return undefined, undefined | _ones_of(group.state.vgpr[rows][:, group.waves])


def _ones_of(words: Any) -> Any:
    """Return words with 1 in each byte that is nonzero."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return (octets != 0).astype(np.uint8).view(np.uint32)


def _reached(
    state: State,
    group: Group,
    op: Any,
    operands: tuple[Operand, Operand],
    lanes: Any,
    place: int,
    integers: list[tuple[Any, Any]] | None,
) -> Any:
    """Return all bits of the elements of D to which lanes of A (or B, if `place`) contribute."""
    counts = [operand.count for operand in operands]
    base = sum(counts)
    index = base + op.d_count
    registers = np.zeros((index + 1, group.count, LANES), np.uint32)
    for i, first in enumerate((0, counts[0])):
        if integers is not None:
            registers[first : first + counts[i]] = integers[i][0 if i == place else 1]
            continue
        pattern = _ones(op.a if i == 0 else op.b, counts[i])[:, None, None]
        marked = lanes[None] if i == place else np.ones((1, 1, 1), bool)
        registers[first : first + counts[i]] = np.where(marked, pattern, np.uint32(0))
    probe = type(op).from_buffer_copy(op)
    probe.a_reg, probe.b_reg, probe.d_reg, probe.c_reg = 0, counts[0], base, -1
    probe.scale_a = probe.scale_b = -1
    probe.negate = 0
    probe.constant[:] = [0, 0]
    if op.index_reg >= 0:  # sparse: D is the addend, and a register holds the index
        probe.c_reg, probe.index_reg = base, index
        registers[index] = state.vgpr[op.index_reg, group.waves]
    mfma_run()(
        ctypes.byref(probe), registers.ctypes.data, registers.strides[0] // 4, None, 0, group.count
    )
    found = registers[base:index]
    if op.d_count and op.a.bits == 64:  # f64: an element fills a pair of registers
        found = found[0::2] | found[1::2]
        found = np.repeat(found, 2, axis=0)
    return np.where(found != 0, np.uint32(ALL), np.uint32(0))


def _ones(fmt: Any, count: int) -> Any:
    """Return the registers of an operand whose elements are all 1."""
    one = fmt.bias << fmt.mantissa_bits if fmt.mantissa_bits else 1
    word, bits = 0, 32 * count
    for low in range(0, bits, fmt.bits):
        word |= one << low
    return np.array([word >> 32 * i & ALL for i in range(count)], np.uint32)
