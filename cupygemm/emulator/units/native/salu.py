"""Operands of native scalar instructions: the counterpart of `scalar`, for native/salu.c."""

from __future__ import annotations

import ctypes
from typing import Any

from cupygemm.emulator.isa.instruction import EXEC, Instruction, Operand
from cupygemm.emulator.units.constants import APERTURES, constant_bits
from cupygemm.emulator.units.native.form import NativeAlu, address_of, native_alu
from cupygemm.emulator.units.scalar.arithmetic import COMPARES, PAIRS, SINGLES
from cupygemm.emulator.units.structures import members

FROM_SCALAR, FROM_CONSTANT, FROM_SPECIAL, FROM_CODE = 1, 2, 3, 4  # enum source_file
_TO_DESTINATION, _SAVES_EXEC, _WRITES_EXEC = range(3)  # enum salu_result


class _Source(ctypes.Structure):
    """``struct salu_source``."""

    _fields_ = members("int32 file reg wide unused\nuint64 constant")


class _Operation(ctypes.Structure):
    """``struct salu_operation``."""

    _fields_ = [
        *members("pointer function"),
        ("sources", _Source * 2),
        *members("int32 result wide kind unused"),
    ]


def bind(inst: Instruction) -> NativeAlu | None:
    """Return the native form of a SOP1, SOP2, SOPC or SOPK instruction, or None."""
    if inst.encoding == "SOPK":
        return _immediate(inst)
    name = inst.mnemonic
    if "_saveexec_" in name or "_wrexec_" in name:
        operation = name.replace("_saveexec", "").replace("_wrexec", "")
        kind = _SAVES_EXEC if "_saveexec_" in name else _WRITES_EXEC
        sources = [_source(inst.src[0], 64), _register(EXEC, wide=True)]
        return _operation(operation, sources, inst, kind)
    return _operation(name, [_source(op, width) for op, width in _widths(inst)], inst)


def program_counter(inst: Instruction, next_pc: int) -> NativeAlu | None:
    """Return the native form of s_getpc_b64 at one place of a program."""
    return _operation("s_mov_b64", [_Source(file=FROM_CODE, constant=next_pc)], inst)


def _widths(inst: Instruction) -> list[tuple[Operand, int]]:
    """Return the sources with the widths at which the instruction reads them."""
    name, src = inst.mnemonic, [op for op in inst.src if op.field.startswith("src")]
    if name in PAIRS:
        _, width, counts = PAIRS[name]
        return [
            (src[0], 32 if name.startswith("s_pack_") else width),
            (src[1], 32 if counts else width),
        ]
    if name in SINGLES:
        return [(src[0], SINGLES[name].width)]
    if name in COMPARES:
        return [(src[0], COMPARES[name].width), (src[1], 64 if src[1].bits == 64 else 32)]
    wide = inst.dst and inst.dst[0].count == 2 and "bitset" not in name
    return [(op, 64 if wide else 32) for op in src]


def _operation(
    name: str, sources: list[_Source], inst: Instruction, kind: int = _TO_DESTINATION
) -> NativeAlu | None:
    function = address_of(f"sop_{name}")
    if function is None:
        return None
    record: Any = _Operation(function=function, result=-1, kind=kind)
    for place, source in enumerate(sources):
        record.sources[place] = source
    for place in range(len(sources), 2):
        record.sources[place] = _constant(0)
    if inst.dst:
        record.result, record.wide = inst.dst[0].index, inst.dst[0].count == 2
    return native_alu("salu", record)


def _immediate(inst: Instruction) -> NativeAlu | None:
    """Return the native form of a SOPK instruction: that of its SOP1, SOP2 or SOPC counterpart."""
    name, raw = inst.mnemonic, inst.fields["simm16"]
    register = _register(inst.fields["sdst"])
    extended = _constant(inst.signed_immediate & 0xFFFFFFFF)
    if name.startswith("s_cmpk_"):
        right = _constant(raw) if name.endswith("u32") else extended
        return _operation(name.replace("s_cmpk_", "s_cmp_"), [register, right], inst)
    if name in ("s_movk_i32", "s_cmovk_i32"):
        return _operation(name.replace("k_i32", "_b32"), [extended], inst)
    if name in ("s_addk_i32", "s_mulk_i32"):
        return _operation(name.replace("k_i32", "_i32"), [register, extended], inst)
    return None


def _constant(value: int) -> _Source:
    return _Source(file=FROM_CONSTANT, constant=value)


def _register(index: int, *, wide: bool = False) -> _Source:
    return _Source(file=FROM_SCALAR, reg=index, wide=wide)


def _source(op: Operand, width: int) -> _Source:
    """Return a source of 32 or 64 bits, as `scalar_source` fetches it."""
    wide = width == 64
    if op.kind == "s":
        return _register(op.index, wide=wide)
    if op.kind == "special":
        if op.index in APERTURES:
            return _constant(APERTURES[op.index] & (1 << width) - 1)
        return _Source(file=FROM_SPECIAL, reg=op.index)
    kind = "u32" if not wide else "i64" if op.fmt.startswith("I") else "u64"
    return _constant(constant_bits(op, kind))
