"""The HIP functions for pitched memory: planes and volumes of linear memory.

Row `y` of plane `z` of a volume begins at byte `(z * ysize + y) * pitch`. Copies and fills are done
row by row. The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from cupygemm.emulator.runtime.hip_memory import DEFAULT, MemoryFunctions
from cupygemm.emulator.runtime.hip_stream import StreamFunctions
from cupygemm.emulator.runtime.status import HipError, Status, store_size

_PITCH = 256  # HIP rounds the rows of pitched allocations up to this many bytes
_HOST = 1  # hipMemoryTypeHost
_LINEAR = (0, _HOST, 2, 3)  # hipMemoryType: unregistered, host, device, managed


class _Words(ctypes.Structure):
    """Three sizes: HIP's hipExtent (width, height, depth) and hipPos."""

    _fields_ = (("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t))


class _Volume(ctypes.Structure):
    """HIP's hipPitchedPtr."""

    _fields_ = (
        ("pointer", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
        ("xsize", ctypes.c_size_t),
        ("ysize", ctypes.c_size_t),
    )

    def rows(self, at: _Words, extent: _Words) -> Iterator[int]:
        """Yield the addresses of the rows of a box."""
        is_outside = at.x + extent.x > self.pitch and extent.y * extent.z > 1
        if is_outside or (extent.z > 1 and at.y + extent.y > self.ysize):
            raise HipError(
                Status.INVALID_VALUE,
                f"a box of {extent.x} bytes x {extent.y} rows x {extent.z} planes from byte "
                f"{at.x} of row {at.y} on, in planes of {self.ysize} rows with a pitch of "
                f"{self.pitch} bytes",
            )
        for z in range(at.z, at.z + extent.z):
            for y in range(at.y, at.y + extent.y):
                yield self.pointer + (z * self.ysize + y) * self.pitch + at.x


class _Copy3D(ctypes.Structure):
    """HIP's hipMemcpy3DParms."""

    _fields_ = (
        ("source_array", ctypes.c_size_t),
        ("source_at", _Words),
        ("source", _Volume),
        ("to_array", ctypes.c_size_t),
        ("to_at", _Words),
        ("to", _Volume),
        ("extent", _Words),
        ("kind", ctypes.c_int),
    )


COPY_3D_BYTES = ctypes.sizeof(_Copy3D)


class _Plane(ctypes.Structure):
    """One side of HIP's hip_Memcpy2D."""

    _fields_ = (
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("memory_type", ctypes.c_int),
        ("host", ctypes.c_size_t),
        ("device", ctypes.c_size_t),
        ("array", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
    )

    def start(self, width: int) -> tuple[int, int]:
        """Return the address of the first byte, and the pitch."""
        if self.memory_type not in _LINEAR:
            raise _no_arrays()
        pitch = self.pitch or width
        base = self.host if self.memory_type == _HOST else self.device
        return base + self.y * pitch + self.x, pitch


class _Copy2D(ctypes.Structure):
    """HIP's hip_Memcpy2D."""

    _fields_ = (
        ("source", _Plane),
        ("to", _Plane),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class PitchedFunctions(StreamFunctions, MemoryFunctions):
    """The mixin of `HipRuntime` for pitched memory."""

    def hipMemcpy2D(
        self, to: int, to_pitch: int, source: int, source_pitch: int, width: int, rows: int,
        kind: int,
    ) -> None:  # fmt: skip
        _check_pitches(width, to_pitch, source_pitch)
        for row in range(rows):
            self.hipMemcpy(to + row * to_pitch, source + row * source_pitch, width, kind)

    def hipMemcpy2DAsync(
        self, to: int, to_pitch: int, source: int, source_pitch: int, width: int, rows: int,
        kind: int, stream: int,
    ) -> None:  # fmt: skip
        _check_pitches(width, to_pitch, source_pitch)
        for row in range(rows):
            rows_of = to + row * to_pitch, source + row * source_pitch
            self.hipMemcpyAsync(*rows_of, width, kind, stream)

    def hipMemset2D(self, to: int, pitch: int, value: int, width: int, rows: int) -> None:
        self.hipMemset2DAsync(to, pitch, value, width, rows, 0)
        self.hipStreamSynchronize(0)

    def hipMemset2DAsync(
        self, to: int, pitch: int, value: int, width: int, rows: int, stream: int
    ) -> None:
        _check_pitches(width, pitch)
        for row in range(rows):
            self.hipMemsetAsync(to + row * pitch, value, width, stream)

    def hipMallocPitch(self, pointer: int, pitch: int, width: int, rows: int) -> None:
        bytes_of_row = -(-width // _PITCH) * _PITCH
        self.hipMalloc(pointer, bytes_of_row * rows)
        store_size(pitch, bytes_of_row)

    def hipMemAllocPitch(
        self, pointer: int, pitch: int, width: int, rows: int, element_bytes: int
    ) -> None:
        self.hipMallocPitch(pointer, pitch, width, rows)

    def hipMalloc3D(self, volume: int, extent: int) -> None:
        size, made = _Words.from_address(extent), _Volume.from_address(volume)
        pointer, pitch = ctypes.c_size_t(), ctypes.c_size_t()
        places = ctypes.addressof(pointer), ctypes.addressof(pitch)
        self.hipMallocPitch(*places, size.x, size.y * size.z)
        made.pointer, made.pitch = pointer.value, pitch.value
        made.xsize, made.ysize = size.x, size.y

    def hipMemset3D(self, volume: int, value: int, extent: int) -> None:
        self.hipMemset3DAsync(volume, value, extent, 0)
        self.hipStreamSynchronize(0)

    def hipMemset3DAsync(self, volume: int, value: int, extent: int, stream: int) -> None:
        size = _Words.from_address(extent)
        for row in _Volume.from_address(volume).rows(_Words(), size):
            self.hipMemsetAsync(row, value, size.x, stream)

    def hipMemcpy3D(self, parameters: int) -> None:
        for to, source, width, kind in _rows_of(parameters):
            self.hipMemcpy(to, source, width, kind)

    def hipMemcpy3DAsync(self, parameters: int, stream: int) -> None:
        for to, source, width, kind in _rows_of(parameters):
            self.hipMemcpyAsync(to, source, width, kind, stream)

    def hipMemcpyParam2D(self, parameters: int) -> None:
        self.hipMemcpy2D(*_plane_of(parameters), DEFAULT)

    def hipMemcpyParam2DAsync(self, parameters: int, stream: int) -> None:
        self.hipMemcpy2DAsync(*_plane_of(parameters), DEFAULT, stream)


def _rows_of(parameters: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the destination, source, bytes and direction of each row of a hipMemcpy3DParms."""
    given = _Copy3D.from_address(parameters)
    if given.source_array or given.to_array:
        raise _no_arrays()
    extent = given.extent
    rows = given.to.rows(given.to_at, extent), given.source.rows(given.source_at, extent)
    for to, source in zip(*rows, strict=True):
        yield to, source, extent.x, given.kind


def _plane_of(parameters: int) -> tuple[int, int, int, int, int, int]:
    """Return hipMemcpy2D's first arguments from a hip_Memcpy2D."""
    given = _Copy2D.from_address(parameters)
    return *given.to.start(given.width), *given.source.start(given.width), given.width, given.height


def _no_arrays() -> HipError:
    return HipError(
        Status.NOT_SUPPORTED,
        "a copy of a hipArray, the memory of textures: CDNA has no texture hardware, so use linear "
        "memory",
    )


def _check_pitches(width: int, *pitches: int) -> None:
    if width > min(pitches):
        raise HipError(
            Status.INVALID_VALUE, f"rows of {width} bytes with a pitch of {min(pitches)}"
        )
