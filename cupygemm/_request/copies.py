"""Copies around a product: of an operand that no kernel can read in place, and of a temporary.

They are CuPy's own, and work on NumPy arrays as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._records.formats import as_stored, container

ROW_BYTES = 4
"""Rows of a copy start at multiples of it, as kernels require of operands of single bytes."""


@dataclass(frozen=True)
class Copy:
    """A copy of an operand, made before the product.

    Attributes
    ----------
    index : tuple of slice
        What is copied: an axis along which the operand is broadcast is copied once.
    dtype : numpy.dtype
        Of the copy.
    reason : str
        Why it is needed.
    """

    index: tuple[slice, ...]
    dtype: np.dtype[Any]
    reason: str


def copied(array: Any, copy: Copy | None) -> Any:
    """Return a copy of an operand in C order, or the operand itself where it needs none."""
    if copy is None:
        return array
    part, dtype = as_stored(array[copy.index]), container(copy.dtype)
    columns = row_elements(part.shape[-1], dtype)
    if columns != part.shape[-1]:
        rows = np.empty_like(part, dtype, "C", shape=(*part.shape[:-1], columns))
        rows = rows[..., : part.shape[-1]]
        assign(rows, part)
        return rows
    if part.dtype != dtype:
        return part.astype(dtype, order="C")
    return bits(part).copy(order="C").view(dtype)


def row_elements(columns: int, dtype: np.dtype[Any]) -> int:
    """Return the elements from one row of a copy to the next."""
    whole = max(1, ROW_BYTES // dtype.itemsize)
    return -(-columns // whole) * whole if dtype.itemsize == 1 else columns


def assign(out: Any, product: Any) -> None:
    """Copy `product` to `out`, converting it if the types differ."""
    out = as_stored(out)
    if out.dtype == product.dtype:
        out, product = bits(out), bits(product)
    out[...] = product


def bits(array: Any) -> Any:
    """View an array as integers, so that copying it needs no arithmetic type of the device."""
    size = array.dtype.itemsize
    return array.view(np.dtype(f"u{size}")) if size <= 8 else array
