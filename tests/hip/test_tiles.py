"""Two- and three-dimensional blocks against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("kind", ["f32", "u16", "u8", "f64"])
def test_transpose(program, kind) -> None:
    dtype = {"f32": np.float32, "u16": np.uint16, "u8": np.uint8, "f64": np.float64}[kind]
    rows, cols = 75, 50
    x = RNG.integers(0, 250, (rows, cols)).astype(dtype)
    out = np.zeros((cols, rows), dtype)
    program("tiles.hip")(
        f"transpose_{kind}", (2, 3, 1), (32, 8, 1), x, out, np.int32(rows), np.int32(cols)
    )
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("threads", [64, 96, 250])
def test_stencil_1d(program, threads) -> None:
    n = 700
    x = RNG.integers(-64, 64, n).astype(np.float32)
    out = np.zeros_like(x)
    program("tiles.hip")(
        "stencil_1d",
        (-(-n // threads), 1, 1),
        (threads, 1, 1),
        x,
        out,
        np.int32(n),
        dynamic_lds=4 * (threads + 4),
    )
    padded = np.pad(x, 2)
    weights = [0.0625, 0.25, 0.375, 0.25, 0.0625]
    expected = sum(w * padded[i : i + n] for i, w in enumerate(weights))
    np.testing.assert_array_equal(out, expected.astype(np.float32))


def test_stencil_3d(program) -> None:
    nx, ny, nz = 21, 13, 6
    x = RNG.integers(-100, 100, (nz, ny, nx)).astype(np.float32)
    out = np.full_like(x, -1)
    program("tiles.hip")(
        "stencil_3d", (2, 3, 1), (12, 5, 1), x, out, np.int32(nx), np.int32(ny), np.int32(nz)
    )
    expected = np.full_like(x, -1)
    inner = (slice(1, -1),) * 3
    expected[inner] = -6 * x[inner]
    for axis in range(3):
        for shift in (-1, 1):
            expected[inner] += np.roll(x, shift, axis)[inner]
    np.testing.assert_array_equal(out, expected)


def test_indices(program) -> None:
    grid, block = (3, 2, 2), (10, 3, 4)
    nx, ny, nz = (g * b for g, b in zip(grid, block, strict=True))
    out = np.zeros((nz, ny, nx), np.uint64)
    program("tiles.hip")("indices_3d", grid, block, out)
    z, y, x = np.indices(out.shape).astype(np.uint64)
    expected = x | y << np.uint64(16) | z << np.uint64(32) | (z % np.uint64(4)) << np.uint64(48)
    np.testing.assert_array_equal(out, expected)


def test_rows_by_odd_blocks(program) -> None:
    x = RNG.integers(-1000, 1000, (33, 70)).astype(np.int32)
    out = np.zeros(33, np.int32)
    program("tiles.hip")("row_sums", (3, 1, 1), (12, 11, 1), x, out, np.int32(70))
    np.testing.assert_array_equal(out, x.sum(1))


def test_large_grid(program) -> None:
    """Thousands of workgroups, so several batches of waves."""
    grid, block = (700, 5, 3), (4, 2, 2)
    nx, ny, nz = (g * b for g, b in zip(grid, block, strict=True))
    out = np.zeros((nz, ny, nx), np.uint64)
    stats = program("tiles.hip")("indices_3d", grid, block, out)
    assert stats.num_waves == 700 * 5 * 3
    z, y, x = np.indices(out.shape).astype(np.uint64)
    expected = x | y << np.uint64(16) | z << np.uint64(32) | (z % np.uint64(2)) << np.uint64(48)
    np.testing.assert_array_equal(out, expected)
