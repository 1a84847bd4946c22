"""Comparisons of the vector ALU against Python's, in every encoding and under EXEC."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import pytest

from cupygemm.emulator.isa.instruction import EXEC, VCC
from tests.emulator import float_reference as ref
from tests.emulator.float_reference import value
from tests.emulator.harness import assemble_all, set_exec
from tests.emulator.vector_cases import (
    DEFAULT_MODE,
    columns,
    execute,
    fresh_state,
    get_mask,
    put,
    signed,
)

INTEGER_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "f": lambda *_: False,
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "ne": operator.ne,
    "ge": operator.ge,
    "t": lambda *_: True,
}


def unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


FLOAT_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "f": lambda *_: False,
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "lg": lambda a, b: a < b or a > b,
    "ge": operator.ge,
    "o": lambda a, b: not unordered(a, b),
    "u": unordered,
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: a == b or unordered(a, b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": operator.ne,
    "nlt": lambda a, b: not a < b,
    "tru": lambda *_: True,
}
WIDTHS = {
    "i16": 16,
    "u16": 16,
    "f16": 16,
    "i32": 32,
    "u32": 32,
    "f32": 32,
    "i64": 64,
    "u64": 64,
    "f64": 64,
}
KINDS = tuple(WIDTHS)


def operands(width: int) -> str:
    return "v[2:3], v[4:5]" if width == 64 else "v2, v4"


def texts(kind: str) -> list[str]:
    relations = FLOAT_RELATIONS if kind[0] == "f" else INTEGER_RELATIONS
    return [f"v_cmp_{name}_{kind} vcc, {operands(WIDTHS[kind])}" for name in relations]


@pytest.mark.parametrize("kind", KINDS)
def test_relations(kind: str) -> None:
    width = WIDTHS[kind]
    relations: dict[str, Callable[..., bool]] = dict(
        FLOAT_RELATIONS if kind[0] == "f" else INTEGER_RELATIONS
    )
    rows = columns([width, width], floats=(0, 1) if kind[0] == "f" else ())
    rows[::7] = [(a, a) for a, _ in rows[::7]]
    read: Callable[[int], float] = {
        "i": lambda bits: signed(bits, width),
        "u": lambda bits: bits,
        "f": lambda bits: value(bits, width),
    }[kind[0]]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    every = [text for each in KINDS for text in texts(each)]
    instructions = dict(zip(every, assemble_all(every), strict=True))
    for name, text in zip(relations, texts(kind), strict=True):
        instruction = instructions[text]
        execute(state, instruction)
        expected = [int(relations[name](read(a), read(b))) for a, b in rows]
        assert get_mask(state, VCC) == expected, name


def classes(bits: int, width: int) -> int:
    """Return the class of a number as the bit that v_cmp_class tests."""
    negative, size = bool(bits & ref.sign_bit(width)), bits & ~ref.sign_bit(width)
    infinity = ref.infinity(width)
    if size > infinity:
        return 1 if size & (infinity >> 1 & ~infinity) else 0  # the quiet bit
    if size == infinity:
        return 2 if negative else 9
    if size == 0:
        return 5 if negative else 6
    if ref.is_subnormal(bits, width):
        return 4 if negative else 7
    return 3 if negative else 8


@pytest.mark.parametrize("width", [16, 32, 64])
def test_classes(width: int) -> None:
    source = "v[2:3]" if width == 64 else "v2"
    (instruction,) = assemble_all([f"v_cmp_class_f{width} vcc, {source}, v4"])
    numbers = columns([width], floats=(0,), count=256)
    rows = [(a, 1 << k % 10) for k, (a,) in enumerate(numbers * 10)]
    rows = [(a, 1 << k) for (a,) in numbers for k in range(10)]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, instruction)
    assert get_mask(state, VCC) == [int(wanted == 1 << classes(a, width)) for a, wanted in rows]


def test_class_sees_sign_modifiers() -> None:
    (instruction,) = assemble_all(["v_cmp_class_f32_e64 s[4:5], -|v2|, v4"])
    rows = [(a, 1 << 3) for (a,) in columns([32], floats=(0,), count=128)]
    state = fresh_state(2)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, instruction)
    assert get_mask(state, 4) == [int(classes(a | 1 << 31, 32) == 3) for a, _ in rows]


def test_inactive_lanes_are_zero() -> None:
    (instruction,) = assemble_all(["v_cmp_eq_u32_e64 s[4:5], v2, v2"])
    state = fresh_state(2)
    set_exec(state, [0x00FF00FF00FF00FF, 0])
    execute(state, instruction)
    assert get_mask(state, 4) == ([1] * 8 + [0] * 8) * 4 + [0] * 64


@pytest.mark.parametrize("text", ["v_cmpx_lt_u32 vcc, v2, v4", "v_cmpx_lt_u32_e64 s[4:5], v2, v4"])
def test_cmpx_writes_exec_too(text: str) -> None:
    (instruction,) = assemble_all([text])
    rows = columns([32, 32], count=128)
    state = fresh_state(2)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    set_exec(state, 0xFFFFFFFF0000FFFF)
    execute(state, instruction)
    active = [lane < 16 or lane >= 32 for lane in range(64)] * 2
    expected = [int(a < b and on) for (a, b), on in zip(rows, active, strict=True)]
    assert get_mask(state, EXEC) == expected
    assert get_mask(state, VCC if " vcc" in text else 4) == expected


def test_later_instructions_see_the_new_exec() -> None:
    compare, move = assemble_all(["v_cmpx_gt_u32 vcc, 8, v2", "v_mov_b32 v0, 1"])
    state = fresh_state(1)
    put(state, 0, [0] * 64)
    put(state, 2, list(range(64)))
    execute(state, compare, move)
    assert state.vgpr[0, 0].tolist() == [1] * 8 + [0] * 56


def test_flushing_makes_subnormals_equal_zero() -> None:
    (instruction,) = assemble_all(["v_cmp_eq_f32 vcc, 0, v2"])
    for mode, expected in ((DEFAULT_MODE, 0), (DEFAULT_MODE & ~0x30, 1)):
        state = fresh_state(1, mode=mode)
        put(state, 2, [0x00400000] * 64)
        execute(state, instruction)
        assert get_mask(state, VCC) == [expected] * 64
