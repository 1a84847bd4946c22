"""Native forms of vector instructions: the counterpart of `vector`, for native/valu_step.c."""

from __future__ import annotations

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.constants import FLOATS, WIDTH
from cupygemm.emulator.units.lanewise import Op, source_operands
from cupygemm.emulator.units.native import packed
from cupygemm.emulator.units.native.form import NativeAlu, address_of, native_alu
from cupygemm.emulator.units.native.operands import (
    TO_B16,
    TO_B32,
    TO_B64,
    TO_F16,
    TO_MASK,
    literal_of,
    operation,
    renamed,
    saturating,
    set_dpp,
    set_mode,
    set_part,
    source_of,
)
from cupygemm.emulator.units.operands import kind_of, written_part
from cupygemm.emulator.units.vector import unit as vector


def bind(inst: Instruction, target: Target) -> NativeAlu | None:
    """Return the native form of a vector instruction, or None."""
    name = inst.mnemonic
    if name.startswith("v_accvgpr_"):
        return _accumulator_move(inst)
    op = vector.OPS.get(name)
    if op is not None:
        return _lanewise(inst, op)
    if name.startswith("v_cmp"):
        return _comparison(inst)
    if address_of(f"valu_{name}") is not None:
        return None if inst.variant else _between_lanes(inst)
    return packed.bind(inst, target)


_LITERALS = {"v_fmamk": 1, "v_madmk": 1, "v_fmaak": 2, "v_madak": 2}  # which source it is


def _lanewise(inst: Instruction, op: Op) -> NativeAlu | None:
    operands = source_operands(inst)
    kinds = op.sources.split() or [kind_of(operand) for operand in operands]
    results = sorted(inst.dst, key=lambda operand: operand.field != "vdst")
    result = op.result or kind_of(results[0])
    is_float = result in FLOATS
    saturates = bool(inst.fields.get("clmp")) and not is_float
    if saturates and len(results) == 2:
        return None
    sources = [
        source_of(inst, operand, kind, signed=op.signed)
        for operand, kind in zip(operands, kinds, strict=True)
    ]
    place = _LITERALS.get(inst.mnemonic.rpartition("_")[0])
    if place is not None:
        sources.insert(place, literal_of(inst, result))
        kinds.insert(place, "u32")  # which is never flushed
    record = operation(renamed(inst.mnemonic) + saturating(inst.mnemonic) * saturates, sources)
    if record is None:
        return None
    record.result = results[0].index
    types = {16: TO_B16, 32: TO_B32, 64: TO_B64}
    record.result_type = TO_F16 if result == "f16" else types[WIDTH[result]]
    set_part(record, written_part(inst, result, keep_high=op.keep_high))
    set_dpp(record, inst)
    if len(results) == 2:
        record.mask = results[1].index
    if inst.mnemonic.startswith("v_bitop3_"):
        fields = inst.fields
        record.immediate = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]
    mode = set_mode(record, inst, kinds, result, exact=op.exact)
    return native_alu("valu_lanewise", record, *mode)


def _comparison(inst: Instruction) -> NativeAlu | None:
    name = inst.mnemonic.replace("v_cmpx_", "v_cmp_")
    relation, _, kind = name.removeprefix("v_cmp_").rpartition("_")
    left, right, *_ = source_operands(inst)
    if relation == "class":
        kinds = [f"u{WIDTH[kind]}", "u32"]
        sources = [source_of(inst, left, kinds[0], signed=True), source_of(inst, right, "u32")]
    else:
        kinds = [kind, kind]
        sources = [source_of(inst, op, kind) for op in (left, right)]
    record = operation(name, sources)
    if record is None:
        return None
    record.result_type = TO_MASK
    record.mask, *more = sorted(op.index for op in inst.dst)  # EXEC comes last
    if more:
        (record.mask2,) = more
    mode = set_mode(record, inst, kinds, "mask", exact=False)
    return native_alu("valu_lanewise", record, *mode)


def _accumulator_move(inst: Instruction) -> NativeAlu | None:
    """Return a move to or from an AGPR, which has no modifiers."""
    source = source_of(inst, inst.src[0], "u32")
    record = operation("v_mov_b32", [source])
    record.result = inst.dst[0].index
    return native_alu("valu_lanewise", record)


def _between_lanes(inst: Instruction) -> NativeAlu | None:
    operands = source_operands(inst)[:2]
    selects = inst.mnemonic in ("v_readlane_b32", "v_writelane_b32")
    if selects and operands[1].kind == "v":  # not a legal lane selector
        return None
    sources = [source_of(inst, op, "u32") for op in operands]
    record = operation("v_mov_b32", sources)  # the function is not called
    record.result = inst.dst[0].index
    return native_alu(f"valu_{inst.mnemonic}", record)
