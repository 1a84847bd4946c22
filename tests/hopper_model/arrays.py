"""CuPy's arrays on the modelled GPU: NumPy arrays whose memory ends at an inaccessible page.

A kernel that reads or writes beyond the end of such an array causes a page fault, which is caught.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

ALIGNMENT = 16
"""Alignment of allocations, in bytes: the least that TMA can address."""
_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """Bytes whose end, up to `ALIGNMENT`, is the end of the accessible memory."""

    def __init__(self, num_bytes: int) -> None:
        page = mmap.PAGESIZE
        room = -(-max(num_bytes, 1) // page) * page
        self._mapping = mmap.mmap(-1, room + page)
        self.buffer = np.frombuffer(self._mapping, np.uint8)
        start = self.buffer.ctypes.data
        if _libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.offset = (room - num_bytes) // ALIGNMENT * ALIGNMENT
        self.ptr = start + self.offset
        self.buffer[:room] = 0xFF  # elements that a kernel does not write are NaN, or -1


@dataclass(frozen=True)
class Pointer:
    """An address in the memory of an array, like CuPy's ``MemoryPointer``."""

    ptr: int
    owner: np.ndarray[Any, Any]
    device_id: int = 0

    def __add__(self, num_bytes: int) -> Pointer:
        return Pointer(self.ptr + num_bytes, self.owner)


class HostArray(np.ndarray[Any, Any]):
    """An array with CuPy's interface, in the memory of the host."""

    def __new__(
        cls,
        shape: Any,
        dtype: Any = float,
        memptr: Pointer | None = None,
        strides: Any = None,
        order: str = "C",
    ) -> Any:
        """Return an array in new memory, or in the memory at `memptr`."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if memptr is None:
            memory = Memory(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
            buffer, offset = memory.buffer, memory.offset
        else:
            buffer = memptr.owner.reshape(-1, copy=False).view(np.uint8)
            offset = memptr.ptr - buffer.ctypes.data
        return super().__new__(cls, shape, dtype, buffer, offset, strides, order)

    @property
    def data(self) -> Any:
        """Return the address."""
        owner: Any = self
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return Pointer(self.__array_interface__["data"][0], owner.view(np.ndarray))

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy as a NumPy array."""
        return np.array(self, subok=False)

    def set(self, array: np.ndarray[Any, Any]) -> None:
        """Copy a NumPy array to this one."""
        self[...] = array

    def copy(self, order: str = "C") -> Any:
        """Return a copy in new memory."""
        return moved(np.array(self, order=order, subok=False))


def moved(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy in new memory, with the array's order of axes."""
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    made = HostArray([array.shape[axis] for axis in axes], array.dtype)
    made = made.transpose(np.argsort(axes)) if axes else made
    made[...] = array
    return made


def asarray(array: Any, dtype: Any = None, order: Any = None) -> Any:
    """Return an array on the GPU, like `cupy.asarray`."""
    if isinstance(array, HostArray) and dtype in (None, array.dtype):
        return array
    return moved(np.asarray(array, dtype, order))


class ArrayModule(ModuleType):
    """NumPy's functions under CuPy's name; their results are arrays on the modelled GPU."""

    ndarray = HostArray
    asarray = staticmethod(asarray)
    array = staticmethod(lambda *given, **options: moved(np.array(*given, **options)))

    @staticmethod
    def asnumpy(array: Any, order: str = "C") -> Any:
        """Return a copy as a NumPy array."""
        return np.array(array, order=order, subok=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found

        def function(*arguments: Any, **options: Any) -> Any:
            made = found(*arguments, **options)
            if type(made) is not np.ndarray:
                return made
            arrays = (array for array in arguments if isinstance(array, HostArray))
            if any(np.may_share_memory(made, array) for array in arrays):
                return made.view(HostArray)
            return moved(made)

        return function
