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
    # By rows first: the reduction of one matrix to one number is slow on some devices.
    return inverse_powers_of_two(parts(a).max(axis=2, keepdims=True).max(axis=1, keepdims=True))


def parts(a: Array) -> Array:
    """Return the absolute values of numbers; of complex ones, those of the larger parts."""
    import cupy

    largest = cupy.abs(a.real)
    return cupy.maximum(largest, cupy.abs(a.imag)) if a.dtype.kind == "c" else largest


def inverse_powers_of_two(x: Array) -> Array:
    """Return powers of two that bring numbers near one; one for zeros, NaN and infinities."""
    import cupy

    info = np.finfo(x.dtype)
    words, fraction = x.view(f"i{x.itemsize}"), int(info.nmant)
    # The exponents of the numbers, biased, and of the powers of two.
    exponent = cupy.clip(2 * (int(info.maxexp) - 1) - (words >> fraction), 1, None)
    scale = (exponent.astype(words.dtype) << fraction).view(x.dtype)
    return cupy.where(cupy.isfinite(x) & (x > 0), scale, x.dtype.type(1))
