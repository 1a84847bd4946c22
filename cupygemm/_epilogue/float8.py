"""Rounding to 8-bit floats with CuPy, which lacks these types: the results are codes, as bytes.

The codes of non-negative numbers increase with the numbers, so the code of a number is the count of
boundaries between adjacent codes at or below it. If a tie rounds up, to an even code, the boundary
is the midpoint of the two numbers. If it rounds down, the boundary is the next float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGN = np.uint8(0x80)


def rounded_to_float8(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return the codes of a float32 array, rounded to nearest even and saturated; NaN stays."""
    import cupy

    codes = cupy.searchsorted(cupy.asarray(_boundaries(dtype)), cupy.abs(x), side="right")
    codes = codes.astype(np.uint8)
    nan, negative_zero = np.array([np.nan, -0.0]).astype(dtype).view(np.uint8)
    negative = cupy.signbit(x)
    if negative_zero == 0:  # the code of -0 is that of NaN
        negative &= codes != 0
    return cupy.where(cupy.isnan(x), nan, cupy.where(negative, codes | _SIGN, codes))


@functools.cache
def _boundaries(dtype: np.dtype[Any]) -> NDArray[np.float32]:
    """Return the smallest float32 that rounds to each code, without the first code."""
    numbers = np.arange(0x80, dtype=np.uint8).view(dtype).astype(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    middles = (numbers[1:] + numbers[:-1]) / np.float32(2)
    goes_down = np.arange(len(middles)) % 2 == 0
    return np.where(goes_down, np.nextafter(middles, np.float32(np.inf)), middles)
