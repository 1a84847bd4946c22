"""Access to device arrays for comparisons on the host."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def on_host(array: Any) -> Array:
    """Return a NumPy or CuPy array as a NumPy array."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return np.asarray(cupy.asnumpy(array, order="A"))
    return np.asarray(array)


def unwritten(array: Any) -> Array | None:
    """Return a mask of elements that were never written, if the array's device records writes."""
    cupy, emulator = sys.modules.get("cupy"), sys.modules.get("cupygemm.emulator")
    if cupy is None or emulator is None or not isinstance(array, cupy.ndarray):
        return None
    return cast(Array | None, emulator.unwritten(array))
