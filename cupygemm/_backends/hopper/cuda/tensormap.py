"""Tensor maps, which describe to TMA a tensor in memory and the boxes that it copies.

CuPy has no encoder. The driver's ``cuTensorMapEncodeTiled`` (CUDA Driver API, "Tensor Map Object
Management") fills 128 opaque bytes, which a kernel takes as a parameter by value.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from cupygemm._backends.hopper.cuda import driver
from cupygemm._records.dtypes import ITEMSIZE

MAP_BYTES = 128
_MAP_ALIGNMENT = 64  # in the driver
# The types for which TMA must know more than the size of elements: those that it adds or rounds.
DATA_TYPES = {
    "i32": "INT32",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "tf32": "TFLOAT32",  # fp32 in memory, which TMA rounds
    "tf32x3": "FLOAT32",  # terms that are already rounded
}


def encode(
    dtype: str,
    address: int,
    extents: Sequence[int],
    pitches: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> bytes:
    """Return the map of a tensor whose boxes are swizzled in shared memory.

    Parameters
    ----------
    dtype : str
        The name of an element type.
    address : int
        The address of the first element, a multiple of 16.
    extents : sequence of int
        Elements along each axis, innermost first; at most 5 axes, extents up to 2**32.
    pitches : sequence of int
        Bytes between neighbours along each axis but the innermost; multiples of 16 below 2**40.
    box : sequence of int
        Extents of a box, each at most 256; the innermost at most `swizzle` bytes.
    swizzle : int
        Bytes within which chunks of 16 change places: 128, 64 or 32.

    Returns
    -------
    bytes
        128 of them.

    Raises
    ------
    ValueError
        The driver rejects the map.
    """
    from cupy_backends.cuda.api.driver import check_status

    kind, *rest = described(dtype, *map(tuple, (extents, pitches, box)), swizzle)
    room = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
    place = -(-ctypes.addressof(room) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
    status = driver.library().cuTensorMapEncodeTiled(place, kind, len(extents), address, *rest)
    try:
        check_status(status)
    except RuntimeError as err:  # CUDADriverError
        raise ValueError(
            f"the driver cannot encode a tensor map ({err}): {dtype} at {address:#x}, "
            f"extents {tuple(extents)}, pitches {tuple(pitches)} bytes, boxes of {tuple(box)}"
        ) from err
    return ctypes.string_at(place, MAP_BYTES)


@functools.lru_cache(1024)
def described(
    dtype: str,
    extents: tuple[int, ...],
    pitches: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
) -> tuple[Any, ...]:
    """Return the driver's arguments for a tensor, without its address."""
    return (
        driver.DATA_TYPES[DATA_TYPES.get(dtype, f"UINT{8 * ITEMSIZE[dtype]}")],
        driver.words(extents),
        driver.words(pitches),
        driver.integers(box),
        driver.integers((1,) * len(extents)),
        driver.INTERLEAVE_NONE,
        driver.SWIZZLES[swizzle],
        # Fetching pairs of lines cost a skinny product 6 % (16 x 8192 x 8192, H200, 2026-11-21).
        driver.L2_PROMOTION_128B,
        driver.FILL_NONE,
    )
