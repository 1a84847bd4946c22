"""Dot products of 2, 4 or 8 packed numbers, added to a 32-bit accumulator.

Products of floats are exact in f32. They are added in the order of AMD's pseudocode, each sum being
rounded. Integer sums wrap, or saturate with the clamp bit. The ``c`` forms accumulate into their
destination.
"""

from __future__ import annotations

import re

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units import float_mode
from cupygemm.emulator.units.lanewise import Function, Step, apply, source_operands
from cupygemm.emulator.units.operands import Fetch, destination, kind_of, source
from cupygemm.emulator.units.vector.floating_point import add, multiply
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.units.vector.packed import pair
from cupygemm.emulator.waves.state import Group

NAME = re.compile(r"v_dot(2|4|8)(c?)_(f32|i32|u32)_(bf16|f16|i16|u16|i8|u8|i4|u4)")


def bind(inst: Instruction) -> Step | None:
    """Return the step of a dot product, or None if the instruction is not one."""
    match = NAME.fullmatch(inst.mnemonic)
    if match is None:
        return None
    return (
        _bind_float(inst, match[4], bool(match[2]))
        if match[3] == "f32"
        else _bind_integer(inst, match[4])
    )


def _bind_float(inst: Instruction, kind: str, accumulates: bool) -> Step:
    first, second, third = source_operands(inst)
    fetches = [pair(inst, first, 0, kind), pair(inst, second, 1, kind), source(inst, third, "f32")]
    accumulator_last = kind == "bf16" and not accumulates

    def dot(a: Array, b: Array, c: Array) -> Array:
        products = multiply(a, b)
        low, high = products[..., 0], products[..., 1]
        terms = (low, high, c) if accumulator_last else (c, low, high)
        result: Array = add(add(*terms[:2]), terms[2])
        return result

    finish = float_mode.finisher(inst, "f32")
    put = destination(inst, inst.dst[0], "f32")
    compute = apply(dot, fetches)

    def step(group: Group) -> None:
        mode = group.state.mode
        if mode & 0xFF == float_mode.DEFAULT:
            value = compute(group)
        else:
            arguments = [fetch(group) for fetch in fetches]
            value = float_mode.apply_in_mode(dot, [kind, kind, "f32"], "f32", arguments, mode)
        put(group, value if finish is None else finish(value, mode))

    return step


def _bind_integer(inst: Instruction, kind: str) -> Step:
    first, second, third = source_operands(inst)
    signed, bits = kind[0] == "i", int(kind[1:])
    result = kind_of(inst.dst[0])
    limits = np.iinfo(np.int32 if result == "i32" else np.uint32)
    dtype = limits.dtype
    clamp = bool(inst.fields.get("clmp"))
    split = _splitter(bits, signed)
    fetches: list[Fetch]
    if bits == 16:
        halves = "i16" if signed else "u16"
        fetches = [pair(inst, first, 0, halves), pair(inst, second, 1, halves)]
    else:
        fetches = [_parts(source(inst, op, "u32"), split) for op in (first, second)]
    fetches.append(source(inst, third, result))

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = (a.astype(np.int64) * b).sum(axis=-1) + c
        if clamp:
            total = np.clip(total, limits.min, limits.max)
        result: Array = total.astype(dtype)
        return result

    put = destination(inst, inst.dst[0], result)
    compute = apply(dot, fetches)
    return lambda group: put(group, compute(group))


def _splitter(bits: int, signed: bool) -> Function:
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    up = np.uint32(32 - bits)
    if signed:
        return lambda raw: (raw[..., None] >> shifts << up).view(np.int32) >> np.int32(up)
    return lambda raw: raw[..., None] >> shifts & np.uint32((1 << bits) - 1)


def _parts(raw: Fetch, split: Function) -> Fetch:
    return lambda group: split(raw(group))
