"""Operands of vector instructions: how sources are fetched and results are written.

``f16`` and ``bf16`` values are held as float32, which represents them exactly. `source` and
`destination` resolve everything that the instruction determines (register, constant, SDWA
selection, DPP pattern, sign modifiers) and return closures over a `Group`. Arrays are (waves, 64),
(waves, 1) for a scalar register, or (1, 1) for a constant; they broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import (
    EXEC,
    VCC,
    Instruction,
    Operand,
)
from cupygemm.emulator.units.constants import (
    APERTURES,
    EXECZ,
    FLOATS,
    SCC,
    VCCZ,
    WIDTH,
    constant_bits,
)
from cupygemm.emulator.units.vector import dpp
from cupygemm.emulator.units.vector.functions import Array, half_to_float
from cupygemm.emulator.waves.state import Group, unpack_mask

Fetch = Callable[[Group], Array]
Put = Callable[[Group, Array], None]

_NUMPY = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
}
_KIND_OF_FORMAT = {
    **dict.fromkeys(("U16", "B16"), "u16"),
    **dict.fromkeys(("U64", "B64"), "u64"),
    **dict.fromkeys(("I32", "I24"), "i32"),
    "I16": "i16",
    "I64": "i64",
    "F16": "f16",
    "BF16": "bf16",
    "F32": "f32",
    "F64": "f64",
    "M64": "mask",
}


def kind_of(op: Operand) -> str:
    """Return the kind of an operand by its number format; packed and 8-bit formats are ``u32``."""
    return _KIND_OF_FORMAT.get(op.fmt, "u64" if op.bits == 64 else "u32")


def source(inst: Instruction, op: Operand, kind: str, *, signed: bool = False) -> Fetch:
    """Return a function that fetches a source operand as `kind`.

    Parameters
    ----------
    inst : Instruction
    op : Operand
    kind : str
    signed : bool
        Apply the abs and neg modifiers although `kind` is not a float, for a 32-bit select.
    """
    if kind == "mask":
        return lane_mask(op)
    width = WIDTH[kind]
    steps = _selection(inst, op, width) + _sign_modifiers(inst, op, kind, signed) + _typed(kind)
    raw = _raw64(inst, op, kind) if width == 64 else _raw32(inst, op, kind)
    if op.kind == "imm":
        return always(_chain(raw, steps)(None))  # type: ignore[arg-type]  # needs no registers
    return _chain(raw, steps)


def lane_mask(op: Operand) -> Fetch:
    """Return a function that fetches a scalar register pair or a constant as one bool per lane."""
    if op.kind == "imm":
        bits = np.full(1, constant_bits(op, "u64"), np.uint64)
        return always(unpack_mask(bits))
    if op.kind != "s":
        raise UnsupportedInstruction(f"operand {op.index} ({op.kind}) is not a lane mask")
    index = op.index
    return lambda group: unpack_mask(group.s64(index))


def always(value: Array) -> Fetch:
    """Return a function that returns a constant for every group."""

    def fetch(_group: Group) -> Array:
        return value

    return fetch


def _chain(raw: Fetch, steps: list[Callable[[Array], Array]]) -> Fetch:
    if not steps:
        return raw
    if len(steps) == 1:
        only = steps[0]
        return lambda group: only(raw(group))

    def fetch(group: Group) -> Array:
        value = raw(group)
        for step in steps:
            value = step(value)
        return value

    return fetch


# -- registers and constants -----------------------------------------------------------------------


def _raw32(inst: Instruction, op: Operand, kind: str) -> Fetch:
    index = op.index
    if op.kind == "v":
        if inst.variant == "DPP" and op.field == "src0":
            return dpp.source(inst, index)
        return lambda group: group.v(index)
    if op.kind == "s":
        return lambda group: group.s(index)[:, None]
    if op.kind == "imm":
        return always(np.full((1, 1), constant_bits(op, kind) & 0xFFFFFFFF, np.uint32))
    return _special32(index)


def _special32(index: int) -> Fetch:
    if index == VCCZ:
        return lambda group: (group.s64(VCC) == 0).astype(np.uint32)[:, None]
    if index == EXECZ:
        return lambda group: (group.s64(EXEC) == 0).astype(np.uint32)[:, None]
    if index == SCC:
        return lambda group: group.scc.astype(np.uint32)[:, None]
    if index in APERTURES:  # a 32-bit read gets the low half, see LLVM's getSegmentAperture
        return always(np.full((1, 1), APERTURES[index] & 0xFFFFFFFF, np.uint32))
    raise UnsupportedInstruction(f"operand code {index} is not a source of vector instructions")


def _raw64(inst: Instruction, op: Operand, kind: str) -> Fetch:
    index = op.index
    if op.kind == "v":
        if inst.variant == "DPP" and op.field == "src0":
            low, high = dpp.source(inst, index), dpp.source(inst, index + 1)
            return lambda group: low(group) | high(group).astype(np.uint64) << np.uint64(32)
        return lambda group: group.v64(index)
    if op.kind == "s":
        return lambda group: group.s64(index)[:, None]
    if op.kind == "imm":
        return always(np.full((1, 1), constant_bits(op, kind), np.uint64))
    if index in APERTURES:
        return always(np.full((1, 1), APERTURES[index], np.uint64))
    narrow = _special32(index)
    return lambda group: narrow(group).astype(np.uint64)


# -- modifiers -------------------------------------------------------------------------------------


_POSITIONS = {"src0": 0, "src1": 1, "src2": 2}


def position(op: Operand) -> int:
    """Return 0, 1 or 2 for src0, src1 and src2, and 3 for others, which have no modifiers."""
    return _POSITIONS.get(op.field, 3)


def selected_field(inst: Instruction, op: Operand, width: int) -> tuple[int, int, bool] | None:
    """Return the bits that the operation reads: the lowest, the number, and whether to extend.

    None means the whole operand.
    """
    where = position(op)
    if inst.variant == "SDWA" and where < 2:
        selector, extend = inst.fields[f"src{where}_sel"], inst.fields[f"src{where}_sext"]
        return None if selector >= 6 else (*_part(selector), bool(extend))
    halves = inst.encoding == "VOP3" and width == 16 and where < 3 and op.kind != "imm"
    if halves and inst.fields.get("opsel", 0) >> where & 1:
        return 16, 16, False
    return None


def _part(selector: int) -> tuple[int, int]:
    """Return the lowest bit and the width of the byte or word that an SDWA selector names."""
    return (8 * selector, 8) if selector < 4 else (16 * (selector - 4), 16)


def _selection(inst: Instruction, op: Operand, width: int) -> list[Callable[[Array], Array]]:
    """Return the step that extracts the bytes, the word or the half that the operation reads."""
    chosen = selected_field(inst, op, width)
    return [] if chosen is None else [_extractor(*chosen)]


def _extractor(low: int, width: int, extend: bool) -> Callable[[Array], Array]:
    up, down = np.uint32(32 - low - width), np.uint32(32 - width)
    if extend:
        return lambda raw: ((raw << up).view(np.int32) >> np.int32(down)).view(np.uint32)
    return lambda raw: (raw << up) >> down


def sign_modifiers(inst: Instruction, op: Operand, kind: str, signed: bool) -> tuple[int, int]:
    """Return the abs and neg modifiers as bits to keep and bits to flip.

    If there is no modifier, all bits are kept and none is flipped. `signed` is as for `source`.
    """
    where, width = position(op), WIDTH[kind]
    all_bits = (1 << max(width, 32)) - 1
    if where > 2 or (kind not in FLOATS and not signed):
        return all_bits, 0
    if inst.variant:
        absolute = inst.fields.get(f"src{where}_abs", 0)
        negate = inst.fields.get(f"src{where}_neg", 0)
    else:
        absolute = inst.fields.get("abs", 0) >> where & 1
        negate = inst.fields.get("neg", 0) >> where & 1
    sign = 1 << width - 1
    return all_bits ^ sign * absolute, sign * negate


def _sign_modifiers(
    inst: Instruction, op: Operand, kind: str, signed: bool
) -> list[Callable[[Array], Array]]:
    word = np.uint64 if WIDTH[kind] == 64 else np.uint32
    keep, flip = (word(bits) for bits in sign_modifiers(inst, op, kind, signed))
    steps: list[Callable[[Array], Array]] = []
    if ~keep:
        steps.append(lambda raw: raw & keep)
    if flip:
        steps.append(lambda raw: raw ^ flip)
    return steps


# -- types -----------------------------------------------------------------------------------------


def _as_float32(raw: Array) -> Array:
    return raw.view(np.float32)


def _typed(kind: str) -> list[Callable[[Array], Array]]:
    if kind in ("u32", "u64"):
        return []
    if kind == "f32":
        return [_as_float32]
    if kind == "u16":
        return [lambda raw: raw.astype(np.uint16)]
    if kind == "i16":
        return [lambda raw: raw.astype(np.uint16).view(np.int16)]
    if kind == "f16":
        return [lambda raw: half_to_float(raw.astype(np.uint16))]
    if kind == "bf16":
        return [lambda raw: (raw << np.uint32(16)).view(np.float32)]
    dtype = _NUMPY[kind]
    return [lambda raw: raw.view(dtype)]


# -- destinations ----------------------------------------------------------------------------------


def destination(inst: Instruction, op: Operand, kind: str, *, keep_high: bool = False) -> Put:
    """Return a function that writes a result of `kind` to a destination operand.

    A 16-bit result (as uint16 bits) clears the other half of the register, but preserves it with
    `keep_high` or if op_sel names the high half. A ``mask`` result is an array of bools, of which
    only the active lanes count.
    """
    index = op.index
    if kind == "mask":
        enabled = dpp.enabled_lanes(inst)
        if enabled is None:
            return lambda group, value: group.set_lane_mask(index, value)
        return lambda group, value: group.set_lane_mask(index, value & enabled(group))
    put = _whole_put(inst, index, kind)
    if inst.variant == "SDWA" or WIDTH[kind] == 16:
        return _part_put(index, put, written_part(inst, kind, keep_high=keep_high))
    return put


def _whole_put(inst: Instruction, index: int, kind: str) -> Put:
    enabled = dpp.enabled_lanes(inst)
    if WIDTH[kind] == 64:
        if enabled is not None:
            return lambda group, value: group.set_v64(index, value.view(np.uint64), enabled(group))
        return lambda group, value: group.set_v64(index, value.view(np.uint64))
    if enabled is not None:
        return lambda group, value: group.set_v(index, value.view(np.uint32), enabled(group))
    return lambda group, value: group.set_v(index, value.view(np.uint32))


class Part(NamedTuple):
    """The field of a register that a result is written to."""

    low: int
    bits: int
    rest: Literal["preserve", "pad", "sign"]  # the treatment of the other bits


def written_part(inst: Instruction, kind: str, *, keep_high: bool) -> Part | None:
    """Return the field that a result of up to 32 bits is written to, or None for the register.

    SDWA, op_sel and `keep_high` determine it; see `destination`.
    """
    if inst.variant == "SDWA":
        selector, unused = inst.fields.get("dst_sel", 6), inst.fields.get("dst_unused", 0)
        if selector > 6:
            raise UnsupportedInstruction(f"{inst.text}: dst_sel {selector} is reserved")
        return None if selector == 6 else Part(*_part(selector), _UNUSED.get(unused, "preserve"))
    if WIDTH[kind] != 16:
        return None
    if inst.encoding == "VOP3" and inst.fields.get("opsel", 0) >> 3 & 1:
        return Part(16, 16, "preserve")
    return Part(0, 16, "preserve") if keep_high else None


_UNUSED: dict[int, Literal["pad", "sign"]] = {0: "pad", 1: "sign"}  # SDWA's dst_unused


def _part_put(index: int, put: Put, part: Part | None) -> Put:
    """Return a function that writes a field of a register; `Part.rest` governs the other bits."""

    def widen(value: Array) -> Array:
        if value.dtype.itemsize == 2:
            return value.view(np.uint16).astype(np.uint32)
        return value.view(np.uint32)

    if part is None:
        return lambda group, value: put(group, widen(value))
    low, width, unused = part
    field = np.uint32((1 << width) - 1)

    def put_part(group: Group, value: Array) -> None:
        bits = widen(value) & field
        if unused == "pad":
            bits = bits << np.uint32(low)
        elif unused == "sign":
            up = np.uint32(32 - width)
            bits = ((bits << up).view(np.int32) >> np.int32(up - low)).view(np.uint32)
            bits &= np.uint32(0xFFFFFFFF << low & 0xFFFFFFFF)
        else:
            rest = group.v(index) & np.uint32(~(int(field) << low) & 0xFFFFFFFF)
            bits = bits << np.uint32(low) | rest
        put(group, bits)

    return put_part
