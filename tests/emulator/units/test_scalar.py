"""The scalar unit against plain Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cupygemm.emulator.isa.instruction import EXEC, M0
from tests.emulator.harness import assemble, assemble_all, make_state, run, set_s64

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES32 = [
    0,
    1,
    2,
    5,
    31,
    32,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    M32 - 1,
    M32,
]
EDGES64 = [0, 1, 63, 64, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, M64 - 1, M64]


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def flag(value: int) -> tuple[int, bool]:
    return value, value != 0


def extract(a: int, b: int, bits: int, is_signed: bool) -> int:
    offset, size = b & (bits - 1), min(b >> 16 & 0x7F, bits)
    field = a >> offset & ((1 << size) - 1)
    if is_signed and size:
        # A field that reaches past the top sees zeros there; its own top bit is the sign.
        field = signed(field, size)
    return field & ((1 << bits) - 1)


Pair = Callable[[int, int, bool], tuple[int, bool | None]]
PAIRS32: dict[str, Pair] = {
    "s_add_u32": lambda a, b, c: ((a + b) & M32, a + b > M32),
    "s_sub_u32": lambda a, b, c: ((a - b) & M32, b > a),
    "s_addc_u32": lambda a, b, c: ((a + b + c) & M32, a + b + c > M32),
    "s_subb_u32": lambda a, b, c: ((a - b - c) & M32, b + c > a),
    "s_add_i32": lambda a, b, c: (
        (a + b) & M32,
        not -(1 << 31) <= signed(a) + signed(b) < 1 << 31,
    ),
    "s_sub_i32": lambda a, b, c: (
        (a - b) & M32,
        not -(1 << 31) <= signed(a) - signed(b) < 1 << 31,
    ),
    "s_min_i32": lambda a, b, c: (a, True) if signed(a) < signed(b) else (b, False),
    "s_min_u32": lambda a, b, c: (a, True) if a < b else (b, False),
    "s_max_i32": lambda a, b, c: (a, True) if signed(a) > signed(b) else (b, False),
    "s_max_u32": lambda a, b, c: (a, True) if a > b else (b, False),
    "s_cselect_b32": lambda a, b, c: (a if c else b, None),
    "s_and_b32": lambda a, b, c: flag(a & b),
    "s_or_b32": lambda a, b, c: flag(a | b),
    "s_xor_b32": lambda a, b, c: flag(a ^ b),
    "s_andn2_b32": lambda a, b, c: flag(a & ~b & M32),
    "s_orn2_b32": lambda a, b, c: flag((a | ~b) & M32),
    "s_nand_b32": lambda a, b, c: flag(~(a & b) & M32),
    "s_nor_b32": lambda a, b, c: flag(~(a | b) & M32),
    "s_xnor_b32": lambda a, b, c: flag(~(a ^ b) & M32),
    "s_lshl_b32": lambda a, b, c: flag(a << (b & 31) & M32),
    "s_lshr_b32": lambda a, b, c: flag(a >> (b & 31)),
    "s_ashr_i32": lambda a, b, c: flag(signed(a) >> (b & 31) & M32),
    "s_bfm_b32": lambda a, b, c: (((1 << (a & 31)) - 1) << (b & 31) & M32, None),
    "s_mul_i32": lambda a, b, c: (a * b & M32, None),
    "s_mul_hi_u32": lambda a, b, c: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b, c: (signed(a) * signed(b) >> 32 & M32, None),
    "s_bfe_u32": lambda a, b, c: flag(extract(a, b, 32, False)),
    "s_bfe_i32": lambda a, b, c: flag(extract(a, b, 32, True)),
    "s_absdiff_i32": lambda a, b, c: flag(
        (a - b) & M32 if signed((a - b) & M32) >= 0 else (b - a) & M32
    ),
    "s_lshl1_add_u32": lambda a, b, c: ((2 * a + b) & M32, 2 * a + b > M32),
    "s_lshl4_add_u32": lambda a, b, c: ((16 * a + b) & M32, 16 * a + b > M32),
    "s_pack_ll_b32_b16": lambda a, b, c: (a & 0xFFFF | (b & 0xFFFF) << 16, None),
    "s_pack_lh_b32_b16": lambda a, b, c: (a & 0xFFFF | b & 0xFFFF0000, None),
    "s_pack_hh_b32_b16": lambda a, b, c: (a >> 16 | b & 0xFFFF0000, None),
}
PAIRS64: dict[str, tuple[bool, Pair]] = {
    "s_and_b64": (False, lambda a, b, c: flag(a & b)),
    "s_andn2_b64": (False, lambda a, b, c: flag(a & ~b & M64)),
    "s_nor_b64": (False, lambda a, b, c: flag(~(a | b) & M64)),
    "s_cselect_b64": (False, lambda a, b, c: (a if c else b, None)),
    "s_lshl_b64": (True, lambda a, b, c: flag(a << (b & 63) & M64)),
    "s_lshr_b64": (True, lambda a, b, c: flag(a >> (b & 63))),
    "s_ashr_i64": (True, lambda a, b, c: flag(signed(a, 64) >> (b & 63) & M64)),
    "s_bfe_u64": (True, lambda a, b, c: flag(extract(a, b, 64, False))),
    "s_bfe_i64": (True, lambda a, b, c: flag(extract(a, b, 64, True))),
}


def leading(value: int, bits: int) -> int:
    return M32 if value == 0 else bits - value.bit_length()


def lowest(value: int) -> int:
    return M32 if value == 0 else (value & -value).bit_length() - 1


SINGLES: dict[str, tuple[int, int, Callable[[int], tuple[int, bool | None]]]] = {
    # mnemonic: bits of the source, bits of the result, function
    "s_mov_b32": (32, 32, lambda a: (a, None)),
    "s_not_b32": (32, 32, lambda a: flag(~a & M32)),
    "s_not_b64": (64, 64, lambda a: flag(~a & M64)),
    "s_brev_b32": (32, 32, lambda a: (int(f"{a:032b}"[::-1], 2), None)),
    "s_brev_b64": (64, 64, lambda a: (int(f"{a:064b}"[::-1], 2), None)),
    "s_bcnt0_i32_b32": (32, 32, lambda a: flag(32 - a.bit_count())),
    "s_bcnt1_i32_b64": (64, 32, lambda a: flag(a.bit_count())),
    "s_ff0_i32_b32": (32, 32, lambda a: (lowest(~a & M32), None)),
    "s_ff1_i32_b64": (64, 32, lambda a: (lowest(a), None)),
    "s_flbit_i32_b32": (32, 32, lambda a: (leading(a, 32), None)),
    "s_flbit_i32_b64": (64, 32, lambda a: (leading(a, 64), None)),
    "s_flbit_i32": (32, 32, lambda a: (leading(a if signed(a) >= 0 else ~a & M32, 32), None)),
    "s_sext_i32_i8": (32, 32, lambda a: (signed(a & 0xFF, 8) & M32, None)),
    "s_sext_i32_i16": (32, 32, lambda a: (signed(a & 0xFFFF, 16) & M32, None)),
    "s_abs_i32": (32, 32, lambda a: flag(abs(signed(a)) & M32)),
    "s_wqm_b32": (
        32,
        32,
        lambda a: flag(sum(15 << 4 * i for i in range(8) if a >> 4 * i & 15)),
    ),
    "s_quadmask_b64": (
        64,
        64,
        lambda a: flag(sum(1 << i for i in range(16) if a >> 4 * i & 15)),
    ),
    "s_bitreplicate_b64_b32": (
        32,
        64,
        lambda a: (sum(3 << 2 * i for i in range(32) if a >> i & 1), None),
    ),
}


@pytest.mark.parametrize("name", PAIRS32)
def test_pair_32(name: str) -> None:
    rng = np.random.default_rng(1)
    values = EDGES32 + rng.integers(0, 1 << 32, 18).tolist()
    left, right = (x.ravel().tolist() for x in np.meshgrid(values, values))
    state = make_state(waves=len(left))
    state.sgpr[4], state.sgpr[5] = left, right
    state.scc[:] = carry = rng.integers(0, 2, len(left)).astype(bool)
    texts = {each: f"{each} s6, s4, s5" for each in PAIRS32}
    run(state, assemble(texts[name], among=texts.values()))
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        value, scc = PAIRS32[name](a, b, bool(carry[i]))
        assert int(state.sgpr[6, i]) == value, (hex(a), hex(b))
        assert bool(state.scc[i]) == (carry[i] if scc is None else scc), (hex(a), hex(b))


@pytest.mark.parametrize("name", PAIRS64)
def test_pair_64(name: str) -> None:
    is_count, reference = PAIRS64[name]
    rng = np.random.default_rng(2)
    rights = [0, 1, 31, 32, 63, 64, 0x100000, 0x200004, 0x3F0001, 0x400000] if is_count else EDGES64
    texts = {
        each: f"{each} s[8:9], s[4:5], s{'6' if takes_count else '[6:7]'}"
        for each, (takes_count, _) in PAIRS64.items()
    }
    for a in [*EDGES64, *(int(x) for x in rng.integers(0, 1 << 63, 6))]:
        for b in rights:
            state = make_state()
            set_s64(state, 4, a)
            set_s64(state, 6, b)
            state.scc[:] = True
            run(state, assemble(texts[name], among=texts.values()))
            value, scc = reference(a, b, True)
            assert int(state.sgpr[8, 0]) | int(state.sgpr[9, 0]) << 32 == value, (hex(a), hex(b))
            assert bool(state.scc[0]) == (True if scc is None else scc)


SINGLE_TEXTS = {
    name: f"{name} {'s[8:9]' if result_bits == 64 else 's8'}, "
    f"{'s[4:5]' if source_bits == 64 else 's4'}"
    for name, (source_bits, result_bits, _) in SINGLES.items()
}


@pytest.mark.parametrize("name", SINGLES)
def test_single(name: str) -> None:
    source_bits, result_bits, reference = SINGLES[name]
    for a in EDGES64 if source_bits == 64 else EDGES32:
        state = make_state()
        set_s64(state, 4, a)
        run(state, assemble(SINGLE_TEXTS[name], among=SINGLE_TEXTS.values()))
        value, scc = reference(a)
        found = int(state.sgpr[8, 0])
        if result_bits == 64:
            found |= int(state.sgpr[9, 0]) << 32
        assert found == value, hex(a)
        assert bool(state.scc[0]) == bool(scc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s_cmp_eq_i32 s4, s5", False),
        ("s_cmp_lg_u32 s4, s5", True),
        ("s_cmp_gt_i32 s4, s5", False),
        ("s_cmp_gt_u32 s4, s5", True),
        ("s_cmp_ge_i32 s4, s4", True),
        ("s_cmp_lt_i32 s4, s5", True),
        ("s_cmp_le_u32 s4, s5", False),
        ("s_cmp_eq_u64 s[4:5], s[4:5]", True),
        ("s_cmp_lg_u64 s[4:5], s[6:7]", True),
        ("s_bitcmp1_b32 s4, 31", True),
        ("s_bitcmp0_b32 s4, 31", False),
        ("s_cmpk_eq_i32 s4, 0xfffe", True),
        ("s_cmpk_gt_u32 s4, 0xfffe", True),
        ("s_cmpk_lt_i32 s4, 0x7", True),
    ],
)
def test_compare(text: str, expected: bool) -> None:
    state = make_state()
    state.sgpr[4], state.sgpr[5] = 0xFFFFFFFE, 7
    state.scc[:] = not expected
    run(state, assemble(text))
    assert bool(state.scc[0]) is expected


def test_constants() -> None:
    texts = [
        "s_mov_b32 s0, 64",
        "s_mov_b32 s1, -16",
        "s_mov_b32 s2, 1.0",
        "s_mov_b32 s3, 0xdeadbeef",
        "s_mov_b64 s[4:5], -1",
        "s_mov_b64 s[6:7], 0x80000000",
        "s_movk_i32 s8, 0x8000",
        "s_mov_b64 s[10:11], 1.0",
    ]
    state = make_state()
    run(state, *assemble_all(texts))
    assert [int(x) for x in state.sgpr[:12, 0]] == [
        64,
        0xFFFFFFF0,
        0x3F800000,
        0xDEADBEEF,
        M32,
        M32,
        0x80000000,
        0,
        0xFFFF8000,
        0,
        0,
        0x3FF00000,
    ]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("s_and_saveexec_b64", lambda s, e: s & e),
        ("s_or_saveexec_b64", lambda s, e: s | e),
        ("s_xor_saveexec_b64", lambda s, e: s ^ e),
        ("s_andn2_saveexec_b64", lambda s, e: s & ~e),
        ("s_andn1_saveexec_b64", lambda s, e: ~s & e),
        ("s_orn2_saveexec_b64", lambda s, e: s | ~e),
        ("s_nand_saveexec_b64", lambda s, e: ~(s & e)),
    ],
)
def test_saveexec(name: str, function: Callable[[int, int], int]) -> None:
    source, old = 0x00FF00FF12345678, 0xF0F0F0F0F0F0F0F0
    state = make_state()
    set_s64(state, 4, source)
    set_s64(state, EXEC, old)
    run(state, assemble(f"{name} s[6:7], s[4:5]"))
    expected = function(source, old) & M64
    assert int(state.sgpr[6, 0]) | int(state.sgpr[7, 0]) << 32 == old
    assert int(state.sgpr[EXEC, 0]) | int(state.sgpr[EXEC + 1, 0]) << 32 == expected
    assert bool(state.scc[0]) is (expected != 0)


def test_exec_write_takes_effect_at_once() -> None:
    state = make_state()
    run(state, *assemble_all(["s_mov_b64 exec, 5", "v_mov_b32 v1, 7"]))
    assert np.flatnonzero(state.vgpr[1, 0] == 7).tolist() == [0, 2]


def test_mode_register() -> None:
    state = make_state()
    state.modes[:] = 0xF0
    texts = [
        "s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 4)",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0",
        "s_getreg_b32 s5, hwreg(HW_REG_MODE)",
    ]
    run(state, *assemble_all(texts))
    assert (int(state.sgpr[4, 0]), int(state.sgpr[5, 0])) == (0xF, 0xC0)


def test_relative_moves_and_bit_sets() -> None:
    state = make_state()
    state.sgpr[M0] = 3
    state.sgpr[10:20, 0] = np.arange(10)
    texts = [
        "s_movrels_b32 s4, s10",
        "s_movreld_b32 s20, s12",
        "s_bitset1_b32 s5, 4",
        "s_cmov_b32 s6, s12",
        "s_cmp_eq_u32 s12, s12",
        "s_cmov_b32 s7, s12",
    ]
    run(state, *assemble_all(texts))
    assert [int(state.sgpr[i, 0]) for i in (4, 23, 5, 6, 7)] == [3, 2, 16, 0, 2]


def test_sources_that_are_not_registers() -> None:
    state = make_state()
    set_s64(state, 106, 0)  # vcc
    for text, expected in (
        ("s_cmp_eq_u32 src_vccz, 1", True),
        ("s_cmp_eq_u32 src_execz, 1", False),
        ("s_cmp_gt_i32 src_shared_limit, 0", False),  # its low half is all ones, which is -1
        ("s_cmp_eq_u32 src_shared_base, 0", True),
    ):
        run(state, assemble(text))
        assert state.scc.all() == expected, text
