"""Copies before and after a product.

An operand is copied if no kernel can read it in place, and a temporary result is copied to ``out``.
CuPy makes the copies, except for conversions in which it would lose subnormals. The functions work
on NumPy arrays as well.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._records.formats import as_stored, container
from cupygemm._request.promotion import BF16, C64, C128, F32, F64

ROW_BYTES = 4
"""Rows of a copy start at multiples of this, as kernels require of operands of single bytes."""


@dataclass(frozen=True)
class Copy:
    """A copy of an operand, made before the product.

    Attributes
    ----------
    index : tuple of slice
        The part of the operand that is copied. An axis along which it is broadcast is copied once.
    dtype : numpy.dtype
        The dtype of the copy.
    reason : str
        Why the copy is needed.
    """

    index: tuple[slice, ...]
    dtype: np.dtype[Any]
    reason: str


def copied(array: Any, copy: Copy | None) -> Any:
    """Return a copy of an operand in C order, or the operand itself if no copy is needed."""
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
        return converted(part, dtype)
    return bits(part).copy(order="C").view(dtype)


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return a copy of an array in another type, in C order.

    CuPy's compiler flags make its kernels read float32 subnormals as zeros. If the other type can
    represent them, a kernel of this library converts instead.
    """
    if isinstance(array, np.ndarray) or dtype not in (F64, C128):
        return array.astype(dtype, order="C")
    if array.dtype == C64 and dtype == F64:
        return converted(array.astype(F32), F64)  # with CuPy's warning of lost imaginary parts
    if array.dtype == C64:
        return converted(array.ravel().view(F32), F64).view(dtype).reshape(array.shape)
    if array.dtype not in (F32, BF16):
        return array.astype(dtype, order="C")
    words = bits(array)
    if array.dtype == BF16:
        words = words.astype(np.uint32) << 16
    return _to_float64()(words.view(F32), words).astype(dtype, order="C", copy=False)


def in_type(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array converted to a type; the array itself if it has that type already."""
    return array if array.dtype == dtype else converted(array, dtype)


@functools.cache
def _to_float64() -> Any:
    """Return the kernel that converts float32, passed as its bits, to float64."""
    import cupy

    return cupy.ElementwiseKernel(
        "float32 x, uint32 bits",
        "float64 y",
        """
        const double magnitude = (bits & 0x7fffff) * 1.401298464324817e-45;  // times 2^-149
        const double subnormal = bits >> 31 ? -magnitude : magnitude;
        y = bits & 0x7f800000 ? static_cast<double>(x) : subnormal;
        """,
        "cupygemm_to_float64",
    )


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
    """View an array as integers, since the device may lack arithmetic in its type."""
    size = array.dtype.itemsize
    return array.view(np.dtype(f"u{size}")) if size <= 8 else array
