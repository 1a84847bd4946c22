"""Tensor maps: what tells TMA where a tensor lies, and how to cut boxes out of it.

CuPy has no encoder. The driver's ``cuTensorMapEncodeTiled`` (CUDA Driver API, "Tensor Map Object
Management") fills 128 opaque bytes, which a kernel takes as a parameter by value.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

MAP_BYTES = 128
_MAP_ALIGNMENT = 64
# CUtensorMapDataType
DATA_TYPES = {"i8": 0, "i32": 3, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
_INTERLEAVE_NONE = 0
_SWIZZLE_128B = 3
# Fetching pairs of lines cost a skinny product 6 % (16 x 8192 x 8192, H200, 2026-11-21).
_L2_PROMOTION_128B = 2
_FILL_ZEROS = 0


def encode(
    dtype: str,
    address: int,
    extents: Sequence[int],
    pitches: Sequence[int],
    box: Sequence[int],
) -> bytes:
    """Return the map of a tensor whose boxes are swizzled by 128 bytes in shared memory.

    Parameters
    ----------
    dtype : str
        A key of `DATA_TYPES`.
    address : int
        Of the first element, a multiple of 16.
    extents : sequence of int
        Elements along each axis, innermost first; at most 5 axes, extents up to 2**32.
    pitches : sequence of int
        Bytes between neighbours along each axis but the innermost; multiples of 16 below 2**40.
    box : sequence of int
        Extents of a box, each at most 256; the innermost at most 128 bytes.

    Returns
    -------
    bytes
        128 of them.

    Raises
    ------
    ValueError
        The driver refuses the map.
    """
    rank = len(extents)
    buffer = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
    start = -ctypes.addressof(buffer) % _MAP_ALIGNMENT
    status = _encoder()(
        ctypes.c_void_p(ctypes.addressof(buffer) + start),
        DATA_TYPES[dtype],
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * rank)(*pitches),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*([1] * rank)),
        _INTERLEAVE_NONE,
        _SWIZZLE_128B,
        _L2_PROMOTION_128B,
        _FILL_ZEROS,
    )
    if status:
        raise ValueError(
            f"the driver refuses a tensor map (CUresult {status}): {dtype} at {address:#x}, "
            f"extents {tuple(extents)}, pitches {tuple(pitches)} bytes, boxes of {tuple(box)}"
        )
    return buffer.raw[start : start + MAP_BYTES]


@functools.cache
def _encoder() -> Any:
    """Return the driver's function; the process has the driver loaded, for it has a CuPy array."""
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    function.argtypes = [
        pointer, number, number, pointer, pointer, pointer, pointer, pointer,
        number, number, number, number,
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function
