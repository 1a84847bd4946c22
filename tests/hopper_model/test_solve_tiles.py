"""The kernel for tiles of factorisations and of triangular systems, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._backends.solver_kernels import SOLVE_TILES
from cupygemm._solvers.common import kernels, tiles
from tests.hopper_model.device import HostKernel, Model

ROWS = 128


def run(dtype, c, t, info, extents, *, factors, unit=False, source=None, tile_rows=ROWS):
    """Launch the kernel as the solvers do; the places are addresses with three strides."""
    threads = 2 * tile_rows
    source = source or c
    rows, n, batches = extents
    rows_adjacent, together = tiles._way(np.dtype(dtype), *c)
    triangle_rows_adjacent, triangle_together = tiles._way(np.dtype(dtype), *t)
    shared_bytes = tiles.shared_bytes(
        np.dtype(dtype), rows_adjacent, triangle_rows_adjacent, tile_rows
    )
    constants = {
        "threads": threads,
        "factors": factors,
        "unit": unit,
        "rows_adjacent": rows_adjacent,
        "together": together,
        "triangle_rows_adjacent": triangle_rows_adjacent,
        "triangle_together": triangle_together,
        "shared_bytes": shared_bytes,
    }
    text = kernels.source(SOLVE_TILES, dtype, constants)
    progress = np.zeros(1 + batches * -(-rows // tile_rows), np.uint64)
    inverses = np.full(batches * -(-rows // tiles.TILE) * tiles.TILE * 8, np.nan, dtype)
    packed = struct.pack(
        SOLVE_TILES.arguments,
        c[0],
        *c[1],
        source[0],
        *source[1],
        t[0],
        *t[1],
        progress.ctypes.data,
        inverses.ctypes.data,
        info.ctypes.data if info is not None else 0,
        rows,
        n,
        batches,
        0,
    )
    kernel = HostKernel(Model(), text, SOLVE_TILES.entry)
    kernel.max_dynamic_shared_size_bytes = shared_bytes
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel.launch((2, 1, 1), (threads, 1, 1), shared_bytes, ctypes.addressof(argument))


def stacked(shape, dtype):
    """Return an array whose rows begin at multiples of 128 bytes, with NaN after them."""
    batches, m, n = shape
    whole = np.full((batches, m, -(-n // 32) * 32), np.nan, dtype)
    return whole, whole[:, :, :n]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize(("batches", "n"), [(1, 5), (2, 92), (2, 130), (1, 261)])
def test_factors(batches, n, dtype):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((batches, n, n))
    matrix = x @ x.swapaxes(-1, -2) / n + np.eye(n)
    whole, a = stacked((batches, n, n), dtype)
    a[...] = np.where(np.tri(n, dtype=bool), matrix, np.nan)
    info = np.zeros(batches, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, whole[0].size)
    run(dtype, place, place, info, (n, n, batches), factors=True)
    expected = np.linalg.cholesky(matrix)
    assert not info.any()
    np.testing.assert_allclose(a, expected, rtol=0, atol=n * np.finfo(dtype).eps)
    assert np.isnan(whole[:, :, n:]).all()


@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("reports", [False, True])
def test_a_matrix_that_is_not_positive_definite(dtype, reports):
    """Its info is written if there is a place for it."""
    n = 20
    whole, a = stacked((2, n, n), dtype)
    a[...] = np.eye(n)
    a[1, 11, 11] = a[1, 15, 15] = -1
    info = np.zeros(2, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, whole[0].size)
    run(dtype, place, place, info if reports else None, (n, n, 2), factors=True)
    assert info.tolist() == [0, 12 if reports else 0]
    np.testing.assert_array_equal(a[0], np.eye(n))


@pytest.mark.parametrize("dtype", "df")
def test_factors_of_matrices_elsewhere(dtype):
    """They are read with their own strides, and stay."""
    n = 140
    rng = np.random.default_rng(n)
    x = rng.standard_normal((2, n, n))
    matrix = (x @ x.swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
    upper = np.where(np.tri(n, dtype=bool).T, matrix, np.nan).astype(dtype)
    kept = upper.copy()
    whole, a = stacked((2, n, n), dtype)
    info = np.zeros(2, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, whole[0].size)
    source = upper.ctypes.data, (1, n, n * n)
    run(dtype, place, place, info, (n, n, 2), factors=True, source=source)
    expected = np.linalg.cholesky(matrix.astype("d"))
    assert not info.any()
    np.testing.assert_allclose(a, expected, rtol=0, atol=n * np.finfo(dtype).eps)
    np.testing.assert_array_equal(upper, kept)


@pytest.mark.parametrize("dtype", "df")
def test_factors_whose_diagonal_blocks_have_inexact_inverses(dtype):
    """They are substituted, in the tile on the diagonal and in the one below."""
    n, epsilon = 140, float(np.finfo(dtype).eps)
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, n))
    for first in range(0, n, 20):  # rows that nearly depend on each other
        x[first + 1 : first + 4] = x[first] + epsilon**0.3 * x[first + 1 : first + 4]
    matrix = (x @ x.T / n + epsilon**0.75 * np.eye(n)).astype(dtype)
    whole, a = stacked((1, n, n), dtype)
    a[0] = matrix
    info = np.zeros(1, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, 0)
    run(dtype, place, place, info, (n, n, 1), factors=True)
    assert not info.any()
    factor = np.linalg.cholesky(matrix.astype("d"))
    block = slice(20 // 8 * 8, 20 // 8 * 8 + 8)
    of_block = factor[block, block]
    assert (np.abs(np.linalg.inv(of_block)) @ np.abs(of_block)).sum(axis=0).max() > 100
    found = a[0].astype("d")
    error = np.abs(found @ found.T - matrix).max() / np.abs(matrix).max()
    assert error <= 20 * epsilon


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("tile_rows", [64, 128])
@pytest.mark.parametrize(("n", "columns", "unit"), [(130, 150, False), (300, 20, True)])
def test_triangular_systems(dtype, n, columns, unit, tile_rows, lower, transposed):
    rng = np.random.default_rng(n)
    whole, t = stacked((1, n, n), dtype)
    t[...] = rng.standard_normal((n, n)) / n + 2 * np.eye(n)
    used = np.tril(t[0]) if lower else np.triu(t[0])
    if unit:
        np.fill_diagonal(used, 1)
    t[0][used == 0] = np.nan
    _, x = stacked((1, n, columns), dtype)
    b = (used.T if transposed else used) @ rng.standard_normal((n, columns))
    x[0] = b
    pitch, b_pitch = whole.shape[2], x.strides[1] // x.itemsize
    row, column, b_row = (1, pitch, b_pitch) if transposed else (pitch, 1, b_pitch)
    at, place = t.ctypes.data, x.ctypes.data
    if lower == transposed:  # from the last row up
        at += x.itemsize * (n - 1) * (pitch + 1)
        place += x.itemsize * (n - 1) * b_pitch
        row, column, b_row = -row, -column, -b_row
    run(
        dtype,
        (place, (1, b_row, 0)),
        (at, (row, column, 0)),
        None,
        (columns, n, 1),
        factors=False,
        unit=unit,
        tile_rows=tile_rows,
    )
    np.testing.assert_allclose(
        (used.T if transposed else used) @ x[0],
        b,
        rtol=0,
        atol=n * np.finfo(dtype).eps * abs(b).max(),
    )


@pytest.mark.parametrize("dtype", "df")
def test_rows_elsewhere_over_an_upper_triangle(dtype):
    """What is above stays, and so does what is below the diagonal unread."""
    m, n = 200, 128
    rng = np.random.default_rng(m)
    upper = np.triu(rng.standard_normal((n, n)) / n + 2 * np.eye(n))
    t = np.where(upper == 0, np.nan, upper).astype(dtype)
    source = rng.standard_normal((m, 160)).astype(dtype)
    x = np.full((m, 192), np.nan, dtype)
    places = [(each.ctypes.data, (len(each[0]), 1, 0)) for each in (x, source)]
    transposed = t.ctypes.data, (1, n, 0)
    run(dtype, places[0], transposed, None, (m, n, 1), factors=False, source=places[1])
    error = abs(x[:, :n] @ upper - source[:, :n]).max()
    assert error <= n * np.finfo(dtype).eps * abs(source).max()
    assert np.isnan(x[:, n:]).all()


def test_the_first_column_that_is_not_positive():
    whole, a = stacked((1, 140, 140), "d")
    a[...] = np.eye(140)
    a[0, 133, 133] = -1
    info = np.zeros(1, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, 0)
    run("d", place, place, info, (140, 140, 1), factors=True)
    assert info[0] == 134


@pytest.mark.parametrize("tile_rows", [64, 128])
@pytest.mark.parametrize(("dtype", "diagonal"), [("d", 1e-3), ("f", 0.13)])
def test_an_ill_conditioned_triangle_is_substituted(dtype, diagonal, tile_rows):
    """Products with the inverses of its blocks would be inexact."""
    n, columns = 140, 8
    whole, t = stacked((1, n, n), dtype)
    t[0] = np.tril(np.full((n, n), -0.1), -1) + np.eye(n) * diagonal
    _, x = stacked((1, n, columns), dtype)
    x[0] = t[0].astype("d") @ np.random.default_rng(3).standard_normal((n, columns))
    b = x[0].astype("d")
    places = (
        (x.ctypes.data, (1, x.strides[1] // x.itemsize, 0)),
        (t.ctypes.data, (whole.shape[2], 1, 0)),
    )
    run(dtype, *places, None, (columns, n, 1), factors=False, tile_rows=tile_rows)
    triangle, solution = t[0].astype("d"), x[0].astype("d")
    error, size = np.abs(triangle @ solution - b), np.abs(triangle) @ np.abs(solution)
    assert (error <= 10 * n * np.finfo(dtype).eps / 2 * size).all()


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e307])
def test_pivots_whose_inverses_overflow_or_vanish(scale):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((9, 9))
    matrix = (x @ x.T + 9 * np.eye(9)) / 64
    whole, a = stacked((1, 9, 9), "d")
    a[0] = matrix * scale
    info = np.zeros(1, np.int32)
    place = whole.ctypes.data, (whole.shape[2], 1, 0)
    run("d", place, place, info, (9, 9, 1), factors=True)
    assert not info.any()
    expected = np.linalg.cholesky(matrix * scale)
    # Numbers near the smallest are multiples of it, and so are the squares of the factor's.
    unit = np.nextafter(0.0, 1.0)
    tolerance = 1e-13 * expected.max() + 9 * unit / expected.diagonal().min()
    np.testing.assert_allclose(a[0], expected, rtol=0, atol=tolerance)
