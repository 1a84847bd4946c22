"""Registers read too early: every counter, every register file, and no false alarms."""

from __future__ import annotations

import struct

import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

POINTERS = "s_load_dwordx4 s[4:7], s[0:1], 0x0\n"
ADDRESS = "v_lshlrev_b32 v1, 2, v0\n"


def execute(body: str, *, waves: int = 1, lds: int = 0) -> None:
    """Run a kernel with two 4 KiB buffers."""
    memory = Memory()
    kernel = load_kernel(body + "\ns_endpgm", memory, arguments=[8, 8], lds=lds)
    buffers = [memory.malloc(4096) for _ in range(2)]
    for address in buffers:
        memory.view(address, 4096)[:] = 0
    arguments = struct.pack("<QQ", *buffers)
    launch(kernel, (1, 1, 1), (64 * waves, 1, 1), 0, arguments, memory, TARGETS["gfx942"])


TOO_EARLY = {
    "scalar load": (POINTERS + "s_mov_b32 s8, s5", "s5", "lgkmcnt(0)"),
    "scalar loads return in any order": (
        POINTERS + "s_load_dword s8, s[0:1], 0x0\ns_waitcnt lgkmcnt(1)\ns_mov_b32 s9, s4",
        "s4",
        "lgkmcnt(0)",
    ),
    "global load": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
        "v_add_u32 v3, v2, v2",
        "v2",
        "vmcnt",
    ),
    "wait for too few": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
        "global_load_dword v3, v1, s[6:7]\ns_waitcnt vmcnt(1)\nv_add_u32 v4, v2, v3",
        "v3",
        "vmcnt",
    ),
    "last register of a wide load": (
        POINTERS + "v_lshlrev_b32 v1, 4, v0\ns_waitcnt lgkmcnt(0)\n"
        "global_load_dwordx4 v[4:7], v1, s[4:5]\nv_mov_b32 v8, v7",
        "v7",
        "vmcnt",
    ),
    "stored before it arrives": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
        "global_store_dword v1, v2, s[6:7]",
        "v2",
        "vmcnt",
    ),
    "used as an address": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
        "global_load_dword v3, v2, s[6:7]",
        "v2",
        "vmcnt",
    ),
    "LDS read": (
        ADDRESS + "v_mov_b32 v2, 0\nds_write_b32 v1, v2\nds_read_b32 v3, v1\nv_mov_b32 v4, v3",
        "v3",
        "lgkmcnt",
    ),
    "LDS waits for too few": (
        ADDRESS + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\nds_read_b32 v4, v1\n"
        "s_waitcnt lgkmcnt(1)\nv_mov_b32 v5, v4",
        "v4",
        "lgkmcnt",
    ),
    "vmcnt does not cover LDS": (
        ADDRESS + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\ns_waitcnt vmcnt(0)\nv_mov_b32 v5, v3",
        "v3",
        "lgkmcnt",
    ),
    "accumulator register": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword a3, v1, s[4:5]\n"
        "v_accvgpr_read_b32 v2, a3",
        "a3",
        "vmcnt",
    ),
    "MFMA operand": (
        POINTERS + "v_lshlrev_b32 v1, 3, v0\ns_waitcnt lgkmcnt(0)\n"
        "global_load_dwordx2 v[4:5], v1, s[4:5]\n"
        "v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[4:5], 0",
        "v4",
        "vmcnt",
    ),
    "flat needs both counters": (
        POINTERS + "s_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s4\nv_mov_b32 v3, s5\n"
        "flat_load_dword v4, v[2:3]\ns_waitcnt vmcnt(0)\nv_mov_b32 v5, v4",
        "v4",
        "vmcnt(0) lgkmcnt(0)",
    ),
}


@pytest.mark.parametrize("case", TOO_EARLY)
def test_read_before_wait(case: str) -> None:
    body, register, wait = TOO_EARLY[case]
    with pytest.raises(KernelFault) as caught:
        execute(body, lds=256)
    fault = caught.value
    assert fault.kind == "read before wait"
    assert fault.detail.startswith(f"{register} is read")
    assert wait in fault.detail
    assert (fault.workgroup, fault.wave) == ((0, 0, 0), 0)


def test_overwritten_before_it_arrives() -> None:
    body = POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
    with pytest.raises(KernelFault, match="v2 is overwritten while its load is in flight"):
        execute(body + "v_mov_b32 v2, 0")


UNINITIALISED = {
    "vector": ("v_add_u32 v2, v0, v9", "v9"),
    "scalar": ("s_add_u32 s8, s20, 1", "s20"),
    "vcc": ("v_cndmask_b32 v2, v0, v0, vcc", "vcc_lo"),
    "a copy of nothing": ("v_mov_b32 v3, v9\nv_add_u32 v4, v3, v3", "v3"),
    "accumulator": ("v_mfma_f32_16x16x4_f32 a[0:3], v0, v0, a[0:3]", "a0"),
    "address": (POINTERS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v3, v5, s[4:5]", "v5"),
    "stored": (
        POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v5, s[4:5]",
        "v5",
    ),
    "a mask of nothing": (
        "s_or_b64 s[8:9], s[20:21], s[0:1]\ns_and_saveexec_b64 s[10:11], s[8:9]",
        "s8",
    ),
    "EXEC": ("s_and_b64 exec, exec, s[20:21]", "s20"),
    "the mask of a selection": ("v_cndmask_b32 v2, v0, v0, s[20:21]", "s20"),
    "an LDS address": ("ds_write_b32 v5, v0", "v5"),
    "what a mask leaves of nothing": (
        "v_and_b32 v2, 0xffff, v9\nv_lshlrev_b32 v3, 8, v2\nv_add_u32 v4, v3, v3",
        "v3",
    ),
    "the half that was not written": (
        "v_or_b32 v2, 0xffff0000, v9\nv_cmp_eq_u16 vcc, v2, v0",
        "v2",
    ),
    "the same half by SDWA": (
        "v_or_b32 v2, 0xffff0000, v9\nv_add_u32_sdwa v3, v2, v0 src0_sel:WORD_0",
        "v2",
    ),
    "moved into the other register": (
        "v_mov_b32 v5, 0\nv_lshlrev_b64 v[6:7], 24, v[4:5]\nv_add_u32 v8, v7, v7",
        "v7",
    ),
    "how far to shift": ("v_lshlrev_b32 v2, v9, v0", "v9"),
    "a half, stored": (
        POINTERS + ADDRESS + "v_or_b32 v2, 0xffff0000, v9\ns_waitcnt lgkmcnt(0)\n"
        "global_store_short v1, v2, s[4:5]",
        "v2",
    ),
    "second of a pair": ("v_mov_b32 v4, 0\nv_add_f64 v[6:7], v[4:5], v[4:5]", "v5"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNINITIALISED)
def test_uninitialised_register(case: str) -> None:
    body, register = UNINITIALISED[case]
    with pytest.raises(KernelFault) as caught:
        execute(body, lds=256)
    assert caught.value.kind == "uninitialised register"
    assert caught.value.detail.startswith(f"{register} is read")


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
        execute(body, waves=4)
    assert caught.value.wave == 2


CORRECT = {
    "waits that cover": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\n"
    "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[6:7]\ns_waitcnt vmcnt(1)\n"
    "v_add_u32 v4, v2, v2\ns_waitcnt vmcnt(0)\nv_add_u32 v4, v2, v3",
    "stores count": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
    "global_store_dword v1, v1, s[6:7]\ns_waitcnt vmcnt(1)\nv_add_u32 v4, v2, v2",
    "the younger load wins": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\n"
    "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v2, v1, s[6:7]\ns_waitcnt vmcnt(0)\n"
    "v_add_u32 v4, v2, v2",
    "LDS waits beside scalar loads": ADDRESS + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\n"
    + POINTERS + "s_waitcnt lgkmcnt(0)\nv_add_u32 v4, v3, s4",
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
}  # fmt: skip


@pytest.mark.parametrize("case", CORRECT)
def test_no_false_alarm(case: str) -> None:
    execute(CORRECT[case], lds=512)


def test_tainted_half_is_found_when_used() -> None:
    body = "v_mov_b32 v2, 0\nv_mad_u64_u32 v[4:5], s[8:9], v0, v0, v[2:3]\nv_add_u32 v6, v5, v5"
    with pytest.raises(KernelFault, match="v5 is read and nothing has written it"):
        execute(body)
