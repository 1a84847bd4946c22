"""Ids of workgroups and work-items as the registers hold them when waves start."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.waves.state import LANES


@functools.lru_cache(maxsize=64)
def batch_places(
    first: int, count: int, gx: int, gy: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the numbers and the ids of `count` workgroups, starting at number `first`."""
    order = np.arange(first, first + count, dtype=np.int64)
    found = order, workgroup_ids_of(order, gx, gy)
    for array in found:
        array.flags.writeable = False
    return found


def workgroup_ids_of(order: NDArray[np.int64], gx: int, gy: int) -> NDArray[np.int32]:
    """Return the ids of workgroups along x, y and z, (n, 3), from their numbers."""
    ids = [order % gx, order // gx % gy, order // (gx * gy)]
    return np.stack(ids, axis=1).astype(np.int32)


@functools.lru_cache(maxsize=64)
def first_exec(threads: int, waves: int) -> NDArray[np.uint32]:
    """Return both halves of EXEC of a workgroup's waves, in which each work-item is a lane."""
    lanes = np.clip(threads - np.arange(waves) * LANES, 0, LANES).tolist()
    bits = [(1 << count) - 1 for count in lanes]
    return np.array([[b & 0xFFFFFFFF for b in bits], [b >> 32 for b in bits]], np.uint32)


@functools.lru_cache(maxsize=64)
def packed_items(waves: int, block: tuple[int, int, int], enabled: int) -> NDArray[np.uint32]:
    """Return the work-item ids of a workgroup as v0 holds them, (waves, lanes).

    `enabled` is the number of axes beyond x.
    """
    item = np.arange(waves * LANES, dtype=np.uint32).reshape(waves, LANES)
    bx, by, _ = (np.uint32(extent) for extent in block)
    packed = item % bx
    if enabled >= 1:
        packed |= item // bx % by << np.uint32(10)
    if enabled >= 2:
        packed |= item // (bx * by) << np.uint32(20)
    return packed
