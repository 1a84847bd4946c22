"""Reference products on the host. Complex ones follow the definition in real numbers.

If one part of a sum is infinite, NumPy's product has NaN in both parts, since its BLAS multiplies
the sums by a complex one at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


def draw(
    numbers: Callable[[tuple[int, ...]], Array], shape: tuple[int, ...], dtype: DTypeLike
) -> Array:
    """Return an array of random numbers, complex for a complex type."""
    if np.dtype(dtype).kind != "c":
        return numbers(shape)
    return numbers(shape) + 1j * numbers(shape)


def product(x1: Array, x2: Array, wide: Any) -> Array:
    """Return the product, with parts of the type `wide`; real if both operands are."""

    def real_product(first: Array, second: Array) -> Array:
        return np.asarray(np.matmul(first.astype(wide), second.astype(wide)))

    if "c" not in (x1.dtype.kind, x2.dtype.kind):
        return real_product(x1, x2)
    real = real_product(x1.real, x2.real) - real_product(x1.imag, x2.imag)
    result = real.astype(np.result_type(real, np.complex64))
    result.imag = real_product(x1.real, x2.imag) + real_product(x1.imag, x2.real)
    return result


def same_places(actual: Array, reference: Array) -> Array:
    """Whether NaN and infinities are where the reference has them; finite numbers always pass."""
    if actual.dtype.kind == "c":
        real = same_places(actual.real, reference.real)
        return np.asarray(real & same_places(actual.imag, reference.imag))
    same = np.isfinite(actual) & np.isfinite(reference)
    same |= np.isnan(actual) & np.isnan(reference)
    return np.asarray(same | (np.isinf(actual) & (actual == reference)))


def bits_of_sums(x1: Array, x2: Array) -> int:
    """Return the significand of the accumulator, float64 or float32."""
    wide = {np.dtype(np.float64), np.dtype(np.complex128)} & {x1.dtype, x2.dtype}
    return 53 if wide else 24
