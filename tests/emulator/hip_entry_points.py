"""The entry points of the stand-in for libamdhip64 that CuPy has loaded, and their structs."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED, NOT_UPDATED = 1, 2, 801, 910
DEFAULT = 4  # hipMemcpyDefault
KERNEL, COPY, FILL, HOST, GRAPH, EMPTY = range(6)


class Sizes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in "xyz")


class Volume(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in ("pointer", "pitch", "xsize", "ysize"))


class Copy3D(ctypes.Structure):
    _fields_ = (
        ("source_array", ctypes.c_void_p), ("source_at", Sizes), ("source", Volume),
        ("to_array", ctypes.c_void_p), ("to_at", Sizes), ("to", Volume),
        ("extent", Sizes), ("kind", ctypes.c_int),
    )  # fmt: skip


class Launch(ctypes.Structure):
    _fields_ = (
        ("block", ctypes.c_uint * 3), ("extra", ctypes.c_void_p), ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3), ("parameters", ctypes.c_void_p), ("lds", ctypes.c_uint),
    )  # fmt: skip


class Fill(ctypes.Structure):
    _fields_ = (
        ("to", ctypes.c_void_p), ("element_bytes", ctypes.c_uint), ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("width", ctypes.c_size_t),
    )  # fmt: skip


class HostCall(ctypes.Structure):
    _fields_ = (("function", ctypes.c_void_p), ("data", ctypes.c_void_p))


class PoolProperties(ctypes.Structure):
    _fields_ = (
        ("allocation_type", ctypes.c_int), ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int), ("device", ctypes.c_int),
        ("security", ctypes.c_void_p), ("max_size", ctypes.c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    )  # fmt: skip


class Hip:
    """The functions of the library, which raise unless they return 0."""

    def __init__(self, cp: ModuleType) -> None:
        cp.zeros(1)  # the library is loaded
        self._library = ctypes.CDLL("libamdhip64.so.7")  # by its name, without a path

    def status(self, name: str, *arguments: Any) -> int:
        given = [ctypes.c_size_t(a) if isinstance(a, int) else a for a in arguments]
        return int(self._library[name](*given))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            status = self.status(name, *arguments)
            assert status == 0, f"{name} returned {status}: {self.message(status)}"

        return call

    def message(self, status: int) -> str:
        text = self._library.hipGetErrorString
        text.restype = ctypes.c_char_p
        return str(text(status).decode())

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that stores its result through its first argument; return the result."""
        place = ctypes.c_size_t()
        getattr(self, name)(ctypes.byref(place), *arguments)
        return place.value

    def node(self, kind: str, graph: int, after: list[int], *work: Any) -> int:
        earlier = (ctypes.c_size_t * len(after))(*after)
        return self.made(f"hipGraphAdd{kind}", graph, earlier, len(after), *work)

    def handles(self, name: str, *arguments: Any) -> list[int]:
        count = ctypes.c_size_t()
        getattr(self, name)(*arguments, None, ctypes.byref(count))
        found, room = (ctypes.c_size_t * (count.value + 1))(), ctypes.c_size_t(count.value + 1)
        getattr(self, name)(*arguments, found, ctypes.byref(room))
        assert (room.value, found[count.value]) == (count.value, 0)
        return list(found[: count.value])


def launch_of(kernel: Any, x: Any, factor: int) -> tuple[Launch, Any]:
    """Return a kernel node's parameters, and what they point to."""
    values = ctypes.c_size_t(x.data.ptr), ctypes.c_int(factor)
    pointers = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
    place = ctypes.cast(pointers, ctypes.c_void_p).value
    one, all_of_x = (ctypes.c_uint * 3)(1, 1, 1), (ctypes.c_uint * 3)(x.size, 1, 1)
    return Launch(all_of_x, None, kernel.kernel.ptr, one, place, 0), (values, pointers)
