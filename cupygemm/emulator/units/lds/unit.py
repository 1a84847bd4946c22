"""DS instructions: LDS reads, writes and atomics, transposing reads, lane exchanges.

`bind` resolves an instruction's operands into an `Operation`. native/lds.c executes it and checks
bounds, uninitialised bytes and races. GDS and GWS are not emulated.

When a launch is profiled, ``State.units["lds_conflicts"]`` maps the program counter of each DS
memory instruction to (wave-instructions, cycles, cycles lost to bank conflicts); see `profile`.
"""

from __future__ import annotations

import re

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.lds.profile import ConflictCounter
from cupygemm.emulator.units.memory.machine import NativeStep
from cupygemm.emulator.units.memory.operation import FORMAT_BYTES, Operation
from cupygemm.emulator.waves.state import LANES

_FORMATS = {  # of accesses of 1 or 2 bytes, by the mnemonic's suffix
    "u8": "u8",
    "i8": "s8",
    "u16": "u16",
    "i16": "s16",
    "b8": "u8",
    "b16": "u16",
    "u8_d16": "u8_low",
    "u8_d16_hi": "u8_high",
    "i8_d16": "s8_low",
    "i8_d16_hi": "s8_high",
    "u16_d16": "u16_low",
    "u16_d16_hi": "u16_high",
    "b8_d16_hi": "u8_high",
    "b16_d16_hi": "u16_high",
}
_ACCESS = re.compile(r"ds_(read|write)(2|2st64)?(_addtid)?_(\w+)")
_TRANSPOSE = re.compile(r"ds_read_b(64|96)_tr_b(4|6|8|16)")
_ATOMIC = re.compile(r"ds_([a-z]+(?:2st64|32|2)?|pk_add)(_rtn)?_([uibf]|bf)(16|32|64)")
_ATOMICS = {  # by name and type of the mnemonic
    "add_u": "add",
    "sub_u": "sub",
    "rsub_u": "rsub",
    "inc_u": "inc",
    "dec_u": "dec",
    "min_i": "smin",
    "max_i": "smax",
    "min_u": "umin",
    "max_u": "umax",
    "and_b": "and",
    "or_b": "or",
    "xor_b": "xor",
    "mskor_b": "mskor",
    "wrxchg_b": "swap",
    "wrxchg2_b": "swap",
    "wrxchg2st64_b": "swap",
    "cmpst_b": "cmpswap",
    "cmpst_f": "fcmpswap",
    "add_f": "fadd",
    "min_f": "fmin",
    "max_f": "fmax",
    "wrap_b": "wrap",
    "condxchg32_b": "condxchg",
    "pk_add_f": "pk_add_f16",
    "pk_add_bf": "pk_add_bf16",
}


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes a DS instruction, or None if it is not emulated."""
    name = inst.mnemonic
    if name == "ds_nop":
        return lambda _group: None
    if inst.fields["gds"] or "_gws_" in name:
        return None
    operation = _exchange(inst) or _append(inst, target)
    if operation is not None:
        return NativeStep("lds_instruction", operation)
    operation = _transpose(inst) or _access(inst, target) or _atomic(inst)
    if operation is None:
        return None
    return NativeStep("lds_instruction", operation, ConflictCounter(operation, target))


def _register(inst: Instruction, name: str) -> int:
    operand = inst.operand(name)
    return -1 if operand is None else operand.index


def _offset(inst: Instruction) -> int:
    return inst.fields["offset0"] | inst.fields["offset1"] << 8


def m0_mask(target: Target) -> int:
    """Return the bits of M0 that address LDS: 16, or all of them if LDS is larger than 64 KiB."""
    return 0xFFFF if target.lds_bytes <= 1 << 16 else 0xFFFFFFFF


def _access(inst: Instruction, target: Target) -> Operation | None:
    """Return the operation of a read or a write."""
    match = _ACCESS.fullmatch(inst.mnemonic)
    if match is None:
        return None
    verb, pair, by_lane, suffix = match.groups()
    form = _FORMATS.get(suffix, "dwords")
    size = int(suffix[1:]) // 8 if form == "dwords" else FORMAT_BYTES[form]
    unit = size * (64 if pair == "2st64" else 1)
    return Operation(
        "lds",
        "load" if verb == "read" else "store",
        form=form,
        dwords=max(1, size // 4),
        bytes=size,
        address=_register(inst, "addr"),
        data=_register(inst, "data0"),
        data2=_register(inst, "data1"),
        result=_register(inst, "vdst"),
        pair=pair is not None,
        offset=inst.fields["offset0"] * unit if pair else _offset(inst),
        offset2=inst.fields["offset1"] * unit,
        add_lane=by_lane is not None,
        m0_mask=m0_mask(target),
    )


def _atomic(inst: Instruction) -> Operation | None:
    """Return the operation of an atomic."""
    match = _ATOMIC.fullmatch(inst.mnemonic)
    if match is None:
        return None
    name, _, kind, bits = match.groups()
    atomic = _ATOMICS.get(f"{name}_{kind}")
    if atomic is None:
        return None
    size = 8 if bits == "64" else 4
    data, data2 = _register(inst, "data0"), _register(inst, "data1")
    if name == "cmpst":  # memory is compared with DATA0; DATA1 is the new value
        data, data2 = data2, data
    pair = name.startswith("wrxchg2")
    unit = size * (64 if name.endswith("st64") else 1)
    return Operation(
        "lds",
        "atomic",
        atomic=atomic,
        dwords=size // 4,
        bytes=size,
        address=_register(inst, "addr"),
        data=data,
        data2=data2,
        result=_register(inst, "vdst"),
        pair=pair,
        offset=inst.fields["offset0"] * unit if pair else _offset(inst),
        offset2=inst.fields["offset1"] * unit,
    )


def _transpose(inst: Instruction) -> Operation | None:
    """Return the operation of a transposing read, which CDNA4 has."""
    match = _TRANSPOSE.fullmatch(inst.mnemonic)
    if match is None:
        return None
    size = int(match[1]) // 8
    return Operation(
        "lds",
        "transpose",
        dwords=size // 4,
        bytes=size,
        address=_register(inst, "addr"),
        result=_register(inst, "vdst"),
        offset=_offset(inst),
        element_bits=int(match[2]),
    )


def _append(inst: Instruction, target: Target) -> Operation | None:
    """Return the operation of ds_append or ds_consume, whose address is in M0."""
    if inst.mnemonic not in ("ds_append", "ds_consume"):
        return None
    return Operation(
        "lds",
        "append",
        atomic="add" if inst.mnemonic == "ds_append" else "sub",
        dwords=1,
        bytes=4,
        result=_register(inst, "vdst"),
        offset=_offset(inst),
        m0_mask=m0_mask(target),
    )


def _exchange(inst: Instruction) -> Operation | None:
    """Return the operation of a lane exchange, which touches no LDS memory."""
    if inst.mnemonic not in ("ds_permute_b32", "ds_bpermute_b32", "ds_swizzle_b32"):
        return None
    kind = inst.mnemonic.removeprefix("ds_").removesuffix("_b32")
    address, result, offset = _register(inst, "addr"), _register(inst, "vdst"), _offset(inst)
    if kind == "swizzle":  # the address field names the data
        lanes = swizzle_lanes(offset)
        return Operation("lds", kind, dwords=1, data=address, result=result, lanes=lanes)
    return Operation(
        "lds",
        kind,
        dwords=1,
        address=address,
        data=_register(inst, "data0"),
        result=result,
        offset=offset,
    )


def swizzle_lanes(pattern: int) -> list[int]:
    """Return the source lane of each lane for an offset of ds_swizzle_b32.

    The top bits of the offset choose one of four modes: FFT, rotate, quad permute, and 5-bit AND,
    OR and XOR masks (pseudocode of DS_SWIZZLE_B32 in the ISA guides).
    """
    return [lane & 0x20 | _swizzled(lane & 0x1F, pattern) & 0x1F for lane in range(LANES)]


def _swizzled(lane: int, pattern: int) -> int:
    if pattern >= 0xE000:  # FFT: the bits outside the mask are reversed
        mask = pattern & 0x1F
        reverse = int(f"{lane:05b}"[::-1], 2)
        return reverse >> mask.bit_count() | lane & mask
    if pattern >= 0xC000:
        mask, amount = pattern & 0x1F, pattern >> 5 & 0x1F
        rotated = lane - amount if pattern >> 10 & 1 else lane + amount
        return lane & mask | rotated & ~mask
    if pattern >= 0x8000:
        return lane & ~3 | pattern >> 2 * (lane & 3) & 3
    return (lane & pattern | pattern >> 5) & 0x1F ^ pattern >> 10 & 0x1F
