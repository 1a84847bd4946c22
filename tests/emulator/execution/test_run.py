"""The run loop: argument segment, divergence, barriers, orders, statistics, and refusals."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.diagnostics.checking import checks
from cupygemm.emulator.errors import KernelFault, KernelWarning, UnsupportedInstruction
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

GFX942 = TARGETS["gfx942"]
# Leaves the buffer's address in s[4:5] and 4 * global id in v1, for workgroups of 256.
PROLOGUE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshl_add_u32 v1, s2, 8, v0
v_lshlrev_b32 v1, 2, v1
s_waitcnt lgkmcnt(0)
"""
STORE = """
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


def pack(address: int) -> list[bytes]:
    return [struct.pack("<Q", address)]


def execute(memory: Memory, body: str, count: int, *, block: int = 256, **options: Any) -> Any:
    """Run a kernel that writes one dword for each work-item; return them and the statistics."""
    lds = options.pop("lds", 0)
    kernel = load_kernel(body, memory, arguments=[8], lds=lds)
    address = memory.malloc(4 * count, tag="out")
    groups = -(-count // block)
    stats = launch(
        kernel, (groups, 1, 1), (block, 1, 1), 0, pack(address), memory, GFX942, **options
    )
    out = np.frombuffer(memory.view(address, 4 * count), np.uint32).copy()
    return out, stats


def test_ids_over_many_batches(memory: Memory) -> None:
    out, stats = execute(memory, PROLOGUE + "v_lshrrev_b32 v2, 2, v1" + STORE, 256 * 700)
    assert (out == np.arange(256 * 700)).all()
    assert stats.num_waves == 2800
    assert stats.mnemonics["global_store_dword"] == 2800


def test_waves_diverge_and_meet_again(memory: Memory) -> None:
    """Each wave's loop count is its number in the workgroup; then all continue together."""
    body = (
        PROLOGUE
        + """
    v_readfirstlane_b32 s6, v0
    s_lshr_b32 s6, s6, 6
    s_mov_b32 s7, 0
    loop:
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 done
    s_add_u32 s7, s7, 3
    s_sub_u32 s6, s6, 1
    s_branch loop
    done:
    v_mov_b32 v2, s7
    """
        + STORE
    )
    out, stats = execute(memory, body, 512)
    assert (out == np.arange(512) % 256 // 64 * 3).all()
    assert stats.mnemonics["s_add_u32"] == 2 * (0 + 1 + 2 + 3)


@pytest.mark.parametrize("order", ["lockstep", "abreast", "forward", "reverse", ("random", 7)])
def test_barrier_in_every_order(memory: Memory, order: Any) -> None:
    """Reverse the workgroup's ids through LDS."""
    body = (
        PROLOGUE
        + """
    v_lshlrev_b32 v3, 2, v0
    ds_write_b32 v3, v0
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_sub_u32 v3, 0x3fc, v3
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    """
        + STORE
    )
    out, _ = execute(memory, body, 1024, lds=1024, order=order)
    assert (out == np.tile(np.arange(255, -1, -1), 4)).all()


@pytest.mark.parametrize(("order", "seen"), [("lockstep", [1, 2]), ("abreast", [1, 1])])
def test_waves_on_two_paths_run_abreast(memory: Memory, order: Any, seen: list[int]) -> None:
    """Each path reads a flag, and the first overwrites it much later: only timing orders them."""
    path = "ds_read_b32 v2, v3\ns_waitcnt lgkmcnt(0)\n" + "s_nop 0\n" * 100
    body = (
        PROLOGUE
        + f"""
    v_mov_b32 v3, 0
    v_mov_b32 v4, 1
    v_mov_b32 v5, 2
    v_readfirstlane_b32 s7, v0
    s_cmp_lg_u32 s7, 0
    s_cbranch_scc1 wait
    ds_write_b32 v3, v4
    s_waitcnt lgkmcnt(0)
    wait:
    s_barrier
    s_cbranch_scc1 other
    {path}
    ds_write_b32 v3, v5
    s_branch store
    other:
    {path}
    store:
    """
        + STORE
    )
    with checks(lds_races="warn"), pytest.warns(KernelWarning, match="LDS race"):
        out, _ = execute(memory, body, 128, block=128, lds=64, order=order)
    assert [out[0], out[64]] == seen


def test_a_spinning_wave_makes_way(memory: Memory) -> None:
    """Wave 0 spins on a flag that wave 1 sets further down in the code."""
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_readfirstlane_b32 s6, v0
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc0 signal
    spin:
    global_load_dword v2, v1, s[4:5] sc0 sc1
    s_waitcnt vmcnt(0)
    v_cmp_eq_u32 vcc, 1, v2
    s_cbranch_vccz spin
    s_endpgm
    signal:
    v_mov_b32 v2, 1
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    kernel = load_kernel(body, memory, arguments=[8])
    address = memory.malloc(4)
    memory.view(address, 4)[:] = 0
    stats = launch(kernel, (1, 1, 1), (128, 1, 1), 0, pack(address), memory, GFX942)
    assert stats.mnemonics["global_store_dword"] == 1


def test_partial_wave_and_packed_ids(memory: Memory) -> None:
    """A block of 5 x 3 x 2 work-items: the last 34 lanes of the wave stay off."""
    body = (
        """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_mbcnt_lo_u32_b32 v1, -1, 0
    v_mbcnt_hi_u32_b32 v1, -1, v1
    v_lshlrev_b32 v1, 2, v1
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v2, 1
    """
        + STORE
    )
    kernel = load_kernel(body, memory, arguments=[8])
    address = memory.malloc(4 * 30)
    stats = launch(kernel, (1, 1, 1), (5, 3, 2), 0, pack(address), memory, GFX942)
    assert (np.frombuffer(memory.view(address, 120), np.uint32) == 1).all()
    assert stats.num_waves == 1


# Wave 0 skips the barrier, then executes the code after it, or ends.
ROUND = (
    PROLOGUE
    + """
v_readfirstlane_b32 s6, v0
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 out
s_barrier
{inside}
out:
{behind}
s_endpgm
"""
)
WORK = "global_store_dword v1, v0, s[4:5]"


def test_divergent_barrier(memory: Memory) -> None:
    with pytest.raises(KernelFault) as caught:
        execute(memory, ROUND.format(inside="", behind=WORK), 768)
    fault = caught.value
    assert fault.kind == "divergent barrier"
    assert fault.instruction == "s_barrier"
    assert fault.workgroup == (0, 0, 0)
    assert "[1, 2, 3]" in fault.detail
    assert "[0]" in fault.detail


@pytest.mark.parametrize("order", ["lockstep", "abreast", "forward", "reverse", ("random", 3)])
def test_waves_without_work_may_return(memory: Memory, order: Any) -> None:
    """The hardware's barrier counts the waves that have not ended."""
    out, _ = execute(memory, ROUND.format(inside=WORK, behind=""), 768, order=order)
    item = np.arange(768) % 256
    assert (out[item >= 64] == item[item >= 64]).all()
    assert (out[item < 64] == 0xA5A5A5A5).all()


def test_a_wave_that_joined_may_not_leave(memory: Memory) -> None:
    with pytest.raises(KernelFault, match="divergent barrier"):
        execute(
            memory,
            ROUND.replace("v_readfirst", "s_barrier\nv_readfirst").format(inside=WORK, behind=""),
            256,
        )


def test_unsupported_instruction_names_itself_and_its_place(memory: Memory) -> None:
    kernel = load_kernel("s_nop 0\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_endpgm", memory)
    with pytest.raises(UnsupportedInstruction, match=r"s_sendmsg(.|\n)*kernel k.*\+0x4"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, b"", memory, GFX942)


def test_bytes_that_are_no_instruction(memory: Memory) -> None:
    kernel = load_kernel(".long 0xffffffff\ns_endpgm", memory)
    with pytest.raises(UnsupportedInstruction, match="ff ff ff ff"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, b"", memory, GFX942)


@pytest.mark.parametrize("fault", ["missing wait", "undefined register", "race"])
def test_profiles_are_checked_unless_checks_are_off(memory: Memory, fault: str) -> None:
    wait = "" if fault == "missing wait" else "s_waitcnt lgkmcnt(0)\n"
    value = "" if fault == "undefined register" else "v_mov_b32 v2, s2\n"
    address = "v_mov_b32 v1, 0\n" if fault == "race" else "v_lshlrev_b32 v1, 2, v0\n"
    body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n" + wait + value + address + STORE
    kernel = load_kernel(body, memory, arguments=[8])
    arguments = memory, GFX942
    out = pack(memory.malloc(1024))
    with pytest.raises(KernelFault):
        launch(kernel, (2, 1, 1), (64, 1, 1), 0, out, *arguments, profile=True)
    with checks(False):
        stats = launch(kernel, (2, 1, 1), (64, 1, 1), 0, out, *arguments, profile=True)
        assert stats.profile is not None
    stats = launch(kernel, (2, 1, 1), (64, 1, 1), 0, out, *arguments, profile=True, checks=False)
    assert stats.mnemonics["global_store_dword"] == 2


def test_jump_out_of_the_code(memory: Memory) -> None:
    kernel = load_kernel("s_mov_b64 s[4:5], 64\ns_setpc_b64 s[4:5]\ns_endpgm", memory)
    with pytest.raises(KernelFault, match="wild jump"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, b"", memory, GFX942)


def test_trap(memory: Memory) -> None:
    kernel = load_kernel("s_trap 2\ns_endpgm", memory)
    with pytest.raises(KernelFault, match="abort"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, b"", memory, GFX942)


@pytest.mark.parametrize(
    ("grid", "block", "lds", "arguments", "message"),
    [
        ((0, 1, 1), (64, 1, 1), 0, b"", "at least 1"),
        ((1, 1, 1), (2048, 1, 1), 0, b"", "2048 work-items"),
        ((1, 1, 1), (64, 1, 1), 70_000, b"", "70000"),
        ((1, 1, 1), (64, 1, 1), 0, [], "takes 1 arguments"),
        ((1, 1, 1), (64, 1, 1), 0, [b"1234"], "argument 0 is 8 bytes"),
    ],
)
def test_impossible_launches(
    memory: Memory, grid: Any, block: Any, lds: int, arguments: Any, message: str
) -> None:
    kernel = load_kernel("s_endpgm", memory, arguments=[8])
    with pytest.raises(ValueError, match=message):
        launch(kernel, grid, block, lds, arguments, memory, GFX942)


def test_a_launch_leaves_no_memory_behind(memory: Memory) -> None:
    kernel = load_kernel("s_trap 2\ns_endpgm", memory)
    before = memory.ranges()[0].size
    with pytest.raises(KernelFault):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, b"", memory, GFX942)
    assert memory.ranges()[0].size == before
