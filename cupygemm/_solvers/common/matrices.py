"""`Matrices`: the matrices that a solver overwrites, and addresses within them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array

_ROW_BYTES, _SMALL_ROW_BYTES = 128, 16


@dataclass(frozen=True)
class Layout:
    """The memory layout of matrices in row-major order.

    Attributes
    ----------
    batches, m, n : int
        The number of matrices, and their extents.
    pitch : int
        The elements from a row to the next.
    dtype : numpy.dtype
        The element type.
    start : int
        The address of the first element, or a placeholder.
    """

    batches: int
    m: int
    n: int
    pitch: int
    dtype: np.dtype[Any]
    start: int

    @property
    def stride(self) -> int:
        """Return the elements from a matrix to the next."""
        return self.m * self.pitch

    def address(self, row: int, column: int) -> int:
        """Return the address of an element of the first matrix."""
        return self.start + (row * self.pitch + column) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Matrices:
    """Matrices of one shape in row-major order, which a solver overwrites.

    Attributes
    ----------
    array : cupy.ndarray
        (batches, m, pitch); rows begin at multiples of 128 bytes, or of 16 if they are short, so
        that products read blocks of the matrices in place.
    n : int
        The columns of a matrix; the pitch may be larger.
    """

    array: Array
    n: int

    @cached_property
    def m(self) -> int:
        """Return the rows of a matrix."""
        return int(self.array.shape[1])

    @cached_property
    def batches(self) -> int:
        """Return the number of matrices."""
        return int(self.array.shape[0])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the element type."""
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    @cached_property
    def pitch(self) -> int:
        """Return the elements from a row to the next."""
        return int(self.array.shape[2])

    @cached_property
    def stride(self) -> int:
        """Return the elements from a matrix to the next."""
        return self.m * self.pitch

    @cached_property
    def _place(self) -> tuple[int, int]:
        return int(self.array.data.ptr), int(self.array.itemsize)

    def address(self, row: int, column: int) -> int:
        """Return the address of an element of the first matrix."""
        start, size = self._place
        return start + (row * self.pitch + column) * size

    def layout(self, start: int) -> Layout:
        """Return the layout, with a placeholder for the address of the first element."""
        return Layout(self.batches, self.m, self.n, self.pitch, self.dtype, start)

    def block(self, rows: slice, columns: slice) -> Array:
        """Return a view of a block: (rows, columns), or a stack of blocks if there are several."""
        return self.array[0, rows, columns] if self.batches == 1 else self.array[:, rows, columns]

    @property
    def view(self) -> Array:
        """Return a view of all matrices, (batches, m, n)."""
        return self.array[:, :, : self.n]

    @property
    def dense(self) -> Array:
        """Return the matrices in C order: the view, or a copy if the rows are padded."""
        import cupy

        return cupy.ascontiguousarray(self.view)


def empty(batches: int, m: int, n: int, dtype: np.dtype[Any]) -> Matrices:
    """Return uninitialised matrices."""
    import cupy

    return Matrices(cupy.empty((batches, m, _pitch(n, dtype)), dtype), n)


def _pitch(n: int, dtype: np.dtype[Any]) -> int:
    row_bytes = n * dtype.itemsize
    multiple: int = _ROW_BYTES if row_bytes > _ROW_BYTES else _SMALL_ROW_BYTES
    return max(-(-row_bytes // multiple), 1) * multiple // dtype.itemsize


def zeros(batches: int, m: int, n: int, dtype: np.dtype[Any]) -> Matrices:
    """Return matrices of zeros."""
    made = empty(batches, m, n, dtype)
    made.array.fill(0)
    return made


def copied(a: Array, dtype: np.dtype[Any]) -> Matrices:
    """Return a copy of a stack of matrices, (..., m, n), as a type."""
    m, n = a.shape[-2:]
    batches = math.prod(a.shape[:-2])
    made = empty(batches, m, n, dtype)
    made.array[:, :, :n] = a.reshape(batches, m, n)
    return made


def readable(a: Array, dtype: np.dtype[Any]) -> Matrices:
    """Return a stack of matrices, (..., m, n), as a type, to be read only.

    They are copied only if their memory layout differs from that of copies.
    """
    m, n = a.shape[-2:]
    in_place = a.dtype == dtype and a.flags.c_contiguous and _pitch(n, dtype) == n
    if in_place and a.size and a.data.ptr % _ROW_BYTES == 0:
        return Matrices(a.reshape(-1, m, n), n)
    return copied(a, dtype)


def adjoint(a: Array) -> Array:
    """Return the conjugate transpose of matrices; a view if they are real."""
    transposed = a.swapaxes(-1, -2)
    return transposed.conj() if a.dtype.kind == "c" else transposed
