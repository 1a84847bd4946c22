"""The contents of a batch's arrays when it starts, in a table for C.

Python starts the first batch of a launch, and C the others, which start alike: see `following`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.units.structures import members


class InitialStruct(ctypes.Structure):
    """``struct initial``."""

    _fields_ = members(
        """
        pointer to source
        int64   bytes times
        """
    )


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array; faster than ``array.ctypes.data``."""
    return int(array.__array_interface__["data"][0])


class Initial:
    """The arrays that a batch resets, as `Batch.restart` and `Dispatch.start` do, in a table for C.

    Parameters
    ----------
    key : tuple
        What the table depends on, see `following`.
    zeros : list of (int, int)
        Addresses and sizes of the arrays that are 0.
    kept : list of (ndarray, int)
        The other arrays, and how many times the contents of each are repeated.
    """

    def __init__(
        self, key: Any, zeros: list[tuple[int, int]], kept: list[tuple[NDArray[Any], int]]
    ) -> None:
        self.key = key
        self._kept = [(array, array.copy()) for array, _ in kept]
        rows = [(address, 0, size, 1) for address, size in zeros]
        for (array, copy), (_, times) in zip(self._kept, kept, strict=True):
            rows.append((address_of(array), address_of(copy), copy.nbytes, times))
        self.table = (InitialStruct * len(rows))(*(InitialStruct(*row) for row in rows))

    def keep(self) -> None:
        """Copy the arrays' contents again."""
        for array, copy in self._kept:
            np.copyto(copy, array)
