"""Launch a kernel that may start before the previous work in its stream has ended.

Between two kernels of a stream, a GPU is idle for about a microsecond, because the second kernel
waits until the last block of the first one has ended and its writes have reached memory. With
programmatic dependent launch (CUDA C++ Programming Guide), blocks of the second kernel start as
blocks of the first one end, and do the work that needs no memory. ``dependent_launch.cuh`` is the
kernels' side of it. CuPy's launch has no attributes, so this module calls the driver's
``cuLaunchKernelEx``.

While other kernels run, early starts are not allowed (`in_order`): blocks that only wait would
occupy the SMs left to those kernels.

A kernel's only argument is one struct, passed by value. Packing the struct takes longer than
launching the kernel, so packed structs are cached by their varying fields (`Parameters`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cupygemm._backends.hopper.cuda import driver
from cupygemm._backends.struct_kernel import Pointed, StructKernel, pointed

MAX_PACKED = 1024
"""The lists of parameters that a launch caches, each of about a kilobyte."""
_ADDRESS = struct.Struct("=Q")
_MAX_STREAMS = 64  # streams for which a launch configuration is cached
_starts_early: ContextVar[bool] = ContextVar("starts_early", default=True)


@contextmanager
def in_order() -> Iterator[None]:
    """Prevent launches in a ``with`` block from starting before the previous work has ended."""
    token = _starts_early.set(False)
    try:
        yield
    finally:
        _starts_early.reset(token)


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

    __slots__ = (
        "_configs",
        "_function",
        "_grid",
        "_kernel",
        "_launch",
        "_shape",
        "_starts_early",
        "_stream",
    )

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], threads: int, shared_bytes: int = 0
    ) -> None:
        from cupy.cuda import get_current_stream

        if shared_bytes:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        self._kernel = kernel  # keeps the module loaded
        self._grid = grid
        self._starts_early = _starts_early.get()
        self._shape = threads, shared_bytes
        self._function = int(kernel.kernel.ptr)
        self._launch = driver.library().cuLaunchKernelEx
        self._stream = get_current_stream
        # By stream: the address of a launch configuration, and the configuration.
        self._configs: dict[int, tuple[int, driver.LaunchConfig]] = {}

    def __call__(self, parameters: Pointed) -> None:
        """Enqueue the launch in the current stream; the driver copies the parameters."""
        stream = self._stream().ptr
        config = self._configs.get(stream)
        if config is None:
            config = self._config(stream)
        status = self._launch(config[0], self._function, parameters[0], None)
        if status:
            self._retry(config[0], parameters, status)

    def _retry(self, config: int, parameters: Pointed, status: int) -> None:
        """Launch again if the launch failed only because this thread has no context yet.

        The runtime creates a thread's context at its first call; the driver does not.
        """
        from cupy.cuda import runtime
        from cupy_backends.cuda.api.driver import check_status

        if status == driver.INVALID_CONTEXT:
            runtime.memGetInfo()
            status = self._launch(config, self._function, parameters[0], None)
        check_status(status)

    def _config(self, stream: int) -> tuple[int, driver.LaunchConfig]:
        """Return the launch configuration for a stream, and its address."""
        config = driver.launch_config(self._grid, *self._shape, stream, early=self._starts_early)
        if len(self._configs) >= _MAX_STREAMS:
            self._configs = {}
        self._configs[stream] = made = ctypes.addressof(config), config
        return made


def plain_kernel(kernel: Any, shared_bytes: int = 0) -> StructKernel:
    """Return a launcher, for any grid, of a kernel that starts when the previous work has ended.

    Parameters
    ----------
    kernel : cupy.RawKernel
        A kernel whose only argument is a struct.
    shared_bytes : int
        The dynamic shared memory of a block.
    """
    made = StructKernel(kernel, shared_bytes)
    # Clusters of more than 8 thread blocks must be enabled.
    driver.library().cuFuncSetAttribute(made.function, driver.NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
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
