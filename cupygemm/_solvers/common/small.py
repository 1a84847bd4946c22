"""Small matrices: one launch factors all matrices of a stack, and optionally solves with them.

A matrix is held in registers, by 16 or 32 threads (``small_system.hpp``), or by groups of 16 or 32
threads that divide its columns (``small_rows.hpp``). Some devices have another kernel for Cholesky
factorisations of most sizes (``tiles.factor_whole``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import KernelKind, Launch
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks, tiles
from cupygemm._solvers.common.kernels import (
    SMALL_CHOLESKY,
    SMALL_INVERSE,
    SMALL_LU,
    SMALL_SYSTEM,
    load,
)
from cupygemm._solvers.common.matrices import Matrices
from cupygemm._solvers.common.reports import reported

Info = np.ndarray[Any, Any] | None

_MOST_ROWS, _MOST_COLUMNS = 32, 4
_THREADS = 128
_SIZES = (8, 16, 24, 32)
_MOST_OF_LARGEST_TYPE = 96
"""The most rows of a matrix of complex128 that fits in the registers of a workgroup."""
_LANES, _LEAST_LANES, _WIDTH = 32, 16, 8
"""The threads of a group, of a group for a matrix of few rows, and the columns of a group."""


@dataclass(frozen=True)
class Shape:
    """The division of a matrix among the threads of a workgroup.

    Attributes
    ----------
    rows : int
        The rows of a lane.
    groups : int
        The groups of threads, which divide the columns.
    lanes : int
        The threads of a group.
    matrices : int
        The matrices of a workgroup.
    """

    rows: int
    groups: int
    lanes: int
    matrices: int

    @property
    def threads(self) -> int:
        """Return the threads of a workgroup."""
        return self.lanes * self.groups * self.matrices

    def grid(self, batches: int) -> tuple[int, int]:
        """Return the grid of a launch for this number of matrices."""
        return -(-batches // self.matrices), 1


@functools.cache
def shape_of(n: int) -> Shape:
    """Return how a workgroup divides matrices of `n` rows."""
    groups, lanes = -(-n // _WIDTH), _lanes_of(n)
    return Shape(-(-n // lanes), groups, lanes, max(_THREADS // (lanes * groups), 1))


def _kernel(
    kind: KernelKind, n: int, dtype: np.dtype[Any], right_sides: int | None = None
) -> tuple[Launch, Shape]:
    """Return a kernel for matrices of `n` rows, loaded on the current device, and their shape."""
    return _kernel_of_device(current_device(), kind, n, dtype.char, right_sides)


@functools.lru_cache(maxsize=1024)
def _kernel_of_device(
    _: int, kind: KernelKind, n: int, char: str, right_sides: int | None
) -> tuple[Launch, Shape]:
    """Do as `_kernel`. This is faster than `load`, which looks up a kernel by all its constants."""
    shape = shape_of(n)
    config = {"rows": shape.rows, "groups": shape.groups}
    if right_sides is not None:
        config["right_sides"] = right_sides
    return load(kind, np.dtype(char), shape.threads, **config), shape


def _lanes_of(n: int) -> int:
    """Return how many threads hold the rows of a matrix of `n` rows."""
    return _LEAST_LANES if n <= _LEAST_LANES else _LANES


def most_rows(dtype: np.dtype[Any]) -> int:
    """Return the most rows of a matrix that a workgroup factors alone."""
    most = blocks.LIMITS.whole
    return min(most, _MOST_OF_LARGEST_TYPE) if dtype.itemsize == 16 else most


def is_whole(n: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether a workgroup factors a matrix of `n` rows alone."""
    return n <= most_rows(dtype)


def is_small(n: int, columns: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether `solve` supports systems of `n` rows."""
    return columns <= _MOST_COLUMNS and (n <= _MOST_ROWS or is_whole(n, dtype))


def solve(
    a: Array, b: Array, dtype: np.dtype[Any], finite: Array | None = None
) -> tuple[Array, Info]:
    """Return the solutions (..., n, columns), and the result of `reported`.

    Parameters
    ----------
    a, b : cupy.ndarray
        (..., n, n) and (..., n, columns), of the same leading axes.
    dtype : numpy.dtype
        The type of the solutions.
    finite : cupy.ndarray, optional
        As for `reported`.
    """
    import cupy

    n, columns = b.shape[-2:]
    a, b = cupy.ascontiguousarray(a, dtype), cupy.ascontiguousarray(b, dtype)
    batches = b.size // (n * columns)
    x = cupy.empty(b.shape, dtype)
    starts = a.data.ptr, b.data.ptr, x.data.ptr
    most = 1 if columns == 1 else _MOST_COLUMNS
    if n <= _MOST_ROWS:
        return x, _launch_system(n, dtype, starts, (columns, batches), most, finite)

    def enqueue(info: int) -> None:
        at, *others = starts
        places = (at, n, n * n), (0, 0, 0), (0, *others, info)
        _launch_lu(n, dtype, *places, (columns, batches), most)

    return x, reported(batches, enqueue, finite)


def inverse(a: Array, dtype: np.dtype[Any]) -> tuple[Array, Info]:
    """Return the inverses (..., n, n), and the result of `reported`.

    Parameters
    ----------
    a : cupy.ndarray
        (..., n, n), for which `is_whole(n)` is true.
    dtype : numpy.dtype
        The type of the inverses.
    """
    n = a.shape[-1]
    a, x, batches = _with_results(a, dtype)
    starts = a.data.ptr, x.data.ptr
    launch, shape = _kernel(SMALL_INVERSE, n, dtype)
    grid = shape.grid(batches)
    return x, reported(batches, lambda info: launch(grid, *starts, info, n, batches))


def _with_results(a: Array, dtype: np.dtype[Any]) -> tuple[Array, Array, int]:
    """Return matrices in the kernel's layout, memory for the results, and their number."""
    import cupy

    a = cupy.ascontiguousarray(a, dtype)
    return a, cupy.empty(a.shape, dtype), a.size // a.shape[-1] ** 2


def _size(n: int) -> int:
    return next(size for size in _SIZES if size >= n)


@functools.lru_cache(maxsize=1024)
def _kernel_of_systems(_: int, n: int, char: str, columns: int) -> Launch:
    """Return the kernel that solves systems of `n` rows, loaded on the current device."""
    return load(SMALL_SYSTEM, np.dtype(char), _THREADS, size=_size(n), columns=columns)


def _launch_system(
    n: int,
    dtype: np.dtype[Any],
    starts: tuple[int, int, int],
    extents: tuple[int, int],
    most: int,
    finite: Array | None,
) -> Info:
    columns, batches = extents
    launch = _kernel_of_systems(current_device(), n, dtype.char, most)
    grid = -(-batches // (_THREADS // _lanes_of(n))), 1

    def enqueue(info: int) -> None:
        launch(grid, *starts, info, n, columns, batches, 0)

    return reported(batches, enqueue, finite)


def lu(a: Array, dtype: np.dtype[Any], finite: Array | None = None) -> tuple[Array, Array, Info]:
    """Return LU factors (..., n, n), their pivots (..., n), and the result of `reported`.

    Parameters
    ----------
    a : cupy.ndarray
        (..., n, n), for which `is_whole(n)` is true.
    dtype : numpy.dtype
        The type of the factors.
    finite : cupy.ndarray, optional
        As for `reported`.
    """
    import cupy

    n = a.shape[-1]
    a, factors, batches = _with_results(a, dtype)
    pivots = cupy.empty(a.shape[:-1], "int32")
    places = (a.data.ptr, n, n * n), (factors.data.ptr, n, n * n)

    def enqueue(info: int) -> None:
        _launch_lu(n, dtype, *places, (pivots.data.ptr, 0, 0, info), (0, batches), 0)

    return factors, pivots, reported(batches, enqueue, finite)


def factor_lu(a: Matrices, pivots: Array, info: Array) -> None:
    """Replace square matrices by their LU factors, as `lu.factor`.

    Parameters
    ----------
    a : Matrices
    pivots : cupy.ndarray
        (batches, n), int32.
    info : cupy.ndarray
        (batches,), int32, zeros.
    """
    place = a.address(0, 0), a.pitch, a.stride
    addresses = pivots.data.ptr, 0, 0, info.data.ptr
    _launch_lu(a.n, a.dtype, place, place, addresses, (0, a.batches), 0)


def _launch_lu(
    n: int,
    dtype: np.dtype[Any],
    a: tuple[int, int, int],
    lu: tuple[int, int, int],
    addresses: tuple[int, int, int, int],
    extents: tuple[int, int],
    right_sides: int,
) -> None:
    columns, batches = extents
    launch, shape = _kernel(SMALL_LU, n, dtype, right_sides)
    launch(shape.grid(batches), *a, *lu, *addresses, n, columns, batches, 0)


def factor_cholesky(a: Array, dtype: np.dtype[Any]) -> tuple[Array, Info]:
    """Return lower Cholesky factors, and the result of `reported`.

    Parameters
    ----------
    a : cupy.ndarray
        (..., n, n); only the lower triangles are read.
    dtype : numpy.dtype
        The type of the factors.
    """
    n = a.shape[-1]
    a, factors, batches = _with_results(a, dtype)
    places = (a.data.ptr, n, n * n), (factors.data.ptr, n, n * n)
    return factors, reported(
        batches, lambda info: _launch_cholesky(n, dtype, *places, info, batches)
    )


def factor_cholesky_in_place(a: Matrices, info: Array) -> None:
    """Replace Hermitian matrices by their lower Cholesky factors, as `cholesky.factor`.

    The info of each matrix, int32, must be zero initially.
    """
    place = a.address(0, 0), a.pitch, a.stride
    _launch_cholesky(a.n, a.dtype, place, place, info.data.ptr, a.batches)


def _launch_cholesky(
    n: int,
    dtype: np.dtype[Any],
    a: tuple[int, int, int],
    factors: tuple[int, int, int],
    info: int,
    batches: int,
) -> None:
    if tiles.factors_whole(n, dtype):
        tiles.factor_whole(n, dtype, a, factors, info, batches)
        return
    launch, shape = _kernel(SMALL_CHOLESKY, n, dtype)
    launch(shape.grid(batches), *a, *factors, info, n, batches, 0, 0)


def factor_cholesky_block(a: Matrices, first: int, n: int, info: Array) -> None:
    """Replace the block of `n` rows from row `first` on by its factor, as `cholesky.factor`."""
    launch, shape = _kernel(SMALL_CHOLESKY, n, a.dtype)
    place = a.address(first, first), a.pitch, a.stride
    launch(shape.grid(a.batches), *place, *place, info.data.ptr, n, a.batches, first, 0)
