"""The CUDA driver's functions that CuPy does not bind, through ctypes.

The structs and numbers are those of ``cuda.h`` (CUDA Driver API: "Execution Control", "Tensor Map
Object Management"). The package ``cuda-bindings`` has them too, but its import takes a sixth of the
first call in a process.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_INT, _WORD, _POINTER = ctypes.c_uint, ctypes.c_uint64, ctypes.c_void_p

# CUtensorMapDataType without its common prefix.
DATA_TYPES = {
    "UINT8": 0,
    "UINT16": 1,
    "UINT32": 2,
    "INT32": 3,
    "UINT64": 4,
    "FLOAT16": 6,
    "FLOAT32": 7,
    "FLOAT64": 8,
    "BFLOAT16": 9,
    "TFLOAT32": 11,
}
SWIZZLES = {32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by the bytes within which chunks are permuted."""
INTERLEAVE_NONE, FILL_NONE = 0, 0  # CUtensorMapInterleave, CUtensorMapFloatOOBfill
L2_PROMOTION_128B = 2  # CUtensorMapL2promotion
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # CUfunction_attribute
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID
INVALID_CONTEXT = 201  # CUresult


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``, whose value is a union of 64 bytes."""

    _fields_ = (("id", _INT), ("padding", _INT), ("value", _INT * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", _INT * 3),
        ("block", _INT * 3),
        ("shared_bytes", _INT),
        ("stream", _POINTER),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", _INT),
    )


def launch_config(
    grid: tuple[int, int, int], threads: int, shared_bytes: int, stream: int, *, early: bool
) -> LaunchConfig:
    """Return the configuration of a launch, which may start before the previous work has ended."""
    attribute = LaunchAttribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION)
    attribute.value[0] = int(early)
    return LaunchConfig(
        (_INT * 3)(*grid),
        (_INT * 3)(threads, 1, 1),
        shared_bytes,
        stream,
        ctypes.pointer(attribute),
        1,
    )


@functools.cache
def library() -> Any:
    """Return the driver, which CuPy has loaded."""
    found = ctypes.CDLL("libcuda.so.1")
    found.cuLaunchKernelEx.argtypes = (_POINTER,) * 4
    found.cuFuncSetAttribute.argtypes = (_POINTER, ctypes.c_int, ctypes.c_int)
    numbers = (ctypes.c_int,) * 4
    found.cuTensorMapEncodeTiled.argtypes = (
        _POINTER,
        ctypes.c_int,
        _INT,
        *(_POINTER,) * 5,
        *numbers,
    )
    return found


def words(values: Any) -> Any:
    """Return numbers as an array of ``cuuint64_t``."""
    return (_WORD * len(values))(*values)


def integers(values: Any) -> Any:
    """Return numbers as an array of ``cuuint32_t``."""
    return (_INT * len(values))(*values)
