"""Races in device memory: their reports with both places, and accesses that do not race."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = r"""
typedef unsigned u32;
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)
#define ITEMS (gridDim.x * blockDim.x)

// -- races --
extern "C" __global__ void reads_its_neighbour(float* x, float* y) {
    x[ITEM] = ITEM;
    __syncthreads();
    y[ITEM] = x[(ITEM + 1) % ITEMS];
}
extern "C" __global__ void overwrites_its_neighbour(float* x, float* y) {
    float next = x[(ITEM + 1) % ITEMS];
    x[ITEM] = next + 1;
}
extern "C" __global__ void updates_a_shared_row(float* x, float* y) {
    y[ITEM] = x[threadIdx.x];
    if (ITEM == ITEMS - 1)
        x[5] = y[ITEM];
}
extern "C" __global__ void stores_to_one_place(float* x, float* y) { x[threadIdx.x] = blockIdx.x; }
extern "C" __global__ void stores_to_every_other_place(float* x, float* y) {
    x[2 * threadIdx.x] = blockIdx.x;
}
extern "C" __global__ void reads_pairs_of_its_neighbour(float* x, float* y) {
    if (ITEM < ITEMS / 2)
        x[2 * ITEM + 1] = ITEM;
    y[ITEM] = x[(2 * ITEM + 3) % ITEMS];
}
extern "C" __global__ void lacks_a_barrier(float* x, float* y) {
    float* mine = x + blockIdx.x * blockDim.x;
    mine[threadIdx.x] = threadIdx.x;
    y[ITEM] = mine[(threadIdx.x + 64) % blockDim.x];
}
extern "C" __global__ void does_not_count_who_is_done(float* x, float* y) {
    x[ITEM] = threadIdx.x;
    __threadfence();
    __syncthreads();
    if (blockIdx.x == gridDim.x - 1)
        for (u32 b = 0; b < gridDim.x; ++b)
            y[threadIdx.x] += x[b * blockDim.x + threadIdx.x];
}
extern "C" __global__ void clears_what_others_add_to(float* x, float* y) {
    if (blockIdx.x == 1 && threadIdx.x == 0)
        x[0] = 0;
    atomicAdd(x, 1.0f);
}
extern "C" __global__ void adds_and_clears(float* x, float* y) {
    atomicAdd(x + threadIdx.x, 1.0f);
    if (blockIdx.x == 1)
        x[threadIdx.x] = 0;
}
// A value that is the same in all lanes is loaded by a scalar instruction.
extern "C" __global__ void adds_to_a_total(float* x, float* y) {
    if (threadIdx.x == 0)
        x[0] += 1;
}
extern "C" __global__ void reads_what_the_last_one_sets(float* x, float* y) {
    float limit = x[0];
    if (blockIdx.x < gridDim.x - 1)
        y[ITEM] = limit;
    else if (threadIdx.x == 0)
        x[0] = limit + 1;
}
#define SETS_A_FLAG(name, fence, set) \
    extern "C" __global__ void name(float* x, float* y, u32* flag) { \
        if (blockIdx.x == 0) { \
            x[threadIdx.x] = threadIdx.x; \
            fence __syncthreads(); \
            if (threadIdx.x == 0) \
                set; \
        } else if (blockIdx.x == 1) { \
            while (!__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) {} \
            y[threadIdx.x] = x[threadIdx.x]; \
        } \
    }
SETS_A_FLAG(sets_a_flag_without_a_fence, , atomicExch(flag, 1))
SETS_A_FLAG(sets_a_flag_for_its_workgroup, ,
            __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP))
#define COUNTS_WAVES(name, barrier, is_last) \
    extern "C" __global__ void name(float* x, float* y, u32* flag) { \
        __shared__ u32 waves; \
        if (threadIdx.x == 0) \
            waves = 0; \
        __syncthreads(); \
        if (blockIdx.x == 0) { \
            x[threadIdx.x] = threadIdx.x; \
            __threadfence(); \
            barrier if (threadIdx.x % 64 == 0 && is_last) \
                __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); \
        } else if (blockIdx.x == 1) { \
            while (!__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT)) {} \
            y[threadIdx.x] = x[threadIdx.x]; \
        } \
    }
COUNTS_WAVES(the_first_wave_sets_a_flag, , threadIdx.x == 0)
extern "C" __global__ void counts_who_is_done_without_a_fence(float* x, float* y, u32* count) {
    if (threadIdx.x == 0) {
        x[4 * blockIdx.x] = blockIdx.x;
        if (atomicInc(count, gridDim.x - 1) == gridDim.x - 1)
            for (u32 b = 0; b < gridDim.x; ++b)
                y[0] += x[4 * b];
    }
}

// -- order --
COUNTS_WAVES(a_barrier_before_the_flag, __syncthreads();, threadIdx.x == 0)
COUNTS_WAVES(the_last_wave_sets_a_flag, , atomicAdd(&waves, 1u) == blockDim.x / 64 - 1)
typedef __attribute__((address_space(3))) int* lds_count;
COUNTS_WAVES(the_last_wave_to_append_sets_a_flag, ,
             __builtin_amdgcn_ds_append((lds_count)&waves) == blockDim.x / 64 - 1)
SETS_A_FLAG(has_a_fence_before_the_barrier, __threadfence();, atomicExch(flag, 1))
SETS_A_FLAG(has_a_fence_behind_the_barrier, , __threadfence(); atomicExch(flag, 1))
SETS_A_FLAG(releases_a_flag, ,
            __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT))
extern "C" __global__ void has_a_barrier(float* x, float* y) {
    float* mine = x + blockIdx.x * blockDim.x;
    mine[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[ITEM] = mine[(threadIdx.x + 64) % blockDim.x];
    __syncthreads();
    mine[threadIdx.x] = 0;
}
extern "C" __global__ void reads_a_scalar_before_a_barrier(float* x, float* y) {
    float* mine = x + blockIdx.x * blockDim.x;
    float first = mine[0];
    __syncthreads();
    if (threadIdx.x == 64)
        mine[0] = first + 1;
}
extern "C" __global__ void reads_a_scalar_and_counts(float* x, float* y, u32* count) {
    float first = x[0];
    if (threadIdx.x)
        return;
    y[blockIdx.x] = first + 1;
    __threadfence();
    if (atomicAdd(count, 1u) == gridDim.x - 1)
        x[0] = first + 2;
}
extern "C" __global__ void moves_on_in_a_line(float* x, float* y) {
    float* mine = x + blockIdx.x * blockDim.x;
    if (threadIdx.x == 0)
        mine[0] = 1;
    __syncthreads();
    if (threadIdx.x == 0 || threadIdx.x == 64)
        mine[threadIdx.x == 0] = 2;
}
extern "C" __global__ void takes_every_other_place(float* x, float* y) {
    u32 place = 2 * (threadIdx.x + blockIdx.x / 2 * blockDim.x) + blockIdx.x % 2;
    x[place] = ITEM;
    y[place] = x[place];
}
extern "C" __global__ void counts_who_is_done(float* x, float* y, u32* count) {
    x[ITEM] = threadIdx.x;
    __threadfence();
    __syncthreads();
    __shared__ bool last;
    if (threadIdx.x == 0)
        last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (u32 b = 0; b < gridDim.x; ++b)
        y[threadIdx.x] += x[b * blockDim.x + threadIdx.x];
    if (threadIdx.x == 0)
        *count = 0;
}
extern "C" __global__ void clears_and_adds_to_its_own(float* x, float* y) {
    float* mine = x + blockIdx.x * blockDim.x;
    mine[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(mine, 1.0f);
    __syncthreads();
    mine[threadIdx.x] = 2;
    atomicAdd(mine + threadIdx.x, 1.0f);
}
extern "C" __global__ void takes_turns(float* x, float* y, u32* turn) {
    if (threadIdx.x == 0) {
        while (__hip_atomic_load(turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != blockIdx.x) {}
    }
    __syncthreads();
    x[threadIdx.x] += 1;
    __syncthreads();
    if (threadIdx.x == 0)
        __hip_atomic_store(turn, blockIdx.x + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
extern "C" __global__ void stores_one_value(float* x, float* y) { x[threadIdx.x] = 3; }
extern "C" __global__ void adds(float* x, float* y) { atomicAdd(x, 1.0f); }
extern "C" __global__ void stores_neighbouring_bytes(unsigned char* x, float* y) { x[ITEM] = ITEM; }
"""
BLOCKS, THREADS = 4, 256
FLAGS_WITHOUT_A_FENCE = ("sets_a_flag_without_a_fence", "sets_a_flag_for_its_workgroup")
FLAGS = ("has_a_fence_before_the_barrier", "has_a_fence_behind_the_barrier", "releases_a_flag")
FLAGS += ("a_barrier_before_the_flag", "the_last_wave_sets_a_flag")
FLAGS += ("the_last_wave_to_append_sets_a_flag",)
WITH_A_COUNT = (
    "the_first_wave_sets_a_flag",
    *FLAGS,
    *FLAGS_WITHOUT_A_FENCE,
    "counts_who_is_done",
    "takes_turns",
)
WITH_A_COUNT += ("reads_a_scalar_and_counts", "counts_who_is_done_without_a_fence")


@pytest.fixture(scope="module")
def module(cp: ModuleType) -> Any:
    return cp.RawModule(code=SOURCE)


def launch(cp: ModuleType, module: Any, name: str) -> tuple[Any, Any]:
    x, y = cp.zeros(BLOCKS * THREADS, "f4"), cp.zeros(BLOCKS * THREADS, "f4")
    count = cp.zeros(1, "u4")
    arguments = (x, y, count) if name in WITH_A_COUNT else (x, y)
    module.get_function(name)((BLOCKS,), (THREADS,), arguments)
    return x, y


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("reads_its_neighbour", "read after another workgroup's write"),
        ("overwrites_its_neighbour", "write after another workgroup's read"),
        ("updates_a_shared_row", "write after another wave's read"),
        ("stores_to_one_place", "write after another workgroup's write"),
        ("stores_to_every_other_place", "write after another workgroup's write"),
        ("reads_pairs_of_its_neighbour", "read after another wave's write"),
        ("lacks_a_barrier", "read after another wave's write"),
        ("does_not_count_who_is_done", "read after another workgroup's write"),
        ("clears_what_others_add_to", "write after another workgroup's write"),
        ("adds_and_clears", "write after another workgroup's write"),
        ("adds_to_a_total", "write after another workgroup's read"),
        ("reads_what_the_last_one_sets", "write after another workgroup's read"),
    ],
)
def test_a_race_is_reported_with_both_places(
    cp: ModuleType, module: Any, name: str, what: str
) -> None:
    with pytest.raises(RuntimeError, match=f"global race: {what}") as caught:
        launch(cp, module, name)
    report = str(caught.value)
    assert report.count("global_") + report.count("s_load_dword ") >= 2, "both instructions"
    assert f"kernel {name}, workgroup (" in report
    assert "(array): 4096 bytes" in report
    assert ("s_barrier" if "wave's" in what else "atomic") in report


@pytest.mark.parametrize("name", FLAGS_WITHOUT_A_FENCE)
def test_a_flag_may_come_before_what_it_is_for(cp: ModuleType, module: Any, name: str) -> None:
    with pytest.raises(RuntimeError, match="read after another workgroup's write") as caught:
        launch(cp, module, name)
    report = str(caught.value)
    assert "which wave 0 of workgroup (0, 0, 0) wrote at" in report
    assert report.count(f"SETS_A_FLAG({name}") == 2, "the lines of both accesses"
    assert "__threadfence() between them" in report
    assert "__HIP_MEMORY_SCOPE_AGENT" in report


def test_a_flag_needs_a_barrier_after_the_fences_of_other_waves(
    cp: ModuleType, module: Any
) -> None:
    with pytest.raises(RuntimeError, match="read after another workgroup's write") as caught:
        launch(cp, module, "the_first_wave_sets_a_flag")
    report = str(caught.value)
    assert "which wave 1 of workgroup (0, 0, 0) wrote at" in report
    assert "__syncthreads() after it if another wave sets the flag" in report


def test_the_last_workgroup_needs_a_fence_of_the_others(cp: ModuleType, module: Any) -> None:
    with pytest.raises(RuntimeError, match="read after another workgroup's write") as caught:
        launch(cp, module, "counts_who_is_done_without_a_fence")
    report = str(caught.value)
    assert "__threadfence() between them" in report
    assert "argument 0 (x) points into it" in report


@pytest.mark.parametrize("name", FLAGS)
def test_a_fence_lets_a_flag_wait(cp: ModuleType, module: Any, name: str) -> None:
    _, y = launch(cp, module, name)
    np.testing.assert_array_equal(y[:THREADS].get(), np.arange(THREADS))


@pytest.mark.parametrize(
    "name",
    [
        "has_a_barrier",
        "clears_and_adds_to_its_own",
        "moves_on_in_a_line",
        "reads_a_scalar_before_a_barrier",
        "reads_a_scalar_and_counts",
        "takes_every_other_place",
        "counts_who_is_done",
        "takes_turns",
        "stores_one_value",
        "adds",
        "stores_neighbouring_bytes",
    ],
)
def test_what_is_ordered_is_no_race(cp: ModuleType, module: Any, name: str) -> None:
    x, y = launch(cp, module, name)
    halves = np.arange(1024.0).reshape(2, 2, 256).swapaxes(1, 2).ravel()
    expected = {
        "takes_every_other_place": (halves, halves),
        "has_a_barrier": (np.zeros(1024), np.tile((np.arange(256) + 64) % 256, 4)),
        "moves_on_in_a_line": (np.tile(np.r_[2, 2, np.zeros(254)], 4), np.zeros(1024)),
        "counts_who_is_done": (
            np.tile(np.arange(256), 4),
            np.r_[4 * np.arange(256), np.zeros(768)],
        ),
        "reads_a_scalar_before_a_barrier": (np.tile(np.r_[1, np.zeros(255)], 4), np.zeros(1024)),
        "reads_a_scalar_and_counts": (
            np.r_[2, np.zeros(1023)],
            np.r_[np.ones(4), np.zeros(1020)],
        ),
        "takes_turns": (np.r_[np.full(256, 4), np.zeros(768)], np.zeros(1024)),
        "stores_one_value": (np.r_[np.full(256, 3), np.zeros(768)], np.zeros(1024)),
        "clears_and_adds_to_its_own": (np.full(1024, 3), np.zeros(1024)),
        "adds": (np.r_[1024, np.zeros(1023)], np.zeros(1024)),
    }
    if name in expected:
        np.testing.assert_array_equal(x.get(), expected[name][0])
        np.testing.assert_array_equal(y.get(), expected[name][1])
    else:
        np.testing.assert_array_equal(x.view("u1")[:1024].get(), np.arange(1024) % 256)


def test_launches_are_ordered(cp: ModuleType, module: Any) -> None:
    x, y = cp.zeros(1024, "f4"), cp.zeros(1024, "f4")
    store = module.get_function("stores_one_value")
    for _ in range(2):
        store((1,), (THREADS,), (x, y))
        store((1,), (THREADS,), (y, x))
    assert (x.get()[:THREADS] == 3).all()


def test_unchecked_launches_go_on(cp: ModuleType, module: Any) -> None:
    with emulator.checks(False):
        x, _ = launch(cp, module, "stores_to_one_place")
    assert x.get()[0] in range(BLOCKS)


SPLIT = """
extern "C" __global__ void gather(const float* x, float* part, float* y, unsigned* count) {
    __shared__ bool is_last;
    int tile = blockIdx.x, split = blockIdx.y, splits = gridDim.y;
    if (threadIdx.x == 0) {
        part[tile * splits + split] = x[tile * splits + split];
        FENCE
        is_last = atomicAdd(&count[tile], 1u) == splits - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        __threadfence();
        float sum = 0;
        for (int k = 0; k < splits; k++)
            sum += part[tile * splits + k];
        y[tile] = sum;
    }
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("splits", [2, 3, 4, 8])
@pytest.mark.parametrize("fence", ["", "__threadfence();"])
def test_partial_sums_side_by_side(target: str, splits: int, fence: str) -> None:
    """Several workgroups store to one granule; the last of them reads what the others stored."""
    code = compile_program(SPLIT.replace("FENCE", fence), "a.hip", target_name=target).code
    x = np.arange(4 * splits, dtype=np.float32)
    y, count = np.zeros(4, np.float32), np.zeros(4, np.uint32)
    arguments = [x, np.zeros_like(x), y, count]
    if fence:
        emulator.launch(code, (4, splits), 64, arguments)
        np.testing.assert_array_equal(y, x.reshape(4, splits).sum(1))
        return
    with pytest.raises(emulator.KernelFault, match="read after another workgroup's write") as found:
        emulator.launch(code, (4, splits), 64, arguments)
    assert "put\n__threadfence() between them" in found.value.detail
