"""Flags that many workgroups wait for and set in turn. On CDNA2, they are set by plain stores."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.execution.schedule import Order
from cupygemm.emulator.runtime.compile import compile_program

TURNS = r"""
#define WAIT(flag, value) \
    while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < (value)) {}
#define SET(flag, value) \
    __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT)
// Each workgroup waits until the flag has its number.
extern "C" __global__ void turns(unsigned* flag, float* y) {
    if (threadIdx.x == 0 && WAITS)
        WAIT(flag, blockIdx.x)
    __syncthreads();
    if (WAITS)
        y[threadIdx.x] += 1;
    __syncthreads();
    if (threadIdx.x == SETS)
        SET(flag, blockIdx.x + 1);
}
// Producers fill two slots in turn, the first workgroup empties them; the flags lie side by side.
extern "C" __global__ void ring(unsigned* flag, float* y, float* slots) {
    unsigned item = blockIdx.x - 1, slot = item % 2;
    if (blockIdx.x) {
        if (threadIdx.x == 0)
            WAIT(flag + slot, item / 2 * 2)
        __syncthreads();
        slots[slot * blockDim.x + threadIdx.x] = item;
        __syncthreads();
        if (threadIdx.x == 0)
            SET(flag + slot, item / 2 * 2 + 1);
        return;
    }
    for (item = 0; item < gridDim.x - 1; ++item) {
        slot = item % 2;
        if (threadIdx.x == 0)
            WAIT(flag + slot, item / 2 * 2 + 1)
        __syncthreads();
        y[threadIdx.x] += slots[slot * blockDim.x + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0)
            SET(flag + slot, item / 2 * 2 + 2);
    }
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("sets", ["0", "64"])
def test_many_workgroups_take_turns(target: str, sets: str) -> None:
    """All others wait for the flag while one sets it: more than its record of reads has."""
    source = TURNS.replace("WAITS", "true").replace("SETS", sets)
    code = compile_program(source, "a.hip", target_name=target).code
    flag, y = np.zeros(1, np.uint32), np.zeros(128, np.float32)
    emulator.launch(code, 7, 128, [flag, y], kernel="turns")
    assert flag[0] == 7
    np.testing.assert_array_equal(y, 7)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("order", ["lockstep", "reverse"])
def test_producers_fill_a_ring_in_turn(target: str, order: Order) -> None:
    source = TURNS.replace("WAITS", "true").replace("SETS", "0")
    code = compile_program(source, "a.hip", target_name=target).code
    flags, y = np.zeros(2, np.uint32), np.zeros(128, np.float32)
    arguments = [flags, y, np.zeros(256, np.float32)]
    emulator.launch(code, 9, 128, arguments, kernel="ring", order=order)
    assert list(flags) == [8, 8]
    np.testing.assert_array_equal(y, sum(range(8)))


def test_a_workgroup_that_does_not_wait_overwrites_the_flag() -> None:
    """The others have seen the flag, but it has not: nothing orders the two stores."""
    source = TURNS.replace("WAITS", "blockIdx.x < 5").replace("SETS", "0")
    code = compile_program(source, "a.hip", target_name="gfx90a").code
    arguments = [np.zeros(1, np.uint32), np.zeros(128, np.float32)]
    with pytest.raises(emulator.KernelFault, match="write after another workgroup's write"):
        emulator.launch(code, 7, 128, arguments, kernel="turns")
