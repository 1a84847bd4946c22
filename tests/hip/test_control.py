"""Divergence, switches, calls and barriers against Python."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(6)
N = 192
LAUNCH = ((3, 1, 1), (64, 1, 1))


def wrap(values) -> np.ndarray:
    """Return Python integers as int32, wrapped around."""
    return np.array([v & 0xFFFFFFFF for v in values], np.uint32).view(np.int32)


def test_loops_of_different_lengths(program) -> None:
    start = RNG.integers(1, 200, N).astype(np.uint32)
    steps = np.zeros(N, np.uint32)
    program("control.hip")("collatz", *LAUNCH, start, steps)

    def length(value: int) -> int:
        count = 0
        while value != 1:
            value = 3 * value + 1 if value % 2 else value // 2
            count += 1
        return count

    assert steps.tolist() == [length(value) for value in start.tolist()]


def test_early_returns(program) -> None:
    x = RNG.integers(-5, 30, N).astype(np.int32)
    out = np.full(N, 77, np.int32)
    program("control.hip")("early_return", *LAUNCH, x, out, np.int32(150))
    expected = [-1 if v < 0 else sum(j for j in range(min(v, 13)) if j % 3 != 1) for v in x]
    np.testing.assert_array_equal(out[:150], expected[:150])
    assert (out[150:] == 77).all()


def test_switches(program) -> None:
    x = RNG.integers(0, 50_000, N).astype(np.uint32)
    x[:24] = np.arange(24)
    out = np.zeros(N, np.int32)
    program("control.hip")("switches", *LAUNCH, x, out)

    def case(v: int) -> int:
        table = {
            0: 7,
            1: 3 * v,
            2: -v,
            3: v ^ 0x55,
            4: v >> 2,
            5: v >> 2,
            7: 1000 + v,
            8: 1000 + v,
            11: v * v,
        }
        return table.get(v % 12, 1)

    np.testing.assert_array_equal(out, wrap(case(v) for v in x.tolist()))


def test_table_of_constants(program) -> None:
    x = RNG.integers(0, 2**32, N, dtype=np.uint32)
    out = np.zeros(N, np.int32)
    program("control.hip")("look_up", *LAUNCH, x, out)
    digits = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
    np.testing.assert_array_equal(out, 2 * digits[x & 15])


def test_calls(program) -> None:
    x = RNG.integers(0, 100, N).astype(np.int32)
    out, f = np.zeros(N, np.int32), np.zeros(N, np.float32)
    program("control.hip")("calls", *LAUNCH, x, out, f)

    def called(v: int) -> int:
        polynomial = 1
        for i in range(3):
            polynomial = polynomial * (v & 7) + i
        local = 2 * v + (polynomial if v % 2 else 0)
        return sum((i + 1) * a for i, a in enumerate((v, 1, 2, 3, v, 5, 6, v + 1))) + local

    assert out.tolist() == [called(v) for v in x.tolist()]
    np.testing.assert_array_equal(f, 0.5 * x + 1 - x + (x & 255))


def test_a_call_that_needs_no_stack(program) -> None:
    x = RNG.integers(-99, 99, N).astype(np.int32)
    out = np.zeros(N, np.int32)
    program("control.hip")("call_of_a_leaf", *LAUNCH, x, out)
    np.testing.assert_array_equal(out, x**3 + x + 2)


def test_a_bit_field_is_added_to_across_words(program) -> None:
    x = RNG.integers(0, 99, N).astype(np.int32)
    out = np.zeros(N, np.uint64)
    program("control.hip")("wide_fields", *LAUNCH, x, out)
    np.testing.assert_array_equal(out, x.astype(np.uint64) + np.uint64(1 << 33))


def test_indirect_calls(program) -> None:
    x = RNG.integers(0, 1000, N).astype(np.int32)
    out = np.zeros(N, np.int32)
    program("control.hip")("indirect_calls", *LAUNCH, x, out)
    functions = (lambda v: 2 * v, lambda v: v * v, lambda v: -v)
    assert out.tolist() == [functions[v % 3](v) for v in x.tolist()]


@pytest.mark.parametrize("threads", [64, 192])
def test_barriers_in_a_loop(program, threads) -> None:
    x = RNG.integers(-100, 100, (2, threads)).astype(np.int32)
    out = np.zeros_like(x)
    program("control.hip")("rounds", (2, 1, 1), (threads, 1, 1), x, out, np.int32(7))
    ring = x.astype(np.int64)
    for i in range(7):
        neighbour = np.roll(ring, -1, axis=1)
        ring = ring + np.where((np.arange(threads) + i) % 3, neighbour, 0)
    np.testing.assert_array_equal(out, wrap(ring.ravel().tolist()).reshape(out.shape))


def test_barrier_on_both_sides(program) -> None:
    x = RNG.integers(-1000, 1000, 128).astype(np.int32)
    out = np.zeros_like(x)
    program("control.hip")("barrier_on_both_sides", (1, 1, 1), (128, 1, 1), x, out)
    np.testing.assert_array_equal(out[:64], 2 * x[64:][::-1])
    np.testing.assert_array_equal(out[64:], x[:64][::-1] + 1)


@pytest.mark.parametrize("order", ["lockstep", "forward", "reverse", ("random", 5)])
def test_mandelbrot(program, order) -> None:
    out = np.zeros(N, np.int32)
    scale = np.float32(0.1875)
    program("control.hip")("mandelbrot", *LAUNCH, out, np.int32(16), scale, order=order)
    i = np.arange(N)
    cx, cy = (i % 16).astype(np.float32) * scale - 2, (i // 16).astype(np.float32) * scale - 1
    x, y = np.zeros(N, np.float32), np.zeros(N, np.float32)
    count, alive = np.zeros(N, np.int32), np.ones(N, bool)
    for _ in range(40):
        alive &= x.astype(np.float64) ** 2 + y.astype(np.float64) ** 2 <= 4
        x, y = np.where(alive, x * x - y * y + cx, x), np.where(alive, 2 * x * y + cy, y)
        count += alive
    assert (np.abs(out - count) <= 1).mean() > 0.97  # the compiler fuses; points on the edge differ
