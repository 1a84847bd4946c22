"""Flags in device memory, which streams write and wait for without the host.

A flag is a 32-bit word. A write follows all earlier work of its stream, and makes its effects
visible to any device that waits for the flag. Source: CUDA Driver API, "Stream Memory Operations";
HIP has the same functions.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ, hipStreamWaitValueGte
_OPERATIONS = {"wait": 1, "write": 2}  # CU_STREAM_MEM_OP_WAIT_VALUE_32, ..._WRITE_VALUE_32
_ALL_BITS = 0xFFFFFFFF


class FlagOperation(NamedTuple):
    """A wait until a flag is at least a value, or a write of that value."""

    kind: Literal["wait", "write"]
    address: int
    value: int


class _Parameters(ctypes.Structure):
    """CUstreamBatchMemOpParams, of which waits and writes have the same layout."""

    _fields_ = (
        ("operation", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("alias", ctypes.c_uint64),
        ("unused", ctypes.c_uint64),
    )


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
        self._batch = None if is_hip else library.cuStreamBatchMemOp_v2
        if self._batch is not None:
            self._batch.argtypes = [place, ctypes.c_uint, place, ctypes.c_uint]

    def write(self, stream: int, address: int, value: int) -> None:
        """Enqueue a write to a flag."""
        _check("write to a flag", self._write(stream, address, value, 0))

    def wait(self, stream: int, address: int, value: int) -> None:
        """Make a stream wait until a flag is at least ``value``, which is below 2**31."""
        _check("wait for a flag", self._wait(stream, address, value, _AT_LEAST, *self._mask))

    def enqueue(self, stream: int, operations: Sequence[FlagOperation]) -> None:
        """Enqueue waits and writes in this order; CUDA takes all of them in one call."""
        if self._batch is None:
            for kind, address, value in operations:
                (self.wait if kind == "wait" else self.write)(stream, address, value)
            return
        parameters = (_Parameters * len(operations))(
            *(
                _Parameters(operation=_OPERATIONS[kind], address=address, value=value)
                for kind, address, value in operations
            )
        )
        _check("batch of flags", self._batch(stream, len(operations), parameters, 0))


def _check(what: str, status: int) -> None:
    if status:
        raise RuntimeError(f"the driver cannot enqueue a stream's {what}: error {status}")


@functools.cache
def stream_flags() -> StreamFlags:
    """Return the functions of the driver that CuPy uses."""
    from cupy.cuda import runtime

    return StreamFlags(is_hip=bool(runtime.is_hip))
