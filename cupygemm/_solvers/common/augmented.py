"""Augmented matrices, [A B] with right-hand sides B, which a factorisation overwrites.

One launch stores both if the elements of their rows are adjacent. CuPy's copies store other arrays;
they take the host several times as long, while the device is idle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common.kernels import AUGMENT, load
from cupygemm._solvers.common.matrices import Matrices

_THREADS, _ROWS, _VECTOR_BYTES = 256, 8, 16
_MOST_AXES = 3
"""The axes of the arrays that the kernel reads: stacks, rows and columns."""


def augmented_shape(n: int, k: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the columns of an n x n matrix with k right-hand sides, and the first of these."""
    per_vector = max(_VECTOR_BYTES // dtype.itemsize, 1)
    first = -(-n // per_vector) * per_vector  # vectors hold columns of only one of the two
    return first + k, first


def augment(made: Matrices, a: Array, b: Array, first: int = 0) -> None:
    """Store matrices and right-hand sides.

    Parameters
    ----------
    made : Matrices
        Of the extents of `augmented_shape`.
    a, b : cupy.ndarray
        (..., n, n) and (..., n, k).
    first : int
        The first column of the matrices to store; earlier columns are already stored.
    """
    n, k = b.shape[-2:]
    if _launches(made, a) and b.dtype == made.dtype and b.ndim <= _MOST_AXES:
        _store(made, a, range(first, n), b)
        return
    start = made.n - k
    _copy_columns(made, a, range(first, n))
    if n < start:
        made.array[:, :, n:start] = 0
    made.array[:, :, start : made.n] = b.reshape(-1, n, k)


def store_columns(made: Matrices, a: Array, columns: range) -> None:
    """Store some columns of matrices (..., n, n) in place."""
    if _launches(made, a):
        _store(made, a, columns)
    else:
        _copy_columns(made, a, columns)


def _launches(made: Matrices, a: Array) -> bool:
    """Tell whether the kernel can read matrices: same type, and adjacent elements in rows."""
    return bool(a.dtype == made.dtype and a.ndim <= _MOST_AXES and a.strides[-1] == a.itemsize)


def _copy_columns(made: Matrices, a: Array, columns: range) -> None:
    across = slice(columns.start, columns.stop)
    made.array[:, :, across] = a.reshape(-1, *a.shape[-2:])[:, :, across]


def _store(made: Matrices, a: Array, columns: range, b: Array | None = None) -> None:
    """Store columns of matrices and, if `b` is given, the right-hand sides."""
    size = made.dtype.itemsize
    a_start, (a_matrix, a_row, _) = _place(a)
    b_start, (b_matrix, b_row, b_column) = (0, (0, 0, 0)) if b is None else _place(b)
    end = columns.stop if b is None else made.n
    places = a_start, made.address(0, columns.start), a_row, a_matrix, columns.start * size
    vectors = not any(place % _VECTOR_BYTES for place in places)
    across = -(-len(columns) // (_THREADS * (_VECTOR_BYTES // size if vectors else 1)))
    groups = across * -(-made.m // _ROWS) + -(-made.m * (end - columns.stop) // _THREADS)
    load(AUGMENT, made.dtype, _THREADS, vectors=vectors)(
        (groups, made.batches),
        made.address(0, 0),
        made.pitch,
        made.stride,
        a_start,
        a_row // size,
        a_matrix // size,
        b_start,
        b_row // size,
        b_column // size,
        b_matrix // size,
        made.m,
        0,
        columns.start,
        columns.stop,
        end if b is None else end - b.shape[-1],
        end,
    )


def _place(a: Array) -> tuple[int, tuple[int, int, int]]:
    """Return the address of an array, and the bytes between its matrices, rows and columns."""
    *of_stack, row, column = a.strides
    return a.data.ptr, (of_stack[0] if of_stack else 0, row, column)
