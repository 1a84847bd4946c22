"""The valid and the freed ranges of device memory: the tables that every check uses.

A *block* is an allocation. A block can be *carved* into arrays: then only the arrays
are valid, not the block. An array is valid as long as its `Owner` lives.

A signal handler may end any function here at any point, and the garbage collector may drop an
owner in the middle of one. So the state is in two dictionaries, each change is one operation on one
of them, and everything else is derived from copies of them. An owner has no ``__del__``, in which
Python would print and drop a handler's exception: its weak reference removes the array, in C.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import ctypes
import itertools
import threading
import weakref
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from cupygemm.emulator.memory.extent_tables import Array, Block, Edit, Extent, Tables, gap

__all__ = ["Extent", "Extents", "Moment", "Owner"]

_HISTORY = 4096  # freed extents that are distinguished from addresses that were never used
_start = attrgetter("start")
_untrack: Any = ctypes.pythonapi.PyObject_GC_UnTrack
_untrack.argtypes, _untrack.restype = [ctypes.py_object], None


def _holder(blocks: list[Extent], address: int) -> Extent | None:
    """Return the sorted block that holds an address; an empty one holds its start."""
    position = bisect.bisect_right(blocks, address, key=_start) - 1
    if position < 0:
        return None
    found = blocks[position]
    return found if address == found.start or address < found.end else None


class Owner:
    """Keeps an array's extent valid during its lifetime; after that it drops `kept`."""

    __slots__ = ("__weakref__", "kept")

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        # Then, for the collector, its weak reference does not point into a cycle of garbage, and
        # the array is still there for a `__del__` in that cycle.
        _untrack(self)


class Moment(NamedTuple):
    """The tables at one moment, and the highest serial number of an extent by then."""

    tables: Tables
    newest: int


class Extents:
    """The blocks and arrays of a device's memory."""

    def __init__(self) -> None:
        self._serials = itertools.count(1)
        self._newest = 0
        self._seen = threading.local()  # `moment`: what this thread sees instead of the present
        self._merged: tuple[Any, Tables] | None = None  # of a moment and a present
        self._blocks: dict[int, Block] = {}  # by start
        self._arrays: dict[weakref.ref[Owner], Array] = {}
        self._tables = Tables.of([], [])
        self._sorted: tuple[list[Block], list[Extent]] = [], []  # blocks by age, and by address
        # Extents that may be freed before the tables are derived again; and what was freed.
        self._recent: collections.deque[Extent] = collections.deque(maxlen=_HISTORY)
        self._freed: collections.deque[Extent] = collections.deque(maxlen=_HISTORY)

    # -- changes --

    def add(self, start: int, size: int, tag: str, device: int | None, *, remember: bool) -> None:
        """Add a block."""
        extent = Extent(start, start + size, tag, next(self._serials), device, remember)
        self._newest = extent.serial
        if remember:
            self._recent.append(extent)
        self._blocks[start] = Block(extent)

    def remove(self, start: int) -> None:
        """Remove a block, if it exists; its arrays then become invalid too."""
        self._blocks.pop(start, None)

    def carve(self, start: int, size: int, tag: str, kept: Any) -> Owner | None:
        """Add an array, or return None if it is not inside one block."""
        extent = self.present_block(start)
        block = None if extent is None else self._blocks.get(extent.start)
        if block is None or start + size > block.extent.end:
            return None
        extent = Extent(start, start + size, tag, next(self._serials), block.extent.device)
        self._newest = extent.serial
        self._recent.append(extent)
        owner = Owner(kept)
        array = Array(extent, block)
        block.is_carved = True
        # No variable holds the weak reference: outside the table, it must not outlive the owner.
        self._arrays[weakref.ref(owner, self._arrays.pop)] = array
        return owner

    def clear(self) -> None:
        """Remove all blocks and arrays."""
        self._blocks.clear()
        self._arrays.clear()

    # -- questions --

    @property
    def newest(self) -> int:
        """The serial number of the latest extent."""
        moment: Moment | None = getattr(self._seen, "moment", None)
        return self._newest if moment is None else moment.newest

    def moment(self) -> Moment:
        """Return the present moment, with the memory that is valid now."""
        return Moment(self.tables(), self.newest)

    @contextlib.contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Make this thread see the memory valid at a moment, and the blocks added since."""
        before = getattr(self._seen, "moment", None)
        self._seen.moment = moment
        try:
            yield
        finally:
            self._seen.moment = before

    def tables(self) -> Tables:
        """Return the tables of the blocks and arrays that this thread sees."""
        present = self._present()
        moment: Moment | None = getattr(self._seen, "moment", None)
        if moment is None or moment.tables is present:
            return present
        merged, key = self._merged, (moment.tables, present)
        if merged is not None and merged[0][0] is key[0] and merged[0][1] is key[1]:
            return merged[1]
        added = [block for block in present.all_blocks if block.serial > moment.newest]
        found = moment.tables.with_blocks(added) if added else moment.tables
        self._merged = key, found
        return found

    def _present(self) -> Tables:
        while True:
            # In this order: another thread may add a block and an array in it between the two.
            arrays, blocks = list(self._arrays.values()), list(self._blocks.values())
            known = self._tables
            if known.blocks == blocks and known.arrays == arrays and not self._recent:
                return known
            recent = list(self._recent)
            found = known.changed(blocks, self._by_address(blocks), arrays, recent)
            tables, gone = found or known.replaced(blocks, arrays, recent)
            self._recent.clear()
            self._tables = tables
            self._freed.extend(extent for extent in gone if extent.is_remembered)

    def block(self, address: int) -> Extent | None:
        """Return the block that holds an address."""
        return _holder(self.tables().all_blocks, address)

    def present_blocks(self) -> list[Extent]:
        """Return the existing blocks, by address, without deriving the tables of all arrays."""
        return self._by_address(list(self._blocks.values()))

    def _by_address(self, blocks: list[Block]) -> list[Extent]:
        """Return the extents of blocks, sorted by address."""
        known, found = self._sorted
        if known != blocks:
            removed, added = Edit.between(known, blocks)
            edit = Edit([each.extent for each in removed], [each.extent for each in added])
            found = edit.applied(found)[0]
            self._sorted = blocks, found
        return found

    def present_block(self, address: int) -> Extent | None:
        """Return the existing block that holds an address."""
        return _holder(self.present_blocks(), address)

    def nearest(self, address: int, end: int | None = None) -> Extent | None:
        """Return the valid extent that holds an address or a range, or is nearest to it."""
        end = address + 1 if end is None else end
        return min(self.tables().valid, key=lambda each: gap(each, address, end), default=None)

    def dangling(self, address: int) -> Extent | None:
        """Return the freed extent at an address, if nothing has replaced it."""
        freed = self.freed(address)
        return None if freed is None or self.reuse(freed, address, address) else freed

    def freed(self, address: int) -> Extent | None:
        """Return the extent freed last that held `address`, as far as recorded."""
        live = {extent.serial for extent in self.tables().valid}
        for extent in reversed(list(self._freed)):
            if extent.start <= address < extent.end and extent.serial not in live:
                return extent
        return None

    def reuse(self, freed: Extent, address: int, end: int) -> Extent | None:
        """Return the nearest live extent in place of a freed one, if its memory was reused."""
        live = [
            extent
            for extent in self.tables().valid
            if extent.start < freed.end
            and extent.end > freed.start
            and extent.serial > freed.serial
        ]
        return min(live, key=lambda extent: gap(extent, address, end), default=None)
