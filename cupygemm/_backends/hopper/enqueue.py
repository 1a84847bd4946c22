"""The launch of a kernel that may start while the work before it in its stream ends.

Between two kernels of a stream, a GPU is idle for about a microsecond: the second is launched when
the last block of the first has ended and its writes have reached memory. With programmatic
dependent launch (CUDA C++ Programming Guide) blocks of the second take the places that ended blocks
leave, and do there what needs no memory; `dependent_launch.cuh` is the kernels' side of it. CuPy's
launch has no attributes, the driver's ``cuLaunchKernelEx`` has.

All that a kernel is told is one struct, passed by value. To pack one takes longer than to launch,
so those of earlier launches are kept, by what differs between them (`Parameters`).
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

MAX_PACKED = 1024
"""Lists of parameters that a launch keeps, of a kilobyte each, about."""
Pointed = tuple[int, bytes, Any]
"""The address of a kernel's list of parameters, the only one, and what must outlive the address."""
_ADDRESS = struct.Struct("=Q")
_MAX_STREAMS = 64  # whose launches are kept


class Enqueue:
    """Launches a kernel, given its list of parameters.

    Parameters
    ----------
    kernel : cupy.RawKernel
        One that waits for the work before it.
    grid : tuple of int
    threads : int
        Of a block.
    shared_bytes : int
        Of dynamic shared memory.
    """

    __slots__ = ("_configs", "_driver", "_function", "_grid", "_launch", "_shape", "_stream")

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], threads: int, shared_bytes: int = 0
    ) -> None:
        from cuda.bindings import driver
        from cupy.cuda import get_current_stream

        if shared_bytes:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        self._grid = grid
        self._shape = threads, shared_bytes
        self._driver = driver
        self._function = driver.CUfunction(kernel.kernel.ptr)
        self._launch = driver.cuLaunchKernelEx
        self._stream = get_current_stream
        self._configs: dict[int, Any] = {}  # by stream

    def __call__(self, parameters: Pointed) -> None:
        """Enqueue the launch in the current stream; the driver copies the parameters."""
        stream = self._stream().ptr
        config = self._configs.get(stream)
        if config is None:
            config = self._config(stream)
        (status,) = self._launch(config, self._function, parameters[0], 0)
        if status:
            self._retry(config, parameters, status)

    def _retry(self, config: Any, parameters: Pointed, status: Any) -> None:
        """Launch again if all that was wrong is that this thread has no context yet.

        The runtime gives a thread one at its first call; the driver does not.
        """
        from cupy.cuda import runtime
        from cupy_backends.cuda.api.driver import check_status

        if status == self._driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            runtime.memGetInfo()
            (status,) = self._launch(config, self._function, parameters[0], 0)
        check_status(int(status))

    def _config(self, stream: int) -> Any:
        """Return what the driver is told of launches in a stream."""
        driver = self._driver
        attribute = driver.CUlaunchAttribute()
        attribute.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        attribute.value.programmaticStreamSerializationAllowed = 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._grid
        config.blockDimX, config.sharedMemBytes = self._shape
        config.blockDimY = config.blockDimZ = 1
        config.hStream = driver.CUstream(stream)
        config.attrs, config.numAttrs = [attribute], 1
        if len(self._configs) >= _MAX_STREAMS:
            self._configs = {}
        self._configs[stream] = config
        return config


class Parameters(dict[tuple[Any, ...], Pointed]):
    """The lists of parameters of a kernel, each packed when it is first asked for.

    A key holds the addresses of one launch, and may end with bytes that follow the struct. Two
    threads may pack the same one; what a launch holds outlives its place here.

    Parameters
    ----------
    arguments : numpy.ndarray
        The struct, an array of one; its addresses do not matter.
    *offsets : int
        Where each address is in the struct, bytes.
    """

    __slots__ = ("_arguments", "_offsets")

    def __init__(self, arguments: Any, *offsets: int) -> None:
        super().__init__()
        self._arguments: bytes = arguments.tobytes()
        self._offsets = offsets

    def __missing__(self, key: tuple[Any, ...]) -> Pointed:
        packed, count = bytearray(self._arguments), len(self._offsets)
        for offset, address in zip(self._offsets, key, strict=False):
            _ADDRESS.pack_into(packed, offset, address)
        if len(self) >= MAX_PACKED:
            self.clear()
        self[key] = made = pointed(b"".join((packed, *key[count:])))
        return made


def pointed(arguments: bytes) -> Pointed:
    """Return a list of parameters: of one, a struct."""
    pointer = ctypes.c_char_p(arguments)
    return ctypes.addressof(pointer), arguments, pointer


def offsets(dtype: Any, *names: str) -> tuple[int, ...]:
    """Return where fields of a struct are, bytes."""
    return tuple(dtype.fields[name][1] for name in names)
