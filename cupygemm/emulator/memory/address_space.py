"""Assign address ranges to allocations.

Addresses increase, with a gap after every range. A released address is reused only when
the address space is used up, starting with the range released first. An access past the end of
an allocation, or to a freed one, therefore hits bytes that no allocation owns. Neighbouring
released ranges are merged when no single one is large enough.
"""

from __future__ import annotations

import collections

PAGE = 4096
GAP = 2 * PAGE  # between the last page of an allocation and the next allocation


class AddressSpace:
    """The addresses from `base` to `limit`.

    Parameters
    ----------
    base, limit : int
        `limit` is exclusive.
    """

    def __init__(self, base: int, limit: int) -> None:
        self._next = -(-base // PAGE) * PAGE + GAP
        self._limit = limit
        # Released ranges with their gaps, the oldest first: start and end.
        self._released: collections.deque[tuple[int, int]] = collections.deque()

    def take(self, size: int) -> int | None:
        """Return the start of a range for `size` bytes, or None if there is no room."""
        length = pages(size) + GAP
        if self._next + length <= self._limit:
            start = self._next
            self._next += length
            return start
        start_or_none = self._take_released(length)
        if start_or_none is None:
            self._merge()
            start_or_none = self._take_released(length)
        return start_or_none

    def release(self, start: int, size: int) -> None:
        """Give back a range that `take` assigned for `size` bytes."""
        self._released.append((start, start + pages(size) + GAP))

    def _take_released(self, length: int) -> int | None:
        for position, (start, end) in enumerate(self._released):
            if end - start >= length:
                if end - start > length:
                    self._released[position] = start + length, end
                else:
                    del self._released[position]
                return start
        return None

    def _merge(self) -> None:
        """Join neighbouring released ranges, and the last of them with the unassigned rest."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted([*self._released, (self._next, self._limit)]):
            if merged and merged[-1][1] >= start:
                merged[-1] = merged[-1][0], end
            elif start < end:
                merged.append((start, end))
        self._next = self._limit
        self._released = collections.deque(merged)


def pages(size: int) -> int:
    """Return `size` rounded up to whole pages, at least one."""
    return max(-(-size // PAGE), 1) * PAGE
