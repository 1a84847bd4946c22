"""Rounding that a kernel should not do: of operands, of each sum, or towards zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cupygemm._numerics.error_bounds import half_ulp

Array = NDArray[Any]
_BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
_HALVES = (np.dtype(np.float16), _BFLOAT16)
_MOST_ALIKE = 0.9  # share of elements that equal those of a simulation
_CUTS = {"bfloat16": 0xFFFF0000, "tf32": 0xFFFFE000}  # the bits of float32 that are kept


def of_operands(first: Array, second: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yield float32 operands rounded to narrower types, each with its description for a report."""
    if not first.dtype == second.dtype == np.float32:
        return
    for kind in _HALVES:
        a, b = (each.astype(kind).astype(np.float32) for each in (first, second))
        yield f"with the operands rounded to {kind.name}", a, b
    for name, mask in _CUTS.items():
        a, b = (
            np.asarray(each.view(np.uint32) & np.uint32(mask)).view(np.float32)
            for each in (first, second)
        )
        yield f"with the operands truncated to {name}", a, b


def name_rounding(
    rows: Array,
    columns: Array,
    actual: Array,
    reference: Array,
    bound: Array,
    dtypes: tuple[Any, Any],
) -> str:
    """Name the rounding that explains the elements.

    Parameters
    ----------
    rows, columns : array (count, k)
        The factors of each element's products.
    actual, reference, bound : array (count,)
    dtypes : (dtype, dtype)
        Of the operands, and of the product.

    Returns
    -------
    str
        "" if no rounding explains them.
    """
    operands, result = dtypes
    if result.kind not in "fV" or actual.dtype.kind != "f":
        return ""
    half = np.asarray(half_ulp(reference, result))
    missing = (reference - actual) * np.sign(reference)
    of_sums = bound - half
    if np.all(missing > -of_sums) and np.all(missing < 2 * half + of_sums):
        return f"are truncated to {result.name}, not rounded to the nearest"
    if operands in _HALVES:
        for sums in _simulated(rows.astype(operands), columns.astype(operands)):
            if np.mean(sums.astype(result).astype(np.float64) == actual) >= _MOST_ALIKE:
                return f"are sums that were rounded to {operands.name} at each step: add in float32"
    return ""


def _simulated(rows: Array, columns: Array) -> Iterator[Array]:
    """Yield sums of products in the operands' type: with rounded products, and with fused ones."""
    for product in (rows.dtype.type, np.float64):
        total = np.zeros(len(rows), rows.dtype)
        for a, b in zip(rows.T, columns.T, strict=True):
            term = (a.astype(np.float64) * b.astype(np.float64)).astype(product)
            total = (total.astype(np.float64) + term.astype(np.float64)).astype(rows.dtype)
        yield total
