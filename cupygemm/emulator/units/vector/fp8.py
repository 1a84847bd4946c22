"""Conversions to and from 8-, 6- and 4-bit floats, with the block scales of CDNA4.

The target determines the 8-bit formats: FNUZ or OCP. A scaled conversion divides by the scale if
its result is narrow, and multiplies by it otherwise. The scale is the power of two that the
exponent field of an f32 operand states. A stochastic conversion generates a new random number for
each element with the step of v_prng_b32. op_sel selects the byte or half of a register; the rest
of a destination is preserved.
Source: AMD's pseudocode in the CDNA3 and CDNA4 instruction-set guides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import formats
from cupygemm.emulator.units.float_mode import FP16_OVFL
from cupygemm.emulator.units.formats import Format
from cupygemm.emulator.units.lanewise import Step, source_operands
from cupygemm.emulator.units.operands import Fetch, destination, source
from cupygemm.emulator.units.vector.functions import Array, float_to_half
from cupygemm.emulator.waves.state import Group

_U8, _U16, _U32, _U64, _F32, _F64 = (
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.float32,
    np.float64,
)
_NARROW = {"fp6": formats.FP6, "bf6": formats.BF6, "fp4": formats.FP4}
NAME = re.compile(
    r"v_cvt_(?P<scaled>scalef32_)?(?P<random>sr_)?(?P<count>pk32_|2xpk16_|pk_)?"
    r"(?P<to>fp8|bf8|fp6|bf6|fp4|f32|f16|bf16)_(?P<source>fp8|bf8|fp6|bf6|fp4|f32|f16|bf16)"
)
_COUNT = {"pk32_": 32, "2xpk16_": 32, "pk_": 2, None: 1}
_WIDE = ("f32", "f16", "bf16")


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step of a conversion to or from a narrow float, or None if it is not one."""
    match = NAME.fullmatch(inst.mnemonic)
    if match is None or (match["to"] in _WIDE) == (match["source"] in _WIDE):
        return None
    count = _COUNT[match["count"]]
    if match["to"] in _WIDE:
        return _bind_widening(inst, narrow_format(match["source"], target), match, count)
    return _bind_narrowing(inst, narrow_format(match["to"], target), match, count)


def narrow_format(name: str, target: Target) -> Format:
    """Return the format that a mnemonic of the target names."""
    if name in _NARROW:
        return _NARROW[name]
    return formats.fp8_format("fp8" if name == "fp8" else "bf8", target.fp8_fnuz)


def _scale(inst: Instruction, index: int) -> Fetch:
    """Return a function that fetches a scale as float64; the exponent of NaN gives NaN."""
    bits = source(inst, source_operands(inst)[index], "u32")
    return lambda group: formats.e8m0_to_f32(bits(group) >> _U32(23) & _U32(0xFF)).astype(_F64)


def _select(inst: Instruction, bits: int) -> int:
    """Return the lowest bit of the byte or half that op_sel[1:0] or op_sel[0] selects."""
    opsel = inst.fields.get("opsel", 0)
    return 8 * (opsel & 3) if bits == 8 else 16 * (opsel & 1)


# -- from narrow to wide ---------------------------------------------------------------------------


def _bind_widening(inst: Instruction, fmt: Format, match: re.Match[str], count: int) -> Step:
    codes = _codes(inst, fmt, bool(match["scaled"]), count)
    scale = _scale(inst, 1) if match["scaled"] else None
    put = _put_wide(inst, match["to"], count)

    def step(group: Group) -> None:
        values: Array = formats.decode(codes(group), fmt)  # (count, waves, lanes)
        if scale is not None:
            values = values.astype(_F64) * scale(group)
        put(group, values)

    return step


def _codes(inst: Instruction, fmt: Format, scaled: bool, count: int) -> Callable[[Group], Array]:
    """Return a function that fetches the codes (count, waves, lanes)."""
    operand = source_operands(inst)[0]
    if count == 32:
        index = operand.index
        return lambda group: np.stack(unpack6([group.v(index + i) for i in range(6)]))
    raw = source(inst, operand, "u32")  # with the SDWA selection of the unscaled forms
    low = _select(inst, min(16, fmt.bits * count)) if scaled else 0
    shifts = [_U32(low + fmt.bits * i) for i in range(count)]
    return lambda group: np.stack([raw(group) >> shift for shift in shifts])


def unpack6(words: list[Array]) -> list[Array]:
    """Split six uint32 arrays into 32 arrays of 6-bit codes, starting at the lowest bits."""
    codes = []
    for i in range(32):
        word, low = divmod(6 * i, 32)
        code = words[word] >> _U32(low)
        if low > 26:
            code = code | words[word + 1] << _U32(32 - low)
        codes.append(code & _U32(63))
    return codes


def pack6(codes: list[Array]) -> list[Array]:
    """Pack 32 arrays of 6-bit codes into six uint32 arrays."""
    words: list[Array] = [np.zeros((1, 1), _U32) for _ in range(6)]
    for i, code in enumerate(codes):
        word, low = divmod(6 * i, 32)
        bits = code.astype(_U32)
        words[word] = words[word] | bits << _U32(low)
        if low > 26:
            words[word + 1] = words[word + 1] | bits >> _U32(32 - low)
    return words


def _put_wide(inst: Instruction, kind: str, count: int) -> Callable[[Group, Array], None]:
    index = inst.dst[0].index
    if kind == "f32":

        def put_floats(group: Group, values: Array) -> None:
            for i, value in enumerate(values):
                group.set_v(index + i, value.astype(_F32).view(_U32))

        return put_floats
    to_bits = _to_half if kind == "f16" else _to_bf16
    if count == 1:
        put = destination(inst, inst.dst[0], "u16", keep_high=True)
        return lambda group, values: put(group, to_bits(values[0]))

    def put_halves(group: Group, values: Array) -> None:
        for i in range(count // 2):
            low, high = to_bits(values[2 * i]).astype(_U32), to_bits(values[2 * i + 1]).astype(_U32)
            group.set_v(index + i, low | high << _U32(16))

    return put_halves


# A narrow value times a power of two has few digits, so float32 represents it unless it is
# subnormal there.
def _to_half(values: Array) -> Array:
    return float_to_half(values.astype(_F32))


def _to_bf16(values: Array) -> Array:
    return formats.f32_to_bf16(values.astype(_F32))


# -- from wide to narrow ---------------------------------------------------------------------------


def _bind_narrowing(inst: Instruction, fmt: Format, match: re.Match[str], count: int) -> Step:
    operands = source_operands(inst)
    interleaved = match["count"] == "2xpk16_"
    values = _values(inst, match["source"], count, bool(match["random"]), interleaved)
    random = source(inst, operands[1], "u32") if match["random"] else None
    scale = _scale(inst, len(operands) - 1) if match["scaled"] else None
    put = _put_codes(inst, fmt, count)

    def step(group: Group) -> None:
        saturate = bool(group.state.mode & FP16_OVFL)
        noise = random(group) if random is not None else None
        divisor = scale(group) if scale is not None else None
        codes = []
        for value in values(group):
            scaled = value if divisor is None else value.astype(_F64) / divisor
            codes.append(formats.encode(scaled, fmt, saturate=saturate, random=noise))
            if noise is not None:
                noise = (noise << _U32(1)) ^ (noise >> _U32(31)) * _U32(197)
        put(group, codes)

    return step


def _values(
    inst: Instruction, kind: str, count: int, random: bool, interleaved: bool
) -> Callable[[Group], list[Array]]:
    """Return a function that fetches the values to convert as a list of `count` float32 arrays."""
    operands = source_operands(inst)
    first = operands[0]
    if kind == "f32" and (count == 1 or (count == 2 and not random)):
        fetches = [source(inst, op, "f32") for op in operands[:count]]
        return lambda group: [fetch(group) for fetch in fetches]
    if kind == "f32" and interleaved:
        second = operands[1].index
        return lambda group: [
            group.v(base + i).view(_F32) for i in range(16) for base in (first.index, second)
        ]
    if kind == "f32":
        return lambda group: [group.v(first.index + i).view(_F32) for i in range(count)]
    widen = formats.f16_to_f32 if kind == "f16" else formats.bf16_to_f32
    if count == 1:
        narrow = source(inst, first, "u16")
        return lambda group: [widen(narrow(group))]
    if count == 2:
        raw = source(inst, first, "u32")
        return lambda group: [widen(raw(group) >> _U32(16 * i) & _U32(0xFFFF)) for i in range(2)]
    return lambda group: [
        widen(group.v(first.index + i // 2) >> _U32(16 * (i & 1)) & _U32(0xFFFF)) for i in range(32)
    ]


def _put_codes(inst: Instruction, fmt: Format, count: int) -> Callable[[Group, list[Any]], None]:
    index = inst.dst[0].index
    if count == 32:

        def put_block(group: Group, codes: list[Any]) -> None:
            for i, word in enumerate(pack6(codes)):
                group.set_v(index + i, word)

        return put_block
    bits = fmt.bits * count
    opsel = inst.fields.get("opsel", 0)
    low = 16 * (opsel >> 3 & 1) if bits == 16 else 8 * (opsel >> 2 & 3)
    keep = _U32(~(((1 << bits) - 1) << low) & 0xFFFFFFFF)

    def put_part(group: Group, codes: list[Any]) -> None:
        part: Array = codes[0].astype(_U32)
        if count == 2:
            part = part | codes[1].astype(_U32) << _U32(fmt.bits)
        group.set_v(index, group.v(index) & keep | part << _U32(low))

    return put_part
