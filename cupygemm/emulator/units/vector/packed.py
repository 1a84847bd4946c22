"""Packed operations (VOP3P): two 16-bit or two 32-bit lanes in one, dot products, mixed precision.

A packed 16-bit source is viewed as (waves, lanes, 2). op_sel and op_sel_hi select the half that
feeds the low and the high result, neg and neg_hi flip their signs, and one NumPy operation computes
both. Packed f32 uses two consecutive registers instead. An inline constant fills the low half; the
high half is zero or an integer's sign, so compilers set op_sel_hi to 0 for constants.
Source: AMD's pseudocode; LLVM's isInlinableLiteralV216 for constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.units import float_mode
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.lanewise import Function, Step, apply, source_operands
from cupygemm.emulator.units.operands import Fetch, always, destination, source
from cupygemm.emulator.units.vector import floating_point, functions
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.waves.state import LANES, Group

_U16, _U32, _I16, _I64, _F32, _F64 = (
    np.uint16,
    np.uint32,
    np.int16,
    np.int64,
    np.float32,
    np.float64,
)


def selection(inst: Instruction, where: int) -> tuple[int, int]:
    """Return the halves of source `where` that feed the low and the high result."""
    if inst.encoding != "VOP3P":
        return 0, 1
    fields = inst.fields
    high = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    return fields["opsel"] >> where & 1, high >> where & 1


def negation(inst: Instruction, where: int) -> tuple[int, int]:
    """Return whether the sign of source `where` is flipped for the low and the high result."""
    fields = inst.fields
    return fields.get("neg", 0) >> where & 1, fields.get("neg_hi", 0) >> where & 1


# -- 16-bit pairs ----------------------------------------------------------------------------------


def _raw_pair(inst: Instruction, op: Operand, kind: str) -> Fetch:
    """Fetch a 32-bit source whose halves are of `kind`, as raw uint32."""
    if op.kind != "imm":
        return source(inst, op, "u32")
    return always(np.full((1, 1), pair_constant(op, kind), _U32))


def pair_constant(op: Operand, kind: str) -> int:
    """Return the 32 bits of a constant whose halves are of `kind`.

    A pair of f16 reads the half-precision pattern of an inline constant with zeros above it; a pair
    of integers reads the 32-bit pattern.
    """
    is_integer = op.index <= 208 or op.index == 255
    as_half = kind in ("f16", "bf16") and not is_integer
    return constant_bits(op, kind if as_half else "u32")


def pair(inst: Instruction, op: Operand, where: int, kind: str) -> Fetch:
    """Return a function that fetches a packed source as (waves, lanes, 2) of `kind`.

    `kind` is u16, i16, or f16 or bf16 as float32 values.
    """
    raw = _raw_pair(inst, op, kind)
    low, high = selection(inst, where)
    negate_low, negate_high = negation(inst, where)
    signs = np.array([0x8000 * negate_low, 0x8000 * negate_high], _U16)
    flips = kind in ("f16", "bf16") and bool(signs.any())

    def fetch(group: Group) -> Array:
        words = raw(group)
        halves = words.view(_U16).reshape(*words.shape, 2)
        if (low, high) != (0, 1):
            halves = halves[..., [low, high]]
        if flips:
            halves = halves ^ signs
        if kind == "f16":
            return functions.half_to_float(halves)
        if kind == "bf16":
            return (halves.astype(_U32) << _U32(16)).view(_F32)
        return halves.view(_I16) if kind == "i16" else halves

    return fetch


def _joined(halves: Array) -> Array:
    """Return (waves, lanes, 2) of 16-bit values as uint32 (waves, lanes)."""
    return np.ascontiguousarray(halves).view(_U32)[..., 0]


def _bind_pairs(inst: Instruction, function: Function, kind: str) -> Step:
    operands = source_operands(inst)
    fetches = [
        pair(inst, op, i if op.field != "vdst" else 3, kind) for i, op in enumerate(operands)
    ]
    put = destination(inst, inst.dst[0], "u32")
    if kind != "f16":
        if inst.fields.get("clmp"):
            function = _saturating(function, kind)
        compute = apply(function, fetches)
        return lambda group: put(group, _joined(compute(group)))
    finish = float_mode.finisher(inst, "f16")
    assert finish is not None  # f16 results are always rounded
    half = finish
    compute = apply(function, fetches)
    default = float_mode.DEFAULT & float_mode.DOUBLE

    def step(group: Group) -> None:
        mode = group.state.mode
        if mode & float_mode.DOUBLE == default:
            value = compute(group)
        else:
            arguments = [fetch(group) for fetch in fetches]
            value = float_mode.apply_in_mode(
                function, ["f16"] * len(fetches), "f16", arguments, mode
            )
        put(group, _joined(half(value, mode)))

    return step


def _saturating(function: Function, kind: str) -> Function:
    dtype = _I16 if kind == "i16" else _U16
    limits = np.iinfo(dtype)

    def clamped(*arguments: Array) -> Array:
        wide = function(*[value.astype(_I64) for value in arguments])
        result: Array = np.clip(wide, limits.min, limits.max).astype(dtype)
        return result

    return clamped


def _rowwise(function: Function) -> Function:
    """Apply a function of (waves, 64) arrays to the halves of (waves, lanes, 2) arrays."""

    def rowwise(*arguments: Array) -> Array:
        waves = max(argument.shape[0] for argument in arguments)
        rows = [
            np.ascontiguousarray(np.broadcast_to(argument, (waves, LANES, 2))).reshape(-1, LANES)
            for argument in arguments
        ]
        result: Array = function(*rows).reshape(waves, LANES, 2)
        return result

    return rowwise


_fma = _rowwise(functions.fma_half)
_lesser, _greater = _rowwise(functions.minimum), _rowwise(functions.maximum)


def _propagating(pick: Function) -> Function:
    def three(a: Array, b: Array, c: Array) -> Array:
        best = pick(pick(a, b), c)
        return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), _F32(np.nan), best)

    return three


HALVES: dict[str, tuple[Function, str]] = {
    "v_pk_mad_i16": (lambda a, b, c: a * b + c, "i16"),
    "v_pk_mad_u16": (lambda a, b, c: a * b + c, "u16"),
    "v_pk_mul_lo_u16": (np.multiply, "u16"),
    "v_pk_add_i16": (np.add, "i16"),
    "v_pk_sub_i16": (np.subtract, "i16"),
    "v_pk_add_u16": (np.add, "u16"),
    "v_pk_sub_u16": (np.subtract, "u16"),
    "v_pk_lshlrev_b16": (lambda a, b: b << (a & _U16(15)), "u16"),
    "v_pk_lshrrev_b16": (lambda a, b: b >> (a & _U16(15)), "u16"),
    "v_pk_ashrrev_i16": (lambda a, b: b >> (a & _I16(15)), "i16"),
    "v_pk_max_i16": (np.maximum, "i16"),
    "v_pk_min_i16": (np.minimum, "i16"),
    "v_pk_max_u16": (np.maximum, "u16"),
    "v_pk_min_u16": (np.minimum, "u16"),
    "v_pk_fma_f16": (_fma, "f16"),
    "v_pk_fmac_f16": (_fma, "f16"),
    "v_pk_add_f16": (floating_point.add, "f16"),
    "v_pk_mul_f16": (floating_point.multiply, "f16"),
    "v_pk_min_f16": (_lesser, "f16"),
    "v_pk_max_f16": (_greater, "f16"),
    "v_pk_minimum3_f16": (_propagating(_lesser), "f16"),
    "v_pk_maximum3_f16": (_propagating(_greater), "f16"),
}

# -- 32-bit pairs ----------------------------------------------------------------------------------


def _word(op: Operand, half: int, negate: int) -> Fetch:
    """Fetch one register of a 64-bit packed source as uint32; a constant serves as both halves."""
    sign = _U32(0x80000000 * negate)
    if op.kind == "imm":
        return always(np.full((1, 1), constant_bits(op, "f32"), _U32) ^ sign)
    index = op.index + half
    if op.kind == "s":
        return lambda group: group.s(index)[:, None] ^ sign
    if negate:
        return lambda group: group.v(index) ^ sign
    return lambda group: group.v(index)


def _float(fetch: Fetch) -> Fetch:
    return lambda group: fetch(group).view(_F32)


def _bind_float_pairs(inst: Instruction, function: Function) -> Step:
    operands = source_operands(inst)
    halves: list[list[Fetch]] = [[], []]
    for where, op in enumerate(operands):
        chosen, negated = selection(inst, where), negation(inst, where)
        for half in (0, 1):
            halves[half].append(_float(_word(op, chosen[half], negated[half])))
    low, high = (apply(function, fetches) for fetches in halves)
    finish = float_mode.finisher(inst, "f32")
    index = inst.dst[0].index
    default = float_mode.DEFAULT & float_mode.SINGLE

    def compute(group: Group, half: int, plain: Callable[[Group], Any]) -> Array:
        mode = group.state.mode
        if mode & float_mode.SINGLE == default:
            value = plain(group)
        else:
            arguments = [fetch(group) for fetch in halves[half]]
            value = float_mode.apply_in_mode(
                function, ["f32"] * len(arguments), "f32", arguments, mode
            )
        result: Array = value if finish is None else finish(value, mode)
        return result.view(_U32)

    def step(group: Group) -> None:
        first = compute(group, 0, low)  # compute both before writing either: registers may overlap
        second = compute(group, 1, high)
        group.set_v(index, first)
        group.set_v(index + 1, second)

    return step


def _bind_pair_move(inst: Instruction) -> Step:
    """Bind v_pk_mov_b32: op_sel selects a half of src0 (low word) and of src1 (high word)."""
    first, second = source_operands(inst)
    opsel = inst.fields["opsel"]
    low, high = _word(first, opsel & 1, 0), _word(second, opsel >> 1 & 1, 0)
    index = inst.dst[0].index

    def step(group: Group) -> None:
        first_word = low(group)
        second_word = np.array(high(group))  # a copy: the first write may change its register
        group.set_v(index, first_word)
        group.set_v(index + 1, second_word)

    return step


FLOATS: dict[str, Function] = {
    "v_pk_fma_f32": functions.fma,
    "v_pk_mul_f32": floating_point.multiply,
    "v_pk_add_f32": floating_point.add,
}

# -- mixed precision -------------------------------------------------------------------------------


def _mixed(inst: Instruction, op: Operand, where: int) -> Fetch:
    """Fetch a source of v_fma_mix: f32, or with op_sel_hi the f16 half that op_sel selects."""
    low, is_half = selection(inst, where)
    negate, absolute = negation(inst, where)  # neg_hi means abs here
    if is_half:
        raw = _raw_pair(inst, op, "f16")
        shift = _U32(16 * low)
        value: Fetch = lambda group: (  # noqa: E731
            functions.half_to_float((raw(group) >> shift).astype(_U16))
        )
    else:
        word = source(inst, op, "u32")
        value = _float(word)

    def fetch(group: Group) -> Array:
        result = value(group)
        if absolute:
            result = np.abs(result)
        return -result if negate else result

    return fetch


def _bind_mixed(inst: Instruction) -> Step:
    operands = source_operands(inst)
    fetches = [_mixed(inst, op, i) for i, op in enumerate(operands) if op.field != "vdst"]
    compute = apply(functions.fma, fetches)
    index = inst.dst[0].index
    result = "f32" if inst.mnemonic.endswith("mix_f32") else "f16"
    finish = float_mode.finisher(inst, result)
    high = inst.mnemonic.endswith("mixhi_f16")

    def step(group: Group) -> None:
        mode = group.state.mode
        if mode & 0xFF == float_mode.DEFAULT:
            value = compute(group)
        else:
            arguments = [fetch(group) for fetch in fetches]
            value = float_mode.apply_in_mode(functions.fma, ["f32"] * 3, "f32", arguments, mode)
        if finish is not None:
            value = finish(value, mode)
        if result == "f32":
            group.set_v(index, value.view(_U32))
            return
        half = value.view(_U16).astype(_U32)
        old = group.v(index)
        if high:
            group.set_v(index, old & _U32(0xFFFF) | half << _U32(16))
        else:
            group.set_v(index, old & _U32(0xFFFF0000) | half)

    return step


def bind(inst: Instruction) -> Step | None:
    """Return the step of a packed or mixed-precision instruction, or None if it is not one."""
    name = inst.mnemonic
    if name in HALVES:
        return _bind_pairs(inst, *HALVES[name])
    if name in FLOATS:
        return _bind_float_pairs(inst, FLOATS[name])
    if name == "v_pk_mov_b32":
        return _bind_pair_move(inst)
    if name.startswith(("v_mad_mix", "v_fma_mix")):
        return _bind_mixed(inst)
    return None
