"""Flags in device memory, which streams write and wait for without the host.

A flag is a 32-bit word. A write follows all earlier work of its stream, and makes its effects
visible to whoever waits for the flag, on any device. Source: CUDA Driver API, "Stream Memory
Operations"; HIP has the same functions.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ, hipStreamWaitValueGte
_ALL_BITS = 0xFFFFFFFF


class StreamFlags:
    """The driver's functions for flags.

    Parameters
    ----------
    is_hip : bool
    """

    def __init__(self, *, is_hip: bool) -> None:
        library = ctypes.CDLL("libamdhip64.so.7" if is_hip else "libcuda.so.1")
        word: Any = ctypes.c_uint32
        place: Any = ctypes.c_void_p
        write = library.hipStreamWriteValue32 if is_hip else library.cuStreamWriteValue32_v2
        wait = library.hipStreamWaitValue32 if is_hip else library.cuStreamWaitValue32_v2
        write.argtypes = [place, place, word, word]
        wait.argtypes = [place, place, word, word] + [word] * is_hip
        self._write, self._wait = write, wait
        self._mask = (_ALL_BITS,) * is_hip

    def write(self, stream: int, address: int, value: int) -> None:
        """Enqueue a write to a flag."""
        _check("write to a flag", self._write(stream, address, value, 0))

    def wait(self, stream: int, address: int, value: int) -> None:
        """Make a stream wait until a flag is at least ``value``, which is below 2**31."""
        _check("wait for a flag", self._wait(stream, address, value, _AT_LEAST, *self._mask))


def _check(what: str, status: int) -> None:
    if status:
        raise RuntimeError(f"the driver refuses a stream's {what}: error {status}")


@functools.cache
def stream_flags() -> StreamFlags:
    """Return the functions of the driver that CuPy uses."""
    from cupy.cuda import runtime

    return StreamFlags(is_hip=bool(runtime.is_hip))
