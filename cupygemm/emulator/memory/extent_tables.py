"""The extents of device memory, and the tables derived from those that are valid at one moment.

The tables of one moment are derived from the latest ones and the changes since, which are
few: a launch adds its arguments, and an expression an array. All are derived again only if an
existing block is carved for the first time, or is removed before its arrays.
"""

from __future__ import annotations

import array
import bisect
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_start = attrgetter("start")
_Ranges = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Extent:
    """A named range of device memory.

    Attributes
    ----------
    start, end : int
        Addresses, `end` exclusive.
    tag : str
        Description: ``"hipMalloc"``, ``"array"``, ``"code object"``.
    serial : int
        Number of the allocation, from 1.
    device : int or None
        The device that holds it, if there are several; None for memory that all of them may access.
    is_remembered : bool
        Whether reports distinguish it, once freed, from memory that was never allocated.
    """

    start: int
    end: int
    tag: str
    serial: int
    device: int | None = None
    is_remembered: bool = True

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.end - self.start

    def __str__(self) -> str:
        name = f" ({self.tag})" if self.tag else ""
        place = "" if self.device is None else f" of device {self.device}"
        return f"allocation {self.serial}{name}{place}: {self.size} bytes at 0x{self.start:x}"


def gap(extent: Extent, address: int, end: int) -> int:
    """Return the bytes between an extent and ``[address, end)``."""
    return extent.start - end if extent.start >= end else max(address - extent.end, 0)


class Block:
    """An allocation; `is_carved` is set with its first array, and remains set."""

    __slots__ = ("extent", "is_carved")

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.is_carved = False


class Array(NamedTuple):
    """An array, and the block that contains it."""

    extent: Extent
    block: Block


class Edit(NamedTuple):
    """The difference between two lists: elements that the later one lacks, and that it adds."""

    removed: list[Any]
    added: list[Any]

    @staticmethod
    def between(old: list[Any], new: list[Any]) -> Edit:
        """Compare two lists whose common elements, which are most, have the same order."""
        if old == new:
            return _NO_EDIT
        first = _num_shared(old, new)
        old, new = old[first:], new[first:]
        if old and new:
            last = _num_shared(old[::-1], new[::-1])
            old, new = old[: len(old) - last], new[: len(new) - last]
        before, after = set(map(id, old)), set(map(id, new))
        return Edit([e for e in old if id(e) not in after], [e for e in new if id(e) not in before])

    def applied(self, extents: list[Extent]) -> tuple[list[Extent], list[tuple[int, Any]]]:
        """Remove and add extents in a copy of a list of them that is sorted by address.

        Returns
        -------
        edited : list of Extent
        steps : list of tuple of int and (Extent or None)
            The index at which an extent was inserted or, with None, one was deleted; in sequence.
        """
        edited, steps = extents.copy(), []
        for each in self.removed:
            place = bisect.bisect_left(edited, each.start, key=_start)
            while edited[place] is not each:
                place += 1
            del edited[place]
            steps.append((place, None))
        for each in self.added:
            place = bisect.bisect_right(edited, each.start, key=_start)
            edited.insert(place, each)
            steps.append((place, each))
        return edited, steps


_NO_EDIT = Edit([], [])


def _num_shared(old: list[Any], new: list[Any]) -> int:
    """Return how many of their first elements two lists share."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, eq=False)
class Tables:
    """The extents of one state of device memory, sorted by address.

    Attributes
    ----------
    blocks, arrays : list
        The allocations, and the arrays that CuPy's pool has placed in them.
    carved : frozenset of Block
        The blocks in which only the arrays are valid.
    all_blocks, valid : list of Extent
        The blocks, and what a kernel may access: blocks that are not carved, and arrays.
    starts, ends : uint64 (len(valid),)
        Addresses of the valid extents.
    devices : int64 (len(valid),)
        The devices that hold them.
    """

    blocks: list[Block]
    arrays: list[Array]
    carved: frozenset[Block]  # of the blocks
    all_blocks: list[Extent]
    valid: list[Extent]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    devices: NDArray[np.int64]

    @staticmethod
    def of(blocks: list[Block], arrays: list[Array]) -> Tables:
        """Derive the tables."""
        carved = frozenset(block for block in blocks if block.is_carved)
        valid = [block.extent for block in blocks if block not in carved]
        valid += [each.extent for each in arrays if each.block in carved]
        valid.sort(key=_start)
        all_blocks = sorted((block.extent for block in blocks), key=_start)
        return Tables(blocks, arrays, carved, all_blocks, valid, *_ranges(valid))

    def changed(
        self,
        blocks: list[Block],
        all_blocks: list[Extent],
        arrays: list[Array],
        recent: list[Extent],
    ) -> tuple[Tables, list[Extent]] | None:
        """Return the tables that `of` returns for other blocks and arrays, from the differences.

        Parameters
        ----------
        blocks : list of Block
        all_blocks : list of Extent
            The extents of the blocks, by address.
        arrays : list of Array
        recent : list of Extent
            All additions, some of which may be gone again.

        Returns
        -------
        tuple of Tables and list of Extent, or None
            The tables, and the removed extents, by address and then by age. None if an existing
            block was carved for the first time, or was removed before its arrays.
        """
        of_blocks, of_arrays = Edit.between(self.blocks, blocks), Edit.between(self.arrays, arrays)
        new_blocks = [block.extent for block in of_blocks.added]
        new_arrays = [each.extent for each in of_arrays.added]
        carved = self.carved
        if lost := carved.intersection(of_blocks.removed):
            carved -= lost
        if opened := [block for block in of_blocks.added if block.is_carved]:
            carved = carved.union(opened)
        lasting = {each.serial for each in new_blocks + new_arrays}
        passed = [each for each in recent if each.serial not in lasting]
        if (
            any(each.block not in carved for each in of_arrays.added)
            or (lost and any(each.block in lost for each in arrays))
            or (passed and any(block.is_carved and block not in carved for block in blocks))
        ):
            return None
        removed = [block.extent for block in of_blocks.removed if block not in lost]
        removed += [each.extent for each in of_arrays.removed if each.block in self.carved]
        added = [block.extent for block in of_blocks.added if block not in carved] + new_arrays
        valid, steps = Edit(removed, added).applied(self.valid)
        ranges = self.starts, self.ends, self.devices
        if [_numbers(each) for each in removed] != [_numbers(each) for each in added]:
            ranges = (
                _edited(self.starts, 0, steps),
                _edited(self.ends, 1, steps),
                _edited(self.devices, 2, steps),
            )
        gone = sorted(removed, key=_start) + passed
        return Tables(blocks, arrays, carved, all_blocks, valid, *ranges), gone

    def replaced(
        self, blocks: list[Block], arrays: list[Array], recent: list[Extent]
    ) -> tuple[Tables, list[Extent]]:
        """Return the result of `changed`, derived from all extents."""
        tables = Tables.of(blocks, arrays)
        lasting = {extent.serial for extent in (*tables.valid, *tables.all_blocks)}
        gone = {e.serial: e for e in (*self.valid, *recent) if e.serial not in lasting}
        return tables, list(gone.values())

    def with_blocks(self, blocks: list[Extent]) -> Tables:
        """Return the tables with more blocks, which are not carved."""
        valid = sorted((*self.valid, *blocks), key=_start)
        starts, ends, devices = _ranges(valid)
        all_blocks = sorted((*self.all_blocks, *blocks), key=_start)
        return replace(
            self, all_blocks=all_blocks, valid=valid, starts=starts, ends=ends, devices=devices
        )


def _numbers(extent: Extent) -> tuple[int, int, int]:
    """Return the start, the end and the device (-1 for all) of an extent."""
    return extent.start, extent.end, -1 if extent.device is None else extent.device


def _ranges(valid: list[Extent]) -> _Ranges:
    numbers = [_numbers(extent) for extent in valid]
    return (
        np.array([start for start, _, _ in numbers], np.uint64),
        np.array([end for _, end, _ in numbers], np.uint64),
        np.array([device for _, _, device in numbers], np.int64),
    )


def _edited(numbers: NDArray[Any], which: int, steps: list[tuple[int, Any]]) -> NDArray[Any]:
    """Return one of the arrays of `_ranges` after some steps of `Edit.applied`."""
    edited = array.array("q" if numbers.dtype.kind == "i" else "Q", numbers.tobytes())
    for place, extent in steps:
        if extent is None:
            del edited[place]
        else:
            edited.insert(place, _numbers(extent)[which])
    return np.frombuffer(edited, numbers.dtype) if edited else numbers[:0]
