"""Native forms of packed and mixed-precision instructions, dot products and 8-bit conversions."""

from __future__ import annotations

import re

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import float_mode, formats
from cupygemm.emulator.units.lanewise import source_operands
from cupygemm.emulator.units.native.form import NativeAlu, native_alu
from cupygemm.emulator.units.native.operands import (
    ALL,
    F64_DEFAULT,
    TO_B16,
    TO_B32,
    TO_F16,
    Source,
    half_of,
    operation,
    renamed,
    saturating,
    set_mode,
    set_part,
    source_of,
    word_of,
)
from cupygemm.emulator.units.operands import Part, kind_of, selected_field
from cupygemm.emulator.units.vector import dot as vector_dot
from cupygemm.emulator.units.vector import fp8, packed
from cupygemm.emulator.units.vector.packed import negation, selection


def bind(inst: Instruction, target: Target) -> NativeAlu | None:
    """Return the native form of an instruction on pairs or on narrow numbers, or None."""
    name = inst.mnemonic
    if any(op.kind == "special" for op in inst.src) or inst.variant == "DPP":
        return None
    narrow = fp8.NAME.fullmatch(name)
    if narrow is not None:
        return _narrow(inst, target, narrow)
    if inst.variant:
        return None
    dot = vector_dot.NAME.fullmatch(name)
    if dot is not None:
        return _dot(inst, dot)
    if name in packed.HALVES:
        return _packed_halves(inst, packed.HALVES[name][1])
    if name in packed.FLOATS or name == "v_pk_mov_b32":
        return _packed_words(inst)
    if name.startswith(("v_mad_mix", "v_fma_mix")):
        return _mixed(inst)
    return None


def _packed_halves(inst: Instruction, kind: str) -> NativeAlu | None:
    clamps = bool(inst.fields.get("clmp"))
    function = renamed(inst.mnemonic)
    if clamps and kind != "f16":
        function += saturating(inst.mnemonic)
    passes: list[list[Source]] = [[], []]
    for i, op in enumerate(source_operands(inst)):
        where = i if op.field != "vdst" else 3
        for half in range(2):
            sign = negation(inst, where)[half] if kind == "f16" else 0
            chosen = selection(inst, where)[half]
            passes[half].append(half_of(op, chosen, kind, flip=0x8000 * sign))
    record = operation(function, passes[0], passes[1])
    if record is None:
        return None
    record.result = inst.dst[0].index
    record.result_type = TO_F16 if kind == "f16" else TO_B16
    kinds = [kind] * len(passes[0])
    return native_alu("valu_packed", record, *set_mode(record, inst, kinds, kind, exact=False))


def _packed_words(inst: Instruction) -> NativeAlu | None:
    operands = source_operands(inst)
    passes: list[list[Source]] = [[], []]
    moves = inst.mnemonic == "v_pk_mov_b32"
    if moves:
        for half, op in enumerate(operands):
            passes[half].append(word_of(op, inst.fields["opsel"] >> half & 1))
    for where, op in enumerate(() if moves else operands):
        for half in range(2):
            sign = 0x80000000 * negation(inst, where)[half]
            passes[half].append(word_of(op, selection(inst, where)[half], flip=sign))
    record = operation(renamed(inst.mnemonic), passes[0], passes[1])
    if record is None:
        return None
    record.result, record.result_type = inst.dst[0].index, TO_B32
    if moves:
        return native_alu("valu_packed", record)
    kinds = ["f32"] * len(operands)
    return native_alu("valu_packed", record, *set_mode(record, inst, kinds, "f32", exact=False))


def _mixed(inst: Instruction) -> NativeAlu | None:
    """Return v_fma_mix, whose sources are f32 or, where op_sel_hi says so, a half."""
    sources: list[Source] = []
    for where, op in enumerate(source_operands(inst)):
        if op.field == "vdst":
            continue
        high, is_half = selection(inst, where)
        negative, absolute = negation(inst, where)
        if is_half:
            keep, flip = ALL ^ 0x8000 * absolute, 0x8000 * negative
            sources.append(half_of(op, high, "f16", keep=keep, flip=flip))
        else:
            word = source_of(inst, op, "u32")
            word.keep, word.flip = ALL ^ 0x80000000 * absolute, 0x80000000 * negative
            sources.append(word)
    record = operation("v_fma_f32", sources)
    result = "f32" if inst.mnemonic.endswith("mix_f32") else "f16"
    record.result = inst.dst[0].index
    record.result_type = TO_B32 if result == "f32" else TO_F16
    if result == "f16":
        set_part(record, Part(16 * inst.mnemonic.endswith("mixhi_f16"), 16, "preserve"))
    mask, value = set_mode(record, inst, ["f32"] * 3, result, exact=False)
    record.flushes = True  # fma_mix rounds and flushes as f32, then rounds to f16
    return native_alu("valu_lanewise", record, mask | float_mode.DOUBLE, value | F64_DEFAULT)


# -- dot products ----------------------------------------------------------------------------------


def _dot(inst: Instruction, name: re.Match[str]) -> NativeAlu | None:
    size, accumulates, _, kind = name.groups()
    first, second, third = source_operands(inst)
    result = kind_of(inst.dst[0])
    in_pairs = size == "2"
    sources = [
        half_of(op, chosen, kind, flip=0x8000 * sign * (kind in ("f16", "bf16")))
        for where, op in enumerate((first, second))
        for chosen, sign in zip(selection(inst, where), negation(inst, where), strict=True)
    ]
    if not in_pairs:
        sources = [source_of(inst, op, "u32") for op in (first, second)]
    kinds = [kind] * len(sources) + [result]
    ordered = "c" if accumulates and kind == "bf16" else ""
    record = operation(
        f"v_dot{size}{ordered}_{result}_{kind}", [*sources, source_of(inst, third, result)]
    )
    if record is None:
        return None
    record.result, record.result_type = inst.dst[0].index, TO_B32
    record.immediate = bool(inst.fields.get("clmp"))
    if result != "f32":
        return native_alu("valu_lanewise", record)
    mask, value = set_mode(record, inst, kinds, result, exact=False)
    return native_alu("valu_lanewise", record, mask | float_mode.DOUBLE, value | F64_DEFAULT)


# -- 8-bit floats ----------------------------------------------------------------------------------

_SPECIALS = {"fn": 0, "ieee": 1, "fnuz": 2}  # enum special


def _narrow(inst: Instruction, target: Target, name: re.Match[str]) -> NativeAlu | None:
    """Return an unscaled conversion from or to 8-bit floats."""
    to, narrow = name["to"], name["source"]
    if name["scaled"] or "f32" not in (to, narrow) or not {"fp8", "bf8"} & {to, narrow}:
        return None
    fmt = fp8.narrow_format(narrow if to == "f32" else to, target)
    if to == "f32":
        return _widening(inst, fmt, 2 if name["count"] else 1)
    kind = "sr" if name["random"] else "pk"
    kinds = ("f32", "u32" if name["random"] else "f32")
    operands = source_operands(inst)[:2]
    sources = [source_of(inst, op, k) for op, k in zip(operands, kinds, strict=True)]
    record = operation(f"v_cvt_{kind}_fp8_f32", sources)
    opsel = inst.fields.get("opsel", 0)
    part = Part(8 * (opsel >> 2 & 3), 8, "preserve")
    set_part(record, part if kind == "sr" else Part(16 * (opsel >> 3 & 1), 16, "preserve"))
    record.result = inst.dst[0].index
    special = _SPECIALS[fmt.special]
    record.immediate = fmt.mantissa_bits | fmt.bias << 8 | fmt.max_code << 16 | special << 24
    return native_alu("valu_lanewise", record, float_mode.FP16_OVFL)


def _widening(inst: Instruction, fmt: formats.Format, count: int) -> NativeAlu | None:
    operand = source_operands(inst)[0]
    low, bits, _ = selected_field(inst, operand, 32) or (0, 32, False)
    if bits < 8 * count:
        return None
    codes = [source_of(inst, operand, "u32") for _ in range(count)]
    for place, code in enumerate(codes):
        code.low, code.bits, code.extends = low + 8 * place, 8, False
    record = operation("v_cvt_f32_fp8", codes[:1], codes[1:])
    record.result, record.result_type = inst.dst[0].index, TO_B32
    record.table = formats.decode_table(fmt).ctypes.data
    return native_alu("valu_packed" if count == 2 else "valu_lanewise", record)
