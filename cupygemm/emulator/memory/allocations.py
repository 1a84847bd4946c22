"""Device memory: allocations in reserved host memory, and the bytes that a kernel may access.

Allocations have gaps between them, and `address_space` reuses a freed address as late as possible:
an access past the end of an allocation, before its start or after its lifetime hits bytes that
no allocation owns, and is reported. A part of an allocation can be *carved* into exact extents:
CuPy's memory pool hands out arrays from larger blocks, and then only the arrays are valid, not the
block. Fresh memory holds the byte 0xA5 (as f32 -2.87e-16, as i32 -1515870811), so that
reading it has a visible effect.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import mmap
import threading
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.memory.address_space import PAGE, AddressSpace, pages
from cupygemm.emulator.memory.extents import Extent, Extents, Moment, Owner
from cupygemm.emulator.memory.global_shadow import shadow_of
from cupygemm.emulator.memory.host_memory import OutOfMemory, check_host, reserve_at_most

POISON = 0xA5


class Memory:
    """Memory of an emulated device; safe to use from several threads.

    The garbage collector can drop arrays in the middle of any method here, and a signal handler can
    end any method at any point: an allocation or a release is then either complete or not begun. At
    worst, addresses are lost.

    Parameters
    ----------
    reserve : int, optional
        Address space to reserve, bytes; its shadow takes 3.6 times as much. Neither uses
        memory until it is accessed.
    """

    def __init__(self, reserve: int = 1 << 38) -> None:
        self._lock = threading.RLock()  # of the addresses
        self._arena = reserve_at_most(reserve)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._arena))
        self._limit = self._base + len(self._arena)
        self._addresses = AddressSpace(self._base, self._limit)
        self._recycled: dict[int, list[int]] = {}  # by size in pages: starts, ready for reuse
        self._extents = Extents()
        self.shadow = shadow_of(self._base, self._limit)

    @property
    def serial(self) -> int:
        """Return the serial of the latest allocation."""
        return self._extents.newest

    # -- allocation --

    @property
    def used_bytes(self) -> int:
        """Return the bytes that are allocated."""
        return sum(block.size for block in self._extents.present_blocks())

    def used_by(self, device: int | None) -> int:
        """Return the bytes that are allocated on a device."""
        blocks = self._extents.present_blocks()
        return sum(block.size for block in blocks if block.device == device)

    def malloc(
        self,
        size: int,
        tag: str = "",
        *,
        recycle: bool = False,
        fresh: bool = False,
        device: int | None = None,
        made: ctypes.c_size_t | None = None,
    ) -> int:
        """Allocate `size` bytes and return their address, a multiple of 4096.

        Parameters
        ----------
        size : int
        tag : str
            Description of the allocation, for reports.
        recycle : bool
            Reuse the address of a block that was freed with `recycle`: a launch's arguments.
        fresh : bool
            Leave the bytes zero: the host backs them with memory when they are written.
        device : int, optional
            The device that holds it, if there are several; by default, all may access it.
        made : ctypes.c_size_t, optional
            Receives the address before the block exists, for a caller that is called again if a
            signal handler's exception ends it.

        Raises
        ------
        OutOfMemory
            The host has less memory available, or the address space is used up.
        """
        start = None
        try:
            with self._lock:
                check_host(size)
                start = self._place(size, recycle=recycle)
                if not fresh:
                    self.poison(start, size)
                if made is not None:
                    made.value = start
                self._extents.add(start, size, tag, device, remember=not recycle)
        except BaseException:  # from a signal handler
            if start is not None:
                self._extents.remove(start)
                self._give_back(start, size)
                self._put_back(start, size, recycle=recycle)
            raise
        return start

    def free(self, pointer: int, *, recycle: bool = False) -> None:
        """Free an allocation of `malloc`.

        Raises
        ------
        ValueError
            `pointer` is not the start of a live allocation; the message says what is there.
        """
        with self._lock:
            block = self._extents.present_block(pointer)
            if block is None or block.start != pointer or not self.owns(pointer):
                raise ValueError(
                    f"free of 0x{pointer:x}, at which no allocation starts: "
                    + self.describe(pointer, 0)
                )
            if recycle:
                self._forget(pointer, block.size)
            else:
                self._give_back(pointer, block.size)
            self._extents.remove(pointer)
            self._put_back(pointer, block.size, recycle=recycle)

    def adopt(self, start: int, size: int, tag: str) -> None:
        """Allow kernels to access the program's own memory. Races there are not checked.

        Parameters
        ----------
        start, size : int
        tag : str
            Description of the memory, for reports.

        Raises
        ------
        ValueError
            The range is empty, or a part of it is accessible already.
        """
        with self._lock:
            starts, ends = self.ranges()
            taken = bool(((starts < start + size) & (ends > start)).any())
            if not start or size <= 0 or taken or self.owns(start):
                raise ValueError(f"{size} bytes at 0x{start:x} cannot be registered")
            self._extents.add(start, size, tag, None, remember=True)

    def disown(self, start: int) -> None:
        """End the access to memory that `adopt` was given; raises `ValueError` if it was not."""
        with self._lock:
            block = self._extents.present_block(start)
            if block is None or block.start != start or self.owns(start):
                raise ValueError(f"0x{start:x} is not the start of registered memory")
            self._extents.remove(start)

    def carve(self, start: int, size: int, tag: str = "array", *, keep: Any = None) -> Owner:
        """Make ``[start, start + size)`` valid; of its block, only carved ranges remain valid.

        Parameters
        ----------
        start, size : int
        tag : str
            Description of the array, for reports.
        keep : object
            Dropped when the array has become invalid, and not before.

        Returns
        -------
        Owner
            The array is valid until this object is dropped, or the block is freed.

        Raises
        ------
        ValueError
            It is not inside one live allocation.
        """
        owner = self._extents.carve(start, size, tag, keep)
        if owner is None:
            raise ValueError(
                f"{size} bytes at 0x{start:x} are not inside one allocation: "
                + self.describe(start, size)
            )
        return owner

    def poison(self, start: int, size: int) -> None:
        """Fill a range with the pattern of fresh, unwritten memory."""
        ctypes.memset(start, POISON, size)
        if self.shadow is not None:
            self.shadow.undefine(start, size)

    def define(self, start: int, size: int) -> None:
        """Record that ``[start, start + size)`` is written by something other than a kernel."""
        if self.shadow is not None and self.owns(start):
            self.shadow.define(start, size)

    def close(self) -> None:
        """Release the address space; no allocation is valid any more."""
        with self._lock:
            self._extents.clear()
            self.shadow = None
            self._arena.close()

    def _place(self, size: int, *, recycle: bool) -> int:
        if recycle and (ready := self._recycled.get(pages(size))):
            return ready.pop()
        start = self._addresses.take(size)
        if start is None:
            raise OutOfMemory(
                f"no {size} bytes left of the {len(self._arena)} bytes of device address space"
            )
        return start

    def _put_back(self, start: int, size: int, *, recycle: bool) -> None:
        if recycle:
            self._recycled.setdefault(pages(size), []).append(start)
        else:
            self._addresses.release(start, size)

    def _forget(self, start: int, size: int) -> None:
        """Discard the access records of a block whose memory is reused soon."""
        if self.shadow is not None:
            self.shadow.clear(start, start + size)

    def _give_back(self, start: int, size: int) -> None:
        """Release the memory of an unused block to the host."""
        length = pages(size)
        self._arena.madvise(mmap.MADV_DONTNEED, start - self._base, length)
        if self.shadow is None:
            return
        # A page of the shadow may cover several small blocks: it is released with the last of them.
        blocks = self._extents.present_blocks()
        before = bisect.bisect_left(blocks, start, key=attrgetter("start"))
        after = bisect.bisect_right(blocks, start, key=attrgetter("start"))
        self.shadow.forget(start, start + length)
        free_start = blocks[before - 1].end if before else self._base
        free_end = blocks[after].start if after < len(blocks) else self._limit
        self.shadow.forget_bits(start, start + length, free_start, free_end)

    # -- moments --

    def moment(self) -> Moment:
        """Return the currently valid memory, for work that is executed later."""
        return self._extents.moment()

    def at(self, moment: Moment) -> contextlib.AbstractContextManager[None]:
        """Make this thread see the memory that was valid at a moment; see `Extents.at`."""
        return self._extents.at(moment)

    # -- questions --

    def ranges(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the ranges that a kernel may access: sorted starts and ends, each uint64 (n,).

        The arrays are contiguous, and the same objects until something is allocated or freed.
        """
        return self.ranges_and_devices()[:2]

    def ranges_and_devices(
        self,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return these ranges and the device that holds each, -1 for all; int64 (n,)."""
        tables = self._extents.tables()
        return tables.starts, tables.ends, tables.devices

    def contains(self, address: int, size: int) -> bool:
        """Tell whether ``[address, address + size)`` is inside one valid extent."""
        found = self._range_before(address)
        return found is not None and address + size <= found[1]

    def range_of(self, address: int) -> tuple[int, int] | None:
        """Return the start and end of the valid extent that holds `address`; None without one."""
        found = self._range_before(address)
        return found if found is not None and address < found[1] else None

    def _range_before(self, address: int) -> tuple[int, int] | None:
        """Return the last valid extent that starts at `address` or before it."""
        starts, ends = self.ranges()
        position = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        return (int(starts[position]), int(ends[position])) if position >= 0 else None

    def owns(self, address: int) -> bool:
        """Tell whether `address` is in the device's address space, allocated or not."""
        return self._base <= address < self._limit

    def is_peers(self, address: int) -> bool:
        """Whether an address is another device's, to which access is not enabled; see `peers`."""
        return False

    def block(self, address: int) -> Extent | None:
        """Return the live allocation, as `malloc` made it, that holds `address`."""
        return self._extents.block(address)

    def nearest(self, address: int) -> Extent | None:
        """Return the valid extent that holds an address or is nearest to it."""
        return self._extents.nearest(address)

    def dangling(self, address: int) -> Extent | None:
        """Return the freed extent at an address, if nothing has replaced it."""
        return self._extents.dangling(address)

    def describe(self, address: int, size: int) -> str:
        """Describe the memory at ``[address, address + size)``, for the report of a bad access.

        Parameters
        ----------
        address, size : int

        Returns
        -------
        str
            The allocation there, or the nearest one: its size, name and distance. If it was freed,
            also the nearest live allocation.
        """
        end = address + size
        for extent in self._extents.tables().valid:
            if extent.start <= address < extent.end:
                if end <= extent.end:
                    return f"{address - extent.start} bytes into {extent}"
                return (
                    f"starts {extent.end - address} bytes before the end of {extent}, "
                    f"and runs {end - extent.end} bytes past it"
                )
        freed = self._extents.freed(address)
        if freed is None:
            return self._describe_nearest(address, end)
        where = f"{address - freed.start} bytes into {freed}, which was freed"
        reuse = self._extents.reuse(freed, address, end)
        if reuse is not None:
            return f"{self._distance(reuse, address, end)};\nalso {where}"
        near = self.nearest(address)
        return where if near is None else f"{where};\n{self._distance(near, address, end)}"

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
