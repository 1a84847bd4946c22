"""Operands that a kernel reads, or a product that it stores, with a wrong leading dimension.

Element (i, j) of a row-major matrix is at i * ld + j. A kernel that uses another extent of the
product as ld, or omits a pad, reads elements of other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_PADS = 64
_MOST_OWNERS = 4  # elements of a product that may be stored to one place


@dataclass(frozen=True)
class Operand:
    """A stack of matrices and their layout in memory.

    Attributes
    ----------
    memory : array (..., lines, ld)
        The matrices, or their transposes if their columns are contiguous.
    in_columns : bool
    """

    memory: Array
    in_columns: bool

    @classmethod
    def of(cls, matrix: Array) -> Operand:
        """Return the memory layout of a matrix."""
        in_columns = matrix.flags.f_contiguous and not matrix.flags.c_contiguous
        return cls(np.swapaxes(matrix, -1, -2) if in_columns else matrix, bool(in_columns))

    @property
    def ld(self) -> int:
        """The leading dimension."""
        return int(self.memory.shape[-1])

    def with_ld(self, ld: int, batch: list[Array], lines: Array, *, are_rows: bool) -> Array:
        """Return rows or columns as read with another leading dimension.

        Parameters
        ----------
        ld : int
        batch : list of int array (count,)
            The matrix of each line, as indices of the product's batch.
        lines : int array (count,)
        are_rows : bool

        Returns
        -------
        array (count, k)
            NaN where the place is outside the matrix.
        """
        *stack, outer, inner = self.memory.shape
        own = batch[len(batch) - len(stack) :]
        indices = [np.minimum(i, n - 1)[:, None] for i, n in zip(own, stack, strict=True)]
        contiguous = are_rows != self.in_columns
        along = np.arange(inner if contiguous else outer)
        places = lines[:, None] * ld + along if contiguous else lines[:, None] + along * ld
        inside = places < outer * inner
        flat = self.memory.reshape(*stack, outer * inner)
        values = flat[(*indices, np.where(inside, places, 0))]
        return np.where(inside, values.astype(np.result_type(values.dtype, np.float64)), np.nan)


def find(extents: tuple[int, ...], right: int, explains: Callable[[int], bool]) -> int | None:
    """Return a likely wrong leading dimension that explains a product.

    Parameters
    ----------
    extents : tuple of int
        Those of the product and of k.
    right : int
        The leading dimension of the matrix.
    explains : callable
    """
    powers = {1 << each for each in range(2, max(*extents, right).bit_length() + 1)}
    likely = {*extents, *powers, right // 2, 2 * right}
    likely |= {right + pad for pad in range(-_PADS, _PADS + 1)}
    wrong = sorted(each for each in likely if each > 0 and each != right)
    return next((ld for ld in wrong if explains(ld)), None)


def stored_with(
    ld: int, places: Array, actual: Array, reference: Array, bound: Array, least: int
) -> bool:
    """Whether elements of a product are those that a store with a leading dimension writes.

    Parameters
    ----------
    ld : int
    places : int array (count,)
        The places of the elements in memory, in row-major order.
    actual : array (count,)
    reference, bound : array (rows, columns)
        The expected product, and the largest allowed errors.
    least : int
        Elements at places that such a store reaches.
    """
    rows, columns = reference.shape
    if ld * _MOST_OWNERS < columns:
        return False  # among more elements, any value occurs by chance
    known, fits = np.zeros((2, len(places)), bool)
    for before in range(-(-columns // ld)):  # rows that extend to the place
        row = places // ld - before
        column = places - row * ld
        exists = (row >= 0) & (row < rows) & (column < columns)
        known |= exists
        owner = np.where(exists, row, 0), np.where(exists, column, 0)
        fits |= exists & (np.abs(actual - reference[owner]) <= bound[owner])
    return bool(fits[known].all() and np.count_nonzero(known) >= least)
