"""The scalar unit: SOP1, SOP2, SOPC and SOPK. `control` implements program control.

A scalar register holds one value per wave: operands are uint32 or uint64 arrays (count,), and
results wrap. SCC follows AMD's CDNA3 instruction-set guide, chapter 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import EXEC, Instruction, hardware_bits
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.relative import indexed_forms
from cupygemm.emulator.units.scalar.arithmetic import COMPARES, LOGIC, PAIRS, SINGLES
from cupygemm.emulator.units.scalar.control import (
    INDEX_MODE,
    PROGRAM_COUNTER,
    bind_call,
    bind_getreg,
    bind_program_control,
    bind_setreg,
)
from cupygemm.emulator.units.scalar.source import Source, scalar_source
from cupygemm.emulator.waves.state import Group

Step = Callable[[Group], Any]


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step of a scalar instruction, or None if it is not emulated."""
    name = inst.mnemonic
    if inst.encoding == "SOPP":
        return bind_program_control(inst)
    if inst.encoding == "SOPK":
        return _bind_immediate(inst, target)
    if name in COMPARES:
        compare, width = COMPARES[name]
        left, right = (
            scalar_source(op, width if i == 0 else None) for i, op in enumerate(inst.src[:2])
        )
        return lambda group: group.set_scc(compare(left(group), right(group)))
    if name in PAIRS:
        return _bind_pair(inst)
    if name in SINGLES:
        return _bind_single(inst)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(inst)
    if "_saveexec_" in name or "_wrexec_" in name:
        return _bind_exec(inst)
    return None


# -- arithmetic ------------------------------------------------------------------------------------


def _bind_pair(inst: Instruction) -> Step:
    operation, width, counts = PAIRS[inst.mnemonic]
    left = scalar_source(inst.src[0], width)
    right = scalar_source(inst.src[1], 32 if counts else width)
    if inst.mnemonic.startswith("s_pack_"):
        left = scalar_source(inst.src[0], 32)
    return _store_result(inst, lambda group: operation(left(group), right(group), group.scc))


def _bind_single(inst: Instruction) -> Step:
    operation, width = SINGLES[inst.mnemonic]
    source = scalar_source(inst.src[0], width)
    return _store_result(inst, lambda group: operation(source(group)))


def _store_result(inst: Instruction, compute: Callable[[Group], tuple[Any, Any]]) -> Step:
    index, wide = inst.dst[0].index, inst.dst[0].count == 2

    def step(group: Group) -> None:
        value, scc = compute(group)
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)
        if scc is not None:
            group.set_scc(scc)

    return step


def _bind_exec(inst: Instruction) -> Step | None:
    """Bind s_<op>_saveexec_b64 (dst = exec, exec = op) and s_<op>_wrexec_b64 (dst = exec = op)."""
    operation = LOGIC[inst.mnemonic.split("_")[1]]
    source, index = scalar_source(inst.src[0], 64), inst.dst[0].index
    save = "_saveexec_" in inst.mnemonic

    def step(group: Group) -> None:
        old = group.s64(EXEC)
        new = operation(source(group), old)
        group.set_s64(index, old if save else new)
        group.set_s64(EXEC, new)
        group.set_scc(new != 0)

    return step


# -- SOPK ------------------------------------------------------------------------------------------


def _bind_immediate(inst: Instruction, target: Target) -> Step | None:
    name, raw = inst.mnemonic, inst.fields["simm16"]
    index = inst.fields["sdst"]
    immediate = np.uint32(inst.signed_immediate & 0xFFFFFFFF)
    if name.startswith("s_cmpk_"):
        compare = COMPARES["s_cmp_" + name.removeprefix("s_cmpk_")].function
        operand = np.uint32(raw) if name.endswith("u32") else immediate
        return lambda group: group.set_scc(compare(group.s(index), operand))
    if name == "s_movk_i32":
        return lambda group: group.set_s(index, immediate)
    if name == "s_cmovk_i32":
        return lambda group: group.set_s(index, np.where(group.scc, immediate, group.s(index)))
    if name in ("s_addk_i32", "s_mulk_i32"):
        operation = PAIRS["s_add_i32" if name == "s_addk_i32" else "s_mul_i32"].function
        return _store_result(inst, lambda group: operation(group.s(index), immediate, group.scc))
    if name == "s_call_b64":
        return bind_call(index, inst.jump)
    register, offset, size = hardware_bits(raw)
    mask = ((1 << size) - 1) << offset
    if name == "s_getreg_b32":
        return bind_getreg(index, register, offset, mask, target)
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        literal = np.uint32(inst.fields.get("literal", 0))
        value: Source = (lambda g: g.s(index)) if name == "s_setreg_b32" else (lambda _g: literal)
        return bind_setreg(value, register, offset, mask)
    return None


def _bind_conditional_move(inst: Instruction) -> Step:
    wide = inst.dst[0].count == 2
    source, index = scalar_source(inst.src[0], 64 if wide else 32), inst.dst[0].index

    def step(group: Group) -> None:
        old = group.s64(index) if wide else group.s(index)
        value = np.where(group.scc, source(group), old)
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)

    return step


def _bind_bitset(inst: Instruction) -> Step:
    wide, index = inst.dst[0].count == 2, inst.dst[0].index
    source, setting = scalar_source(inst.src[0], 32), "bitset1" in inst.mnemonic

    def step(group: Group) -> None:
        old = group.s64(index) if wide else group.s(index)
        kind: Any = old.dtype.type
        bit = kind(1) << (np.asarray(source(group)).astype(kind) & kind(63 if wide else 31))
        value = old | bit if setting else old & ~bit
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)

    return step


def _bind_relative_move(inst: Instruction) -> Step:
    """Bind s_movrels and s_movreld, which add M0 to a register number."""

    def step(group: Group) -> None:
        sgpr = group.state.sgpr
        for moved, waves in indexed_forms(inst, group):
            target = moved.dst[0]
            fetch = scalar_source(moved.src[0], 64 if target.count == 2 else 32)
            value = np.asarray(fetch(waves), np.uint64)
            for word in range(target.count):
                part = (value >> np.uint64(32 * word)).astype(np.uint32)
                sgpr[target.index + word, waves.wave_ids] = part

    return step


_SPECIAL: dict[str, Callable[[Instruction], Step]] = {
    **PROGRAM_COUNTER,
    **INDEX_MODE,
    "s_cmov_b32": _bind_conditional_move,
    "s_cmov_b64": _bind_conditional_move,
    "s_bitset0_b32": _bind_bitset,
    "s_bitset1_b32": _bind_bitset,
    "s_bitset0_b64": _bind_bitset,
    "s_bitset1_b64": _bind_bitset,
    "s_movrels_b32": _bind_relative_move,
    "s_movrels_b64": _bind_relative_move,
    "s_movreld_b32": _bind_relative_move,
    "s_movreld_b64": _bind_relative_move,
}
