"""Loads from global memory directly to LDS: destinations of lanes, waits and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import Fault, KernelFault
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.waves.state import LANES
from tests.emulator.harness import (
    HostMemory,
    assemble,
    barrier,
    exec_lanes,
    make_state,
    run,
    set_exec,
    set_v64,
)
from tests.emulator.units.test_memory import MASK, memory_state


@pytest.mark.parametrize(
    ("name", "dwords", "target"),
    [
        ("dword", 1, "gfx942"),
        ("dwordx3", 3, "gfx950"),
        ("dwordx4", 4, "gfx950"),
        ("dword", 1, "gfx90a"),
        ("sbyte", 1, "gfx942"),
        ("ushort", 1, "gfx942"),
    ],
)
def test_global_load_lds(name: str, dwords: int, target: str) -> None:
    """Lanes are written contiguously from M0 plus the offset; inactive lanes leave gaps."""
    state, memory, address = memory_state(8192, target=target)
    state = make_state(waves=2, lds_bytes=8192, target=target, memory=memory)
    set_exec(state, MASK)
    where = 4 * np.random.default_rng(8).integers(0, 1024, (2, LANES))
    set_v64(state, 2, np.uint64(address) + where.astype(np.uint64))
    state.sgpr[124] = [512, 4096]
    stem = f"global_load_{name}" if target == "gfx90a" else f"global_load_lds_{name}"
    suffix = " lds" if target == "gfx90a" else ""
    if target == "gfx90a":
        text = f"{stem} v[2:3], off offset:64{suffix}"
    else:
        text = f"{stem} v[2:3], off offset:64"
    before = state.vgpr.copy()
    run(state, assemble(text, target))
    np.testing.assert_array_equal(state.vgpr, before)
    expected = np.zeros(8192, np.uint8)
    data = memory.bytes(address)
    for wave, base in enumerate((512, 4096)):
        for lane in exec_lanes(state, wave):
            start = int(where[wave, lane]) + 64
            words = data[start : start + 4 * dwords].copy()
            if name == "sbyte":
                words = np.array([data[start]]).view(np.int8).astype(np.int32).view(np.uint8)
            elif name == "ushort":
                words[2:] = 0
            place = base + 64 + 4 * dwords * lane
            expected[place : place + 4 * dwords] = words
    np.testing.assert_array_equal(state.lds[0], expected)


def test_direct_to_lds_must_be_waited_for() -> None:
    memory = HostMemory()
    address = memory.put(np.arange(LANES, dtype=np.uint32))
    state = make_state(waves=2, lds_bytes=256, memory=memory)
    set_v64(state, 2, address + 4 * np.arange(LANES))
    state.vgpr[1] = 4 * np.arange(LANES)
    load, read = assemble("global_load_lds_dword v[2:3], off"), assemble("ds_read_b32 v5, v1")
    run(state, load, waves=[0])
    with pytest.raises(Fault, match="LDS read before wait") as caught:
        run(state, read, waves=[0])
    assert "vmcnt" in caught.value.detail
    state.vm_waited[:] = state.vm_issued
    run(state, read, waves=[0])
    np.testing.assert_array_equal(state.vgpr[5, 0], np.arange(LANES))
    barrier(state, waited=False)  # waited for, but not before the barrier
    with pytest.raises(Fault, match="LDS race: read after another wave's write"):
        run(state, read, waves=[1])
    barrier(state)
    run(state, read, waves=[1])
    with pytest.raises(Fault, match="LDS race: write after another wave's read"):
        run(state, load, waves=[0])


def test_direct_to_lds_bounds() -> None:
    memory = HostMemory()
    address = memory.put(np.arange(LANES, dtype=np.uint32))
    state = make_state(lds_bytes=256, memory=memory)
    set_v64(state, 2, address + 4 * np.arange(LANES))
    load = assemble("global_load_lds_dword v[2:3], off")
    state.sgpr[124] = 4
    with pytest.raises(Fault, match="out-of-bounds LDS write") as caught:
        run(state, load)
    assert caught.value.lane == 63
    state.sgpr[124] = 2
    with pytest.raises(Fault, match="misaligned direct-to-LDS load"):
        run(state, load)


TILES = """
extern "C" __global__ void k(const float* x, float* y) {
    __shared__ float tile[2][256];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
        auto from = x + i * 256 + t;
        HIDE;
        __builtin_amdgcn_global_load_lds((__attribute__((address_space(1))) void*)from,
            (__attribute__((address_space(3))) void*)&tile[i & 1][t / 64 * 64], 4, 0, 0);
        asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
        __syncthreads();
        sum += tile[i & 1][t ^ 64];
        __syncthreads();
    }
    y[t] = sum;
}
"""


def test_an_offset_of_the_compiler_that_moves_the_place_in_lds() -> None:
    """LLVM gives loads to LDS offsets from a common base on gfx90a, which count in LDS, too."""
    x, y = np.arange(1024, dtype=np.float32), np.zeros(256, np.float32)
    wrong = compile_program(TILES.replace("HIDE", ""), "k.hip", target_name="gfx90a").code
    with pytest.raises(KernelFault, match="counts in LDS as it does in memory") as caught:
        emulator.launch(wrong, 1, 256, [x, y])
    hidden = TILES.replace("HIDE", 'asm volatile("" : "+v"(from))')
    assert 'asm volatile("" : "+v"(pointer))' in str(caught.value)
    emulator.launch(compile_program(hidden, "k.hip", target_name="gfx90a").code, 1, 256, [x, y])
    np.testing.assert_array_equal(y, x.reshape(4, 256).sum(0)[np.arange(256) ^ 64])
