"""Tiles of a Cholesky factorisation or of a triangular system, in one launch.

Where the device has the kernel, ``kernels/hopper/solve_tiles.cu``, thread blocks claim tiles and
wait for the tiles on which these depend. So the panels of a factorisation overlap with the updates
of other columns without streams, and the host enqueues one launch.

A stack of matrices of one tile each has a separate kernel, ``kernels/hopper/factor_tile.cu``, whose
thread blocks are independent.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Launch
from cupygemm._backends.solver_kernels import FACTOR_TILE, SOLVE_TILES
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import spared
from cupygemm._solvers.common.kernels import load
from cupygemm._solvers.common.matrices import Matrices
from cupygemm._solvers.common.words import WORD_BYTES, store_words

TILE = 128
_LOW_TILE = 64
"""The rows of a tile of a triangular system with few right-hand sides."""
_ROWS_OF_WARP = 16
_LEAST_WHOLE = 17
"""The fewest rows of a matrix for `factor_whole`. Fewer would leave lanes without work."""
_NOT_WHOLE = {"f": range(65, 97)}
"""The rows of matrices, by type, for which the kernel for all devices is faster.

Six warps fill the registers of an SM's quarters unevenly, so an SM holds few such thread blocks.
"""
_SLAB, _STAGES, _BLOCK, _PAD = 16, 4, 8, 4
_VECTOR_BYTES = 16
_INVERSES_ALIGNED = 256
_MOST_ELEMENTS = 1 << 24
"""The most elements of the solution of a triangular system that one launch computes."""
Strides = tuple[int, int, int]
"""The elements between rows, between columns and between matrices."""


def factors_tiles(a: Matrices) -> bool:
    """Tell whether the current device factors such matrices in one launch."""
    return blocks.has_tile_kernels(a.dtype)


def factors_whole(n: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether `factor_whole` takes less time than the kernel for all devices (small.py)."""
    pays = _LEAST_WHOLE <= n <= TILE and n not in _NOT_WHOLE.get(dtype.char, ())
    return pays and blocks.has_tile_kernels(dtype)


def factor_whole(
    n: int,
    dtype: np.dtype[Any],
    a: tuple[int, int, int],
    factors: tuple[int, int, int],
    info: int,
    batches: int,
) -> None:
    """Compute the lower Cholesky factors of matrices that are one tile each, with zeros above.

    Parameters
    ----------
    n : int
        The rows of a matrix.
    dtype : numpy.dtype
        The element type.
    a, factors : tuple of int
        The address of the first matrix, and the elements between rows and between matrices. Only
        lower triangles are read. The two may be the same.
    info : int
        As for `factor`.
    batches : int
        The number of matrices.
    """
    launch = load(FACTOR_TILE, dtype, -(-n // _ROWS_OF_WARP) * 32)
    launch((batches, 1), *a, *factors, info, n, 0)


def solves_tiles(n: int, b: Matrices, columns: int) -> bool:
    """Tell whether to solve a triangular system in one launch.

    For larger systems, it is faster to halve the triangle and to multiply by its off-diagonal part.
    """
    return TILE // 2 < n <= _MOST_ELEMENTS // columns and blocks.has_tile_kernels(b.dtype)


def factor(a: Matrices, source: Array | None = None, *, info: int) -> None:
    """Compute the lower Cholesky factors of symmetric matrices, with zeros above the diagonal.

    Parameters
    ----------
    a : Matrices
        Square. They become the factors.
    source : cupy.ndarray, optional
        (batches, n, n), of the type of `a`: the matrices to factor, by default `a` itself. Only the
        lower triangles are read.
    info : int
        Zero, or the address of an int32 for each matrix, initially zero. If a matrix is not
        positive definite, its number becomes one more than the first column at which this is found.
    """
    place = a.address(0, 0), (a.pitch, 1, a.stride)
    if source is None:
        of_source = place
    else:
        stride, row, column = (each // source.itemsize for each in source.strides)
        of_source = source.data.ptr, (row, column, stride)
    extents = a.n, a.n, a.batches
    _launch(a.dtype, place, of_source, place, extents, factors=True, unit=False, info=info)


def solve(
    dtype: np.dtype[Any],
    t: int,
    t_strides: Strides,
    b: int,
    b_strides: Strides,
    extents: tuple[int, int, int],
    *,
    unit: bool,
) -> None:
    """Solve ``T X = B`` in place, with T lower triangular.

    Parameters
    ----------
    dtype : numpy.dtype
        The element type.
    t : int
        The address of T's first element.
    t_strides : tuple of int
        One of the first two is one or minus one.
    b : int
        The address of B's first element.
    b_strides : tuple of int
        The second is one.
    extents : tuple of int
        The rows of T, the columns of B, and the number of matrices.
    unit : bool
        Whether the diagonal of T is taken to be ones.
    """
    n, columns, batches = extents
    row, column, stride = b_strides
    place = b, (column, row, stride)
    extents = columns, n, batches
    _launch(dtype, place, place, (t, t_strides), extents, factors=False, unit=unit, info=0)


def divide(c: Array, triangle: Array, source: Array) -> None:
    """Store ``source @ inv(triangle)`` in `c`, of at most one tile's columns.

    Parameters
    ----------
    c : cupy.ndarray
        (m, n), with adjacent elements in rows.
    triangle : cupy.ndarray
        (n, n), C-contiguous and upper triangular. Elements below the diagonal are not read.
    source : cupy.ndarray
        As `c`.
    """
    (m, n), size = c.shape, c.itemsize
    of_c, of_source = ((int(x.data.ptr), (x.strides[0] // size, 1, 0)) for x in (c, source))
    transposed = int(triangle.data.ptr), (1, n, 0)
    _launch(c.dtype, of_c, of_source, transposed, (m, n, 1), factors=False, unit=False, info=0)


def _launch(
    dtype: np.dtype[Any],
    c: tuple[int, Strides],
    source: tuple[int, Strides],
    t: tuple[int, Strides],
    extents: tuple[int, int, int],
    *,
    factors: bool,
    unit: bool,
    info: int,
) -> None:
    import cupy

    rows, n, batches = extents
    _, units = blocks.current_limits()
    groups = max(units - spared(), 1)
    may_be_low = not factors and dtype.char == "d"  # not measured in float32
    tile_rows = _rows_of_tile(rows, n, batches, groups) if may_be_low else TILE
    across, down = -(-rows // tile_rows), -(-n // TILE)
    num_tiles = batches * (down * (down + 1) // 2 if factors else across * down)
    counters_bytes = _INVERSES_ALIGNED * -(-8 * (1 + batches * across) // _INVERSES_ALIGNED)
    inverses_bytes = batches * across * TILE * _BLOCK * dtype.itemsize if factors else 0
    memory = cupy.empty(counters_bytes + inverses_bytes, "uint8").data
    if down > 1:  # otherwise, no tile waits for others
        store_words(memory.ptr, 0, counters_bytes // WORD_BYTES)
    launch = _kernel(
        current_device(),
        dtype.char,
        tile_rows,
        (c[0] % _VECTOR_BYTES, c[1]),
        (t[0] % _VECTOR_BYTES, t[1]),
        factors,
        unit,
    )
    launch(
        (min(num_tiles, groups), 1),
        c[0],
        *c[1],
        source[0],
        *source[1],
        t[0],
        *t[1],
        memory.ptr,
        memory.ptr + counters_bytes,
        info,
        rows,
        n,
        batches,
        0,
    )


def _rows_of_tile(rows: int, n: int, batches: int, groups: int) -> int:
    """Return the rows of a tile of X, the solution of a triangular system.

    A tile of column q multiplies q tiles on its left, and waits for the last of them. With half of
    the rows, it takes three quarters of the time. So tiles are low where workgroups have less to
    multiply than takes as long as the tiles of a row, one after the other.

    Parameters
    ----------
    rows, n : int
        The extents of X.
    batches : int
    groups : int
        The most workgroups of the launch.
    """
    across, down = batches * -(-rows // _LOW_TILE), -(-n // TILE)
    return _LOW_TILE if across * (down + 2) <= 4 * groups else TILE


@functools.lru_cache(maxsize=1024)
def _kernel(
    index: int,
    char: str,
    tile_rows: int,
    c: tuple[int, Strides],
    t: tuple[int, Strides],
    factors: bool,
    unit: bool,
) -> Launch:
    """Return the kernel for operands of this alignment and these strides, loaded on a device."""
    dtype = np.dtype(char)
    rows_adjacent, together = _way(dtype, *c)
    triangle_rows_adjacent, triangle_together = _way(dtype, *t)
    return load(
        SOLVE_TILES,
        dtype,
        tile_rows // _ROWS_OF_WARP * 32,
        factors=factors,
        unit=unit,
        rows_adjacent=rows_adjacent,
        together=together,
        triangle_rows_adjacent=triangle_rows_adjacent,
        triangle_together=triangle_together,
        shared_bytes=shared_bytes(dtype, rows_adjacent, triangle_rows_adjacent, tile_rows),
    )


def _way(dtype: np.dtype[Any], address: int, strides: Strides) -> tuple[bool, int]:
    """Return whether the elements of a column are adjacent, and the number that one copy moves."""
    row, column, stride = strides
    rows_adjacent = abs(row) == 1 and column != 1
    along, across = (row, column) if rows_adjacent else (column, row)
    most = _VECTOR_BYTES // dtype.itemsize
    aligned = across % most == 0 and stride % most == 0 and address % _VECTOR_BYTES == 0
    return rows_adjacent, most if along == 1 and aligned else 1


def shared_bytes(
    dtype: np.dtype[Any],
    rows_adjacent: bool,
    triangle_rows_adjacent: bool,
    tile_rows: int = TILE,
) -> int:
    """Return the shared memory of a workgroup, as the kernel's struct ``Shared``."""
    slabs = sum(
        _SLAB * (size + _PAD) if adjacent else size * (_SLAB + _PAD)
        for size, adjacent in ((tile_rows, rows_adjacent), (TILE, triangle_rows_adjacent))
    )
    ring = max(_STAGES * slabs, TILE * (TILE + _PAD))
    of_blocks = (TILE + tile_rows) * (_BLOCK + _PAD)
    return dtype.itemsize * (ring + of_blocks + 3 * TILE) + 48
