"""Small systems: one launch factors all matrices of a stack and solves with their factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.kernels import SMALL_SYSTEM, load

_MOST_ROWS, _MOST_COLUMNS = 32, 4
_THREADS = 128
_SIZES = (8, 16, 32)


def is_small(n: int, columns: int) -> bool:
    """Tell whether the kernel takes systems of `n` rows."""
    return n <= _MOST_ROWS and columns <= _MOST_COLUMNS


def solve(a: Array, b: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the solutions (..., n, columns), and the info of each matrix as of `lu.factor`.

    Parameters
    ----------
    a, b : cupy.ndarray
        (..., n, n) and (..., n, columns), of the same leading axes.
    dtype : numpy.dtype
        The type of the solutions.
    """
    import cupy

    n, columns = b.shape[-2:]
    a, b = cupy.ascontiguousarray(a, dtype), cupy.ascontiguousarray(b, dtype)
    batches = b.size // (n * columns)
    x, info = cupy.empty(b.shape, dtype), cupy.empty(batches, "int32")
    size = next(size for size in _SIZES if size >= n)
    launch = load(
        SMALL_SYSTEM, dtype, _THREADS, size=size, columns=1 if columns == 1 else _MOST_COLUMNS
    )
    grid = -(-batches // (_THREADS // 32))
    addresses = (array.data.ptr for array in (a, b, x, info))
    launch((grid, 1), *addresses, n, columns, batches, 0)
    return x, info
