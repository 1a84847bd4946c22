"""Name the element of a CuPy array at an address.

A kernel receives only pointers. When a report is written, the array of a pointer is searched among
the live objects.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupygemm.emulator.memory.extents import Extent


def element_at(address: int, extent: Extent, pointers: Collection[int]) -> str | None:
    """Describe the place of an address in the arrays of an extent.

    Parameters
    ----------
    address : int
    extent : Extent
        The memory that holds the address, or is nearest to it.
    pointers : collection of int
        An array that begins at one of these takes precedence.

    Returns
    -------
    str or None
        The element there and the array's type and shape; only these if the address is outside
        the array. None if the extent contains no array.
    """
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)
    if kind is None:
        return None
    best: tuple[tuple[Any, ...], str] | None = None
    for array in gc.get_objects():
        if not issubclass(type(array), kind) or array.data is None:  # it is being constructed
            continue
        if not extent.start <= array.data.ptr < extent.end:
            continue
        index = _index(array, address)
        named = _described(array, index)
        # The order of the collector's objects does not matter: views of equal rank have the same
        # text.
        rank = index is not None, array.data.ptr in pointers, array.nbytes, array.ndim, named
        if best is None or rank > best[0]:
            best = rank, named
    return best and best[1]


def _described(array: Any, index: tuple[int, ...] | None) -> str:
    strides = "" if array.flags.c_contiguous else f" with strides {array.strides}"
    text = f"{array.dtype} {array.shape}{strides}"
    return text if index is None else f"element [{', '.join(map(str, index))}] of {text}"


def _index(array: Any, address: int) -> tuple[int, ...] | None:
    """Return the index of the element that holds an address; None if there is none."""
    left = address - array.data.ptr
    index = [0] * array.ndim
    for axis in sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])):
        extent, stride = array.shape[axis], array.strides[axis]
        if extent > 1 and stride:
            index[axis] = min(max(left // stride, 0), extent - 1)
            left -= index[axis] * stride
    return tuple(index) if 0 <= left < array.itemsize and array.size else None
