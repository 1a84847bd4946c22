"""The shadow of device memory in which races between waves and workgroups are looked for.

A record of 48 bytes stands for each 16 bytes of device memory (``native/global_shadow.h``). The
records lie in address space that is reserved once and backed by the host where kernels touch device
memory. Records of earlier launches count for nothing: a clock, which runs on, tells them apart.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

GRANULE_BYTES, RECORD_BYTES = 16, 48
_MAP_NORESERVE = 0x4000
_CLOCK_LIMIT = 3 << 30  # of 32 bits; a launch has at most a billion vector memory operations


class GlobalShadow:
    """Records for device memory from `base` to `end`.

    Parameters
    ----------
    base, end : int
        Addresses.

    Attributes
    ----------
    address : int
        Of the record for `base`.
    clock : numpy.ndarray
        uint32 (1,), vector memory operations of all launches, counted from the latest `clear`.
    launch_start : int
        The clock when the latest launch began.

    Raises
    ------
    OSError
        The system grants no such address space.
    """

    def __init__(self, base: int, end: int) -> None:
        self.base, self.end = base, end
        self._size = -(-(end - base) // GRANULE_BYTES) * RECORD_BYTES
        self._map = mmap.mmap(
            -1,
            self._size,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.clock = np.zeros(1, np.uint32)
        self.launch_start = 0

    def start_launch(self) -> None:
        """Let the accesses so far count for nothing."""
        if self.clock[0] > _CLOCK_LIMIT:
            self.forget(self.base, self.end)
            self.clock[0] = 0
        self.launch_start = int(self.clock[0]) + 1

    def forget(self, start: int, end: int) -> None:
        """Give the host's memory behind the records of ``[start, end)`` back, whole pages of it."""
        first = (start - self.base) // GRANULE_BYTES * RECORD_BYTES
        last = -(-(end - self.base) // GRANULE_BYTES) * RECORD_BYTES
        first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        last = last // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
