"""Packed, mixed-precision and dot-product operations against scalar arithmetic on each half."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.emulator import float_reference as ref
from tests.emulator.float_reference import NAN, Result, canonical
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    M16,
    M32,
    columns,
    evaluate,
    execute,
    fresh_state,
    get,
    mismatches,
    put,
    signed,
)


def s16(bits: int) -> int:
    return signed(bits, 16)


def clamped(number: int, is_signed: bool) -> int:
    low, high = (-0x8000, 0x7FFF) if is_signed else (0, M16)
    return min(max(number, low), high)


PAIRS: dict[str, tuple[int, str, Callable[..., Result]]] = {
    "v_pk_add_u16": (2, "u16", lambda a, b: a + b),
    "v_pk_sub_u16": (2, "u16", lambda a, b: a - b),
    "v_pk_add_i16": (2, "u16", lambda a, b: a + b),
    "v_pk_sub_i16": (2, "u16", lambda a, b: a - b),
    "v_pk_mul_lo_u16": (2, "u16", lambda a, b: a * b),
    "v_pk_mad_u16": (3, "u16", lambda a, b, c: a * b + c),
    "v_pk_mad_i16": (3, "u16", lambda a, b, c: a * b + c),
    "v_pk_lshlrev_b16": (2, "u16", lambda a, b: b << (a & 15)),
    "v_pk_lshrrev_b16": (2, "u16", lambda a, b: b >> (a & 15)),
    "v_pk_ashrrev_i16": (2, "u16", lambda a, b: s16(b) >> (a & 15)),
    "v_pk_min_i16": (2, "u16", lambda a, b: min(s16(a), s16(b))),
    "v_pk_max_i16": (2, "u16", lambda a, b: max(s16(a), s16(b))),
    "v_pk_min_u16": (2, "u16", min),
    "v_pk_max_u16": (2, "u16", max),
    "v_pk_add_f16": (2, "f16", lambda a, b: ref.add(a, b, 16)),
    "v_pk_mul_f16": (2, "f16", lambda a, b: ref.multiply(a, b, 16)),
    "v_pk_fma_f16": (3, "f16", lambda a, b, c: ref.fma(a, b, c, 16)),
    "v_pk_min_f16": (2, "f16", lambda a, b: ref.pick(a, b, 16, False)),
    "v_pk_max_f16": (2, "f16", lambda a, b: ref.pick(a, b, 16, True)),
}
SELECTIONS = [(0b000, 0b111), (0b001, 0b110), (0b111, 0b000), (0b010, 0b011)]


def vector(bits: int, count: int) -> str:
    return "[" + ",".join(str(bits >> i & 1) for i in range(count)) + "]"


def pair_text(name: str, selection: tuple[int, int], suffix: str = "") -> str:
    count = PAIRS[name][0]
    sources = ", ".join(["v2", "v4", "v6"][:count])
    low, high = (vector(bits, count) for bits in selection)
    return f"{name} v0, {sources} op_sel:{low} op_sel_hi:{high}{suffix}"


PAIR_TEXTS = [pair_text(name, selection) for name in PAIRS for selection in SELECTIONS]


def halves(word: int) -> tuple[int, int]:
    return word & M16, word >> 16


@pytest.mark.parametrize("name", PAIRS)
def test_packed_halves(name: str) -> None:
    count, kind, compute = PAIRS[name]
    rows = columns([32] * count, count=256)
    edges = columns([16] * (2 * count), floats=range(2 * count) if kind == "f16" else (), count=512)
    rows += [tuple(r[i] | r[count + i] << 16 for i in range(count)) for r in edges]
    instructions = dict(zip(PAIR_TEXTS, assemble_all(PAIR_TEXTS), strict=True))

    def show(bits: int) -> tuple[Result, Result]:
        low, high = halves(bits)
        return (canonical(low, 16), canonical(high, 16)) if kind == "f16" else (low, high)

    def half(row: tuple[int, ...], selection: int) -> Result:
        result = compute(*(halves(word)[selection >> i & 1] for i, word in enumerate(row)))
        return result if result == NAN else int(result) & M16

    for selection in SELECTIONS:
        got = [show(b) for b in evaluate(instructions[pair_text(name, selection)], rows, 32)]
        expected = [tuple(half(row, part) for part in selection) for row in rows]
        assert not mismatches(got, expected, rows)


def test_packed_integers_saturate() -> None:
    texts = [f"v_pk_{op}_{k} v0, v2, v4 clamp" for op in ("add", "sub") for k in ("i16", "u16")]
    rows = [(a | b << 16, c | d << 16) for a, b, c, d in columns([16] * 4)]
    for text, instruction in zip(texts, assemble_all(texts), strict=True):
        is_signed, sign = "i16" in text, 1 if "add" in text else -1
        read = s16 if is_signed else int
        expected = [
            sum(
                (clamped(read(x) + sign * read(y), is_signed) & M16) << 16 * i
                for i, (x, y) in enumerate(zip(halves(a), halves(b), strict=True))
            )
            for a, b in rows
        ]
        assert not mismatches(evaluate(instruction, rows, 32), expected, rows)


def test_packed_signs_flip_each_half() -> None:
    texts = [
        f"v_pk_add_f16 v0, v2, v4 neg_lo:{vector(low, 2)} neg_hi:{vector(high, 2)}"
        for low, high in itertools.product(range(4), repeat=2)
    ]
    rows = [(a | b << 16, c | d << 16) for a, b, c, d in columns([16] * 4, floats=range(4))]
    for (low, high), instruction in zip(
        itertools.product(range(4), repeat=2), assemble_all(texts), strict=True
    ):
        got = [
            tuple(canonical(half, 16) for half in halves(bits))
            for bits in evaluate(instruction, rows, 32)
        ]
        expected = [
            tuple(
                ref.add(x ^ (flips & 1) << 15, y ^ (flips >> 1) << 15, 16)
                for x, y, flips in zip(halves(a), halves(b), (low, high), strict=True)
            )
            for a, b in rows
        ]
        assert not mismatches(got, expected, rows)


def test_inline_constants_are_in_the_low_half() -> None:
    texts = [
        "v_pk_add_f16 v0, v2, 1.0 op_sel_hi:[1,0]",
        "v_pk_add_f16 v0, v2, 1.0",
        "v_pk_add_u16 v0, v2, -1 op_sel_hi:[1,0]",
        "v_pk_add_u16 v0, v2, 3",
    ]
    both, low_only, minus, three = assemble_all(texts)
    rows = [(ref.bits_of(2.0, 16) * 0x10001,)] * 64
    assert set(evaluate(both, rows, 32)) == {ref.bits_of(3.0, 16) * 0x10001}
    assert set(evaluate(low_only, rows, 32)) == {0x40004200}
    assert set(evaluate(minus, [(0x00050005,)] * 64, 32)) == {0x00040004}
    assert set(evaluate(three, [(0x00050005,)] * 64, 32)) == {0x00050008}


def test_pk_fmac_accumulates() -> None:
    (instruction,) = assemble_all(["v_pk_fmac_f16 v0, v2, v4"])
    rows = [(a | b << 16, c | d << 16) for a, b, c, d in columns([16] * 4, floats=range(4))]
    old = 0x3555B999
    got = [
        tuple(canonical(half, 16) for half in halves(bits))
        for bits in evaluate(instruction, rows, 32, old=old)
    ]
    expected = [
        tuple(
            ref.fma(x, y, z, 16) for x, y, z in zip(halves(a), halves(b), halves(old), strict=True)
        )
        for a, b in rows
    ]
    assert not mismatches(got, expected, rows)


FLOAT_PAIRS: dict[str, tuple[int, Callable[..., Result]]] = {
    "v_pk_add_f32": (2, lambda a, b: ref.add(a, b, 32)),
    "v_pk_mul_f32": (2, lambda a, b: ref.multiply(a, b, 32)),
    "v_pk_fma_f32": (3, lambda a, b, c: ref.fma(a, b, c, 32)),
}


def float_pair_text(name: str, selection: tuple[int, int]) -> str:
    count = FLOAT_PAIRS[name][0]
    sources = ", ".join(["v[2:3]", "v[4:5]", "v[6:7]"][:count])
    low, high = (vector(bits, count) for bits in selection)
    signs = f"neg_lo:{vector(1, count)} neg_hi:{vector(2, count)}"
    return f"{name} v[0:1], {sources} op_sel:{low} op_sel_hi:{high} {signs}"


FLOAT_PAIR_TEXTS = [float_pair_text(name, each) for name in FLOAT_PAIRS for each in SELECTIONS]


@pytest.mark.parametrize("name", FLOAT_PAIRS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_packed_f32(name: str, selection: tuple[int, int]) -> None:
    count, compute = FLOAT_PAIRS[name]
    index = FLOAT_PAIR_TEXTS.index(float_pair_text(name, selection))
    instruction = assemble_all(FLOAT_PAIR_TEXTS)[index]
    rows = [
        tuple(r[i] | r[count + i] << 32 for i in range(count))
        for r in columns([32] * (2 * count), floats=range(2 * count))
    ]

    def part(row: tuple[int, ...], chosen: int, flip: int) -> Result:
        words = [word >> 32 * (chosen >> i & 1) & M32 for i, word in enumerate(row)]
        words[flip] ^= 1 << 31
        return compute(*words)

    got = [
        (canonical(bits & M32, 32), canonical(bits >> 32, 32))
        for bits in evaluate(instruction, rows, 64)
    ]
    expected = [(part(row, selection[0], 0), part(row, selection[1], 1)) for row in rows]
    assert not mismatches(got, expected, rows)


def test_packed_f32_may_overwrite_its_sources() -> None:
    texts = [
        "v_pk_mul_f32 v[2:3], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]",
        "v_mov_b32 v0, v2",
        "v_mov_b32 v1, v3",
    ]
    multiply, low, high = assemble_all(texts)
    state = fresh_state(1)
    two, three, five, seven = (ref.bits_of(x, 32) for x in (2.0, 3.0, 5.0, 7.0))
    put(state, 2, [two | three << 32] * 64)
    put(state, 4, [five | seven << 32] * 64)
    execute(state, multiply, low, high)
    assert get(state, 0, 64)[0] == ref.bits_of(15.0, 32) | ref.bits_of(14.0, 32) << 32


@pytest.mark.parametrize("selection", range(4))
def test_packed_move(selection: int) -> None:
    texts = [f"v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:{vector(i, 2)}" for i in range(4)]
    instruction = assemble_all(texts)[selection]
    rows = columns([64, 64], count=128)
    got = evaluate(instruction, rows, 64)
    expected = [
        a >> 32 * (selection & 1) & M32 | (b >> 32 * (selection >> 1) & M32) << 32 for a, b in rows
    ]
    assert not mismatches(got, expected, rows)


# -- mixed precision -------------------------------------------------------------------------------


def test_mixed_precision_multiply_add() -> None:
    texts = [
        "v_fma_mix_f32 v0, v2, -v4, |v6| op_sel:[0,1,0] op_sel_hi:[1,1,0]",
        "v_fma_mixlo_f16 v0, v2, v4, v6 op_sel_hi:[1,1,0]",
        "v_fma_mixhi_f16 v0, v2, v4, v6 op_sel_hi:[1,1,0]",
    ]
    full, low, high = assemble_all(texts)
    rows = [
        (a | b << 16, c | d << 16, e)
        for a, b, c, d, e in columns([16, 16, 16, 16, 32], floats=range(5))
    ]

    def single(half: int) -> int:
        result = ref.convert(half, 16, 32)
        return 0x7FC00000 if result == NAN else int(result)

    got = [canonical(bits, 32) for bits in evaluate(full, rows, 32)]
    expected = [
        ref.fma(single(a & M16), single(b >> 16) ^ 1 << 31, c & ~(1 << 31), 32) for a, b, c in rows
    ]
    assert not mismatches(got, expected, rows)

    def to_half(row: tuple[int, ...]) -> Result:
        a, b, c = row
        total = ref.fma(single(a & M16), single(b & M16), c, 32)
        return NAN if total == NAN else ref.convert(int(total), 32, 16)

    for instruction, position in ((low, 0), (high, 1)):
        results = evaluate(instruction, rows, 32, old=0xAAAA5555)
        got = [canonical(halves(bits)[position], 16) for bits in results]
        assert not mismatches(got, list(map(to_half, rows)), rows)
        assert {halves(bits)[1 - position] for bits in results} == {(0xAAAA, 0x5555)[position]}


# -- dot products ----------------------------------------------------------------------------------


def fields(word: int, bits: int, is_signed: bool) -> list[int]:
    values = [word >> bits * i & (1 << bits) - 1 for i in range(32 // bits)]
    return [signed(v, bits) if is_signed else v for v in values]


INTEGER_DOTS = {
    "v_dot2_i32_i16": (16, True),
    "v_dot2_u32_u16": (16, False),
    "v_dot4_i32_i8": (8, True),
    "v_dot4_u32_u8": (8, False),
    "v_dot8_i32_i4": (4, True),
    "v_dot8_u32_u4": (4, False),
}
DOT_TEXTS = [f"{name} v0, v2, v4, v6{suffix}" for name in INTEGER_DOTS for suffix in ("", " clamp")]


@pytest.mark.parametrize("text", DOT_TEXTS)
def test_integer_dot_products(text: str) -> None:
    bits, is_signed = INTEGER_DOTS[text.split(maxsplit=1)[0]]
    instruction = assemble_all(DOT_TEXTS)[DOT_TEXTS.index(text)]
    rows = columns([32, 32, 32])
    limits = (-(1 << 31), (1 << 31) - 1) if is_signed else (0, M32)

    def compute(a: int, b: int, c: int) -> int:
        pairs = zip(fields(a, bits, is_signed), fields(b, bits, is_signed), strict=True)
        total = sum(x * y for x, y in pairs) + (signed(c, 32) if is_signed else c)
        return (min(max(total, limits[0]), limits[1]) if "clamp" in text else total) & M32

    got = evaluate(instruction, rows, 32)
    assert not mismatches(got, [compute(*row) for row in rows], rows)


ACCUMULATING = {"v_dot2c_i32_i16": 16, "v_dot4c_i32_i8": 8, "v_dot8c_i32_i4": 4}


@pytest.mark.parametrize("name", ACCUMULATING)
def test_accumulating_dot_products(name: str) -> None:
    texts, bits = [f"{other} v0, v2, v4" for other in ACCUMULATING], ACCUMULATING[name]
    instruction = assemble_all(texts)[list(ACCUMULATING).index(name)]
    rows = columns([32, 32])
    old = 0xFFFFFF00
    expected = [
        sum(x * y for x, y in zip(fields(a, bits, True), fields(b, bits, True), strict=True)) + old
        & M32
        for a, b in rows
    ]
    assert not mismatches(evaluate(instruction, rows, 32, old=old), expected, rows)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("v_dot2_f32_f16 v0, v2, v4, v6", "gfx942"),
        ("v_dot2_f32_bf16 v0, v2, v4, v6", "gfx950"),
        ("v_dot2c_f32_f16 v0, v2, v4", "gfx942"),
        ("v_dot2c_f32_bf16 v0, v2, v4", "gfx950"),
    ],
)
def test_float_dot_products_of_small_integers_are_exact(text: str, target: str) -> None:
    (instruction,) = assemble_all([text], target)
    encode = (
        (lambda x: ref.bits_of(float(x), 32) >> 16)
        if "bf16" in text
        else (lambda x: ref.bits_of(float(x), 16))
    )
    values = [signed(a, 5) for a, *_ in columns([8], count=256)]
    rows, expected = [], []
    for i in range(256):
        a, b, c, d, e = (values[(i * k + k) % 256] for k in (1, 3, 5, 7, 11))
        rows.append((encode(a) | encode(b) << 16, encode(c) | encode(d) << 16, ref.bits_of(e, 32)))
        start = e if "v6" in text else -2.0
        expected.append(ref.bits_of(float(a * c + b * d + start), 32))
    got = evaluate(instruction, rows, 32, target=target, old=ref.bits_of(-2.0, 32))
    assert [0 if bits == 1 << 31 else bits for bits in got] == expected
