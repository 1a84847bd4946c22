"""The constants of the cost model of batches of small matrices.

They are derived from times of 4096 products of 16 to 128 rows, columns and k, measured on an H200
(driver 580.159.04) on 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class SmallConstants:
    """The times of the kernel for batches of small matrices, and of other kernels for such batches.

    Attributes
    ----------
    launch : float
        Cycles.
    latency : float
        Cycles from a team's first copy to its last store.
    next_round : float
        Cycles that each further round of teams adds to the latency.
    slab : float
        Cycles from a copy of a slab to its product, if no other slab is in flight.
    fma_per_clock : mapping of str to float
        Multiply-adds of an SM, by type.
    load_bytes : float
        Bytes that an SM copies to shared memory per cycle.
    of_vector : mapping of int to float
        Factor of that time, by the bytes of one copy.
    issue : float
        Cycles of an SM for the instructions of a warp for one slab, without products.
    memory, memory_of_others : float
        Factors of the time of the memory, for this kernel and for others.
    tile_of_others : float
        The fewest cycles of an SM for a tile of another kernel.
    batches_of_f32 : float
        Factor by which cuBLAS's batches of fp32 take longer if an extent is 128 or less.
    """

    launch: float
    latency: float
    next_round: float
    slab: float
    fma_per_clock: Mapping[str, float]
    load_bytes: float
    of_vector: Mapping[int, float]
    issue: float
    memory: float
    memory_of_others: float
    tile_of_others: float
    batches_of_f32: float


SMALL = SmallConstants(
    launch=3000.0,
    latency=1500.0,
    next_round=500.0,
    slab=700.0,
    fma_per_clock={"bf16": 500.0, "f16": 500.0, "f32": 80.0, "f64": 78.0},
    load_bytes=18.0,
    of_vector={16: 1.0, 8: 1.5, 4: 2.5, 2: 6.0},
    issue=60.0,
    memory=1.22,
    memory_of_others=1.28,
    tile_of_others=1000.0,
    batches_of_f32=0.45,
)
