"""Waves that wait for each other without a barrier, and those that wait for ever."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.execution.schedule import LIMIT_VARIABLE
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

GFX942 = TARGETS["gfx942"]
ORDERS = ("lockstep", "forward", "reverse", ("random", 5))
# s[4:5] holds the buffer's address, v1 is 0.
PROLOGUE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_readfirstlane_b32 s6, v0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
s_waitcnt lgkmcnt(0)
"""


def execute(
    body: str, words: int, grid: int, block: int, *, lds: int = 0, order: Any = "lockstep"
) -> np.ndarray:
    """Run a kernel on a buffer of zeros and return the buffer."""
    memory = Memory()
    kernel = load_kernel(PROLOGUE + body, memory, arguments=[8], lds=lds)
    address = memory.malloc(4 * words, tag="buffer")
    memory.view(address, 4 * words)[:] = 0
    launch(
        kernel,
        (grid, 1, 1),
        (block, 1, 1),
        0,
        [struct.pack("<Q", address)],
        memory,
        GFX942,
        order=order,
    )
    return np.frombuffer(memory.view(address, 4 * words), np.uint32).copy()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("waiting", [0, 1], ids=["first waits", "second waits"])
def test_a_flag_between_two_waves(order: Any, waiting: int) -> None:
    """One wave spins on a flag that the other sets, whichever runs first or is first in code."""
    body = f"""
    s_lshr_b32 s6, s6, 6
    s_cmp_eq_u32 s6, {waiting}
    s_cbranch_scc0 signal
    spin:
    global_load_dword v3, v1, s[4:5] sc0
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s7, v3
    s_cmp_eq_u32 s7, 1
    s_cbranch_scc0 spin
    v_mov_b32 v2, 7
    global_store_dword v1, v2, s[4:5] offset:4
    s_endpgm
    signal:
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    assert execute(body, 2, 1, 128, order=order).tolist() == [1, 7]


# Triton's code for `while tl.atomic_cas(lock, 0, 1) == 1: pass`: one lane tries, LDS passes the
# result to the others, and two barriers per iteration keep them together. The spinning workgroups
# are at lower program counters than the one that holds the lock, and their turns end at barriers
# and branches.
LOCK = """
v_cmp_eq_u32 s[8:9], 0, v0
try:
s_barrier
s_and_saveexec_b64 s[10:11], s[8:9]
s_cbranch_execz tell
v_mov_b32 v5, 0
v_mov_b32 v4, 1
global_atomic_cmpswap v3, v1, v[4:5], s[4:5] sc0
s_waitcnt vmcnt(0)
ds_write_b32 v1, v3
tell:
s_or_b64 exec, exec, s[10:11]
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v1
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s7, v3
s_cmp_eq_u32 s7, 1
s_cbranch_scc1 try
s_and_saveexec_b64 s[10:11], s[8:9]
s_cbranch_execz free
global_load_dword v3, v1, s[4:5] offset:4
s_waitcnt vmcnt(0)
v_add_u32 v3, 3, v3
global_store_dword v1, v3, s[4:5] offset:4
s_waitcnt vmcnt(0)
free:
s_or_b64 exec, exec, s[10:11]
s_barrier
s_and_saveexec_b64 s[10:11], s[8:9]
s_cbranch_execz done
global_atomic_swap v1, v1, s[4:5]
s_waitcnt vmcnt(0)
done:
s_endpgm
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_lock_between_workgroups(order: Any) -> None:
    assert execute(LOCK, 2, 4, 128, lds=4, order=order).tolist() == [0, 12]


def test_persistent_workgroups_wait_for_each_other() -> None:
    """One workgroup of four waves on each compute unit: all increment before any continues."""
    body = """
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc0 done
    s_mov_b64 exec, 1
    global_atomic_add v1, v2, s[4:5]
    spin:
    global_load_dword v3, v1, s[4:5] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s7, v3
    s_cmp_eq_u32 s7, 304
    s_cbranch_scc0 spin
    global_atomic_add v1, v2, s[4:5] offset:4
    done:
    s_endpgm
    """
    assert GFX942.num_cus == 304
    assert execute(body, 2, 304, 256).tolist() == [304, 304]


@pytest.mark.parametrize("order", ORDERS)
def test_a_limit_on_instructions(monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    """Wave 1 counts for ever, wave 0 waits at a barrier, and another workgroup is done."""
    monkeypatch.setenv(LIMIT_VARIABLE, "100000")
    body = """
    s_mov_b64 s[8:9], 0
    s_cmp_eq_u32 s2, 1
    s_cbranch_scc1 done
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 meet
    spin:
    s_add_u32 s8, s8, 1
    s_addc_u32 s9, s9, 0
    s_cmp_eq_u64 s[8:9], 0
    s_cbranch_scc0 spin
    meet:
    s_barrier
    done:
    s_endpgm
    """
    with pytest.raises(KernelFault) as caught:
        execute(body, 1, 2, 128, order=order)
    fault = caught.value
    assert fault.kind == "endless loop"
    assert (fault.workgroup, fault.wave) == ((0, 0, 0), 1)
    assert 0x2C <= fault.pc <= 0x3C
    assert "100,000 instructions" in fault.detail
    assert "waiting at barriers: 1; ended: 2" in fault.detail
    assert "workgroups 0 to 1" in fault.detail
    assert LIMIT_VARIABLE in fault.detail


def test_waves_that_diverge_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that end at branches count like those that run to their last step."""
    monkeypatch.setenv(LIMIT_VARIABLE, "30000")
    body = """
    s_lshr_b32 s6, s6, 6
    s_mov_b32 s7, 0
    again:
    s_add_u32 s7, s7, 1
    s_xor_b32 s6, s6, 1
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 again
    s_nop 0
    s_branch again
    """
    with pytest.raises(KernelFault, match="endless loop"):
        execute(body, 1, 1, 128)


def test_the_limit_starts_again_when_a_wave_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight waves of 5,000 instructions, one after another, under a limit of 20,000."""
    monkeypatch.setenv(LIMIT_VARIABLE, "20000")
    body = """
    s_movk_i32 s7, 1666
    again:
    s_sub_u32 s7, s7, 1
    s_cmp_eq_u32 s7, 0
    s_cbranch_scc0 again
    s_endpgm
    """
    execute(body, 1, 1, 512, order="forward")


def test_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    execute("s_endpgm", 1, 1, 64)


def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "lots")
    with pytest.raises(ValueError, match=f"{LIMIT_VARIABLE}='lots'"):
        execute("s_endpgm", 1, 1, 64)
