"""Reductions and scans against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("sum_f32", np.float32), ("sum_f64", np.float64), ("sum_u32", np.uint32)]
)
@pytest.mark.parametrize(("blocks", "threads"), [(3, 256), (1, 64), (2, 1024)])
def test_block_sums(program, kernel, dtype, blocks, threads) -> None:
    x = RNG.integers(0, 1000, 3000).astype(dtype)  # exact in every order
    out = np.zeros(blocks, dtype)
    program("reduce.hip")(kernel, (blocks, 1, 1), (threads, 1, 1), x, out, np.int32(x.size))
    expected = np.zeros(blocks, dtype)
    for block in range(blocks):
        for start in range(block * threads, x.size, blocks * threads):
            expected[block] += x[start : start + threads].sum(dtype=dtype)
    np.testing.assert_array_equal(out, expected)


def test_tree(program) -> None:
    x = RNG.integers(-(2**31), 2**31, 5 * 256).astype(np.int32)
    out = np.zeros(5, np.int32)
    program("reduce.hip")("max_tree", (5, 1, 1), (256, 1, 1), x, out)
    np.testing.assert_array_equal(out, x.reshape(5, 256).max(1))


@pytest.mark.parametrize("threads", [100, 192, 512])
def test_scan(program, threads) -> None:
    x = RNG.integers(0, 2**32, (4, threads), dtype=np.uint32)
    out, totals = np.zeros_like(x), np.zeros(4, np.uint32)
    program("reduce.hip")("scan_u32", (4, 1, 1), (threads, 1, 1), x, out, totals)
    np.testing.assert_array_equal(out, np.cumsum(x, axis=1, dtype=np.uint32))
    np.testing.assert_array_equal(totals, out[:, -1])


def test_scan_by_dpp(program) -> None:
    x = RNG.integers(-1000, 1000, (3, 64)).astype(np.int32)
    out = np.zeros_like(x)
    program("reduce.hip")("scan_dpp", (3, 1, 1), (64, 1, 1), x, out)
    np.testing.assert_array_equal(out, np.cumsum(x, axis=1))


def test_argmin(program) -> None:
    x = RNG.integers(-50, 50, 1000).astype(np.float32)
    index, value = np.zeros(1, np.int32), np.zeros(1, np.float32)
    program("reduce.hip")("argmin", (1, 1, 1), (128, 1, 1), x, index, value, np.int32(x.size))
    assert index[0] == x.argmin()
    assert value[0] == x.min()
