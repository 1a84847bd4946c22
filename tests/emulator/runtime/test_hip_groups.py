"""Parts of waves: cooperative groups, their tiles and partitions, and reductions over masks."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm.emulator.errors import KernelWarning

THREADS = 128
X = np.random.default_rng(5).integers(0, 200, THREADS).astype(np.int32)

HEAD = """
#include <hip/hip_cooperative_groups.h>
namespace cg = cooperative_groups;
"""


def results(cp: ModuleType, body: str, head: str = "") -> NDArray[Any]:
    """Return what `body` assigns to `out` in each thread of a block, from `v`, its element of X."""
    source = f"""{HEAD}{head}
    extern "C" __global__ void f(const int* x, long long* y) {{
        int t = threadIdx.x, v = x[t];
        auto block = cg::this_thread_block();
        auto tile = cg::tiled_partition<32>(block);
        long long out = -1;
        {body};
        y[t] = out;
    }}
    """
    y = cp.empty(THREADS, "i8")
    cp.RawKernel(source, "f")((1,), (THREADS,), (cp.asarray(X), y))
    found: NDArray[Any] = y.get()
    return found


def members(condition: Any, start: int, stop: int) -> list[int]:
    return [thread for thread in range(start, stop) if condition(thread)]


def test_a_tile_of_a_tile_counts_the_tiles_of_its_parent(cp: ModuleType) -> None:
    found = results(
        cp,
        "auto part = cg::tiled_partition<4>(tile); cg::thread_block_tile<4> any = part;"
        "out = 10 * any.meta_group_rank() + part.meta_group_size()",
    )
    np.testing.assert_array_equal(found, np.arange(THREADS) % 32 // 4 * 10 + 8)


def test_tiles_of_a_size_known_at_run_time(cp: ModuleType) -> None:
    total = """
    __device__ int total(cg::thread_group group, int* work, int value) {
        for (int i = group.size() / 2; i > 0; i /= 2) {
            work[group.thread_rank()] = value;
            group.sync();
            if (group.thread_rank() < i) value += work[group.thread_rank() + i];
            group.sync();
        }
        return value;
    }
    """
    found = results(
        cp,
        "__shared__ int work[128]; cg::thread_group part = cg::tiled_partition(block, 8);"
        "int sum = total(part, work + t / 8 * 8, v); if (part.thread_rank() == 0) out = sum",
        total,
    )
    np.testing.assert_array_equal(found[::8], X.reshape(16, 8).sum(1))
    kind = "tiled_partition of an impossible size"
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=kind):
        results(cp, "out = cg::tiled_partition(block, v - v + 12).size()")


def test_tiles_of_the_lanes_that_are_active(cp: ModuleType) -> None:
    found = results(
        cp,
        "if (t % 3 == 0) { auto part = cg::tiled_partition(cg::coalesced_threads(), 4);"
        "out = cg::reduce(part, v, cg::plus<int>()) + 1000 * (part.thread_rank()"
        " + 10 * part.meta_group_rank() + 1000 * part.meta_group_size()); }",
    )
    for start in (0, 64):
        active = members(lambda thread: thread % 3 == 0, start, start + 64)
        for rank, thread in enumerate(active):
            part = active[rank // 4 * 4 : rank // 4 * 4 + 4]
            tiles = -(-len(active) // 4)
            assert found[thread] == X[part].sum() + 1000 * (
                rank % 4 + 10 * (rank // 4) + 1000 * tiles
            )
    assert (found[1::3] == -1).all()


@pytest.mark.parametrize("group", ["tile", "cg::coalesced_threads()"])
def test_binary_partition(cp: ModuleType, group: str) -> None:
    found = results(
        cp,
        f"auto part = cg::binary_partition({group}, v % 5 == 0);"
        "out = 100 * part.size() + part.thread_rank()",
    )
    size = 32 if group == "tile" else 64
    for thread in range(THREADS):
        start = thread // size * size
        alike = (X % 5 == 0) == (X[thread] % 5 == 0)
        part = members(alike.__getitem__, start, start + size)
        assert found[thread] == 100 * len(part) + part.index(thread)


def test_lanes_with_equal_values(cp: ModuleType) -> None:
    found = results(cp, "out = tile.match_any(v % 3)")
    for thread in range(THREADS):
        first = thread // 32 * 32
        equal = members(lambda other, same=X[thread] % 3: X[other] % 3 == same, first, first + 32)
        assert found[thread] == sum(1 << other - first for other in equal)


def test_tiles_are_compared_apart(cp: ModuleType) -> None:
    """Only the first tile of each wave has a single value; all lanes together do not."""
    found = results(cp, "int same; out = tile.match_all(t % 64 < 32 ? 7 : t, same) + same")
    np.testing.assert_array_equal(found, np.where(np.arange(THREADS) % 64 < 32, 2**32, 0))


def test_reductions_with_any_operation(cp: ModuleType) -> None:
    operation = "[](int a, int b) { return (a * 31 + b) % 997; }"
    found = results(cp, f"out = cg::reduce(tile, v, {operation})")
    for start in range(0, THREADS, 32):
        expected = int(X[start])
        for value in X[start + 1 : start + 32]:
            expected = (expected * 31 + int(value)) % 997
        assert (found[start : start + 32] == expected).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.add),
        ("min", np.minimum),
        ("max", np.maximum),
        ("and", np.bitwise_and),
        ("or", np.bitwise_or),
        ("xor", np.bitwise_xor),
    ],
)
def test_reductions_over_masks(cp: ModuleType, name: str, function: np.ufunc) -> None:
    """The first 20 lanes of each wave are one group, and the others another."""
    found = results(cp, f"out = __reduce_{name}_sync(t % 64 < 20 ? 0xfffffull : ~0xfffffull, v)")
    for start in range(0, THREADS, 64):
        for part in (slice(start, start + 20), slice(start + 20, start + 64)):
            assert (found[part] == function.reduce(X[part])).all()


def test_masks_of_other_lanes_are_reported(cp: ModuleType) -> None:
    """Masks that divide a wave are right; a mask of 32 lanes that all 64 pass is not."""
    right = (
        "unsigned long long low = 0xffffffff, some = __ballot(t % 64 < 10);"
        "out = __shfl_down_sync(t % 64 < 32 ? low : ~low, v, 2, 32);"
        "if (t % 64 < 10) out += 1000 * __shfl_sync(some, v, 3) + __any_sync(some, v < 0)"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = results(cp, right)
    lanes = np.arange(THREADS)
    expected = X[np.where(lanes % 32 < 30, lanes + 2, lanes) % THREADS].astype(np.int64)
    expected += np.where(lanes % 64 < 10, 1000 * X[lanes // 64 * 64 + 3], 0)
    np.testing.assert_array_equal(found, expected)
    with pytest.warns(KernelWarning, match=r"(?s)mask of other lanes.*lanes 0-63.*__shfl_xor_sync"):
        results(cp, "out = __shfl_xor_sync(0xffffffffull, v, 1)")


@pytest.mark.parametrize(
    "shuffled",
    [
        "base = __shfl(base, leader)",
        "base = __shfl_sync(__activemask(), base, leader)",
    ],
)
def test_the_leader_alone_may_set_what_lanes_shuffle(cp: ModuleType, shuffled: str) -> None:
    """Lanes count together: one adds for all of them, and the others' variable is not set.

    The compiler must not assume that all lanes have set it, and therefore all have added.
    """
    head = "__device__ int total;"
    body = f"""
    if (v % 3 == 0) {{
        unsigned long long lanes = __ballot(1);
        int leader = __ffsll(lanes) - 1, base;
        if (__lane_id() == leader)
            base = atomicAdd(&total, __popcll(lanes));
        {shuffled};
        out = base + __popcll(lanes & __lanemask_lt());
    }}"""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = results(cp, body, head)
    counted = found[X % 3 == 0]
    np.testing.assert_array_equal(np.sort(counted), np.arange(counted.size))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["memcpy_async(block, y, x, 512)", "wait(block)"])
def test_copies_of_groups_do_not_compile_and_say_why(cp: ModuleType, call: str) -> None:
    with pytest.raises(cp.cuda.compiler.CompileException, match="no asynchronous copies of groups"):
        results(cp, f"cg::{call}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        ("this_grid().num_blocks()", "gridDim"),
        ("this_grid().dim_blocks().x", "gridDim"),
        ("this_grid().block_index().x", "blockIdx"),
        ("labeled_partition(tile, v).size()", "match_any"),
    ],
)
def test_what_cuda_alone_has_does_not_compile_and_says_why(
    cp: ModuleType, call: str, remedy: str
) -> None:
    message = rf"a function of CUDA's groups that HIP does not have: use {remedy}"
    with pytest.raises(cp.cuda.compiler.CompileException, match=message):
        results(cp, f"out = cg::{call}")


def test_the_dimensions_of_a_grids_groups_are_those_of_its_blocks(cp: ModuleType) -> None:
    found = results(
        cp,
        "auto one = cg::this_thread();\n"
        "out = cg::this_grid().group_dim().x + 1000 * one.size() + one.thread_rank()",
    )
    np.testing.assert_array_equal(found, THREADS + 1000)
