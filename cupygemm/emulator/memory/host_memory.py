"""The host memory that backs device memory: address space that is backed on first access."""

from __future__ import annotations

import mmap
from pathlib import Path

from cupygemm._build.private_dir import check_of_the_system

_MAP_NORESERVE = 0x4000


class OutOfMemory(MemoryError):
    """The host cannot back the allocation."""


def reserve(size: int) -> mmap.mmap:
    """Reserve address space of exactly `size` bytes.

    Raises
    ------
    OSError, ValueError, OverflowError
        The system's limits do not allow it.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    return mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def reserve_at_most(size: int) -> mmap.mmap:
    """Reserve address space: as much of `size` as the system's limits allow.

    Raises
    ------
    OutOfMemory
        The limits allow less than 64 MiB.
    """
    while True:
        try:
            return reserve(size)
        except (OSError, ValueError, OverflowError) as err:
            check_of_the_system(err)
            size //= 2
            if size < 64 << 20:
                raise OutOfMemory("cannot reserve 64 MiB of address space") from None


def host_available() -> int:
    """Return the host's available memory in bytes, or a huge number if it is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError) as err:
        check_of_the_system(err)
        return 1 << 62


def check_host(size: int) -> None:
    """Reject an allocation that would exhaust the host, whose kernel would kill the process.

    Raises
    ------
    OutOfMemory
        The host has less memory available.
    """
    if size < 64 << 20:
        return
    available = host_available()
    if size > available * 9 // 10:
        raise OutOfMemory(
            f"{size} bytes of device memory requested, but the host, which backs the emulated "
            f"device, has {available} bytes available"
        )
