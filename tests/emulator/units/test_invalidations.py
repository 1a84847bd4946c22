"""Plain loads of lines that may be stale in a workgroup's L1 after another workgroup's store."""

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

// Workgroups add to a sum in turn, by a lock whose count says whose turn it is.
#define LOCKS(name, behind_lock, sum) \
    extern "C" __global__ void name(float* x, u32* lock) { \
        if (threadIdx.x) \
            return; \
        for (int round = 0; round < 2; ++round) { \
            while (atomicAdd(lock, 0u) % gridDim.x != blockIdx.x) {} \
            behind_lock; \
            sum += 1; \
            __hip_atomic_fetch_add(lock, 1u, __ATOMIC_RELEASE, AGENT); /* leaves lines in L1 */ \
        } \
    }
LOCKS(locks_without_a_fence, asm volatile("" ::: "memory"), x[0])
LOCKS(locks_with_a_fence_of_the_workgroup, __threadfence_block(), x[0])
LOCKS(locks_with_a_fence, __threadfence(), x[0])
LOCKS(locks_a_volatile, , *(volatile float*)x)

// A workgroup looks at a value, waits until the other has changed it, and looks again.
#define LOOKS(name, order, behind) \
    extern "C" __global__ void name(float* x, u32* turn) { \
        if (blockIdx.x) { \
            while (__hip_atomic_load(turn, __ATOMIC_ACQUIRE, AGENT) != 1) {} \
            x[threadIdx.x] = 5; \
            __threadfence(); \
            __syncthreads(); \
            if (threadIdx.x == 0) \
                __hip_atomic_store(turn, 2, __ATOMIC_RELEASE, AGENT); \
            return; \
        } \
        float before = x[threadIdx.x]; \
        __syncthreads(); \
        if (threadIdx.x == 0) { \
            __hip_atomic_store(turn, 1, __ATOMIC_RELEASE, AGENT); \
            while (__hip_atomic_load(turn, order, AGENT) != 2) {} \
        } \
        __syncthreads(); \
        behind; \
        x[threadIdx.x] = before + x[threadIdx.x]; \
    }
LOOKS(looks_relaxed, __ATOMIC_RELAXED, )
LOOKS(looks_acquiring, __ATOMIC_ACQUIRE, )
LOOKS(looks_behind_a_fence, __ATOMIC_RELAXED, __threadfence())

// The first workgroup empties four slots of one line in turn, which the second fills.
#define SLOTS(name, order) \
    extern "C" __global__ void name(float* x, u32* turn) { \
        if (threadIdx.x) \
            return; \
        for (u32 i = 0; i < 12; ++i) { \
            u32 slot = i % 4, now = i / 4 * 2 + !blockIdx.x; \
            while (__hip_atomic_load(turn + slot, order, AGENT) != now) {} \
            if (blockIdx.x) \
                x[slot] = i; \
            else \
                x[64] += x[slot]; \
            __hip_atomic_store(turn + slot, now + 1, __ATOMIC_RELEASE, AGENT); \
        } \
    }
SLOTS(slots_relaxed, __ATOMIC_RELAXED)
SLOTS(slots_acquiring, __ATOMIC_ACQUIRE)

// A sum by atomicCAS may begin with an old value: the exchange fails then.
extern "C" __global__ void exchanges(float* x, u32* lock) {
    u32* place = (u32*)x;
    for (int round = 0; round < 2; ++round) {
        u32 old = *place, seen;
        do {
            seen = old;
            old = atomicCAS(place, seen, __float_as_uint(__uint_as_float(seen) + 1));
        } while (old != seen);
    }
}

// Each workgroup changes and loads its own part alone.
extern "C" __global__ void keeps_to_itself(float* x, u32* count) {
    float* own = x + blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 3; ++round) {
        *own += 1;
        atomicAdd(count, 1u);
        __syncthreads();
    }
}
"""
TARGETS = ("gfx90a", "gfx942", "gfx950")
KIND = "load that may find an old line in the cache"
FAULTS = (
    "locks_without_a_fence",
    "locks_with_a_fence_of_the_workgroup",
    "looks_relaxed",
    "slots_relaxed",
)
RIGHT = (
    "locks_with_a_fence",
    "locks_a_volatile",
    "looks_acquiring",
    "looks_behind_a_fence",
    "slots_acquiring",
    "exchanges",
    "keeps_to_itself",
)


@functools.cache
def code(target: str) -> bytes:
    return compile_program(SOURCE, "invalidations.hip", target_name=target).code


def run(name: str, target: str) -> np.ndarray:
    x = np.zeros(2 * 128, np.float32)
    arguments = [x, np.zeros(4, np.uint32)]
    emulator.launch(code(target), 2, 128, arguments, kernel=name)
    return x


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_load_without_an_invalidation_is_found(name: str, target: str) -> None:
    with emulator.checks(invalidations="error"), pytest.raises(KernelFault) as caught:
        run(name, target)
    assert caught.value.kind == KIND
    assert "had loaded the same line at\n" in str(caught.value)
    assert "put __threadfence() after the atomic" in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_have_no_finding(name: str, target: str) -> None:
    with emulator.checks(invalidations="error"):
        run(name, target)


def test_a_finding_is_a_warning_and_the_kernel_runs_on() -> None:
    with pytest.warns(emulator.KernelWarning, match=KIND):
        x = run("locks_without_a_fence", "gfx942")
    assert x[0] == 4
