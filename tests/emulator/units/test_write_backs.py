"""Plain stores that workgroups on other XCDs read: flags, locks and data without a fence."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = r"""
typedef unsigned u32;
#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)

// One workgroup sets a flag after its data, and the others wait for it.
#define WAITS(name, set, is_set) \
    extern "C" __global__ void name(float* x, float* y, u32* flag) { \
        if (blockIdx.x == 0) { \
            x[threadIdx.x] = threadIdx.x; \
            __threadfence(); \
            __syncthreads(); \
            if (threadIdx.x == 0) { set; } \
        } else { \
            while (!(is_set)) {} \
            __threadfence(); \
            y[ITEM] = x[threadIdx.x]; \
        } \
    }
#define LOADED __hip_atomic_load(flag, __ATOMIC_RELAXED, AGENT)
WAITS(plain_and_volatile, *flag = 1, *(volatile u32*)flag)
WAITS(plain_and_atomic_load, *flag = 1, LOADED)
WAITS(plain_and_exchange, *flag = 1, atomicCAS(flag, 1u, 1u))
WAITS(volatile_and_volatile, *(volatile u32*)flag = 1, *(volatile u32*)flag)
WAITS(atomic_store, __hip_atomic_store(flag, 1, __ATOMIC_RELAXED, AGENT), LOADED)
WAITS(exchange, atomicExch(flag, 1), LOADED)
WAITS(plain_and_a_fence, *flag = 1; __threadfence(), LOADED)

// Who counts last adds what the others have stored.
#define COUNTS(name, before, behind, barrier) \
    extern "C" __global__ void name(float* x, float* y, u32* count) { \
        __shared__ bool last; \
        x[ITEM] = threadIdx.x; \
        before; \
        __syncthreads(); \
        if (threadIdx.x == 0) { \
            barrier; \
            last = atomicAdd(count, 1u) == gridDim.x - 1; \
        } \
        __syncthreads(); \
        if (!last) \
            return; \
        behind; \
        for (u32 b = 0; b < gridDim.x; ++b) \
            y[threadIdx.x] += ((volatile float*)x)[b * blockDim.x + threadIdx.x]; \
    }
COUNTS(counts_without_a_fence, , , )
COUNTS(counts_with_a_fence_behind, , __threadfence(), )
COUNTS(counts_with_a_fence_of_the_workgroup, __threadfence_block(), , )
COUNTS(counts_with_a_fence, __threadfence(), __threadfence(), )
COUNTS(counts_with_the_fence_of_one_thread, , , __threadfence())

#define LOCKS(name, unlock) \
    extern "C" __global__ void name(float* x, float* y, u32* lock) { \
        if (threadIdx.x) \
            return; \
        while (atomicCAS(lock, 0u, 1u)) {} \
        __threadfence(); \
        x[0] += 1; \
        __threadfence(); \
        unlock; \
    }
LOCKS(unlocks_by_a_plain_store, *lock = 0)
LOCKS(unlocks_by_an_exchange, atomicExch(lock, 0u))

// Each workgroup writes a part before it reads its own one: no other workgroup sees it.
extern "C" __global__ void keeps_to_itself(float* x, float* y, u32* count) {
    x[ITEM] = threadIdx.x;
    y[ITEM] = ((volatile float*)x)[ITEM];
    atomicAdd(count, 1u);
}
"""
GROUPS, THREADS = 4, 128
KIND = "store that other XCDs need not see"
FAULTS = (
    "plain_and_volatile",
    "plain_and_atomic_load",
    "plain_and_exchange",
    "counts_without_a_fence",
    "counts_with_a_fence_behind",
    "counts_with_a_fence_of_the_workgroup",
    "unlocks_by_a_plain_store",
)
RIGHT = (
    "volatile_and_volatile",
    "atomic_store",
    "exchange",
    "plain_and_a_fence",
    "counts_with_a_fence",
    "counts_with_the_fence_of_one_thread",
    "unlocks_by_an_exchange",
    "keeps_to_itself",
)


@functools.cache
def code(target: str) -> bytes:
    return compile_program(SOURCE, "flags.hip", target_name=target).code


def launch(target: str, name: str, groups: int = GROUPS) -> None:
    arrays = [np.zeros(groups * THREADS, np.float32) for _ in range(2)]
    emulator.launch(code(target), groups, THREADS, [*arrays, np.zeros(1, np.uint32)], kernel=name)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", FAULTS)
def test_what_stays_in_an_l2_is_found(target: str, name: str) -> None:
    with emulator.checks(write_backs="error"), pytest.raises(KernelFault) as caught:
        launch(target, name)
    report = str(caught.value)
    assert report.startswith(KIND)
    assert "of workgroup (" in report
    assert "global_store_dword" in report, "the store"
    assert "__threadfence()" in report
    assert "atomicExch" in report


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_leaves_the_l2_is_right(target: str, name: str) -> None:
    with emulator.checks(write_backs="error"):
        launch(target, name)


@pytest.mark.parametrize("name", ["plain_and_volatile", "unlocks_by_a_plain_store"])
def test_one_l2_needs_no_write_back(name: str) -> None:
    """On gfx90a, these are the instructions of relaxed atomic stores."""
    with emulator.checks(write_backs="error"):
        launch("gfx90a", name)


def test_one_workgroup_needs_no_write_back() -> None:
    with emulator.checks(write_backs="error"):
        launch("gfx942", "unlocks_by_a_plain_store", groups=1)


def test_it_is_a_warning() -> None:
    with pytest.warns(emulator.KernelWarning, match=KIND):
        launch("gfx942", "counts_with_a_fence_behind")
