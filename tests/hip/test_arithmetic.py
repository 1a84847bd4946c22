"""Division, wide integers, bits, floats and conversions against Python and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(5)
N = 128
LAUNCH = ((2, 1, 1), (64, 1, 1))
M32, M64 = 2**32 - 1, 2**64 - 1


def integers(dtype, n: int = N) -> np.ndarray:
    """Return integers of every magnitude, with the extremes."""
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    x >>= RNG.integers(0, info.bits - 1, n).astype(dtype)
    x[:4] = [info.min, info.max, 1, info.max - 1]
    return x


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64", "i16", "u8"])
def test_integer_division(program, kind) -> None:
    dtype = np.dtype({"i": "int", "u": "uint"}[kind[0]] + kind[1:])
    a, b = integers(dtype), integers(dtype)[::-1].copy()
    b[b == 0] = 3
    q, r = np.zeros_like(a), np.zeros_like(a)
    program("arithmetic.hip")(f"divide_{kind}", *LAUNCH, a, b, q, r)
    exact = [
        abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1)
        for x, y in zip(a, b, strict=True)
    ]
    np.testing.assert_array_equal(q, np.array([e & M64 for e in exact], np.uint64).astype(dtype))
    remainders = [int(x) - e * int(y) for x, y, e in zip(a, b, exact, strict=True)]
    np.testing.assert_array_equal(r, np.array(remainders).astype(dtype))


@pytest.mark.parametrize(
    ("a", "b"), [(-123456789012345678, 37), (2**62 + 12345, 5), (17, 123456789123)]
)
def test_scalar_arithmetic(program, a, b) -> None:
    out = np.zeros(12, np.int64)
    program("arithmetic.hip")("scalar_i64", (1, 1, 1), (64, 1, 1), np.array([a, b]), out)
    ua = a & M64
    expected = [
        a + b,
        a - b,
        a * b,
        a << (b & 63),
        a >> (b & 63),
        ua >> (b & 63),
        min(a, b),
        ua.bit_count() * 100 + 64 - (ua | 1).bit_length(),
        (abs(a) // 10 * (1 if a > 0 else -1)) + b % 1000003,
        ua % 97,
        ((b | 256) & -(b | 256)).bit_length() - 1,
        (a ^ b) & ~(a | 15),
    ]
    np.testing.assert_array_equal(out.view(np.uint64), [e & M64 for e in expected])


def test_bits(program) -> None:
    x = integers(np.uint32)
    out = np.zeros((N, 12), np.uint32)
    program("arithmetic.hip")("bits_u32", *LAUNCH, x, out)
    for i in range(N):
        v, w = int(x[i]), int(x[i ^ 1])
        sv, sw = (u - 2**32 if u >> 31 else u for u in (v, w))
        s = w & 31
        expected = [
            v.bit_count(),
            32 - v.bit_length(),
            (v & -v).bit_length() - 1 if v else 32,
            int(f"{v:032b}"[::-1], 2),
            int.from_bytes(v.to_bytes(4, "little"), "big"),
            v >> s,
            v << s & M32,
            sv >> s & M32,
            v * w >> 32,
            sv * sw >> 32 & M32,
            (v << 32 | w) >> 8 & M32,
            (v >> (w & 15) & 511) + permute_bytes(v, w, 0x07010600) & M32,
        ]
        assert out[i].tolist() == expected


def permute_bytes(high: int, low: int, selector: int) -> int:
    data = (high << 32 | low).to_bytes(8, "little")
    return int.from_bytes(bytes(data[s] for s in selector.to_bytes(4, "little")), "little")


def test_wide_integers(program) -> None:
    x = integers(np.uint64)
    out = np.zeros((N, 8), np.uint64)
    program("arithmetic.hip")("wide_u64", *LAUNCH, x, out)
    for i in range(N):
        v, w = int(x[i]), int(x[i ^ 1])
        sv, sw = (u - 2**64 if u >> 63 else u for u in (v, w))
        s = w & 63
        trailing = ((w | 1) & -(w | 1)).bit_length() - 1
        expected = [
            v * w & M64,
            v << s & M64,
            v >> s,
            sv >> s & M64,
            v * w >> 64,
            v.bit_count() + 64 * (64 - (v | 1).bit_length()) + 4096 * trailing,
            abs(v - w),
            (v + w if sv < sw else v ^ w) & M64,
        ]
        assert out[i].tolist() == expected


def floats(dtype, n: int = N) -> np.ndarray:
    x = (RNG.normal(0, 1, n) * 2.0 ** RNG.integers(-20, 20, n)).astype(dtype)
    x[:8] = [0, -0.0, 1, -1.5, 2.5, np.inf, -np.inf, 1e-30]
    return x


def test_single_precision(program) -> None:
    """Division and square root are correctly rounded (the default of clang without -ffast-math)."""
    x, y = floats(np.float32), floats(np.float32)[::-1].copy()
    out = np.zeros((N, 10), np.float32)
    program("arithmetic.hip")("float_f32", *LAUNCH, x, y, out)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) * y + 1.5  # rounds twice at most in cases that the test avoids
        expected = [
            x / y,
            np.sqrt(np.abs(x)),
            wide.astype(np.float32),
            np.minimum(x, y),
            np.maximum(x, y),
            np.rint(x),
            np.floor(x) + np.ceil(y),
            np.trunc(x),
            np.copysign(x, y),
            x * np.float32(8),
        ]
    for column, values in enumerate(expected):
        np.testing.assert_array_equal(out[:, column], values, err_msg=f"column {column}")


def test_double_precision(program) -> None:
    x, y = floats(np.float64), floats(np.float64)[::-1].copy()
    out = np.zeros((N, 8), np.float64)
    program("arithmetic.hip")("float_f64", *LAUNCH, x, y, out)
    with np.errstate(all="ignore"):
        expected = {
            0: x / y,
            1: np.sqrt(np.abs(x)),
            3: np.minimum(x, y),
            4: np.rint(x),
            5: np.floor(y),
            7: y / 32,
        }
        fused = {2: x * y - 0.75, 6: x * y - x}
    for column, values in expected.items():
        np.testing.assert_array_equal(out[:, column], values, err_msg=f"column {column}")
    for column, values in fused.items():
        np.testing.assert_allclose(out[:, column], values, rtol=1e-9, err_msg=f"column {column}")


def test_hardware_approximations(program) -> None:
    x = np.abs(RNG.normal(0, 4, N)).astype(np.float32) + np.float32(0.01)
    out = np.zeros((N, 6), np.float32)
    program("arithmetic.hip")("transcendental", *LAUNCH, x, out)
    wide = x.astype(np.float64)
    turns = 2 * np.pi * wide
    references = [1 / wide, wide**-0.5, 2**wide, np.log2(wide), np.sin(turns), np.cos(turns)]
    for column, reference in enumerate(references):
        np.testing.assert_allclose(out[:, column], reference, rtol=3e-6, atol=3e-6)


def test_conversions(program) -> None:
    x = floats(np.float32)
    x[5:7] = 3e9, -3e9
    d, h, b = np.zeros(N), np.zeros(N, np.float16), np.zeros(N, ml_dtypes.bfloat16)
    i, u, wide = np.zeros(N, np.int32), np.zeros(N, np.uint32), np.zeros(N, np.int64)
    program("arithmetic.hip")("conversions", *LAUNCH, x, d, h, b, i, u, wide)
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(d, exact * 3)
        np.testing.assert_array_equal(h, x.astype(np.float16))
        np.testing.assert_array_equal(b, x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(i, np.trunc(exact).clip(-(2**31), 2**31 - 1).astype(np.int64))
    np.testing.assert_array_equal(u, np.trunc(np.abs(exact)).clip(0, M32).astype(np.int64))
    np.testing.assert_array_equal(wide, np.trunc(exact * 65536).astype(np.int64))


def test_conversions_from_integers(program) -> None:
    wide, u, h = integers(np.int64), integers(np.uint32), RNG.normal(0, 9, N).astype(np.float16)
    d, f, g = np.zeros(N), np.zeros(N, np.float32), np.zeros(N, np.float32)
    program("arithmetic.hip")("back_conversions", *LAUNCH, wide, u, h, d, f, g)
    np.testing.assert_array_equal(d, wide.astype(np.float64))
    np.testing.assert_array_equal(f, wide.astype(np.float32) + u.astype(np.float32))
    np.testing.assert_array_equal(g, h.astype(np.float32) + (u >> 16 & 255).astype(np.float32))


def test_half_precision(program) -> None:
    x, y = (RNG.normal(0, 10, N).astype(np.float16) for _ in range(2))
    out = np.zeros((N, 5), np.float16)
    program("arithmetic.hip")("half_f16", *LAUNCH, x, y, out)
    a, b = x.astype(np.float64), y.astype(np.float64)
    expected = [a + b, a * b, a / b, a * b + a, np.minimum(a, b)]
    for column, values in enumerate(expected):
        with np.errstate(over="ignore"):  # a quotient may be infinite
            rounded = values.astype(np.float16)
        np.testing.assert_array_equal(out[:, column], rounded, str(column))


def test_saturation(program) -> None:
    a, b = integers(np.int32), integers(np.int32)[::-1].copy()
    out = np.zeros((N, 3), np.int32)
    program("arithmetic.hip")("saturating", *LAUNCH, a, b, out)
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    low, high = -(2**31), 2**31 - 1
    np.testing.assert_array_equal(out[:, 0], (wide_a + wide_b).clip(low, high))
    np.testing.assert_array_equal(out[:, 1], (wide_a - wide_b).clip(low, high))
    np.testing.assert_array_equal(out[:, 2], np.maximum(np.minimum(a, b), -1000))
