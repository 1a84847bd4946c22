"""Atomics: results that no order of the threads changes."""

from __future__ import annotations

import functools

import numpy as np
import pytest

RNG = np.random.default_rng(3)


def test_histogram(program) -> None:
    x = (RNG.normal(100, 30, 5000).clip(0, 255)).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    program("atomics.hip")("histogram", (3, 1, 1), (192, 1, 1), x, bins, np.int32(x.size))
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def fold(operation, start, x):
    """Reduce in wrapping arithmetic of the array's type."""
    with np.errstate(over="ignore"):
        return functools.reduce(operation, x, start)


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64"])
def test_integer_operations(program, kind) -> None:
    dtype = np.dtype(kind.replace("32", "4").replace("64", "8"))
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 320, dtype=dtype, endpoint=True)
    where = RNG.integers(info.min, info.max, 7, dtype=dtype)
    operations = (
        np.add,
        np.subtract,
        np.minimum,
        np.maximum,
        np.bitwise_and,
        np.bitwise_or,
        np.bitwise_xor,
    )
    expected = [fold(op, start, x) for op, start in zip(operations, where, strict=True)]
    program("atomics.hip")(f"integer_{kind}", (5, 1, 1), (64, 1, 1), where, x)
    np.testing.assert_array_equal(where, np.array(expected, dtype))


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_in_lds(program, kind) -> None:
    dtype = np.dtype(kind.replace("32", "4").replace("64", "8"))
    x = RNG.integers(0, np.iinfo(dtype).max, 256, dtype=dtype, endpoint=True)
    out = np.zeros(6, dtype)
    program("atomics.hip")(f"lds_{kind}", (1, 1, 1), (256, 1, 1), out, x)
    operations = (np.add, np.subtract, np.maximum, np.bitwise_xor, np.bitwise_and, np.bitwise_or)
    starts = np.array([0, 0, 0, 0, np.iinfo(dtype).max, 0], dtype)
    expected = [fold(op, start, x) for op, start in zip(operations, starts, strict=True)]
    np.testing.assert_array_equal(out, np.array(expected, dtype))


def test_tickets(program) -> None:
    counter, taken = np.zeros(1, np.uint32), np.zeros(600, np.uint32)
    program("atomics.hip")("tickets", (6, 1, 1), (100, 1, 1), counter, taken)
    assert counter[0] == 600
    np.testing.assert_array_equal(np.sort(taken), np.arange(600))


def test_float_sums(program) -> None:
    x = RNG.integers(-100, 100, 192).astype(np.float32)
    f, d = np.zeros(1, np.float32), np.zeros(1, np.float64)
    program("atomics.hip")("float_sums", (3, 1, 1), (64, 1, 1), f, d, x)
    assert f[0] == d[0] == x.sum()


def test_float_sum_in_lds(program) -> None:
    x = RNG.integers(-100, 100, 128).astype(np.float32)
    out = np.zeros(1, np.float32)
    program("atomics.hip")("float_sum_in_lds", (1, 1, 1), (128, 1, 1), out, x)
    assert out[0] == x.sum()


def test_float_maximum(program) -> None:
    x = RNG.normal(0, 10, 192).astype(np.float32)
    out = np.full(1, -1e30, np.float32)
    program("atomics.hip")("float_maximum", (3, 1, 1), (64, 1, 1), out, x)
    assert out[0] == x.max()


def test_hash_table(program) -> None:
    keys = RNG.integers(1, 60, 192).astype(np.uint64)  # many lanes insert the same key
    table = np.zeros(128, np.uint64)
    program("atomics.hip")(
        "compare_exchange_u64", (3, 1, 1), (64, 1, 1), table, keys, np.uint32(128)
    )
    np.testing.assert_array_equal(np.sort(table[table > 0]), np.unique(keys))


def test_exchange(program) -> None:
    cell, seen = np.zeros(1, np.uint32), np.zeros(128, np.uint32)
    program("atomics.hip")("exchange", (2, 1, 1), (64, 1, 1), cell, seen)
    np.testing.assert_array_equal(np.sort(np.append(seen, cell)), np.arange(129))


def test_last_block_sums_up(program) -> None:
    x = RNG.integers(-1000, 1000, 9 * 16).astype(np.int32)
    partial, finished = np.zeros(9, np.int32), np.zeros(1, np.uint32)
    total = np.zeros(1, np.int32)
    program("atomics.hip")("last_block", (9, 1, 1), (64, 1, 1), x, partial, finished, total)
    assert total[0] == x.sum()
