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


def execute(body: str, *, waves: int = 1, lds: int = 0, grid: int = 1) -> None:
    """Run a kernel with two 4 KiB buffers."""
    memory = Memory()
    kernel = load_kernel(body + "\ns_endpgm", memory, arguments=[8, 8], lds=lds)
    buffers = [memory.malloc(4096) for _ in range(2)]
    for address in buffers:
        memory.view(address, 4096)[:] = 0
    arguments = struct.pack("<QQ", *buffers)
    launch(kernel, (grid, 1, 1), (64 * waves, 1, 1), 0, arguments, memory, TARGETS["gfx942"])


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
    "the largest lgkmcnt covers one of 16": (
        ADDRESS
        + "ds_write_b32 v1, v1\ns_waitcnt lgkmcnt(0)\n"
        + "".join(f"ds_read_b32 v{3 + i}, v1\n" for i in range(16))
        + "s_waitcnt lgkmcnt(15)\nv_mov_b32 v30, v4",
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
    "s_movrels": (
        POINTERS + "s_mov_b32 m0, 2\ns_nop 1\ns_movrels_b32 s8, s3",
        "s5",
        "lgkmcnt(0)",
    ),
    "an indexed source": (
        POINTERS + ADDRESS + "v_mov_b32 v2, 0\ns_waitcnt lgkmcnt(0)\n"
        "global_load_dword v5, v1, s[4:5]\ns_set_gpr_idx_on 3, gpr_idx(SRC0)\nv_mov_b32 v3, v2\n"
        "s_set_gpr_idx_off",
        "v5",
        "vmcnt",
    ),
    "an indexed accumulator register": (
        POINTERS + ADDRESS + "v_accvgpr_write_b32 a1, 0\ns_waitcnt lgkmcnt(0)\n"
        "global_load_dword a4, v1, s[4:5]\ns_set_gpr_idx_on 3, gpr_idx(SRC0)\n"
        "v_accvgpr_read_b32 v2, a1\ns_set_gpr_idx_off",
        "a4",
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


ENOUGH = {
    "global load": "s_waitcnt vmcnt(0) would",
    "wait for too few": "s_waitcnt vmcnt(0) would",
    "LDS read": "s_waitcnt lgkmcnt(0) would",
    "the largest lgkmcnt covers one of 16": "lgkmcnt(14) would: 14 LDS operations followed it",
    "flat needs both counters": "nothing waits for lgkmcnt",
}


@pytest.mark.parametrize("case", ENOUGH)
def test_a_report_says_which_wait_covers_the_load(case: str) -> None:
    with pytest.raises(KernelFault) as caught:
        execute(TOO_EARLY[case][0], lds=256)
    assert ENOUGH[case] in caught.value.detail.splitlines()[-1]


def test_a_wait_that_comes_too_late_is_named() -> None:
    load = ADDRESS + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\nv_mov_b32 v5, v3\n"
    late = r"s_waitcnt lgkmcnt\(0\) comes after it, at \+0x[0-9a-f]+: .* the compiler moved the two"
    with pytest.raises(KernelFault, match=late):
        execute(load + "v_mov_b32 v6, 0\ns_waitcnt lgkmcnt(0)", lds=256)
    for other in (
        "s_waitcnt vmcnt(0)",
        "s_waitcnt lgkmcnt(1)",
        "s_branch next\nnext:\ns_waitcnt 0",
    ):
        with pytest.raises(KernelFault) as caught:
            execute(f"{load}{other}", lds=256)
        assert "comes after it" not in caught.value.detail


def test_a_count_of_lds_operations_helps_only_without_scalar_loads() -> None:
    body = ADDRESS + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\nds_read_b32 v4, v1\n"
    with pytest.raises(KernelFault, match=r"lgkmcnt\(1\) would: 1 LDS operation followed it"):
        execute(body + "v_mov_b32 v5, v3", lds=256)
    with pytest.raises(KernelFault, match=r"lgkmcnt\(0\) would$"):
        execute(body + POINTERS + "v_mov_b32 v5, v3", lds=256)


def test_overwritten_before_it_arrives() -> None:
    body = POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
    with pytest.raises(KernelFault, match="v2 is overwritten while its load is in flight"):
        execute(body + "v_mov_b32 v2, 0")
    indexed = "s_set_gpr_idx_on 2, gpr_idx(DST)\nv_mov_b32 v0, 0\ns_set_gpr_idx_off"
    with pytest.raises(KernelFault, match="v2 is overwritten while its load is in flight"):
        execute(body + indexed)
    relative = "s_mov_b32 m0, 2\ns_nop 1\ns_movreld_b32 s3, 0"
    with pytest.raises(KernelFault, match="s5 is overwritten while its load is in flight"):
        execute(POINTERS + relative)


CORRECT = {
    "registers beside those that M0 selects": POINTERS + ADDRESS + "s_mov_b32 m0, 4\ns_nop 1\n"
    "v_mov_b32 v6, 0\ns_mov_b32 s8, 0\ns_movreld_b32 s8, s0\ns_cmp_eq_u32 s12, 0\n"
    "s_cbranch_scc1 there\nthere:\n"
    "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
    "s_set_gpr_idx_on 4, gpr_idx(SRC0)\nv_mov_b32 v3, v2\ns_set_gpr_idx_off\ns_waitcnt vmcnt(0)",
    "waits that cover": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\n"
    "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[6:7]\ns_waitcnt vmcnt(1)\n"
    "v_add_u32 v4, v2, v2\ns_waitcnt vmcnt(0)\nv_add_u32 v4, v2, v3",
    "stores count": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\nglobal_load_dword v2, v1, s[4:5]\n"
    "global_store_dword v1, v1, s[6:7]\ns_waitcnt vmcnt(1)\nv_add_u32 v4, v2, v2",
    "the younger load wins": POINTERS + ADDRESS + "s_waitcnt lgkmcnt(0)\n"
    "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v2, v1, s[6:7]\ns_waitcnt vmcnt(0)\n"
    "v_add_u32 v4, v2, v2",
    # A counter cannot count higher, so its largest value covers all but that many.
    "the largest lgkmcnt": ADDRESS
    + "ds_write_b32 v1, v1\ns_waitcnt lgkmcnt(0)\n"
    + "".join(f"ds_read_b32 v{3 + i}, v1\n" for i in range(16))
    + "s_waitcnt lgkmcnt(15)\nv_mov_b32 v30, v3",
    "the largest vmcnt": POINTERS
    + ADDRESS
    + "s_waitcnt lgkmcnt(0)\n"
    + "".join(f"global_load_dword v{3 + i}, v1, s[4:5]\n" for i in range(65))
    + "s_waitcnt vmcnt(63)\nv_add_u32 v80, v3, v4",
    "LDS waits beside scalar loads": ADDRESS
    + "ds_write_b32 v1, v1\nds_read_b32 v3, v1\n"
    + POINTERS
    + "s_waitcnt lgkmcnt(0)\nv_add_u32 v4, v3, s4",
}


@pytest.mark.parametrize("case", CORRECT)
def test_no_false_alarm(case: str) -> None:
    execute(CORRECT[case], lds=512)
