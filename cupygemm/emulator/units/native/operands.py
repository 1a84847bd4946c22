"""Operands of native vector instructions: the records that native/valu_step.c reads."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from ctypes import c_int8
from typing import Any

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.units import float_mode
from cupygemm.emulator.units.constants import APERTURES, FLOATS, WIDTH, constant_bits
from cupygemm.emulator.units.native.form import address_of
from cupygemm.emulator.units.operands import Part, selected_field, sign_modifiers
from cupygemm.emulator.units.structures import members
from cupygemm.emulator.units.vector import dpp
from cupygemm.emulator.units.vector.packed import pair_constant
from cupygemm.emulator.waves.state import LANES

FILES = {"v": 0, "s": 1, "imm": 2, "special": 3}  # enum source_file
CONSTANT = FILES["imm"]
AS_B32, AS_B64, AS_B16, AS_F16, AS_BF16, AS_MASK = range(6)  # enum source_type
TO_B32, TO_B64, TO_B16, TO_F16, TO_MASK = range(5)  # enum result_type
# By the kind of a source; others have the bits of their width.
_TYPE_OF = {16: AS_B16, 32: AS_B32, 64: AS_B64}
_TYPES = {kind: _TYPE_OF[width] for kind, width in WIDTH.items()} | {
    "mask": AS_MASK,
    "f16": AS_F16,
    "bf16": AS_BF16,
}
_PARTS = {"preserve": 1, "pad": 2, "sign": 3}  # enum part
_DPP, _DPP_ZERO = 1, 2
ALL = 0xFFFFFFFF
F64_DEFAULT = float_mode.DOUBLE & float_mode.DEFAULT
_F32_SUBNORMALS = float_mode.SINGLE & float_mode.DEFAULT


class Source(ctypes.Structure):
    """``struct valu_source``."""

    _fields_ = members(
        "int32 file reg type low bits extends flushes unused\nuint64 keep flip constant"
    )


class Operation(ctypes.Structure):
    """``struct valu_operation``."""

    _fields_ = [
        *members("pointer function\nint32 num_sources passes"),
        ("sources", Source * 5 * 2),
        *members(
            """
            int32 result_type result mask mask2 clamps part low bits dpp flushes
            uint32 immediate
            float scale
            int32 unused
            pointer table
            uint64 enabled
            """
        ),
        ("lanes", c_int8 * LANES),
    ]


_HEAD = struct.Struct("=Q2i")  # its members before the sources
_SOURCES_BYTES = ctypes.sizeof(Source * 5)
_NO_RESULT = bytes(ctypes.sizeof(Operation) - _HEAD.size - 2 * _SOURCES_BYTES)


# -- sources ---------------------------------------------------------------------------------------


def source_of(inst: Instruction, op: Operand, kind: str, *, signed: bool = False) -> Source:
    """Return a source that is fetched as `kind`, the counterpart of `operands.source`."""
    width = WIDTH[kind]
    found = Source(FILES[op.kind], op.index, _TYPES[kind])
    if kind == "mask":
        if op.kind == "v":
            raise UnsupportedInstruction(f"operand {op.index} (v) is not a lane mask")
        found.constant = constant_bits(op, "u64") if op.kind == "imm" else 0
        return found
    if op.kind == "imm":
        found.constant = constant_bits(op, kind)
    elif op.index in APERTURES and op.kind == "special":
        found.file, found.constant = CONSTANT, APERTURES[op.index] & (1 << max(width, 32)) - 1
    chosen = selected_field(inst, op, width)
    if chosen is not None and width != 64:
        found.low, found.bits, found.extends = chosen
    found.keep, found.flip = sign_modifiers(inst, op, kind, signed)
    return found


def word_of(op: Operand, half: int, *, flip: int = 0) -> Source:
    """Return one register of a packed source; a constant serves as both halves."""
    found = Source(file=FILES[op.kind], reg=op.index + half, keep=ALL, flip=flip)
    if op.kind == "imm":
        found.constant = constant_bits(op, "f32")
    return found


def literal_of(inst: Instruction, kind: str) -> Source:
    """Return the literal factor or addend of an instruction, as f32 or as f16."""
    bits = inst.fields["literal"]
    if kind == "f16":
        return Source(file=CONSTANT, type=AS_F16, keep=ALL, constant=bits & 0xFFFF)
    return Source(file=CONSTANT, keep=ALL, constant=bits)


def half_of(op: Operand, half: int, kind: str, *, keep: int = ALL, flip: int) -> Source:
    """Return a half of a 32-bit source."""
    found = Source(file=FILES[op.kind], reg=op.index, keep=keep, flip=flip, low=16 * half, bits=16)
    found.type = {"f16": AS_F16, "bf16": AS_BF16}.get(kind, AS_B16)
    if op.kind == "imm":
        found.constant = pair_constant(op, kind)
    return found


# -- operations ------------------------------------------------------------------------------------


def operation(function: str, sources: Sequence[Source], second: Sequence[Source] = ()) -> Any:
    """Return the record of an operation without a result, or None if C has no such function."""
    address = address_of(f"op_{function}")
    if address is None:
        return None
    # Assigning the sources one by one would take three times as long.
    halves = (b"".join(map(bytes, part)).ljust(_SOURCES_BYTES, b"\0") for part in (sources, second))
    head = _HEAD.pack(address, len(sources), 2 if second else 1)
    record: Any = Operation.from_buffer_copy(b"".join((head, *halves, _NO_RESULT)))
    record.mask = record.mask2 = -1
    return record


def set_mode(
    record: Any, inst: Instruction, kinds: list[str], result: str, *, exact: bool
) -> tuple[int, int]:
    """Set the effect of MODE on an operation on floats.

    Returns
    -------
    tuple of int
        The bits of MODE for which C supports one setting, and that setting. C reads the others,
        which control subnormals of f32.
    """
    mask = 0 if exact else float_mode.relevant_bits([*kinds, result]) & ~_F32_SUBNORMALS
    value = float_mode.DEFAULT
    fields = inst.fields
    if result in FLOATS:
        omod = fields.get("omod", 0) if inst.encoding != "VOP3P" else 0
        if result == "f16" or (omod and result == "f64"):
            mask |= float_mode.DOUBLE
        if omod and exact and result == "f32":
            mask |= float_mode.SINGLE
        record.clamps = bool(fields.get("clmp"))
        mask |= float_mode.DX10_CLAMP if record.clamps else 0
        mask |= float_mode.FP16_OVFL if result == "f16" else 0
        value |= float_mode.DX10_CLAMP
        record.scale = float_mode.OUTPUT_SCALE[omod]
    if not exact:
        record.flushes = result == "f32"
        if "f32" in kinds or "bf16" in kinds:
            for half in record.sources[: record.passes]:
                for source, kind in zip(half, kinds, strict=False):
                    source.flushes = kind in ("f32", "bf16")
    return mask, value & mask


def set_part(record: Any, part: Part | None) -> None:
    """Set the field of the register that the result is written to."""
    if part is not None:
        record.low, record.bits, record.part = part.low, part.bits, _PARTS[part.rest]


def set_dpp(record: Any, inst: Instruction) -> None:
    """Set the lane pattern of DPP."""
    if inst.variant != "DPP":
        return
    record.dpp = _DPP_ZERO if inst.fields["bc"] else _DPP
    record.lanes[:] = dpp.pattern(inst.fields["dpp"]).tolist()
    record.enabled = dpp.chosen_lanes(inst)


@functools.cache
def renamed(name: str) -> str:
    """Return the operation of an instruction that differs only in the place of its operands."""
    if name.startswith("v_pk_"):
        name = name.replace("v_pk_", "v_")
    for plain in ("fma", "mad"):
        for other in ("mac" if plain == "mad" else "fmac", f"{plain}mk", f"{plain}ak"):
            name = name.replace(f"v_{other}_", f"v_{plain}_")
    return name.replace("_legacy_f16", "_f16")


@functools.cache
def saturating(name: str) -> str:
    """Return the suffix of the saturating form of an integer operation."""
    stays_in_range = name.startswith(("v_min", "v_max", "v_med3", "v_pk_min", "v_pk_max"))
    return "" if stays_in_range else "_clamp"
