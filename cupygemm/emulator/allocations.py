"""Device memory: allocations in reserved host memory, and which bytes a kernel may touch.

Allocations have gaps between them, and `address_space` reuses a freed address as late as possible:
an access past the end of an allocation, before its start or after its end of life hits bytes that
no allocation owns, and is reported. A part of an allocation can be *carved* into exact extents:
CuPy's memory pool hands out arrays from larger blocks, and then only the arrays are valid, not the
block. Fresh memory holds the byte 0xA5 (as f32 -2.87e-16, as i32 -1515870811), so that reading it
is noticed.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import mmap
import threading

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.address_space import PAGE, AddressSpace, pages
from cupygemm.emulator.extents import Extent, gap
from cupygemm.emulator.global_shadow import shadow_of
from cupygemm.emulator.host_memory import OutOfMemory, check_host, reserve_at_most

POISON = 0xA5
_HISTORY = 4096  # freed extents that can be told from addresses that never were


class Memory:
    """Memory of an emulated device; safe to use from several threads.

    The garbage collector can free memory in the middle of any method here, through CuPy's
    destructors: so nothing iterates over the tables themselves, and `ranges` looks whether they
    have changed meanwhile. A signal handler can end any method at any point: each step leaves the
    tables usable, and at worst memory is lost.

    Parameters
    ----------
    reserve : int, optional
        Address space to reserve, bytes; its shadow takes three times as much. Neither costs
        anything until it is touched.
    """

    def __init__(self, reserve: int = 1 << 38) -> None:
        self._lock = threading.RLock()
        self._arena = reserve_at_most(reserve)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._arena))
        self._limit = self._base + len(self._arena)
        self._addresses = AddressSpace(self._base, self._limit)
        self._recycled: dict[int, list[int]] = {}  # by size in pages: starts, ready for reuse
        self._serial = 0
        self._blocks: dict[int, Extent] = {}  # by start: what malloc gave out
        self._block_starts: list[int] = []  # sorted
        self._extents: dict[int, Extent] = {}  # by start: what a kernel may touch
        self._carved: dict[int, int] = {}  # start of a carved block: extents in it
        self._freed: collections.deque[Extent] = collections.deque(maxlen=_HISTORY)
        self._ranges: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]] | None = None
        self._changes = 0  # to what ranges() reports
        self.shadow = shadow_of(self._base, self._limit)
        self.used_bytes = 0
        self.used_by: collections.Counter[int | None] = collections.Counter()

    # -- allocation --

    def malloc(
        self,
        size: int,
        tag: str = "",
        *,
        recycle: bool = False,
        fresh: bool = False,
        device: int | None = None,
    ) -> int:
        """Allocate `size` bytes and return their address, a multiple of 4096.

        Parameters
        ----------
        size : int
        tag : str
            What it is, for reports.
        recycle : bool
            Reuse the address of a block that was freed with `recycle`: a launch's arguments.
        fresh : bool
            Leave the bytes zero: the host backs them with memory when they are written.
        device : int, optional
            The device that holds it, if there are several; by default all may touch it.

        Raises
        ------
        OutOfMemory
            The host has less memory available, or the address space is used up.
        """
        with self._lock:
            check_host(size)
            start = self._place(size, recycle=recycle)
            self._serial += 1
            extent = Extent(start, start + size, tag, self._serial, device)
            self._changed()
            self._blocks[start] = self._extents[start] = extent
            bisect.insort(self._block_starts, start)
            self._changed()
            self.used_bytes += size
            self.used_by[device] += size
            if not fresh:
                self.poison(start, size)
            return start

    def free(self, pointer: int, *, recycle: bool = False) -> None:
        """Free what `malloc` returned.

        Raises
        ------
        ValueError
            `pointer` is no live allocation's start; the message says what is there.
        """
        with self._lock:
            block = self._blocks.get(pointer)
            if block is None:
                raise ValueError(
                    f"free of 0x{pointer:x}, which no allocation starts at: "
                    + self.describe(pointer, 0)
                )
            self._changed()
            position = bisect.bisect_left(self._block_starts, pointer)
            if self._block_starts[position : position + 1] == [pointer]:
                del self._block_starts[position]
            size = block.end - block.start
            if self._carved.pop(pointer, None) is not None:
                for extent in list(self._extents.values()):
                    if block.start <= extent.start < block.end:
                        self._freed.append(self._extents.pop(extent.start))
            elif self._extents.pop(pointer, None) is not None and not recycle:
                self._freed.append(block)
            self._changed()
            self._give_back(block.start, size)
            del self._blocks[pointer]
            self.used_bytes -= size
            self.used_by[block.device] -= size
            if recycle:
                self._recycled.setdefault(pages(size), []).append(pointer)
            else:
                self._addresses.release(pointer, size)

    def carve(self, start: int, size: int, tag: str = "array") -> None:
        """Make ``[start, start + size)`` valid, and of its block only what has been carved.

        Raises
        ------
        ValueError
            It is not inside one live allocation, or another carved extent starts there.
        """
        with self._lock:
            block = self._block_of(start)
            if block is None or start + size > block.end:
                raise ValueError(
                    f"{size} bytes at 0x{start:x} are not inside one allocation: "
                    + self.describe(start, size)
                )
            self._changed()
            if block.start not in self._carved:
                self._carved[block.start] = 0
                self._extents.pop(block.start, None)
            elif start in self._extents:
                raise ValueError(f"0x{start:x} is already the start of {self._extents[start]}")
            self._carved[block.start] += 1
            self._serial += 1
            self._extents[start] = Extent(start, start + size, tag, self._serial, block.device)
            self._changed()

    def uncarve(self, start: int) -> None:
        """Make a carved extent invalid again; does nothing if its block was freed meanwhile."""
        with self._lock:
            block = self._block_of(start)
            if block is None or block.start not in self._carved:
                return
            self._changed()
            extent = self._extents.pop(start, None)
            if extent is not None:
                self._freed.append(extent)
                self._carved[block.start] -= 1
                self._changed()

    def poison(self, start: int, size: int) -> None:
        """Fill with the pattern of fresh memory, which nothing has written."""
        ctypes.memset(start, POISON, size)
        if self.shadow is not None:
            self.shadow.undefine(start, size)

    def define(self, start: int, size: int) -> None:
        """Note that somebody other than a kernel writes ``[start, start + size)``."""
        if self.shadow is not None and self.owns(start):
            self.shadow.define(start, size)

    def close(self) -> None:
        """Give the address space back; no allocation is valid any more."""
        with self._lock:
            self._blocks.clear()
            self._block_starts.clear()
            self._extents.clear()
            self._carved.clear()
            self._changed()
            self.used_bytes = 0
            self.used_by.clear()
            self.shadow = None
            self._arena.close()

    def _changed(self) -> None:
        self._changes += 1
        self._ranges = None

    def _place(self, size: int, *, recycle: bool) -> int:
        if recycle and (ready := self._recycled.get(pages(size))):
            return ready.pop()
        start = self._addresses.take(size)
        if start is None:
            raise OutOfMemory(
                f"no {size} bytes left of the {len(self._arena)} bytes of device address space"
            )
        return start

    def _give_back(self, start: int, size: int) -> None:
        """Return the host's memory behind a block that is no longer valid."""
        length = pages(size)
        self._arena.madvise(mmap.MADV_DONTNEED, start - self._base, length)
        if self.shadow is None:
            return
        # A page of the shadow stands for several small blocks: it goes with the last of them.
        position = bisect.bisect_left(self._block_starts, start)
        previous = self._blocks.get(self._block_starts[position - 1]) if position else None
        following = self._block_starts[position : position + 1]
        self.shadow.forget(start, start + length)
        free = previous.end if previous else self._base, (*following, self._limit)[0]
        self.shadow.forget_bits(start, start + length, *free)

    # -- questions --

    def ranges(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return what a kernel may touch: sorted starts and ends, each uint64 (n,) and contiguous.

        The arrays are the same objects until something is allocated or freed.
        """
        return self.ranges_and_devices()[:2]

    def ranges_and_devices(
        self,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return the same, and the device that holds each range, -1 for all; int64 (n,)."""
        with self._lock:
            while self._ranges is None:
                changes = self._changes
                extents = sorted(list(self._extents.values()), key=lambda extent: extent.start)  # noqa: C414
                starts = np.array([extent.start for extent in extents], np.uint64)
                ends = np.array([extent.end for extent in extents], np.uint64)
                devices = [-1 if each.device is None else each.device for each in extents]
                if changes == self._changes:
                    self._ranges = starts, ends, np.array(devices, np.int64)
            return self._ranges

    def contains(self, address: int, size: int) -> bool:
        """Tell whether ``[address, address + size)`` is inside one valid extent."""
        starts, ends = self.ranges()
        position = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        return position >= 0 and address + size <= int(ends[position])

    def owns(self, address: int) -> bool:
        """Tell whether `address` is in the device's address space, allocated or not."""
        return self._base <= address < self._limit

    def is_peers(self, address: int) -> bool:
        """Whether an address is another device's, to which access is not enabled; see `peers`."""
        return False

    def block(self, address: int) -> Extent | None:
        """Return the live allocation, as `malloc` made it, that holds `address`."""
        with self._lock:
            return self._block_of(address)

    def nearest(self, address: int) -> Extent | None:
        """Return the valid extent that holds an address or lies nearest to it."""
        with self._lock:
            return min(
                list(self._extents.values()),
                key=lambda extent: gap(extent, address, address + 1),
                default=None,
            )

    def dangling(self, address: int) -> Extent | None:
        """Return what was freed at an address, if nothing lives in its place by now."""
        with self._lock:
            freed = self._freed_at(address)
            return None if freed is None or self._reuse(freed, address, address) else freed

    def describe(self, address: int, size: int) -> str:
        """Say what is at ``[address, address + size)``: for the report of a bad access.

        Parameters
        ----------
        address, size : int

        Returns
        -------
        str
            The allocation there, or the nearest, its size and name, and the distance to it; of what
            was freed that, and which one still allocated is nearest.
        """
        with self._lock:
            end = address + size
            for extent in list(self._extents.values()):
                if extent.start <= address < extent.end:
                    if end <= extent.end:
                        return f"{address - extent.start} bytes into {extent}"
                    return (
                        f"starts {extent.end - address} bytes before the end of {extent}, "
                        f"and runs {end - extent.end} bytes past it"
                    )
            freed = self._freed_at(address)
            if freed is None:
                return self._describe_nearest(address, end)
            where = f"{address - freed.start} bytes into {freed}, which was freed"
            reuse = self._reuse(freed, address, end)
            if reuse is not None:
                return f"{self._distance(reuse, address, end)};\nalso {where}"
            near = self.nearest(address)
            return where if near is None else f"{where};\n{self._distance(near, address, end)}"

    def _freed_at(self, address: int) -> Extent | None:
        """Return the extent freed last that held `address`, as far back as is remembered."""
        newest_first = reversed(list(self._freed))
        return next((each for each in newest_first if each.start <= address < each.end), None)

    def _reuse(self, freed: Extent, address: int, end: int) -> Extent | None:
        """Return the nearest live extent in a freed one's place, if that was given out again."""
        live = [
            extent
            for extent in list(self._extents.values())
            if extent.start < freed.end
            and extent.end > freed.start
            and extent.serial > freed.serial
        ]
        return min(live, key=lambda extent: gap(extent, address, end), default=None)

    def _describe_nearest(self, address: int, end: int) -> str:
        if 0 <= address < PAGE:
            return f"{address} bytes past a null pointer" if address else "a null pointer"
        near = self.nearest(address)
        if near is None:
            outside = "" if self.owns(address) else "not device memory: "
            return outside + "no device memory is allocated"
        where = self._distance(near, address, end)
        if not self.owns(address):
            return f"not device memory (host memory, or a stray pointer); nearest: {where}"
        return where

    @staticmethod
    def _distance(near: Extent, address: int, end: int) -> str:
        if address >= near.end:
            return f"{address - near.end} bytes past the end of {near}"
        if end <= near.start:
            return f"{near.start - address} bytes before the start of {near}"
        return f"runs {end - near.start} bytes into {near}, but starts before it"

    def _block_of(self, address: int) -> Extent | None:
        position = bisect.bisect_right(self._block_starts, address) - 1
        if position < 0:
            return None
        block = self._blocks.get(self._block_starts[position])
        return block if block and (address == block.start or address < block.end) else None

    # -- host access --

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes as a NumPy array that shares the memory, and count them as written.

        Raises
        ------
        ValueError
            They are not all valid.
        """
        if not self.contains(address, size):
            raise ValueError(
                f"{size} bytes at 0x{address:x}: " + self.describe(address, max(size, 1))
            )
        self.define(address, size)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def read(self, address: int, size: int) -> bytes:
        """Return the bytes; raises `ValueError` as `view` does."""
        return self.view(address, size).tobytes()

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Store the bytes; raises `ValueError` as `view` does."""
        self.view(address, len(data))[:] = np.frombuffer(data, np.uint8)
