"""Kernels other than products, with one struct as their argument.

CuPy's launch inspects each argument. The driver's launch takes the address of a list of parameters,
which may have been prepared earlier (launch_rows.py).
"""

from __future__ import annotations

import ctypes
from typing import Any

Pointed = tuple[int, bytes, Any]
"""The address of a kernel's list of parameters, and the objects that keep the address valid."""
Shape = tuple[int, ...]
"""The function, grid, threads and shared memory of a launch, in the driver's types."""
_INVALID_CONTEXT = 201


def pointed(arguments: bytes) -> Pointed:
    """Return the list of parameters whose only item is a struct."""
    pointer = ctypes.c_char_p(arguments)
    return ctypes.addressof(pointer), arguments, pointer


class StructKernel:
    """A kernel whose only argument is a struct; it starts when the previous work has ended.

    Parameters
    ----------
    kernel : cupy.RawKernel
    shared_bytes : int
        The dynamic shared memory of a workgroup.
    """

    __slots__ = ("_driver_launch", "_kernel", "_shared_bytes", "_stream", "function")

    def __init__(self, kernel: Any, shared_bytes: int = 0) -> None:
        from cupy.cuda import get_current_stream
        from cupy_backends.cuda.api.driver import launchKernel

        if shared_bytes:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        self._kernel = kernel  # keeps the module loaded
        self._shared_bytes = shared_bytes
        self._driver_launch = launchKernel
        self._stream = get_current_stream
        self.function = int(kernel.kernel.ptr)

    def __call__(self, grid: tuple[int, int], threads: int, packed: bytes) -> None:
        """Enqueue a launch on the current stream; the driver copies the struct."""
        address, _, _kept = pointed(packed)
        self.launch(self.shape(grid, threads), self._stream().ptr, address)

    def resources(self) -> tuple[int, int]:
        """Return the registers of a thread, and the shared memory of a workgroup."""
        return int(self._kernel.num_regs), int(self._kernel.shared_size_bytes) + self._shared_bytes

    def shape(self, grid: tuple[int, int], threads: int) -> Shape:
        """Return the shape of a launch."""
        return self.function, *grid, 1, threads, 1, 1, self._shared_bytes

    def launch(self, shape: Shape, stream: int, parameters: int) -> None:
        """Enqueue a launch.

        Parameters
        ----------
        shape : tuple of int
        stream : int
            The address of a stream.
        parameters : int
            The address of the list of parameters, which may change after the call.
        """
        try:
            self._driver_launch(*shape, stream, parameters, 0)
        except RuntimeError as err:  # CUDADriverError
            if getattr(err, "status", None) != _INVALID_CONTEXT:
                raise
            from cupy.cuda import runtime

            runtime.memGetInfo()  # creates this thread's context
            self._driver_launch(*shape, stream, parameters, 0)
