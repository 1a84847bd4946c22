"""Scaling by powers of two, which is exact, so that sums of squares neither overflow nor vanish."""

from __future__ import annotations

import numpy as np

from cupygemm._request.arrays import Array


def power_of_two_scale(a: Array) -> Array:
    """Return, for each matrix of a stack, the power of two that brings its largest part near one.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, m, n).

    Returns
    -------
    cupy.ndarray
        (batches, 1, 1), real. One for matrices of zeros, and for those with NaN or infinities.
    """
    import cupy

    largest = cupy.abs(a.real)
    if a.dtype.kind == "c":
        largest = cupy.maximum(largest, cupy.abs(a.imag))
    largest = largest.max(axis=(1, 2), keepdims=True)
    info = np.finfo(largest.dtype)
    words, fraction = largest.view(f"i{largest.itemsize}"), int(info.nmant)
    # The exponents of the numbers, biased, and of the powers of two.
    exponent = cupy.clip(2 * (int(info.maxexp) - 1) - (words >> fraction), 1, None)
    scale = (exponent.astype(words.dtype) << fraction).view(largest.dtype)
    usable = cupy.isfinite(largest) & (largest > 0)
    return cupy.where(usable, scale, largest.dtype.type(1))
