"""Undefined bits through single instructions: exactly the bits that can change are marked.

Each instruction runs on random registers with random undefined bits, then many times with other
values of these bits. A result bit that differs but is not marked is a mistake that would hide a
fault. For bit operations, a marked bit that never differs would cause a false report.
"""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm.emulator.definedness.uses import follow
from cupygemm.emulator.isa.instruction import EXEC, Instruction
from cupygemm.emulator.waves.marks import SCC, marks_of
from cupygemm.emulator.waves.state import Group, State
from tests.emulator.harness import assemble_all, make_state, run, set_exec

VECTOR = """
v_mov_b32 v20, v4
v_mov_b32_dpp v20, v4 row_shr:3 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v20, v4 quad_perm:[1,0,3,2] row_mask:0x5 bank_mask:0xf bound_ctrl:0
v_and_b32 v20, v4, v5
v_or_b32 v20, 0xff00, v5
v_xor_b32 v20, v4, v5
v_not_b32 v20, v4
v_and_or_b32 v20, v4, v5, v6
v_or3_b32 v20, v4, v5, v6
v_bfi_b32 v20, v4, v5, v6
v_bfe_u32 v20, v4, 5, 11
v_bfe_i32 v20, v4, 5, 11
v_alignbit_b32 v20, v4, v5, 13
v_alignbyte_b32 v20, v4, v5, 3
v_bfrev_b32 v20, v4
v_lshlrev_b32 v20, 7, v4
v_ashrrev_i32 v20, 9, v4
v_lshrrev_b64 v[20:21], 19, v[4:5]
v_lshl_or_b32 v20, v4, 8, v5
v_pack_b32_f16 v20, v4, v5
v_cndmask_b32 v20, v4, v5, vcc
v_perm_b32 v20, v4, v5, s8
v_swap_b32 v20, v4
v_or_b32_sdwa v20, v4, v5 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_1
v_pk_mov_b32 v[20:21], v[4:5], v[6:7] op_sel:[1,0]
v_readlane_b32 s20, v4, 17
v_writelane_b32 v20, s9, 17
v_accvgpr_write_b32 a20, v4
""".strip().splitlines()
COMPUTING = """
v_add_u32 v20, v4, v5
v_sub_u32 v20, v4, v5
v_add3_u32 v20, v4, v5, v6
v_mul_lo_u32 v20, v4, v5
v_mul_u32_u24 v20, v4, v5
v_mad_u32_u24 v20, v4, v5, v6
v_lshl_add_u32 v20, v4, 3, v5
v_lshl_add_u64 v[20:21], v[4:5], 3, v[6:7]
v_add_lshl_u32 v20, v4, v5, 4
v_mad_u64_u32 v[20:21], s[20:21], v4, v5, v[6:7]
v_add_co_u32 v20, vcc, v4, v5
v_addc_co_u32 v20, vcc, v4, v5, vcc
v_lshlrev_b32 v20, v4, v5
v_mul_f32 v20, v4, v5
v_fma_f64 v[20:21], v[4:5], v[6:7], v[8:9]
v_cvt_f32_ubyte2 v20, v4
v_cvt_f16_f32 v20, v4
v_max_i32 v20, v4, v5
v_cvt_pk_fp8_f32 v20, v4, v5 op_sel:[0,0,1]
v_pk_add_f16 v20, v4, v5 op_sel:[1,0] op_sel_hi:[0,1]
v_pk_mul_f32 v[20:21], v[4:5], v[6:7]
v_add_u16 v20, v4, v5
v_add_u32_sdwa v20, v4, v5 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_3
v_cmp_lt_u32 vcc, v4, v5
v_cmp_ge_i64 s[20:21], v[4:5], v[6:7]
v_cmp_eq_u32 vcc, v4, v5
v_cmp_lt_f32 vcc, v4, v5
v_mbcnt_lo_u32_b32 v20, v4, v5
v_dot4_i32_i8 v20, v4, v5, v6
v_sad_u8 v20, v4, v5, v6
""".strip().splitlines()
SCALAR = """
s_mov_b64 s[20:21], s[4:5]
s_not_b32 s20, s4
s_and_b64 s[20:21], s[4:5], s[6:7]
s_andn2_b64 s[20:21], s[4:5], exec
s_orn2_b64 s[20:21], s[4:5], s[6:7]
s_xnor_b32 s20, s4, s5
s_cselect_b32 s20, s4, s5
s_lshl_b64 s[20:21], s[4:5], 13
s_ashr_i32 s20, s4, 3
s_bfe_u32 s20, s4, 0x80005
s_pack_lh_b32_b16 s20, s4, s5
s_brev_b32 s20, s4
s_sext_i32_i8 s20, s4
s_add_u32 s20, s4, s5
s_addc_u32 s20, s4, s5
s_mul_i32 s20, s4, s5
s_mul_hi_u32 s20, s4, s5
s_lshl2_add_u32 s20, s4, s5
s_bcnt1_i32_b64 s20, s[4:5]
s_cmp_lt_u32 s4, s5
s_cmp_ge_i32 s4, s5
s_cmp_eq_u32 s4, s5
s_bitcmp1_b32 s4, 5
s_max_u32 s20, s4, s5
""".strip().splitlines()
MATRIX = """
v_mfma_f32_32x32x8_f16 v[64:79], v[4:5], v[6:7], v[80:95]
v_mfma_f32_4x4x4_16b_f16 v[64:67], v[4:5], v[6:7], v[80:83] cbsz:2 abid:1 blgp:3
v_mfma_f64_16x16x4_f64 v[64:71], v[4:5], v[6:7], v[80:87]
v_mfma_i32_16x16x32_i8 v[64:67], v[4:5], v[6:7], v[80:83]
v_mfma_f32_16x16x32_fp8_bf8 v[64:67], v[4:5], v[6:7], 0
v_smfmac_f32_16x16x32_f16 v[64:67], v[4:5], v[6:9], v10
""".strip().splitlines()
TRIALS = 64


def undefined_state(rng: np.random.Generator, *, dense: bool) -> State:
    """Return a state in which bits of v4-v9, v20-v21, s4-s9 and vcc are undefined."""
    state = make_state(waves=2, seed=int(rng.integers(1 << 30)))
    set_exec(state, [(1 << 64) - 1, 0x00FF_F00F_1234_FFFF])
    state.sgpr[8] = 0x070C0104  # a selector, with a constant byte
    marks = marks_of(state)
    for register in (4, 5, 6, 7, 8, 9, 20, 21):
        bits = rng.integers(0, 1 << 32, (2, 64), np.uint32)
        if not dense:
            bits &= rng.integers(0, 1 << 32, (2, 64), np.uint32)
            bits &= rng.integers(0, 1 << 32, (2, 64), np.uint32)
        marks.undefined[register] = np.where(rng.random((2, 64)) < 0.5, bits, 0)
        marks.settle(register, marked=True)
    for register in (4, 5, 6, 7, 9, 106, 107):
        bits = rng.integers(0, 1 << 32, 2, np.uint32) & rng.integers(0, 1 << 32, 2, np.uint32)
        marks.undefined_scalar[register] = bits
        marks.settle_scalar(register)
    return state


def results(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return copies of all registers and SCC."""
    return state.vgpr.copy(), state.sgpr.copy(), state.scc.copy()


def changes(
    state: State, inst: Instruction, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which register bits depend on undefined ones, as found by trials."""
    vgpr, sgpr, scc = results(state)
    unsure, unsure_s = (
        marks_of(state).undefined.copy(),
        marks_of(state).undefined_scalar.copy()[:128],
    )
    outcomes = []
    for _ in range(TRIALS):
        noise = rng.integers(0, 1 << 32, (32, *vgpr.shape[1:]), np.uint32)
        state.vgpr[:] = vgpr
        state.vgpr[:32] ^= unsure[:32] & noise
        state.sgpr[:] = sgpr ^ (unsure_s & rng.integers(0, 1 << 32, sgpr.shape, np.uint32))
        state.scc[:] = scc
        with np.errstate(all="ignore"):
            run(state, inst)
        outcomes.append(results(state))
    first = outcomes[0]
    return tuple(  # type: ignore[return-value]
        np.bitwise_or.reduce([outcome[i] ^ first[i] for outcome in outcomes]) for i in range(3)
    )


def written(inst: Instruction, file: str) -> list[int]:
    """Return the registers that an instruction writes."""
    return [
        register
        for op in inst.dst
        if op.kind == file
        for register in range(op.index, op.index + op.count)
        if not (file == "s" and register >= EXEC)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["moving", "computing", "scalar"])
def test_what_can_change_is_marked(family: str) -> None:
    lines = {"moving": VECTOR, "computing": COMPUTING, "scalar": SCALAR}[family]
    rng = np.random.default_rng(5)
    for text, inst in zip(lines, assemble_all(lines), strict=True):
        for dense in (True, False):
            state = undefined_state(rng, dense=dense)
            vector, scalar, scc = changes(state, inst, rng)
            group = Group(state, slice(0, 2), 2)
            follow(marks_of(state), group, inst)
            marks = marks_of(state)
            for register in written(inst, "v"):
                missed = vector[register] & ~marks.undefined[register]
                assert not missed.any(), f"{text}: v{register}"
                if family == "moving" and not text.startswith("v_cndmask"):
                    kept = np.where(group.mask, vector[register], marks.undefined[register])
                    kept = marks.undefined[register] & ~kept
                    assert not (kept & np.where(group.mask, 0xFFFFFFFF, 0)).any(), text
            for register in written(inst, "s"):
                assert not (scalar[register] & ~marks.undefined_scalar[register]).any(), text
            assert not (scc & (marks.undefined_scalar[SCC] == 0)).any(), text


@pytest.mark.parametrize("text", MATRIX)
def test_elements_of_a_matrix_product(text: str) -> None:
    """Small integers differ in every element that an undefined operand contributes to."""
    (inst,) = assemble_all([text])
    rng = np.random.default_rng(7)
    state = make_state(waves=2)
    integer = "_i8" in text
    one = 0x01010101 if integer else 0x3C003C00 if "f16" in text else 0x38383838
    halves = (0x3FF00000, 0) if "f64" in text else (one, one)
    for register in range(4, 10):
        state.vgpr[register] = halves[(register + 1) % 2]
    marks = marks_of(state)
    lanes = {4: [5, 40], 6: [17]}  # of A, of B
    for register, which in lanes.items():
        for place in (0, 1):
            marks.undefined[register + place, 1, which] = 0xFFFFFFFF
            marks.settle(register + place, marked=True)
    before = state.vgpr.copy()
    run(state, inst)
    plain = state.vgpr.copy()
    changed = np.zeros_like(plain[64:96])
    for _ in range(4):
        state.vgpr[:] = before
        for register, which in lanes.items():
            top = register + 1 if "f64" in text else register
            for lane in which:
                state.vgpr[top, 1, lane] = (
                    0x40000000 + (int(rng.integers(8)) << 18)
                    if "f64" in text
                    else 0x0
                    if rng.integers(2)
                    else 2 * one & 0x7F7F7F7F
                )
        run(state, inst)
        changed |= state.vgpr[64:96] ^ plain[64:96]
    state.vgpr[:] = before
    follow(marks, Group(state, slice(0, 2), 2), inst)
    found = marks.undefined[64:96] != 0
    assert not found[:, 0].any()
    if "f64" in text:
        found, changed = found[0::2], changed[0::2] | changed[1::2]
    np.testing.assert_array_equal(found, changed != 0)
