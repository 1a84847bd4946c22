"""Matrix-vector products and dot products; small integers, so that every sum is exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_matvec(program, kind) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[
        kind
    ]
    a, x = RNG.integers(-8, 8, (10, 150)).astype(dtype), RNG.integers(-8, 8, 150).astype(dtype)
    y = np.zeros(10, np.float64 if kind == "f64" else np.float32)
    program("products.hip")(f"matvec_{kind}", (10, 1, 1), (64, 1, 1), a, x, y, np.int32(150))
    np.testing.assert_array_equal(y, a.astype(np.float64) @ x.astype(np.float64))


@pytest.mark.parametrize(("kind", "dtype"), [("i8", np.int8), ("u8", np.uint8)])
def test_dot_of_bytes(program, kind, dtype) -> None:
    info = np.iinfo(dtype)
    a, b = (RNG.integers(info.min, info.max, (64, 20), dtype, endpoint=True) for _ in range(2))
    out = np.zeros(64, np.int32 if kind == "i8" else np.uint32)
    program("products.hip")(f"dot_{kind}", (1, 1, 1), (64, 1, 1), a, b, out, np.int32(5))
    np.testing.assert_array_equal(out, (a.astype(np.int64) * b).sum(1))


def test_dot_f16(program) -> None:
    a, b = (RNG.integers(-16, 16, (64, 12)).astype(np.float16) for _ in range(2))
    out = np.zeros(64, np.float32)
    program("products.hip")("dot_f16", (1, 1, 1), (64, 1, 1), a, b, out, np.int32(6))
    np.testing.assert_array_equal(out, (a.astype(np.float64) * b).sum(1))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f16", np.float16)])
def test_packed_axpy(program, kind, dtype) -> None:
    x, y = (RNG.integers(-64, 64, 256).astype(dtype) for _ in range(2))
    expected = 3 * x + y
    program("products.hip")(f"axpy_pk_{kind}", (2, 1, 1), (64, 1, 1), x, y, np.float32(3))
    np.testing.assert_array_equal(y, expected)


def test_matmul(program) -> None:
    a, b = (RNG.integers(-8, 8, (48, 48)).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    program("products.hip")("matmul_f32", (3, 3, 1), (16, 16, 1), a, b, c, np.int32(48))
    np.testing.assert_array_equal(c, a @ b)
