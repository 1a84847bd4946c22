"""Bounds on the error of sums of products, and of rounding to a type.

`cupygemm.testing` offers the public ones.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from cupygemm._records.dtypes import FLOAT8_DTYPES

ACCUMULATOR_BITS = 24  # significand of float32
Array = NDArray[Any]


def gamma(k: int, bits: int = ACCUMULATOR_BITS) -> float:
    """Return the relative error bound of a sum of k products, k u / (1 - k u).

    Parameters
    ----------
    k : int
        Terms of the sum.
    bits : int
        Significand of the accumulator; its unit roundoff u is ``2**-bits``.

    Returns
    -------
    float
        Infinity where k u is 1 or more.

    References
    ----------
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1.

    Examples
    --------
    >>> from cupygemm import testing
    >>> f"{testing.gamma(1000):.1e}"
    '6.0e-05'
    """
    ku = k * 2.0**-bits
    return ku / (1 - ku) if ku < 1 else math.inf


def gamma_bound(
    k: int, magnitude: Array, reference: Array, dtype: DTypeLike, *, bits: int = ACCUMULATOR_BITS
) -> Array:
    """Return a bound on the error of each element of a product.

    It is ``gamma(k) * magnitude`` for the sums, and half a unit in the last place for the rounding
    of the result.

    Parameters
    ----------
    k : int
        Terms of each sum.
    magnitude : numpy.ndarray
        ``abs(x1) @ abs(x2)``.
    reference : numpy.ndarray
        The product itself, see `reference_matmul`.
    dtype : dtype
        The type of the result.
    bits : int
        Significand of the accumulator.

    Returns
    -------
    numpy.ndarray
        Absolute errors.
    """
    of_sums = gamma(k, bits) * np.abs(magnitude)
    return np.asarray(of_sums + half_ulp(np.abs(reference) + of_sums, dtype))


def half_ulp(values: Any, dtype: DTypeLike) -> Array:
    """Return half the distance between neighbouring numbers of `dtype` around `values`.

    Parameters
    ----------
    values : array_like
        Real numbers.
    dtype : dtype
        A floating-point type, those of ml_dtypes included.

    Returns
    -------
    numpy.ndarray
        0 where the value is not finite.

    Examples
    --------
    >>> from cupygemm import testing
    >>> testing.half_ulp([1, 1024], "float16")
    array([4.8828125e-04, 5.0000000e-01])
    """
    info = finfo(dtype)
    values = np.asarray(values)
    finite = np.isfinite(values)
    exponent = np.frexp(np.where(finite, values, 0))[1] - 1
    exponent = np.where(values == 0, info.minexp, np.maximum(exponent, info.minexp))
    # Half of the smallest float64 cannot be represented in float64.
    one = np.longdouble(1) if info.bits == 64 else np.float64(1)
    return np.where(finite, np.ldexp(one, exponent - info.nmant - 1), 0)


def of_rounding(magnitude: Array, dtype: np.dtype[Any]) -> Array:
    """Return a bound on the error of rounding numbers of a given magnitude to a type."""
    if dtype.kind == "c":
        return half_ulp(magnitude, np.empty(0, dtype).real.dtype)
    return np.full_like(magnitude, 0.5) if dtype.kind in "iu" else half_ulp(magnitude, dtype)


def overflows(magnitude: Array, dtype: np.dtype[Any]) -> Array:
    """Whether rounding to `dtype` gives infinity: from half a unit past the largest number on."""
    largest = float(finfo(dtype).max)
    return np.asarray(magnitude >= largest + float(half_ulp(largest, dtype)))


def saturated(reference: Array, dtype: np.dtype[Any]) -> Array:
    """Return the reference, clamped to the range of integers and 8-bit floats, which saturate."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        numbers = np.nan_to_num(reference, nan=0.0)
        return np.asarray(np.clip(numbers, int(limits.min), int(limits.max)))
    if dtype not in FLOAT8_DTYPES:
        return reference
    largest = float(finfo(dtype).max)
    return np.clip(reference, -largest, largest)


def finfo(dtype: DTypeLike) -> Any:
    """Return the limits of a floating-point type, which may be one of ml_dtypes."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
