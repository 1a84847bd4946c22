"""How vector instructions read and write operands: constants, scalars, halves, bytes, indices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa.instruction import APERTURE_PRIVATE, APERTURE_SHARED, EXEC, M0, VCC
from cupygemm.emulator.units import bind
from cupygemm.emulator.waves.state import Group
from tests.emulator import float_reference as ref
from tests.emulator.harness import assemble_all, set_exec, set_s64
from tests.emulator.vector_cases import M16, M32, columns, execute, fresh_state, get, put

CONSTANTS = {
    "v_mov_b32 v0, 64": 64,
    "v_mov_b32 v0, -16": M32 - 15,
    "v_mov_b32 v0, 0.5": 0x3F000000,
    "v_mov_b32 v0, -4.0": 0xC0800000,
    "v_mov_b32 v0, 0.15915494": 0x3E22F983,
    "v_mov_b32 v0, 0x12345678": 0x12345678,
    "v_add_f32 v0, 0, v2": 0x3F800000,
    "v_cvt_f32_f16 v0, 1.0": 0x3F800000,
    "v_cvt_f32_f16 v0, 0x4200": 0x40400000,
    "v_cvt_f32_f64 v0, 2.0": 0x40000000,
    "v_cvt_f32_f64 v0, 0x40080000": 0x40400000,  # a literal is the high half of an f64
    "v_cvt_f32_f64 v0, 0.15915494309189532": 0x3E22F983,
    "v_cvt_f32_i32 v0, -3": 0xC0400000,
}
CONSTANTS64 = {
    "v_mov_b64 v[0:1], -2": (1 << 64) - 2,
    "v_mov_b64 v[0:1], 1.0": 0x3FF0000000000000,
    "v_mov_b64 v[0:1], 0xfedcba98": 0xFEDCBA98,
    "v_add_f64 v[0:1], 0.5, 0.5": 0x3FF0000000000000,
    "v_lshlrev_b64 v[0:1], 4, -1": (1 << 64) - 16,
    "v_lshl_add_u64 v[0:1], -1, 1, 1": (1 << 64) - 1,
}


@pytest.mark.parametrize("text", [*CONSTANTS, *CONSTANTS64])
def test_constants(text: str) -> None:
    texts = [*CONSTANTS, *CONSTANTS64]
    instruction = assemble_all(texts)[texts.index(text)]
    state = fresh_state(2)
    put(state, 2, [0x3F800000] * 128)
    execute(state, instruction)
    width = 64 if text in CONSTANTS64 else 32
    assert set(get(state, 0, width)) == {(CONSTANTS | CONSTANTS64)[text]}


def test_scalar_registers_are_one_value_per_wave() -> None:
    texts = [
        "v_add_u32 v0, s4, v2",
        "v_lshl_add_u64 v[4:5], s[6:7], 0, v[2:3]",
        "v_fma_f32 v6, s4, s4, v2",
        "v_fma_f64 v[8:9], s[6:7], 1.0, v[2:3]",
    ]
    state = fresh_state(3)
    put(state, 2, list(range(192)))
    state.sgpr[4] = [100, 200, 300]
    set_s64(state, 6, 1 << 40)
    execute(state, *assemble_all(texts))
    assert get(state, 0, 32) == [lane + 100 * (1 + lane // 64) for lane in range(192)]
    assert get(state, 4, 64) == [lane + (1 << 40) for lane in range(192)]
    scalar = [ref.fma(100 * w, 100 * w, lane, 32) for w in (1, 2, 3) for lane in range(64)]
    assert get(state, 6, 32) == scalar[:64] + [
        ref.fma(100 * (lane // 64 + 1), 100 * (lane // 64 + 1), lane, 32) for lane in range(64, 192)
    ]
    assert get(state, 8, 64) == [ref.add(1 << 40, lane, 64) for lane in range(192)]


def test_constants_and_scalars_are_sources_of_one_instruction() -> None:
    state = fresh_state(2)
    state.sgpr[4] = [0x3F800000, 0x40800000]  # 1.0, 4.0
    execute(state, *assemble_all(["v_max3_f32 v0, 2.0, 2.0, s4"]))
    assert state.vgpr[0, :, 0].tolist() == [0x40000000, 0x40800000]


@pytest.mark.parametrize("name", ["v_add_f32", "v_sub_f32", "v_mul_f32"])
def test_of_two_nans_the_first_is_returned_whatever_kind_of_operand_it_is(name: str) -> None:
    state = fresh_state(2)
    state.vgpr[2], state.sgpr[4] = 0x7FA00001, 0xFFA00002  # signalling
    execute(state, *assemble_all([f"{name}_e64 v0, s4, v2", f"{name}_e64 v1, v2, s4"]))
    assert (state.vgpr[0] == 0xFFE00002).all()
    assert (state.vgpr[1] == 0x7FE00001).all()


def test_special_sources() -> None:
    texts = [
        "v_mov_b32 v0, src_vccz",
        "v_mov_b32 v1, src_execz",
        "v_mov_b32 v2, src_scc",
        "v_mov_b64 v[4:5], src_shared_base",
        "v_mov_b64 v[6:7], src_private_base",
        "v_mov_b64 v[8:9], src_shared_limit",
    ]
    state = fresh_state(2)
    state.sgpr[VCC : VCC + 2] = 0
    state.sgpr[VCC, 1] = 1
    state.scc[:] = [True, False]
    execute(state, *assemble_all(texts))
    assert state.vgpr[0, :, 0].tolist() == [1, 0]
    assert state.vgpr[1, :, 0].tolist() == [0, 0]
    assert state.vgpr[2, :, 0].tolist() == [1, 0]
    assert set(get(state, 4, 64)) == {APERTURE_SHARED}
    assert set(get(state, 6, 64)) == {APERTURE_PRIVATE}
    assert set(get(state, 8, 64)) == {APERTURE_SHARED | M32}


def test_inactive_lanes_keep_their_values() -> None:
    texts = [
        "v_mov_b32 v0, 1",
        "v_lshl_add_u64 v[4:5], v[4:5], 0, 1",
        "v_fma_f32 v6, v6, 1.0, 1.0",
        "v_cvt_f16_f32 v8, 1.0",
    ]
    state = fresh_state(2)
    before = state.vgpr.copy()
    set_exec(state, [0x0F0F0F0F0F0F0F0F, 0])
    execute(state, *assemble_all(texts))
    off = np.array([[lane % 8 >= 4 for lane in range(64)], [True] * 64])
    assert (state.vgpr[:, off] == before[:, off]).all()
    assert (state.vgpr[0][~off] == 1).all()


def test_a_group_of_some_waves_leaves_the_others_alone() -> None:
    (instruction,) = assemble_all(["v_add_f32 v0, v2, v4"])
    state = fresh_state(4)
    before = state.vgpr.copy()
    step = bind(instruction, state.target)
    with np.errstate(all="ignore"):
        step(Group(state, np.array([0, 3]), 2))
        step(Group(state, slice(1, 2), 1))
    assert (state.vgpr[0, 2] == before[0, 2]).all()
    with np.errstate(all="ignore"):
        total = before[2].view(np.float32) + before[4].view(np.float32)
    same = (state.vgpr[0] == total.view(np.uint32)) | np.isnan(total)
    assert same[[0, 1, 3]].all()


# -- halves ----------------------------------------------------------------------------------------


def test_sixteen_bit_results_of_old_instructions_zero_the_other_half() -> None:
    texts = [
        "v_add_f16 v0, v2, v4",
        "v_cvt_f16_f32 v0, v2",
        "v_add_u16 v0, v2, v4",
        "v_mad_legacy_f16 v0, v2, v4, v2",
        "v_lshlrev_b16 v0, v2, v4",
    ]
    for instruction in assemble_all(texts):
        state = fresh_state(1)
        put(state, 0, [0xAAAAAAAA] * 64)
        execute(state, instruction)
        assert all(bits >> 16 == 0 for bits in get(state, 0, 32))


@pytest.mark.parametrize(
    "name", ["v_mad_f16", "v_fma_f16", "v_min3_u16", "v_med3_i16", "v_mad_u16"]
)
@pytest.mark.parametrize("opsel", [0b0000, 0b0101, 0b1000, 0b1111])
def test_op_sel_picks_halves_and_keeps_the_other(name: str, opsel: int) -> None:
    bits = ",".join(str(opsel >> i & 1) for i in range(4))
    texts = [f"{name} v0, v2, v4, v6 op_sel:[{bits}]", f"{name} v0, v2, v4, v6"]
    chosen, plain = assemble_all(texts)
    rows = columns([32, 32, 32], count=128)
    state = fresh_state(2)
    put(state, 0, [0x12345678] * 128)
    for i in range(3):
        put(state, 2 + 2 * i, [row[i] for row in rows])
    execute(state, chosen)
    got = get(state, 0, 32)
    for i in range(3):
        put(state, 2 + 2 * i, [row[i] >> 16 * (opsel >> i & 1) & M16 for row in rows])
    execute(state, plain)
    halves = [bits & M16 for bits in get(state, 0, 32)]
    high = opsel >> 3
    assert [bits >> 16 * high & M16 for bits in got] == halves
    assert {bits >> 16 * (1 - high) & M16 for bits in got} == {0x5678 if high else 0x1234}


# -- SDWA ------------------------------------------------------------------------------------------

SELECTORS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


def select(value: int, selector: str, extend: bool = False) -> int:
    if selector == "DWORD":
        return value
    width = 8 if "BYTE" in selector else 16
    part = value >> width * int(selector[-1]) & (1 << width) - 1
    return part | (M32 << width & M32 if extend and part >> width - 1 else 0)


SOURCE_TEXTS = {
    (first, second, extend): f"v_add_u32_sdwa v0, {'sext(v2)' if extend else 'v2'}, v4 "
    f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first} src1_sel:{second}"
    for first in SELECTORS
    for second in ("BYTE_3", "WORD_1", "DWORD")
    for extend in (False, True)
    if not (extend and first == "DWORD")
}


@pytest.mark.parametrize("key", SOURCE_TEXTS)
def test_sdwa_sources(key: tuple[str, str, bool]) -> None:
    first, second, extend = key
    instruction = assemble_all(SOURCE_TEXTS.values())[list(SOURCE_TEXTS).index(key)]
    rows = columns([32, 32], count=128)
    state = fresh_state(2)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, instruction)
    expected = [select(a, first, extend) + select(b, second) & M32 for a, b in rows]
    assert get(state, 0, 32) == expected


UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
RESULT_TEXTS = {
    (selector, unused): f"v_add_u32_sdwa v0, v2, v4 "
    f"dst_sel:{selector} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    for selector in SELECTORS
    for unused in UNUSED
}


@pytest.mark.parametrize("key", RESULT_TEXTS)
def test_sdwa_results(key: tuple[str, str]) -> None:
    selector, unused = key
    instruction = assemble_all(RESULT_TEXTS.values())[list(RESULT_TEXTS).index(key)]
    rows = columns([32, 32, 32], count=128)
    state = fresh_state(2)
    for register, i in ((0, 2), (2, 0), (4, 1)):
        put(state, register, [row[i] for row in rows])
    execute(state, instruction)

    def expected(a: int, b: int, old: int) -> int:
        total = a + b & M32
        if selector == "DWORD":
            return total
        width = 8 if "BYTE" in selector else 16
        low, field = width * int(selector[-1]), (1 << width) - 1
        part = total & field
        if unused == "UNUSED_PRESERVE":
            return old & ~(field << low) | part << low
        sign = part >> width - 1 and unused == "UNUSED_SEXT"
        return part << low | (M32 << low + width & M32 if sign else 0)

    assert get(state, 0, 32) == [expected(*row) for row in rows]


def test_sdwa_of_floats_scalars_and_comparisons() -> None:
    words, whole = "src0_sel:WORD_1 src1_sel:WORD_0", "dst_sel:DWORD dst_unused:UNUSED_PAD"
    texts = [
        f"v_add_f16_sdwa v0, -v2, |v4| dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE {words}",
        f"v_add_u32_sdwa v1, s4, v2 {whole} src0_sel:BYTE_1 src1_sel:DWORD",
        f"v_cmp_eq_u32_sdwa s[6:7], v2, v4 {words}",
        f"v_cvt_f32_ubyte0_sdwa v8, v2 {whole} src0_sel:BYTE_3",
    ]
    state = fresh_state(1)
    two, three = ref.bits_of(2.0, 16), ref.bits_of(3.0, 16)
    put(state, 0, [0xABCD] * 64)
    put(state, 2, [two << 16] * 64)
    put(state, 4, [three | 0x8000] * 32 + [two] * 32)
    state.sgpr[4] = 0x1234
    execute(state, *assemble_all(texts))
    one, zero = ref.bits_of(1.0, 16), 0
    assert get(state, 0, 32) == [one << 16 | 0xABCD] * 32 + [zero << 16 | 0xABCD] * 32
    assert state.vgpr[1, 0].tolist() == [0x12 + (two << 16)] * 64
    assert state.sgpr[6:8, 0].tolist() == [0, M32]
    assert set(get(state, 8, 32)) == {ref.bits_of(float(two >> 8), 32)}


# -- relative indexing -----------------------------------------------------------------------------


def test_relative_indexing_adds_m0_per_wave() -> None:
    # M0: the index in the low byte, what it applies to (src0 1, src1 2, src2 4, dst 8) above.
    (instruction,) = assemble_all(["v_add3_u32 v0, v2, v3, v4"])
    for kinds in range(16):
        state = fresh_state(3)
        state.mode |= 1 << 27
        state.sgpr[M0] = [kinds << 12 | index for index in (0, 10, 20)]
        before = state.vgpr.copy()
        execute(state, instruction)
        for wave, index in enumerate((0, 10, 20)):
            a, b, c = (before[2 + i + index * (kinds >> i & 1), wave] for i in range(3))
            target = index * (kinds >> 3)
            assert (state.vgpr[target, wave] == a + b + c).all()
            changed = (state.vgpr[:, wave] != before[:, wave]).any(axis=1)
            assert np.flatnonzero(changed).tolist() == [target]


def test_an_index_past_the_registers_is_a_fault() -> None:
    (instruction,) = assemble_all(["v_mov_b32 v0, v250"])
    state = fresh_state(1)
    state.mode |= 1 << 27
    state.sgpr[M0] = 1 << 12 | 6
    with pytest.raises(Fault, match="v250 plus the index 6 of M0 reaches v256"):
        execute(state, instruction)


def test_a_write_of_exec_is_seen_by_the_indexed_group() -> None:
    (compare,) = assemble_all(["v_cmpx_eq_u32 vcc, v2, v2"])
    state = fresh_state(2)
    set_exec(state, 0xFF)
    state.mode |= 1 << 27
    state.sgpr[M0] = [0, 1]
    group = Group(state, slice(0, 2), 2)
    bind(compare, state.target)(group)
    assert state.sgpr[EXEC].tolist() == [0xFF, 0xFF]
    assert group.mask.sum() == 16


def test_an_operand_that_is_no_source_is_refused() -> None:
    (instruction,) = assemble_all(["v_mov_b32 v0, src_scc"])
    (source,) = instruction.src
    broken = replace(instruction, src=(replace(source, index=254),))
    with pytest.raises(UnsupportedInstruction, match="254"):
        bind(broken, fresh_state(1).target)
