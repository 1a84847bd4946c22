"""Registers that nothing has written: tracked to their uses; moves are not uses."""

from __future__ import annotations

import pytest

from cupygemm.emulator.errors import KernelFault
from tests.emulator.hazards.test_scoreboard import ADDRESS, POINTERS, execute

STORE = (
    POINTERS + "v_lshlrev_b32 v40, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v40, {}, s[4:5]"
)


def stored(register: str) -> str:
    """Return assembly that stores a vector register."""
    return "\n" + STORE.format(register)


def stored_scalar(register: str) -> str:
    """Return assembly that stores a scalar register."""
    return f"\nv_mov_b32 v41, {register}" + stored("v41")


# Body, and the register and the instruction that the report names.
USED = {
    "stored": ("" + stored("v9"), "v9", "global_store_dword"),
    "a sum": ("v_add_u32 v2, v0, v9" + stored("v2"), "v9", "global_store_dword"),
    "a sum in the vector register of EXEC's number": (
        "v_add_u32 v126, v0, v9" + stored("v126"),
        "v9",
        "global_store_dword",
    ),
    "a product of floats": ("v_mul_f32 v2, v0, v9" + stored("v2"), "v9", "global_store_dword"),
    "a scalar sum": ("s_add_u32 s8, s20, 1" + stored_scalar("s8"), "s20", "global_store_dword"),
    "a selection": (
        "v_mov_b32 v3, 1\nv_cndmask_b32 v2, v0, v3, vcc" + stored("v2"),
        "vcc_lo",
        "global_store",
    ),
    "the mask of a selection": (
        "v_mov_b32 v3, 1\nv_cndmask_b32 v2, v0, v3, s[20:21]" + stored("v2"),
        "s20",
        "global_sto",
    ),
    "a copy of a copy": (
        "v_mov_b32 v3, v9\nv_add_u32 v4, v3, v3" + stored("v4"),
        "v9",
        "global_store",
    ),
    "accumulator": (
        "v_mov_b32 v2, 0\ns_nop 1\nv_mfma_f32_16x16x4_f32 a[0:3], v2, v2, a[0:3]\ns_nop 15\n"
        "v_accvgpr_read_b32 v2, a1" + stored("v2"),
        "a0",
        "global_store",
    ),
    "a matrix": (
        "v_mov_b32 v2, 0\ns_nop 1\nv_mfma_f32_16x16x4_f32 a[0:3], v2, v9, 0\ns_nop 15\n"
        "v_accvgpr_read_b32 v2, a1" + stored("v2"),
        "v9",
        "global_store",
    ),
    "address": (
        POINTERS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v3, v5, s[4:5]",
        "v5",
        "global_load",
    ),
    "a branch": ("s_cmp_eq_u32 s20, 1\ns_cbranch_scc1 there\nthere:", "s20", "s_cbranch_scc1"),
    "a branch on lanes": (
        "v_cmp_eq_u32 vcc, v0, v9\ns_cbranch_vccz there\nthere:",
        "v9",
        "s_cbranch_vccz",
    ),
    "a mask of nothing": (
        "s_or_b64 s[8:9], s[20:21], s[0:1]\ns_and_saveexec_b64 s[10:11], s[8:9]",
        "s20",
        "s_and_saveexec_b64",
    ),
    "EXEC": ("s_and_b64 exec, exec, s[20:21]", "s20", "s_and_b64"),
    "EXEC by a comparison": ("v_cmpx_eq_u32 vcc, v0, v9", "v9", "v_cmpx_eq_u32"),
    "an LDS address": ("ds_write_b32 v5, v0", "v5", "ds_write_b32"),
    "an LDS atomic": (ADDRESS + "ds_write_b32 v1, v0\nds_add_u32 v1, v5", "v5", "ds_add_u32"),
    "a global atomic": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_atomic_add v1, v5, s[4:5]",
        "v5",
        "global_atomic_add",
    ),
    "what a mask leaves of nothing": (
        "v_and_b32 v2, 0xffff, v9\nv_lshlrev_b32 v3, 8, v2\nv_add_u32 v4, v3, v3" + stored("v4"),
        "v9",
        "global_store",
    ),
    "the half that was not written": (
        "v_or_b32 v2, 0xffff0000, v9\nv_cmp_eq_u16 vcc, v2, v0\ns_cbranch_vccz there\nthere:",
        "v9",
        "s_cbranch_vccz",
    ),
    "the same half by SDWA": (
        "v_or_b32 v2, 0xffff0000, v9\nv_add_u32_sdwa v3, v2, v0 src0_sel:WORD_0" + stored("v3"),
        "v9",
        "global_store",
    ),
    "moved into the other register": (
        "v_mov_b32 v5, 0\nv_lshlrev_b64 v[6:7], 24, v[4:5]\nv_add_u32 v8, v7, v7" + stored("v8"),
        "v4",
        "global_store",
    ),
    "how far to shift": ("v_lshlrev_b32 v2, v9, v0" + stored("v2"), "v9", "global_store"),
    "a half, stored": (
        POINTERS + ADDRESS + "v_or_b32 v2, 0xffff0000, v9\ns_waitcnt lgkmcnt(0)\n"
        "global_store_short v1, v2, s[4:5]",
        "v9",
        "global_store_short",
    ),
    "second of a pair": (
        "v_mov_b32 v4, 0\nv_add_f64 v[6:7], v[4:5], v[4:5]" + stored("v6"),
        "v5",
        "global_store",
    ),
    "the high half of a sum": (
        "v_mov_b32 v2, 0\nv_mad_u64_u32 v[4:5], s[8:9], v0, v0, v[2:3]\nv_add_u32 v6, v5, v5"
        + stored("v6"),
        "v3",
        "global_store",
    ),
    "through another lane": (
        ADDRESS + "ds_bpermute_b32 v2, v1, v9\ns_waitcnt lgkmcnt(0)" + stored("v2"),
        "v9",
        "global_store",
    ),
    "through a neighbour": (
        "v_mov_b32 v2, 0\ns_nop 1\nv_mov_b32_dpp v2, v9 row_shr:1 row_mask:0xf bank_mask:0xf"
        + stored("v2"),
        "v9",
        "global_store",
    ),
    "through a scalar": (
        "v_readlane_b32 s20, v9, 3\ns_nop 1" + stored_scalar("s20"),
        "v9",
        "global_store",
    ),
    "through LDS": (
        ADDRESS + "ds_write_b32 v1, v9\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + stored("v2"),
        "v9",
        "global_store",
    ),
}


@pytest.mark.parametrize("case", USED)
def test_use(case: str) -> None:
    body, register, instruction = USED[case]
    with pytest.raises(KernelFault) as caught:
        execute(body, lds=512)
    fault = caught.value
    assert fault.kind == "uninitialised register"
    assert fault.instruction.startswith(instruction)
    names = fault.detail.replace(",", "").split()
    assert register in names
    assert "which nothing has written" in fault.detail or "nothing has written it" in fault.detail


def test_one_wave_of_several() -> None:
    """Only wave 2 skips the instruction that writes v2, and only it is blamed."""
    body = """
    v_readfirstlane_b32 s8, v0
    s_cmp_eq_u32 s8, 0x80
    s_cbranch_scc1 skip
    v_mov_b32 v2, 0
    skip:
    v_add_u32 v3, v2, v2
    """
    with pytest.raises(KernelFault) as caught:
        execute(body + stored("v3"), waves=4)
    assert caught.value.wave == 2


def test_lanes_of_a_mask() -> None:
    """A comparison makes only the lanes in EXEC undefined."""
    body = "s_mov_b64 exec, 0x70\nv_cmp_eq_u32 vcc, v0, v9\ns_nop 1\ns_and_b64 exec, exec, vcc"
    with pytest.raises(KernelFault) as caught:
        execute(body)
    assert caught.value.lanes == (4, 5, 6)
    assert "lanes 4-6" in str(caught.value)


UNUSED = {
    "nothing at all": "v_add_u32 v2, v0, v9\nv_mul_f32 v3, v2, v2\ns_add_u32 s8, s20, 1",
    "written anew in the vector register of EXEC's number": ADDRESS
    + "ds_read_b32 v126, v1\ns_waitcnt lgkmcnt(0)\nv_add_u32 v126, 4, v1\nds_read_b32 v2, v126",
    "lanes that are switched off": "v_mul_f32 v2, v0, v9\nv_cmp_gt_u32 vcc, 32, v0\n"
    "s_nop 1\nv_cndmask_b32 v2, v2, v0, vcc\ns_mov_b64 exec, 63" + stored("v2"),
    "a mask that is cut": "v_cmp_eq_u32 s[8:9], v0, v9\nv_cmp_gt_u32 vcc, 0, v0\n"
    "s_and_b64 vcc, vcc, s[8:9]\ns_nop 1\ns_and_saveexec_b64 s[10:11], vcc",
    "the other rows of a matrix": "v_mov_b32 v2, 0\nv_and_b32 v3, 15, v0\n"
    "v_cmp_lt_u32 vcc, 3, v3\nv_mov_b32 v8, 0\ns_nop 0\nv_cndmask_b32 v2, v8, v9, vcc\ns_nop 1\n"
    "v_mfma_f32_16x16x4_f32 v[4:7], v2, v8, 0\ns_nop 15\ns_mov_b64 exec, 0xffff" + stored("v4"),
    "an order that the high word decides": "v_mov_b32 v5, 7\nv_mov_b32 v6, 0\nv_mov_b32 v7, 8\n"
    "v_cmp_lt_u64 vcc, v[4:5], v[6:7]\ns_cbranch_vccz there\nthere:",
    "a difference that is known": "v_or_b32 v2, 0x100, v9\nv_mov_b32 v3, 1\n"
    "v_cmp_eq_u32 vcc, v2, v3\ns_cbranch_vccz there\nthere:",
    "a lane that is not read": ADDRESS + "v_writelane_b32 v9, 7, 5\ns_nop 3\n"
    "v_readlane_b32 s20, v9, 5\ns_nop 1" + stored_scalar("s20"),
    "overwritten in LDS": ADDRESS + "ds_write_b32 v1, v9\nds_write_b32 v1, v0\n"
    "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + stored("v2"),
    "bytes that a permutation drops": "v_lshl_or_b32 v2, v9, 16, 1\nv_mov_b32 v3, 0\n"
    "s_mov_b32 s8, 0x05040100\nv_perm_b32 v2, v2, v2, s8\n"
    "v_and_b32 v2, 0xffff, v2" + stored("v2"),
    "the high half of a product's addend": "v_mov_b32 v2, 0\n"
    "v_mad_u64_u32 v[4:5], s[8:9], v0, v0, v[2:3]\nv_add_u32 v6, v4, v4",
    "lane masks merged": "s_andn2_b64 s[8:9], s[20:21], exec\n"
    "s_or_b64 s[8:9], s[8:9], exec\ns_and_saveexec_b64 s[10:11], s[8:9]",
    "an unused field of a structure": ADDRESS + "v_mov_b32 v4, 0\nv_lshlrev_b32 v1, 1, v1\n"
    "ds_write_b64 v1, v[4:5]",
    "selected away": "v_cmp_eq_u32 vcc, v0, v0\ns_nop 1\nv_cndmask_b32 v2, v9, v0, vcc\n"
    "v_add_u32 v3, v2, v2",
    "the half that was written": "v_or_b32 v2, 0xffff0000, v9\nv_lshrrev_b32 v3, 16, v2\n"
    "v_add_u32 v4, v3, v3\nv_and_b32 v3, 0xffff0000, v2\nv_add_u32 v4, v3, v3\n"
    "v_add_u32_sdwa v3, v2, v0 src0_sel:WORD_1",
    "a half beside nothing": "v_lshl_or_b32 v2, v9, 16, 1\nv_cmp_eq_u16 vcc, v2, v0",
    "a half beside nothing, stored": POINTERS + ADDRESS + "v_lshl_or_b32 v2, v9, 16, 1\n"
    "s_waitcnt lgkmcnt(0)\nglobal_store_short v1, v2, s[4:5]",
    "shifted out of a pair": "v_mov_b32 v5, 0\nv_or_b32 v4, 0xffff0000, v9\n"
    "v_lshrrev_b64 v[6:7], 16, v[4:5]\nv_cmp_eq_u64 vcc, v[6:7], v[6:7]",
    "a mask in a register": "s_mov_b32 s8, 0xff00\nv_and_b32 v2, s8, v9\nv_and_b32 v2, 0xff, v2\n"
    "v_add_u32 v3, v2, v2",
    "saved before it was written": "v_writelane_b32 v5, s40, 0\ns_nop 0\nv_readlane_b32 s40, v5, 0",
}


@pytest.mark.parametrize("case", UNUSED)
def test_no_use(case: str) -> None:
    execute(UNUSED[case], lds=512)


@pytest.mark.parametrize(("write", "register"), [("v_mov_b32", "v9"), ("s_mov_b32", "s20")])
def test_the_next_workgroups_in_the_same_arrays_start_undefined(write: str, register: str) -> None:
    """Workgroups run in batches of 1024 waves, which share their arrays one after another."""
    store = stored("v9") if register == "v9" else stored_scalar(register)
    body = f"s_cmp_lt_u32 s2, 2048\ns_cbranch_scc0 there\n{write} {register}, 1\nthere:\n{store}"
    execute(body, grid=2048)
    with pytest.raises(KernelFault) as caught:
        execute(body, grid=2049)
    assert caught.value.workgroup == (2048, 0, 0)
    assert register in caught.value.detail
