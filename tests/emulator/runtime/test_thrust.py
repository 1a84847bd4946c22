"""Thrust's algorithms in a thread, and hipCUB's reductions, as CuPy's JIT kernels use them."""

from __future__ import annotations

from types import ModuleType

import numpy as np

RNG = np.random.default_rng(11)
HEADERS = """
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/equal.h>
#include <thrust/fill.h>
#include <thrust/find.h>
#include <thrust/gather.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/replace.h>
#include <thrust/reverse.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/swap.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>
using namespace thrust;
"""
NUMBERS = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
KEYS = np.array([0, 0, 0, 1, 1, 2, 0, 0], np.int32)
SUMS = np.cumsum(NUMBERS)

# What a thread does with the numbers x and the keys k, eight each, and the results in out.
STEPS: dict[str, tuple[str, list[int]]] = {
    "adjacent_difference": (
        "adjacent_difference(device, x, x + 8, out);",
        np.diff(NUMBERS, prepend=0).tolist(),
    ),
    "inclusive_scan": ("inclusive_scan(seq, x, x + 8, out);", SUMS.tolist()),
    "exclusive_scan": ("exclusive_scan(seq, x, x + 8, out);", (SUMS - NUMBERS).tolist()),
    "exclusive_scan_init": (
        "exclusive_scan(seq, x, x + 8, out, 10);",
        (SUMS - NUMBERS + 10).tolist(),
    ),
    "scan_by_key": (
        "inclusive_scan_by_key(device, k, k + 8, x, out);",
        [3, 4, 8, 1, 6, 9, 2, 8],
    ),
    "scan_by_key_before": (
        "copy(device, x, x + 8, out); exclusive_scan_by_key(device, k, k + 8, out, out, 5);",
        [5, 8, 9, 5, 6, 5, 5, 7],
    ),
    "reduce_by_key": (
        (
            "tuple<int*, int*> ends = reduce_by_key(device, k, k + 8, x, out, out + 4);"
            "out[3] += get<0>(ends) - out; out[7] += get<1>(ends) - out - 4;"
        ),
        [0, 1, 2, 4, 8, 6, 9, 12],
    ),
    "sort": ("copy(device, x, x + 8, out); sort(device, out, out + 8);", sorted(NUMBERS.tolist())),
    "sort_descending": (
        "copy(device, x, x + 8, out); sort(device, out, out + 8, greater<int>());",
        sorted(NUMBERS.tolist(), reverse=True),
    ),
    "sort_by_key": (
        (
            "int keys[8]; copy(device, x, x + 8, keys); sequence(device, out, out + 8);"
            "stable_sort_by_key(device, keys, keys + 8, out);"
        ),
        np.argsort(NUMBERS, stable=True).tolist(),
    ),
    "searches": (
        (
            "out[0] = lower_bound(seq, k, k + 6, 1) - k;"
            "out[1] = upper_bound(seq, k, k + 6, 1) - k;"
            "out[2] = binary_search(seq, k, k + 6, 2); out[3] = binary_search(seq, k, k + 6, 3);"
            "auto range = equal_range(seq, k, k + 6, 0); out[4] = get<1>(range) - range.first;"
            "int at[2] = {2, 1}; upper_bound(seq, k, k + 6, at, at + 2, out + 5);"
            "out[7] = is_sorted(seq, k, k + 8) * 10 + (is_sorted_until(seq, k, k + 8) - k);"
        ),
        [3, 5, 1, 0, 3, 6, 5, 6],
    ),
    "finds": (
        (
            "out[0] = count(device, x, x + 8, 1); out[1] = find(device, x, x + 8, 5) - x;"
            "out[2] = find(device, x, x + 8, 7) - x; out[3] = equal(device, x, x + 8, x);"
            "out[4] = equal(device, x, x + 8, k);"
            "out[5] = mismatch(device, k, k + 3, k + 1).first - k;"
            "out[6] = reduce(device, x, x + 8, 10); out[7] = inner_product(device, x, x + 8, k, 0);"
        ),
        [2, 4, 8, 1, 0, 2, 41, 24],
    ),
    "removes": (
        (
            "fill(device, out, out + 8, 0); int* end = remove_copy(device, x, x + 8, out, 1);"
            "end = remove(device, out, end, 9); *end = -1; *(end + 1) = -1; *(end + 2) = end - out;"
        ),
        [3, 4, 5, 2, 6, -1, -1, 5],
    ),
    "unique": (
        (
            "copy(device, k, k + 8, out);"
            "int* end = unique(device, out, out + 8); out[7] = end - out;"
            "copy_n(device, make_constant_iterator(7), 3, out + 4);"
        ),
        [0, 1, 2, 0, 7, 7, 7, 4],
    ),
    "reverse": (
        (
            "reverse_copy(device, x, x + 8, out); reverse(device, out, out + 5);"
            "replace(device, out, out + 8, 1, 8);"
        ),
        [8, 5, 9, 2, 6, 4, 8, 3],
    ),
    "gather": (
        (
            "int map[8]; sequence(device, map, map + 8, 7, -1);"
            "gather(device, map, map + 4, x, out);"
            "scatter(device, x, x + 4, map, out); swap_ranges(device, out, out + 2, out + 2);"
        ),
        [9, 5, 6, 2, 1, 4, 1, 3],
    ),
}


def test_algorithms(cp: ModuleType) -> None:
    cases = "".join(
        f"case {place}: {{ {code} break; }}\n" for place, (code, _) in enumerate(STEPS.values())
    )
    kernel = cp.RawKernel(
        f'{HEADERS} extern "C" __global__ void k(const int* x, const int* k, int* result) {{'
        f"int* out = result + 8 * blockIdx.x; switch (blockIdx.x) {{ {cases} }} }}",
        "k",
    )
    out = cp.full((len(STEPS), 8), -7, "i4")
    kernel((len(STEPS),), (1,), (cp.asarray(NUMBERS), cp.asarray(KEYS), out))
    found = dict(zip(STEPS, out.get().tolist(), strict=True))
    assert found == {name: expected for name, (_, expected) in STEPS.items()}


def test_reductions_of_waves_and_blocks(cp: ModuleType) -> None:
    kernel = cp.RawKernel(
        """
        #include <hipcub/hipcub.hpp>
        extern "C" __global__ void k(const short* x, const double* y, short* sum, double* most) {
            typedef hipcub::WarpReduce<short> Wave;
            typedef hipcub::BlockReduce<double, 150> Block;
            __shared__ Wave::TempStorage nothing;
            __shared__ Block::TempStorage storage;
            int i = threadIdx.x;
            short total = Wave(nothing).Sum(x[i], min(64, 150 - i / 64 * 64));
            double largest = Block(storage).Reduce(y[i], hipcub::Max());
            if (i % 64 == 0) sum[i / 64] = total;
            if (i == 0) *most = largest;
        }
        """,
        "k",
    )
    x = np.zeros(192, np.int16)
    x[:150] = RNG.integers(-100, 100, 150)
    y = RNG.standard_normal(150) - 9
    sums, most = cp.zeros(3, "i2"), cp.zeros(1)
    kernel((1,), (150,), (cp.asarray(x), cp.asarray(y), sums, most))
    assert sums.get()[:2].tolist() == x.reshape(3, 64).sum(axis=1)[:2].tolist()
    assert most[0] == y.max()
