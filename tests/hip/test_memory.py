"""Address spaces, data layout and access widths against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(7)


@pytest.mark.slow
def test_struct_by_value(program) -> None:
    pair = np.dtype([("scale", "f4"), ("shift", "i2"), ("flags", "u1", 3)], align=True)
    layout = np.dtype(
        [("x", "u8"), ("pairs", pair, 2), ("offset", "i8"), ("out", "u8"), ("bias", "f8")],
        align=True,
    )
    run = program("memory.hip")
    x = RNG.integers(-100, 100, 64).astype(np.float32)
    source, target = run.memory.malloc(x.nbytes), run.memory.malloc(4 * 70)
    run.memory.view(source, x.nbytes)[:] = x.view(np.uint8)
    run.memory.view(target, 280)[:] = 0
    args = np.zeros((), layout)
    args["x"], args["out"], args["offset"], args["bias"] = source, target, 6, -3.0
    args["pairs"]["scale"] = [2, -0.5]
    args["pairs"]["shift"] = [100, -7]
    args["pairs"]["flags"] = [[1, 2, 3], [4, 5, 6]]
    run("struct_by_value", (1, 1, 1), (64, 1, 1), args.tobytes(), np.uint8(200))
    out = run.memory.view(target, 280).view(np.float32)
    odd = np.arange(64) % 2
    flags = np.array([1 + 4 + 12, 4 + 10 + 24])[odd] + 200
    expected = x * np.array([2, -0.5])[odd] + np.array([100, -7])[odd] - 3 + flags
    np.testing.assert_array_equal(out[6:], expected.astype(np.float32))
    assert (out[:6] == 0).all()


def test_packed_records(program) -> None:
    layout = np.dtype([("tag", "u1"), ("count", "u4"), ("rest", "u2"), ("value", "f8")])
    records = np.zeros(96, layout)
    records["tag"] = RNG.integers(0, 256, 96)
    records["count"] = RNG.integers(0, 2**32, 96)
    records["rest"] = RNG.integers(0, 2**16, 96)
    records["value"] = RNG.integers(-1000, 1000, 96)
    out = np.zeros_like(records)
    program("memory.hip")("packed_records", (2, 1, 1), (48, 1, 1), records, out)
    np.testing.assert_array_equal(out["tag"], records["tag"])
    np.testing.assert_array_equal(out["count"], records["count"] + records["tag"])
    np.testing.assert_array_equal(out["rest"], ~records["rest"])
    np.testing.assert_array_equal(out["value"], 2 * records["value"] + records["rest"])


def test_globals_and_relocations(program) -> None:
    run = program("memory.hip")
    counters, pointed = np.array([10, 20, 30, 40]), np.array([2, 0, 3])
    i = np.arange(12)
    weights = np.array([[1, 2, 3], [4, 5, 6]])[i % 2, i % 3]
    out, d = np.zeros(12, np.int32), np.zeros(12)
    run("globals", (1, 1, 1), (12, 1, 1), out, d)
    np.testing.assert_array_equal(out, counters[pointed[i % 3]] + weights)
    np.testing.assert_array_equal(d, 2.5 * i)
    address, size = run.code.symbols["counters"]
    changed = run.memory.view(address, size).view(np.int32)
    assert changed.tolist() == [10, 25, 30, 40]


def test_private_array(program) -> None:
    x = RNG.integers(-1000, 1000, (70, 16)).astype(np.int32)
    out = np.zeros_like(x)
    program("memory.hip")("sort_private", (7, 1, 1), (10, 1, 1), x, out)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))


def test_private_bytes(program) -> None:
    text = RNG.integers(0, 40, (64, 50)).astype(np.uint8)
    out = np.zeros((64, 2), np.uint32)
    program("memory.hip")("scratch_bytes", (1, 1, 1), (64, 1, 1), text, out, np.int32(50))
    for row, (best, mixed) in zip(text, out.tolist(), strict=True):
        assert best == np.bincount(row, minlength=64).argmax()
        wide = [1000 * i + int(row[row % 8 == i].sum()) for i in range(8)]
        expected = 0
        for value in wide:
            expected = (31 * expected + value) & 0xFFFFFFFF
        assert mixed == expected


def test_indexed_vector(program) -> None:
    x = RNG.integers(-9, 9, 8).astype(np.float32)
    which = RNG.integers(0, 100, 66).astype(np.uint32)
    out = np.zeros(64, np.float32)
    program("memory.hip")("indexed_vector", (1, 1, 1), (64, 1, 1), x, which, out)
    v = x * np.arange(1, 9)
    v[which[0] & 7] += 100
    np.testing.assert_array_equal(out, v[which[1] & 7] + v[which[2:] & 7])


def test_generic_pointers(program) -> None:
    x = RNG.integers(-1000, 1000, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    program("memory.hip")("generic_pointers", (1, 1, 1), (64, 1, 1), x, out)
    t = np.arange(64)
    fours = x.reshape(16, 4).sum(1)[t // 4]
    np.testing.assert_array_equal(out, np.choose(t % 3, [3 * fours, 4 * x + 6, fours]))


@pytest.mark.parametrize("threads", [64, 130])
def test_dynamic_lds(program, threads) -> None:
    x = RNG.integers(0, 2**32, (3, threads), dtype=np.uint32)
    out = np.zeros_like(x)
    program("memory.hip")(
        "dynamic_lds", (3, 1, 1), (threads, 1, 1), x, out, dynamic_lds=5 * threads
    )
    other = np.arange(threads) ^ 1
    expected = x[:, ::-1] + (x >> 8 & 255)[:, other]
    np.testing.assert_array_equal(out, expected.astype(np.uint32))


def test_widths(program) -> None:
    x = RNG.integers(0, 256, (64, 48)).astype(np.uint8)
    out = np.zeros_like(x)
    program("memory.hip")("widths", (1, 1, 1), (64, 1, 1), x, out)
    expected = x.copy()
    halves = np.trunc(x[:, 31].view(np.int8) / 2).astype(np.int8)
    expected[:, 31] = halves.view(np.uint8)
    expected[:, 32] = 1
    expected[:, 46] = 2
    expected[:, 47] = 3
    np.testing.assert_array_equal(out, expected)


def test_text(program) -> None:
    text = np.frombuffer(
        b"The quick brown fox jumps over the lazy dog; 0123456789 {}[]`@" * 5, "u1"
    )
    out = np.zeros_like(text)
    program("memory.hip")("text", (2, 1, 1), (64, 1, 1), text, out, np.uint32(text.size))
    assert out.tobytes() == text.tobytes().upper()[::-1]


def test_buffers(program) -> None:
    """Past num_records a load gives 0 and a store does nothing, even inside the allocation."""
    x = RNG.integers(-100, 100, 128).astype(np.float32)
    out = np.full(128, 99, np.float32)
    program("memory.hip")("buffers", (2, 1, 1), (64, 1, 1), x, out, np.int32(101))
    expected = x[:101] + np.append(x[1:101], 0)
    np.testing.assert_array_equal(out[:101], expected)
    assert (out[101:] == 99).all()


def test_buffer_widths(program) -> None:
    x = RNG.integers(0, 256, (64, 32)).astype(np.uint8)
    out = np.zeros_like(x)
    program("memory.hip")("buffer_widths", (1, 1, 1), (64, 1, 1), x, out, np.int32(x.size))
    expected = np.zeros_like(x)
    expected[:, :27] = x[:, :27]
    expected[:, 28] = x[:, 30]
    np.testing.assert_array_equal(out, expected)


def test_straight_to_lds(program) -> None:
    x = RNG.integers(0, 2**32, 256, dtype=np.uint32)
    out = np.zeros_like(x)
    program("memory.hip")("straight_to_lds", (1, 1, 1), (256, 1, 1), x, out)
    i = np.arange(256)
    np.testing.assert_array_equal(out, x[i ^ 1][::-1])


def test_preloaded_arguments(program, variant) -> None:
    x = RNG.integers(-1000, 1000, 128).astype(np.int32)
    out = np.zeros_like(x)
    run = program("memory.hip")
    run("preloaded", (2, 1, 1), (64, 1, 1), x, out, np.int32(-3), np.int64(1000))
    np.testing.assert_array_equal(out, -3 * x + 62)
    if variant == ("gfx942", "-O3"):
        assert run.code.kernels["preloaded"].descriptor.preload_length > 0
