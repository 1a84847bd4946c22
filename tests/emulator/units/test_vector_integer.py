"""Integer operations of the vector ALU against plain Python integers, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from cupygemm.emulator.isa.instruction import VCC
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    M16,
    M32,
    M64,
    columns,
    evaluate,
    execute,
    fresh_state,
    get,
    get_mask,
    mismatches,
    put,
    put_mask,
    signed,
)

M24 = (1 << 24) - 1
s16, s24, s32, s64 = (partial(signed, bits=bits) for bits in (16, 24, 32, 64))


class Case(NamedTuple):
    """An instruction, the widths of its operands and its result, and its function."""

    text: str
    widths: str
    width: int
    compute: Callable[..., int]
    target: str = "gfx942"


def clamp(value: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def bfe_i32(a: int, offset: int, width: int) -> int:
    width &= 31
    return signed(s32(a) >> (offset & 31), width) if width else 0


def leading_zeros(a: int) -> int:
    return 32 - a.bit_length() if a else -1


def leading_signs(a: int) -> int:
    return leading_zeros(a ^ M32 if a >> 31 else a)


def trailing_zeros(a: int) -> int:
    return (a & -a).bit_length() - 1


def perm(a: int, b: int, selector: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    result = []
    for pick in selector.to_bytes(4, "little"):
        if pick < 8:
            result.append(data[pick])
        elif pick < 12:
            result.append(0xFF if data[2 * (pick - 8) + 1] & 0x80 else 0)
        else:
            result.append(0 if pick == 12 else 0xFF)
    return int.from_bytes(result, "little")


def parts(value: int, bits: int, count: int) -> list[int]:
    return [value >> bits * i & (1 << bits) - 1 for i in range(count)]


def sad(a: int, b: int, bits: int = 8, *, masked: bool = False) -> int:
    pairs = zip(parts(a, bits, 32 // bits), parts(b, bits, 32 // bits), strict=True)
    return sum(abs(x - y) for x, y in pairs if y or not masked)


def sliding(a: int, b: int, c: int, *, masked: bool) -> int:
    return sum(
        (sad(a >> 8 * i & M32, b, masked=masked) + (c >> 16 * i & M16) & M16) << 16 * i
        for i in range(4)
    )


def lerp(a: int, b: int, c: int) -> int:
    bytes_ = zip(*(parts(x, 8, 4) for x in (a, b, c)), strict=True)
    return sum((x + y + (z & 1) >> 1) << 8 * i for i, (x, y, z) in enumerate(bytes_))


def bitop3(table: int, bits: int) -> Callable[[int, int, int], int]:
    def compute(a: int, b: int, c: int) -> int:
        return sum(
            (table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i
            for i in range(bits)
        )

    return compute


def median(*values: int) -> int:
    return sorted(values)[1]


TWO, THREE = "v0, v2, v4", "v0, v2, v4, v6"
CASES = [
    Case("v_mov_b32 v0, v2", "32", 32, lambda a: a),
    Case("v_mov_b64 v[0:1], v[2:3]", "64", 64, lambda a: a),
    # bitwise
    Case("v_not_b32 v0, v2", "32", 32, lambda a: ~a),
    Case(f"v_and_b32 {TWO}", "32 32", 32, lambda a, b: a & b),
    Case(f"v_or_b32 {TWO}", "32 32", 32, lambda a, b: a | b),
    Case(f"v_xor_b32 {TWO}", "32 32", 32, lambda a, b: a ^ b),
    Case(f"v_xnor_b32 {TWO}", "32 32", 32, lambda a, b: ~(a ^ b)),
    Case(f"v_and_or_b32 {THREE}", "32 32 32", 32, lambda a, b, c: a & b | c),
    Case(f"v_or3_b32 {THREE}", "32 32 32", 32, lambda a, b, c: a | b | c),
    Case(f"v_bfi_b32 {THREE}", "32 32 32", 32, lambda a, b, c: a & b | ~a & c),
    *(
        Case(
            text=f"v_bitop3_b32 {THREE} bitop3:{t:#x}",
            widths="32 32 32",
            width=32,
            compute=bitop3(t, 32),
            target="gfx950",
        )
        for t in (0x00, 0x1E, 0x96, 0xCA, 0x7F, 0xFF)
    ),
    Case(
        text=f"v_bitop3_b16 {THREE} bitop3:0x6c",
        widths="16 16 16",
        width=16,
        compute=bitop3(0x6C, 16),
        target="gfx950",
    ),
    # sums
    Case(f"v_add_u32 {TWO}", "32 32", 32, lambda a, b: a + b),
    Case(f"v_add_u32_e64 {TWO} clamp", "32 32", 32, lambda a, b: clamp(a + b, 32, False)),
    Case(f"v_sub_u32 {TWO}", "32 32", 32, lambda a, b: a - b),
    Case(f"v_sub_u32_e64 {TWO} clamp", "32 32", 32, lambda a, b: clamp(a - b, 32, False)),
    Case(f"v_subrev_u32 {TWO}", "32 32", 32, lambda a, b: b - a),
    Case(f"v_add_i32 {TWO}", "32 32", 32, lambda a, b: a + b),
    Case(f"v_add_i32 {TWO} clamp", "32 32", 32, lambda a, b: clamp(s32(a) + s32(b), 32, True)),
    Case(f"v_sub_i32 {TWO} clamp", "32 32", 32, lambda a, b: clamp(s32(a) - s32(b), 32, True)),
    Case(f"v_add_u16 {TWO}", "16 16", 32, lambda a, b: a + b & M16),
    Case(f"v_add_u16_e64 {TWO} clamp", "16 16", 32, lambda a, b: clamp(a + b, 16, False)),
    Case(f"v_sub_u16 {TWO}", "16 16", 32, lambda a, b: a - b & M16),
    Case(f"v_subrev_u16 {TWO}", "16 16", 32, lambda a, b: b - a & M16),
    Case(f"v_add_i16 {TWO} clamp", "16 16", 16, lambda a, b: clamp(s16(a) + s16(b), 16, True)),
    Case(f"v_sub_i16 {TWO}", "16 16", 16, lambda a, b: a - b),
    Case(f"v_add3_u32 {THREE}", "32 32 32", 32, lambda a, b, c: a + b + c),
    Case(f"v_xad_u32 {THREE}", "32 32 32", 32, lambda a, b, c: (a ^ b) + c),
    Case(f"v_lshl_add_u32 {THREE}", "32 32 32", 32, lambda a, b, c: (a << (b & 31)) + c),
    Case(f"v_add_lshl_u32 {THREE}", "32 32 32", 32, lambda a, b, c: (a + b) << (c & 31)),
    Case(f"v_lshl_or_b32 {THREE}", "32 32 32", 32, lambda a, b, c: a << (b & 31) | c),
    Case(
        "v_lshl_add_u64 v[0:1], v[2:3], v4, v[6:7]",
        "64 8 64",
        64,
        lambda a, b, c: (a << (b & 7)) + c,
    ),
    # products
    Case(f"v_mul_lo_u32 {TWO}", "32 32", 32, lambda a, b: a * b),
    Case(f"v_mul_hi_u32 {TWO}", "32 32", 32, lambda a, b: a * b >> 32),
    Case(f"v_mul_hi_i32 {TWO}", "32 32", 32, lambda a, b: s32(a) * s32(b) >> 32),
    Case(f"v_mul_u32_u24 {TWO}", "32 32", 32, lambda a, b: (a & M24) * (b & M24)),
    Case(f"v_mul_i32_i24 {TWO}", "32 32", 32, lambda a, b: s24(a) * s24(b)),
    Case(f"v_mul_hi_u32_u24 {TWO}", "32 32", 32, lambda a, b: (a & M24) * (b & M24) >> 32),
    Case(f"v_mul_hi_i32_i24 {TWO}", "32 32", 32, lambda a, b: s24(a) * s24(b) >> 32),
    Case(f"v_mad_u32_u24 {THREE}", "32 32 32", 32, lambda a, b, c: (a & M24) * (b & M24) + c),
    Case(f"v_mad_i32_i24 {THREE}", "32 32 32", 32, lambda a, b, c: s24(a) * s24(b) + c),
    Case(
        f"v_mad_i32_i24 {THREE} clamp",
        "32 32 32",
        32,
        lambda a, b, c: clamp(s24(a) * s24(b) + s32(c), 32, True),
    ),
    Case(f"v_mul_lo_u16 {TWO}", "16 16", 32, lambda a, b: a * b & M16),
    Case(f"v_mad_u16 {THREE}", "16 16 16", 16, lambda a, b, c: a * b + c),
    Case(f"v_mad_u16 {THREE} clamp", "16 16 16", 16, lambda a, b, c: clamp(a * b + c, 16, False)),
    Case(
        f"v_mad_i16 {THREE} clamp",
        "16 16 16",
        16,
        lambda a, b, c: clamp(s16(a) * s16(b) + s16(c), 16, True),
    ),
    Case(f"v_mad_legacy_u16 {THREE}", "16 16 16", 32, lambda a, b, c: a * b + c & M16),
    Case(f"v_mad_legacy_i16 {THREE}", "16 16 16", 32, lambda a, b, c: a * b + c & M16),
    Case(f"v_mad_u32_u16 {THREE}", "16 16 32", 32, lambda a, b, c: a * b + c),
    Case(f"v_mad_i32_i16 {THREE}", "16 16 32", 32, lambda a, b, c: s16(a) * s16(b) + c),
    # shifts
    Case(f"v_lshlrev_b32 {TWO}", "32 32", 32, lambda a, b: b << (a & 31)),
    Case(f"v_lshrrev_b32 {TWO}", "32 32", 32, lambda a, b: b >> (a & 31)),
    Case(f"v_ashrrev_i32 {TWO}", "32 32", 32, lambda a, b: s32(b) >> (a & 31)),
    Case("v_lshlrev_b64 v[0:1], v2, v[4:5]", "32 64", 64, lambda a, b: b << (a & 63)),
    Case("v_lshrrev_b64 v[0:1], v2, v[4:5]", "32 64", 64, lambda a, b: b >> (a & 63)),
    Case("v_ashrrev_i64 v[0:1], v2, v[4:5]", "32 64", 64, lambda a, b: s64(b) >> (a & 63)),
    Case(f"v_lshlrev_b16 {TWO}", "16 16", 32, lambda a, b: b << (a & 15) & M16),
    Case(f"v_lshrrev_b16 {TWO}", "16 16", 32, lambda a, b: b >> (a & 15)),
    Case(f"v_ashrrev_i16 {TWO}", "16 16", 32, lambda a, b: s16(b) >> (a & 15) & M16),
    Case(f"v_ashrrev_i16_e64 {TWO}", "16 16", 32, lambda a, b: s16(b) >> (a & 15) & M16),
    # minima, maxima, medians
    Case(f"v_min_i32 {TWO}", "32 32", 32, lambda a, b: min(s32(a), s32(b))),
    Case(f"v_max_i32 {TWO}", "32 32", 32, lambda a, b: max(s32(a), s32(b))),
    Case(f"v_min_u32 {TWO}", "32 32", 32, min),
    Case(f"v_max_u32 {TWO}", "32 32", 32, max),
    Case(f"v_min_i16 {TWO}", "16 16", 32, lambda a, b: min(s16(a), s16(b)) & M16),
    Case(f"v_max_i16 {TWO}", "16 16", 32, lambda a, b: max(s16(a), s16(b)) & M16),
    Case(f"v_min_u16 {TWO}", "16 16", 32, min),
    Case(f"v_max_u16 {TWO}", "16 16", 32, max),
    Case(f"v_min3_i32 {THREE}", "32 32 32", 32, lambda *abc: min(map(s32, abc))),
    Case(f"v_max3_i32 {THREE}", "32 32 32", 32, lambda *abc: max(map(s32, abc))),
    Case(f"v_med3_i32 {THREE}", "32 32 32", 32, lambda *abc: median(*map(s32, abc))),
    Case(f"v_min3_u32 {THREE}", "32 32 32", 32, min),
    Case(f"v_max3_u32 {THREE}", "32 32 32", 32, max),
    Case(f"v_med3_u32 {THREE}", "32 32 32", 32, median),
    Case(f"v_min3_i16 {THREE}", "16 16 16", 16, lambda *abc: min(map(s16, abc))),
    Case(f"v_max3_u16 {THREE}", "16 16 16", 16, max),
    Case(f"v_med3_i16 {THREE}", "16 16 16", 16, lambda *abc: median(*map(s16, abc))),
    # bit fields
    Case(
        f"v_bfe_u32 {THREE}", "32 32 32", 32, lambda a, b, c: a >> (b & 31) & ((1 << (c & 31)) - 1)
    ),
    Case(f"v_bfe_i32 {THREE}", "32 32 32", 32, bfe_i32),
    Case(f"v_bfm_b32 {TWO}", "32 32", 32, lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    Case(f"v_alignbit_b32 {THREE}", "32 32 32", 32, lambda a, b, c: (a << 32 | b) >> (c & 31)),
    Case(f"v_alignbyte_b32 {THREE}", "32 32 32", 32, lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
    Case(f"v_perm_b32 {THREE}", "32 32 32", 32, perm),
    Case("v_bfrev_b32 v0, v2", "32", 32, lambda a: int(f"{a:032b}"[::-1], 2)),
    # counting
    Case("v_ffbh_u32 v0, v2", "32", 32, leading_zeros),
    Case("v_ffbh_i32 v0, v2", "32", 32, leading_signs),
    Case("v_ffbl_b32 v0, v2", "32", 32, trailing_zeros),
    Case(f"v_bcnt_u32_b32 {TWO}", "32 32", 32, lambda a, b: a.bit_count() + b),
    Case(
        text="v_prng_b32 v0, v2",
        widths="32",
        width=32,
        compute=lambda a: a << 1 ^ (197 if a >> 31 else 0),
        target="gfx950",
    ),
    # bytes
    Case(f"v_sad_u8 {THREE}", "32 32 32", 32, lambda a, b, c: sad(a, b) + c),
    Case(f"v_sad_hi_u8 {THREE}", "32 32 32", 32, lambda a, b, c: (sad(a, b) << 16) + c),
    Case(f"v_sad_u16 {THREE}", "32 32 32", 32, lambda a, b, c: sad(a, b, 16) + c),
    Case(f"v_sad_u32 {THREE}", "32 32 32", 32, lambda a, b, c: abs(a - b) + c),
    Case(f"v_msad_u8 {THREE}", "32 32 32", 32, lambda a, b, c: sad(a, b, masked=True) + c),
    Case(
        "v_qsad_pk_u16_u8 v[0:1], v[2:3], v4, v[6:7]",
        "64 32 64",
        64,
        lambda a, b, c: sliding(a, b, c, masked=False),
    ),
    Case(
        "v_mqsad_pk_u16_u8 v[0:1], v[2:3], v4, v[6:7]",
        "64 32 64",
        64,
        lambda a, b, c: sliding(a, b, c, masked=True),
    ),
    Case(f"v_lerp_u8 {THREE}", "32 32 32", 32, lerp),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_operation(case: Case) -> None:
    texts = [other.text for other in CASES if other.target == case.target]
    instruction = assemble_all(texts, case.target)[texts.index(case.text)]
    rows = columns([int(width) for width in case.widths.split()])
    got = evaluate(instruction, rows, case.width, target=case.target)
    expected = [case.compute(*row) & (1 << case.width) - 1 for row in rows]
    assert not mismatches(got, expected, rows)


# -- carries ---------------------------------------------------------------------------------------

CARRIES: dict[str, Callable[[int, int, int], tuple[int, bool]]] = {
    "v_add_co_u32_e64 v0, s[4:5], v2, v4": lambda a, b, _: (a + b, a + b > M32),
    "v_add_co_u32 v0, vcc, v2, v4": lambda a, b, _: (a + b, a + b > M32),
    "v_sub_co_u32 v0, vcc, v2, v4": lambda a, b, _: (a - b, b > a),
    "v_subrev_co_u32 v0, vcc, v2, v4": lambda a, b, _: (b - a, a > b),
    "v_addc_co_u32 v0, vcc, v2, v4, vcc": lambda a, b, c: (a + b + c, a + b + c > M32),
    "v_subb_co_u32 v0, vcc, v2, v4, vcc": lambda a, b, c: (a - b - c, b + c > a),
    "v_subbrev_co_u32 v0, vcc, v2, v4, vcc": lambda a, b, c: (b - a - c, a + c > b),
    "v_addc_co_u32_e64 v0, s[4:5], v2, v4, s[6:7]": lambda a, b, c: (a + b + c, a + b + c > M32),
    "v_subb_co_u32_e64 v0, s[4:5], v2, v4, s[6:7]": lambda a, b, c: (a - b - c, b + c > a),
    "v_add_co_u32_e64 v0, s[4:5], v2, v4 clamp": lambda a, b, _: (min(a + b, M32), a + b > M32),
    "v_sub_co_u32_e64 v0, s[4:5], v2, v4 clamp": lambda a, b, _: (max(a - b, 0), b > a),
}


@pytest.mark.parametrize("text", CARRIES)
def test_carry(text: str) -> None:
    instruction = assemble_all(CARRIES)[list(CARRIES).index(text)]
    rows = columns([32, 32])
    carry_in = [index % 3 == 0 for index in range(len(rows))]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    put_mask(state, VCC, carry_in)
    put_mask(state, 6, carry_in)
    execute(state, instruction)
    got = list(zip(get(state, 0, 32), get_mask(state, 4 if "s[4:5]" in text else VCC), strict=True))
    expected = []
    for (a, b), c in zip(rows, carry_in, strict=True):
        value, carry = CARRIES[text](a, b, int(c))
        expected.append((value & M32, int(carry)))
    assert not mismatches(got, expected, rows)


def test_carry_of_inactive_lanes_is_zero() -> None:
    (instruction,) = assemble_all(["v_add_co_u32 v0, vcc, v2, v2"])
    state = fresh_state(1)
    put(state, 2, [M32] * 64)
    state.sgpr[126], state.sgpr[127] = 0x0000FFFF, 0x80000000
    execute(state, instruction)
    assert get_mask(state, VCC) == [1] * 16 + [0] * 47 + [1]


@pytest.mark.parametrize("is_signed", [False, True])
def test_mad_64(is_signed: bool) -> None:
    texts = [f"v_mad_{k} v[0:1], s[4:5], v2, v4, v[6:7]" for k in ("u64_u32", "i64_i32")]
    instruction = assemble_all(texts)[is_signed]
    rows = columns([32, 32, 64])
    state = fresh_state(len(rows) // 64)
    for position, column in enumerate(zip(*rows, strict=True)):
        put(state, 2 + 2 * position, column)
    execute(state, instruction)
    expected = []
    for a, b, c in rows:
        total = s32(a) * s32(b) + s64(c) if is_signed else a * b + c
        expected.append((total & M64, total >> 64 & 1))
    got = list(zip(get(state, 0, 64), get_mask(state, 4), strict=True))
    assert not mismatches(got, expected, rows)


def test_mqsad_u32() -> None:
    (instruction,) = assemble_all(["v_mqsad_u32_u8 v[12:15], v[2:3], v4, v[8:11]"])
    rows = columns([64, 32, 64, 64])
    state = fresh_state(len(rows) // 64)
    for register, column in zip((2, 4, 8, 10), zip(*rows, strict=True), strict=True):
        put(state, register, column)
    execute(state, instruction)
    for i in range(4):
        expected = [
            sad(a >> 8 * i & M32, b, masked=True) + ((c | d << 64) >> 32 * i & M32) & M32
            for a, b, c, d in rows
        ]
        assert get(state, 12 + i, 32) == expected


def test_mbcnt_counts_lanes_below() -> None:
    low, high = assemble_all(["v_mbcnt_lo_u32_b32 v0, v2, v4", "v_mbcnt_hi_u32_b32 v0, v2, v0"])
    rows = columns([32, 32], count=128)
    state = fresh_state(2)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, low, high)
    expected = []
    for index, (mask, start) in enumerate(rows):
        below = (1 << index % 64) - 1
        count = (mask & below & M32).bit_count() + (mask & below >> 32).bit_count()
        expected.append(start + count & M32)
    assert get(state, 0, 32) == expected


def test_select_reads_its_mask() -> None:
    texts = ["v_cndmask_b32 v0, v2, v4, vcc", "v_cndmask_b32_e64 v0, -v2, |v4|, s[4:5]"]
    plain, modified = assemble_all(texts)
    rows = columns([32, 32])
    mask = [index % 5 < 2 for index in range(len(rows))]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    put_mask(state, VCC, mask)
    put_mask(state, 4, mask)
    execute(state, plain)
    assert get(state, 0, 32) == [row[bit] for row, bit in zip(rows, mask, strict=True)]
    execute(state, modified)
    expected = [b & 0x7FFFFFFF if m else a ^ 1 << 31 for (a, b), m in zip(rows, mask, strict=True)]
    assert get(state, 0, 32) == expected
