"""The launch of a kernel that may start while the work before it in its stream ends.

Between two kernels of a stream, a GPU is idle for about a microsecond: the second is launched when
the last block of the first has ended and its writes have reached memory. With programmatic
dependent launch (CUDA C++ Programming Guide) blocks of the second take the places that ended blocks
leave, and do there what needs no memory; `dependent_launch.cuh` is the kernels' side of it. CuPy's
launch has no attributes, the driver's ``cuLaunchKernelEx`` has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Pointed = tuple[int, Any]
"""The address of a kernel's list of parameters, and what must outlive it."""
_MAX_STREAMS = 64  # whose launches are kept


class Enqueue:
    """Launches a kernel, given the address of its list of parameters.

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

    def __call__(self, parameters: int) -> None:
        """Enqueue the launch in the current stream."""
        stream = self._stream().ptr
        config = self._configs.get(stream)
        if config is None:
            config = self._config(stream)
        (status,) = self._launch(config, self._function, parameters, 0)
        if status:
            self._retry(config, parameters, status)

    def with_struct(self, arguments: Any) -> None:
        """Enqueue the launch; the one parameter is a struct, as `pointed` takes it."""
        parameters, _alive = pointed(arguments)
        self(parameters)

    def _retry(self, config: Any, parameters: int, status: Any) -> None:
        """Launch again if all that was wrong is that this thread has no context yet.

        The runtime gives a thread one at its first call; the driver does not.
        """
        from cupy.cuda import runtime
        from cupy_backends.cuda.api.driver import check_status

        if status == self._driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            runtime.memGetInfo()
            (status,) = self._launch(config, self._function, parameters, 0)
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


def pointed(arguments: Any) -> Pointed:
    """Return a list of parameters: of one, a struct, given as an array of one or as bytes."""
    struct = np.frombuffer(arguments, np.uint8) if isinstance(arguments, bytes) else arguments
    pointers = np.array([struct.ctypes.data], np.uint64)
    return pointers.ctypes.data, (pointers, struct)
