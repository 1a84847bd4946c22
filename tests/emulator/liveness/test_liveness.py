"""Waves that can never end are reported immediately, and live ones are not."""

from __future__ import annotations

import ctypes
import re
import sys
import time
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.execution import batch
from cupygemm.emulator.liveness import Progress
from cupygemm.emulator.native import library
from cupygemm.emulator.runtime.compile import compile_program
from tests.emulator.liveness.test_spinning import LOCK, ORDERS, execute

SPIN_ON_LDS = """
ds_read_b32 v3, v1 offset:16
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s7, v3
s_cmp_eq_u32 s7, 1
s_cbranch_scc0 spin
"""


def stuck(body: str, *, grid: int = 2, order: Any = "lockstep", lds: int = 64) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        execute(body, 2, grid, 128, lds=lds, order=order)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_flag_in_lds_that_is_set_behind_a_barrier(order: Any) -> None:
    """Wave 1 spins; wave 0 would set the flag, but waits at a barrier for wave 1."""
    body = f"""
    s_lshr_b32 s6, s6, 6
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 meet
    ds_write_b32 v1, v1 offset:16
    s_waitcnt lgkmcnt(0)
    spin:
    {SPIN_ON_LDS}
    meet:
    s_barrier
    ds_write_b32 v1, v2 offset:16
    s_endpgm
    """
    stuck(body, order=order)  # the first launch may compile
    started = time.thread_time()
    fault = stuck(body, order=order)
    assert time.thread_time() - started < 10, "of the processor, whatever else it does; about 0.3 s"
    assert (fault.kind, fault.wave, fault.address) == ("deadlock", 1, 0x10)
    assert fault.instruction.startswith("ds_read_b32")
    assert "wave 1 repeats this loop" in fault.detail
    assert fault.detail.count("s_cbranch_scc0") == 1
    assert "reads LDS byte 0x10, which holds 0" in fault.detail
    assert "divergent barrier: wave 0 waits at the barrier before +0x4c" in fault.detail
    assert "which wave 1 never reaches" in fault.detail
    last, first, second = (line for line in fault.detail.splitlines() if ": ds_write_b32" in line)
    assert last.lstrip().startswith("wave 1 wrote byte 0x10 last: +0x")
    assert "wave 0 would reach it after the barrier" in first
    assert "no remaining wave reaches it" in second


RING = """
extern "C" __global__ void ring(const float* x, float* y) {
    __shared__ float tile[4][64];
    __shared__ float sums[64];
    __shared__ int full[4];
    int wave = threadIdx.x / 64, lane = threadIdx.x % 64;
    if (threadIdx.x < 4) full[threadIdx.x] = 0;
    sums[lane] = 0;
    __syncthreads();
    if (wave == 0) {
        for (int s = 0; s < 4; s++) {
            tile[s][lane] = x[lane];
            __threadfence_block();
            if (lane == 0)
                __hip_atomic_store(&full[s], s + 1, __ATOMIC_RELEASE, WORKGROUP);
        }
    } else {
        for (int s = 0; s < 4; s++) {
            while (__hip_atomic_load(&full[s], __ATOMIC_ACQUIRE, WORKGROUP) != 1) {
            }
            sums[lane] += tile[s][lane];
        }
        y[lane] = sums[lane];
    }
}
""".replace("WORKGROUP", "__HIP_MEMORY_SCOPE_WORKGROUP")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_stores_to_the_flag_are_listed_and_others_counted(target: str) -> None:
    code = compile_program(RING, "a.hip", target_name=target).code
    x = np.zeros(64, np.float32)
    with pytest.raises(emulator.KernelFault) as caught:
        emulator.launch(code, 1, 128, [x, x.copy()])
    assert caught.value.kind == "deadlock"
    head, _, listed = caught.value.detail.partition("stores to LDS that could set it:\n")
    lines = listed.splitlines()
    sets = next(k for k, text in enumerate(RING.splitlines(), 1) if "_atomic_store" in text)
    stores = [line for line in lines if ": ds_write" in line]
    assert 0 < len(stores) <= 4
    assert all(f"(a.hip:{sets})" in line for line in stores[:4]), listed
    last = re.search(r"wrote byte \S+ last: (\+\S+):", head)
    assert last is not None
    assert stores[0].strip().startswith(f"{last[1]}:"), "the last store to the flag comes first"
    assert re.search(r"^  and .*\d to other variables$", listed, re.MULTILINE)


def test_a_flag_in_lds_that_is_read_by_flat_instructions() -> None:
    """The report names the byte of LDS, and only stores that can reach it."""
    fault = stuck("""
    s_mov_b64 s[8:9], src_shared_base
    v_mov_b32 v4, 16
    v_mov_b32 v5, s9
    v_mov_b32 v6, 0
    flat_store_dword v[4:5], v6
    global_store_dword v6, v6, s[4:5]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_barrier
    spin:
    flat_load_dword v3, v[4:5]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_readfirstlane_b32 s7, v3
    s_cmp_eq_u32 s7, 1
    s_cbranch_scc0 spin
    s_endpgm
    """)
    assert (fault.kind, fault.address) == ("deadlock", 16)
    assert "reads LDS byte 0x10, which holds 0" in fault.detail
    assert "stores to LDS that could set it" in fault.detail
    assert "global_store" not in fault.detail


@pytest.mark.parametrize("order", ORDERS)
def test_a_flag_in_global_memory_that_nobody_sets(order: Any) -> None:
    body = """
    s_mov_b32 s8, 12
    spin:
    s_sleep 1
    global_load_dword v3, v1, s[4:5] offset:4 sc0
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s7, v3
    s_cmp_eq_u32 s7, 1
    s_cbranch_scc0 spin
    """
    fault = stuck(body, order=order)
    assert fault.kind == "deadlock"
    assert "waves 0-1 repeat this loop" in fault.detail
    assert "the kernel has no store to global memory that could set it" in fault.detail
    assert "argument 0" in fault.detail
    assert "2 waves of other workgroups do not end either" in fault.detail


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_lock_that_nobody_releases(order: Any) -> None:
    """A compare-and-swap that fails, and a store of the present value, change nothing."""
    taken = "v_mov_b32 v4, 1\nglobal_store_dword v1, v4, s[4:5]\ns_waitcnt vmcnt(0)\n" + LOCK
    fault = stuck(taken, order=order)
    assert fault.kind == "deadlock"
    assert fault.instruction.startswith("global_atomic_cmpswap")
    assert "which holds 1" in fault.detail
    assert "the loops execute it, and it changes nothing" in fault.detail
    assert "only after the loops that wait" in fault.detail


@pytest.mark.slow
def test_a_lock_that_each_lane_takes() -> None:
    """The lane that holds it continues after the loop, which the others do not leave."""
    body = """
    v_mov_b32 v3, 0
    s_mov_b64 s[8:9], 0
    spin:
    global_atomic_cmpswap v4, v1, v[2:3], s[4:5] sc0
    s_waitcnt vmcnt(0)
    v_cmp_eq_u32 vcc, 0, v4
    s_or_b64 s[8:9], vcc, s[8:9]
    s_andn2_b64 exec, exec, s[8:9]
    s_cbranch_execnz spin
    s_mov_b64 exec, -1
    global_atomic_swap v1, v1, s[4:5]
    """
    with pytest.raises(KernelFault) as caught:
        execute(body, words=1, grid=1, block=64)
    report = str(caught.value)
    assert "lanes of wave 0 that have left the loop: 0. They continue when all lanes have" in report
    assert "never opened:\n  let one lane of the wave take it" in report


TURNS = """
extern "C" __global__ void push(int* lock, int* sum) {
    bool done = false;
    while (CONDITION) {
        if (!done && atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
extern "C" __global__ void take_turns(int* lock, int* sum) {
    for (int lane = 0; lane < 64; ++lane)
        if (lane == __lane_id()) {
            while (atomicCAS(lock, 0, 1) != 0) {}
            __threadfence();
            *sum += 1;
            __threadfence();
            atomicExch(lock, 0);
        }
}
"""


@pytest.mark.parametrize("option", ["-O3", "-O1"])
def test_the_remedies_for_a_lock_of_each_lane(option: str) -> None:
    """LLVM moves the work behind a loop that only ends after it; the report's two remedies hold."""

    def pushed(condition: str, kernel: str) -> int:
        source = TURNS.replace("CONDITION", condition)
        code = compile_program(source, "a.hip", target_name="gfx942", options=(option,)).code
        lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
        emulator.launch(code, 3, 64, [lock, total], kernel=kernel)
        return int(total[0])

    with pytest.raises(KernelFault, match=r"must go on while \(__any\(!done\)\)"):
        pushed("!done", "push")
    assert pushed("__any(!done)", "push") == pushed("!done", "take_turns") == 192


HOISTED = """
extern "C" __global__ void wait(QUALIFIER flag) {
    while (flag[0] == 0)
        asm volatile("s_nop 0");
}
"""


def test_a_flag_whose_load_the_compiler_has_moved_out_of_the_loop() -> None:
    def stuck_with(qualifier: str) -> KernelFault:
        source = HOISTED.replace("QUALIFIER", qualifier)
        code = compile_program(source, "a.hip", target_name="gfx942").code
        with pytest.raises(KernelFault) as caught:
            emulator.launch(code, 1, 64, [np.zeros(1, np.int32)])
        return caught.value

    moved, left = stuck_with("const int* __restrict__"), stuck_with("volatile int*")
    assert (moved.kind, left.kind) == ("endless loop", "deadlock")
    assert "If its source reads a flag, the compiler has\n" in moved.detail
    assert "by\n__hip_atomic_load, or through a volatile pointer" in moved.detail
    assert "through a volatile pointer" not in left.detail


def test_a_loop_without_an_end() -> None:
    fault = stuck("again:\ns_xor_b32 s6, s6, 1\ns_nop 0\ns_branch again")
    assert fault.kind == "endless loop"
    assert "reads no memory that another wave could write" in fault.detail
    assert "flag" not in fault.detail, "there is no source"


def test_workgroups_that_are_not_on_the_device_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_WAVES", 16)
    body = f"""
    ds_write_b32 v1, v1 offset:16
    s_waitcnt lgkmcnt(0)
    s_barrier
    spin:
    {SPIN_ON_LDS}
    """
    atomic = "global_atomic_add v2, v1, s[4:5]"  # which allows workgroups to wait for each other
    fault = stuck(body + atomic, grid=320)  # more than the compute units, each of which takes one
    assert "Workgroups 0 to 7 of the grid are on the device; the 312 others start" in fault.detail
    assert "are on the device" not in stuck(body, grid=320).detail


@pytest.mark.parametrize("order", ORDERS)
def test_a_producer_that_computes_for_long_is_waited_for(order: Any) -> None:
    """For much longer than the watchdog's interval nothing is stored, and then the flag is set."""
    body = f"""
    s_lshr_b32 s6, s6, 6
    s_cmp_eq_u32 s6, 0
    s_cbranch_scc1 produce
    ds_write_b32 v1, v1 offset:16
    s_waitcnt lgkmcnt(0)
    s_barrier
    spin:
    {SPIN_ON_LDS}
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    produce:
    s_barrier
    s_mov_b32 s8, 0
    count:
    s_add_u32 s8, s8, 1
    s_and_b32 s9, s8, 1
    s_cmp_eq_u32 s8, 0x2000
    s_cbranch_scc0 count
    s_mov_b64 exec, 1
    ds_add_u32 v1, v2 offset:16
    s_endpgm
    """
    assert execute(
        body.replace("ds_read_b32 v3, v1", "ds_or_rtn_b32 v3, v1, v1"),
        1,
        1,
        65,
        lds=64,
        order=order,
    ).tolist() == [1]


@pytest.mark.slow
def test_a_loop_that_reads_a_clock_may_end() -> None:
    """Its registers repeat at each turn, because the clock's value is overwritten."""
    body = """
    spin:
    s_memtime s[8:9]
    s_waitcnt lgkmcnt(0)
    s_lshr_b32 s8, s8, 20
    s_cmp_eq_u32 s8, 1
    s_mov_b64 s[8:9], 0
    s_cbranch_scc0 spin
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    """
    assert execute(body, 1, 1, 64).tolist() == [1]


STORES = """
global_store_byte v1, v2, s[4:5]
global_store_short v1, v2, s[4:5]
global_store_dwordx2 v1, v[2:3], s[4:5]
global_store_byte_d16_hi v1, v3, s[4:5]
flat_store_dword v[4:5], v2
buffer_store_dword v2, off, s[12:15], 0
global_atomic_add v1, v2, s[4:5]
global_atomic_swap_x2 v1, v[2:3], s[4:5]
ds_write_b8 v1, v2
ds_write_b128 v1, v[2:5]
ds_write2_b32 v1, v2, v3 offset0:1 offset1:2
ds_add_u32 v1, v2
ds_add_rtn_u64 v[6:7], v1, v[2:3]
ds_append v6 offset:4
buffer_load_dword v1, s[12:15], 0 offen lds
"""


@pytest.mark.parametrize("store", STORES.strip().splitlines())
def test_every_store_counts_as_a_change(store: str) -> None:
    """A store of the present value does not count. The proof of a deadlock needs both."""
    changes = ctypes.c_int64.in_dll(library(), "memory_changes")
    prologue = """
    v_mov_b32 v3, 0x70007
    v_mov_b32 v4, s4
    v_mov_b32 v5, s5
    s_mov_b32 s12, s4
    s_mov_b32 s13, s5
    s_mov_b32 s14, -1
    s_mov_b32 s15, 0x20000
    s_mov_b32 m0, 0
    s_mov_b64 exec, 1
    v_mov_b32 v8, 0
    v_mov_b32 v9, 5
    ds_write_b64 v8, v[8:9]
    ds_write_b64 v8, v[8:9] offset:8
    """
    if " lds" in store:
        prologue += "v_mov_b32 v9, 3\nglobal_store_dword v8, v9, s[4:5]\ns_waitcnt vmcnt(0)\n"
    before = changes.value
    execute(prologue + "s_waitcnt lgkmcnt(0)\ns_endpgm", 4, 1, 64, lds=64)
    without = changes.value - before
    before = changes.value
    execute(
        prologue + f"s_waitcnt lgkmcnt(0)\n{store}\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_endpgm",
        4,
        1,
        64,
        lds=64,
    )
    assert changes.value - before > without
    if "_add" in store or "append" in store:
        return
    again = f"{store}\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
    before = changes.value
    execute(prologue + f"s_waitcnt lgkmcnt(0)\n{again * 3}s_endpgm", 4, 1, 64, lds=64)
    assert changes.value - before == without + 1 + store.startswith("ds_write2")


class Terminal:
    def __init__(self, terminal: bool) -> None:
        self.terminal, self.text = terminal, ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_launch_shows_its_progress(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = Terminal(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("gemm", 12) as progress:
        now = progress._started
        assert not progress.due(now)
        assert progress.due(now + 5)
        progress.show(now + 5, 3, 40, 8)
        assert not progress.due(now + 5.1)
        assert progress.due(now + 6)
    line = "\rgemm: 3 of 12 workgroups done, 40 waves running, 8 of them at barriers, 5 s"
    assert stream.text.startswith(line) if terminal else not stream.text
    assert not terminal or stream.text.rstrip(" \r") == line.rstrip() or stream.text.endswith("\r")


def test_a_launch_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("cupygemm.emulator.liveness.progress._FIRST", 0.0)
    monkeypatch.setattr("cupygemm.emulator.liveness.progress._EVERY", 0.0)
    body = "s_barrier\nglobal_store_dword v1, v2, s[4:5]\ns_endpgm"
    assert execute(body, 1, 1, 128, order="forward").tolist() == [1]
    assert "k: 0 of 1 workgroups done, 2 waves running" in stream.text
    assert "k: 0 of 1 workgroups done, 2 waves running, 1 of them at barriers" in stream.text
    assert stream.text.endswith("\r")
