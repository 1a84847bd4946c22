"""Launch a kernel that may start before the previous work in its stream has ended.

Between two kernels of a stream, a GPU is idle for about a microsecond, because the second kernel
waits until the last block of the first one has ended and its writes have reached memory. With
programmatic dependent launch (CUDA C++ Programming Guide), blocks of the second kernel start as
blocks of the first one end, and do the work that needs no memory. ``dependent_launch.cuh`` is the
kernels' side of it. CuPy's launch has no attributes, so this module calls the driver's
``cuLaunchKernelEx``.

A kernel's only argument is one struct, passed by value. Packing the struct takes longer than
launching the kernel, so packed structs are cached by what differs between them (`Parameters`).
"""

from __future__ import annotations

import struct
from typing import Any

from cupygemm._backends.struct_kernel import Pointed, StructKernel, pointed

MAX_PACKED = 1024
"""The lists of parameters that a launch caches, each of about a kilobyte."""
_ADDRESS = struct.Struct("=Q")
_MAX_STREAMS = 64  # streams for which a launch configuration is cached


class Enqueue:
    """Launches a kernel, given its list of parameters.

    Parameters
    ----------
    kernel : cupy.RawKernel
        A kernel that waits for the previous work itself.
    grid : tuple of int
    threads : int
        The threads of a block.
    shared_bytes : int
        The dynamic shared memory of a block.
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
        """Launch again if the launch failed only because this thread has no context yet.

        The runtime creates a thread's context at its first call; the driver does not.
        """
        from cupy.cuda import runtime
        from cupy_backends.cuda.api.driver import check_status

        if status == self._driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            runtime.memGetInfo()
            (status,) = self._launch(config, self._function, parameters[0], 0)
        check_status(int(status))

    def _config(self, stream: int) -> Any:
        """Return the launch configuration for a stream."""
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


def plain_kernel(kernel: Any, shared_bytes: int = 0) -> StructKernel:
    """Return what launches a kernel that starts when the previous work has ended, with any grid.

    Parameters
    ----------
    kernel : cupy.RawKernel
        A kernel whose only argument is a struct.
    shared_bytes : int
        The dynamic shared memory of a block.
    """
    from cuda.bindings import driver

    made = StructKernel(kernel, shared_bytes)
    # Clusters of more than 8 thread blocks have to be allowed.
    large = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    driver.cuFuncSetAttribute(driver.CUfunction(made.function), large, 1)
    return made


class Parameters(dict[tuple[Any, ...], Pointed]):
    """A cache of a kernel's lists of parameters; each is packed at its first use.

    A key holds the addresses of one launch, and may end with bytes that follow the struct. Two
    threads may pack the same list. A list in use stays valid after it leaves the cache.

    Parameters
    ----------
    arguments : numpy.ndarray
        The struct, an array of size one; its addresses are ignored.
    *offsets : int
        The offset of each address in the struct, in bytes.
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


def offsets(dtype: Any, *names: str) -> tuple[int, ...]:
    """Return the offsets of fields of a struct, in bytes."""
    return tuple(dtype.fields[name][1] for name in names)
