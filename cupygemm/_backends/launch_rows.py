"""Launches that are prepared once, for operands at any addresses.

Finding kernels and packing their arguments takes the host longer than launching them. Sequences of
launches with the same extents differ only in addresses. So a sequence is packed with addresses in
numbered *regions* of memory; when the start of each region is known, one addition makes all
structs::

    template   | region 1 + 4096 | pitch | region 2 + 128 | m, n | ...
             + | start of 1      |     0 | start of 2     |    0 | ...     one row for each launch
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupygemm._backends.kernel_kind import Call

_REGION_BITS = 48  # device addresses are smaller
_WORD = 8


def region(number: int) -> int:
    """Return the placeholder for the start of a region, numbered from 1, in arguments."""
    return number << _REGION_BITS


class LaunchRows:
    """A sequence of launches without the addresses of their operands.

    Parameters
    ----------
    calls : sequence of Call
        Their addresses are in regions, or zero.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        packed = [call.launch.kind.pack(*call.arguments) for call in calls]
        self._width = max(map(len, packed)) // _WORD
        self._template = np.zeros((len(calls), self._width), np.uint64)
        self._regions = np.zeros(self._template.shape, np.intp)  # the region of each word, or 0
        for row, (call, data) in enumerate(zip(calls, packed, strict=True)):
            words = np.frombuffer(data, np.uint64)
            of_addresses = call.launch.kind.address_words
            self._template[row, : len(words)] = words
            self._regions[row, of_addresses] = words[of_addresses] >> _REGION_BITS
            self._template[row, of_addresses] &= (1 << _REGION_BITS) - 1
        self._row_bytes = np.arange(len(calls), dtype=np.uint64) * (_WORD * self._width)
        self._launches = [(call.launch.function.launch, call.shape) for call in calls]

    def at(self, *starts: int) -> PlacedRows:
        """Return the launches for regions that start at these addresses."""
        rows = np.array((0, *starts), np.uint64)[self._regions]
        rows += self._template
        return PlacedRows(self._launches, rows, self._row_bytes + np.uint64(_address(rows)))


class PlacedRows:
    """A sequence of launches whose operands have addresses.

    Parameters
    ----------
    launches : list of tuple
        The launcher and the shape of each launch.
    rows : numpy.ndarray
        Their structs.
    pointers : numpy.ndarray
        The address of each struct: its list of parameters.
    """

    __slots__ = ("_first", "_kept", "_launches")

    def __init__(self, launches: Sequence[tuple[Any, Any]], rows: Any, pointers: Any) -> None:
        self._launches = launches
        self._first = _address(pointers)
        self._kept = rows, pointers

    def enqueue(self, row: int, stream: int) -> None:
        """Enqueue a launch on the stream with this address."""
        launch, shape = self._launches[row]
        launch(shape, stream, self._first + _WORD * row)

    def enqueue_in_order(self, rows: range) -> None:
        """Enqueue launches on the current stream."""
        from cupy.cuda import get_current_stream

        stream = int(get_current_stream().ptr)
        for row in rows:
            self.enqueue(row, stream)


def _address(array: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # a fifth of NumPy's time
