"""Read the host's memory at an address that may be invalid.

A caller of HIP passes addresses without sizes, and the memory there may not be mapped. A system
call copies from such an address without a crash.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Sequence

from cupygemm._build.private_dir import check_of_the_system

_LARGE = 1 << 20  # above this size, both ends are checked before a buffer is allocated


class _Stretch(ctypes.Structure):
    """Linux's struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def host_bytes(address: int, size: int) -> bytes | None:
    """Return bytes of this process, or None if not all of them are mapped."""
    if size == 0:
        return b""
    if not 0 < address < address + size < 1 << 63:
        return None
    if size > _LARGE and not (host_bytes(address, 1) and host_bytes(address + size - 1, 1)):
        return None
    buffer = ctypes.create_string_buffer(size)
    into, source = _Stretch(ctypes.addressof(buffer), size), _Stretch(address, size)
    read = _libc().process_vm_readv(os.getpid(), ctypes.byref(into), 1, ctypes.byref(source), 1, 0)
    if read == size:
        return buffer.raw
    if read >= 0 or ctypes.get_errno() == errno.EFAULT:
        return None
    return _from_proc(address, size)  # a sandbox forbids the call


def host_values(places: Sequence[tuple[int, int]]) -> list[bytes] | None:
    """Return the bytes at several places, each an address and a size, by one system call.

    Returns None if some are not mapped, or the call fails; `host_bytes` tells which.
    """
    total = sum(size for _, size in places)
    buffer = ctypes.create_string_buffer(total)
    into, sources = (
        _Stretch(ctypes.addressof(buffer), total),
        (_Stretch * len(places))(*(_Stretch(*place) for place in places)),
    )
    read = _libc().process_vm_readv(
        os.getpid(), ctypes.byref(into), 1, ctypes.addressof(sources), len(places), 0
    )
    if read != total:
        return None
    data, values, start = buffer.raw, [], 0
    for _, size in places:
        values.append(data[start : start + size])
        start += size
    return values


def _from_proc(address: int, size: int) -> bytes | None:
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        try:
            data = os.pread(memory, size, address)
        finally:
            os.close(memory)
    except OSError as err:
        check_of_the_system(err)
        return None
    return data if len(data) == size else None


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.argtypes = (
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong,
        ctypes.c_ulong,
    )  # fmt: skip
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    return libc
