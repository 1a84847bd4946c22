"""The shadow of device memory: the last accesses to it, and the bytes that have been written.

Each 16 bytes of device memory have a record of 48 bytes (``native/global_shadow.h``), from which
races between waves and workgroups are found. Each line of 128 bytes has a record of 64 bytes, which
replaces the others where a wave accesses the whole line. A clock that is never reset between
launches distinguishes the records of earlier launches. They are ignored, except for those of other
streams that are unordered with the launch (`rivals`). Each byte has a bit
(``native/definedness.h``), which is set when a kernel, a copy or a fill writes the byte. All are in
address space that is reserved once; the host backs the parts that are used.
"""

from __future__ import annotations

import collections
import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.memory.host_memory import reserve
from cupygemm.emulator.native import library

_RECORDS = ((16, 48), (128, 64))  # bytes of device memory per record, and of the record
_LAUNCHES, _ALLOCATIONS = 256, 1 << 16  # kept for reports
_CLOCK_LIMIT = 3 << 30  # of 32 bits; a launch has at most a billion vector memory operations


class Launched(NamedTuple):
    """A launch, for reports.

    Attributes
    ----------
    start : int
        The clock at its beginning.
    kernel : str
    grid, block : tuple of int
        Workgroups, and work-items of a workgroup.
    """

    start: int
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def words(self) -> str:
        """A description of the launch."""
        items = math.prod(self.grid) * math.prod(self.block)
        grid, block = ("x".join(map(str, each)) for each in (self.grid, self.block))
        return f"kernel {self.kernel}, launched with {items} work-items: grid {grid}, block {block}"


class GlobalShadow:
    """Records for device memory from `base` to `end`.

    Parameters
    ----------
    base, end : int
        Addresses.

    Attributes
    ----------
    address, lines, defined : int
        Addresses of the records for `base` and for its line, and of the bits for its first 8 bytes.
    clock : numpy.ndarray
        uint32 (1,), vector memory operations of all launches, counted from the latest `clear`.
    launch_start : int
        The clock at the beginning of the latest launch.
    arguments : tuple of int
        Address and size of the launch's arguments, which nothing writes.
    rivals : stream_order.Rivals or None
        The work that is unordered with the current launch.

    Raises
    ------
    OSError
        The system does not grant the address space.
    """

    def __init__(self, base: int, end: int) -> None:
        self.base, self.end = base, end
        # The records' memory, its address, the bytes that one record covers and its size.
        self._tables = tuple(
            (memory := reserve(-(-(end - base) // unit) * size), _address(memory), unit, size)
            for unit, size in _RECORDS
        )
        self.address, self.lines = (address for _, address, _, _ in self._tables)
        self._bits = reserve(-(-(end - base) // 8))
        self.defined = _address(self._bits)
        self.clock = np.zeros(1, np.uint32)
        self.launch_start = 0
        self.arguments = 0, 0
        self.rivals: Any = None
        self._fresh_since: dict[int, int] = {}  # the clock, by the start of undefined memory
        self._launches: collections.deque[Launched] = collections.deque(maxlen=_LAUNCHES)

    def set_back(self) -> bool:
        """Discard all records if the clock is about to overflow; return whether this was done."""
        if self.clock[0] <= _CLOCK_LIMIT:
            return False
        self.forget(self.base, self.end)
        self.clock[0] = 0
        return True

    def start_launch(
        self, kernel: str = "", grid: Sequence[int] = (), block: Sequence[int] = ()
    ) -> None:
        """Ignore all accesses so far.

        Parameters
        ----------
        kernel : str
            Name of the kernel, for later reports.
        grid, block : sequence of int
            Workgroups, and work-items of a workgroup.
        """
        if self.set_back():
            self._launches.clear()
            self._fresh_since.clear()
        self.launch_start = int(self.clock[0]) + 1
        self._launches.append(Launched(self.launch_start, kernel, tuple(grid), tuple(block)))

    def writer_of(self, address: int, start: int) -> Launched | None:
        """Return the launch that last wrote a byte, if it is one of the latest.

        Parameters
        ----------
        address : int
        start : int
            Start of the allocation; its earlier contents are ignored.
        """
        first, last = self._fresh_since.get(start, int(self.clock[0])), int(self.clock[0])
        times = np.array([(first + 1, last)], [("first", "u4"), ("last", "u4")])
        found = self.find_access((address, address + 1), times, with_reads=False)
        later = (each for each in reversed(self._launches) if found and each.start <= found[1])
        return next(later, None)

    def find_access(
        self, span: tuple[int, int], times: NDArray[Any], *, with_reads: bool
    ) -> tuple[int, int, int, bool] | None:
        """Return an access by kernels to some bytes, at some times.

        Parameters
        ----------
        span : tuple of int
            Addresses of the first byte, and one past the last.
        times : ndarray
            Array of ``struct interval`` (native/machine.h), ascending.
        with_reads : bool
            Whether to include reads.

        Returns
        -------
        tuple or None
            The address, the time, the program counter, and whether it writes.
        """
        found = (ctypes.c_int64 * 4)()
        function = library().find_rival
        function.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 3, ctypes.c_int]
        function.argtypes += [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        low, high = max(span[0], self.base), min(span[1], self.end)
        if low >= high or not function(
            self.address, self.lines, self.base, low, high, with_reads, times.ctypes.data,
            len(times), found,
        ):  # fmt: skip
            return None
        address, time, pc, writes = found
        return address, time, pc, bool(writes)

    def forget(self, start: int, end: int) -> None:
        """Release the memory of the records of ``[start, end)`` to the host, in whole pages."""
        for records, _, unit, size in self._tables:
            first = (start - self.base) // unit * size
            last = -(-(end - self.base) // unit) * size
            first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
            last = last // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                records.madvise(mmap.MADV_DONTNEED, first, last - first)

    def clear(self, start: int, end: int) -> None:
        """Discard the accesses to ``[start, end)``; the host memory of the records stays."""
        for _, address, unit, size in self._tables:
            first, last = (start - self.base) // unit, -(-(end - self.base) // unit)
            ctypes.memset(address + first * size, 0, (last - first) * size)

    def forget_bits(self, start: int, end: int, free_start: int, free_end: int) -> None:
        """Release the memory of the bits of ``[start, end)`` to the host.

        Parameters
        ----------
        start, end : int
            A block that was freed.
        free_start, free_end : int
            The range without allocations around it; pages of bits within it are returned.
        """
        page_span = 8 * mmap.PAGESIZE  # bytes that a page of bits covers
        first = max((start - self.base) // page_span, -(-(free_start - self.base) // page_span))
        last = min(-(-(end - self.base) // page_span), (free_end - self.base) // page_span)
        if last > first:
            length = (last - first) * mmap.PAGESIZE
            self._bits.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, length)

    def define(self, start: int, size: int) -> None:
        """Record that ``[start, start + size)`` has been written."""
        self._set(start, size, written=True)

    def undefine(self, start: int, size: int) -> None:
        """Record that ``[start, start + size)`` has not been written."""
        if len(self._fresh_since) >= _ALLOCATIONS:
            self._fresh_since.clear()
        self._fresh_since[start] = int(self.clock[0])
        self._set(start, size, written=False)

    def written(self, start: int, size: int) -> NDArray[np.bool_]:
        """Return which bytes of ``[start, start + size)`` have been written, bool (size,)."""
        first, end = start - self.base, start - self.base + size
        packed = ctypes.string_at(self.defined + first // 8, -(-end // 8) - first // 8)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits[first % 8 :][:size].view(np.bool_)

    def _set(self, start: int, size: int, *, written: bool) -> None:
        if size <= 0:
            return
        first, end = start - self.base, start - self.base + size
        inner_first, inner_end = -(-first // 8), end // 8
        if inner_first > inner_end:  # within one byte of the bits
            self._set_bits(first // 8, (1 << end % 8) - (1 << first % 8), written=written)
            return
        if first % 8:
            self._set_bits(first // 8, 0x100 - (1 << first % 8), written=written)
        if end % 8:
            self._set_bits(end // 8, (1 << end % 8) - 1, written=written)
        pattern = 0xFF if written else 0
        ctypes.memset(self.defined + inner_first, pattern, inner_end - inner_first)

    def _set_bits(self, place: int, bits: int, *, written: bool) -> None:
        cell = ctypes.c_uint8.from_address(self.defined + place)
        cell.value = cell.value | bits if written else cell.value & ~bits


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def shadow_of(base: int, end: int) -> GlobalShadow | None:
    """Return a shadow, or None without address space for it; launches are then not checked."""
    try:
        return GlobalShadow(base, end)
    except (OSError, ValueError, OverflowError):
        return None
