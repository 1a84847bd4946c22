"""The constants of the cost model of batches of small matrices.

They are derived from times of 4096 products of 16 to 128 rows, columns and k, measured on an H200
(driver 580.159.04) on 2026-11-23. Those of stores, further slabs and other kernels' copies are from
122 batches of 1 to 4096 matrices, on 2026-11-29. That of later slabs, and those of batches alone,
are from 240 batches in 16 bits of that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


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
        Cycles from the copy of a tile's first slab to its product.
    next_slab : mapping of int to float
        The same for each further slab, by the bytes of an element of the operands, if no other slab
        is in flight. Only that of 16-bit elements was measured.
    fma_per_clock : mapping of str to float
        Multiply-adds of an SM, by type.
    load_bytes : float
        Bytes that an SM copies to shared memory per cycle.
    of_vector : mapping of int to float
        Factor of that time, by the bytes of one copy.
    store_bytes : mapping of int to float
        Bytes of results that an SM stores per cycle, by the bytes of an element. Those of one byte
        were not measured: as many elements are taken as of two.
    further_slabs : float
        Share of the time of the copies of all slabs but the first that is lost with two stages.
    issue : float
        Cycles of an SM for the instructions of a warp for one slab, without products.
    memory, memory_of_others : float
        Factors of the time of the memory, for this kernel and for others.
    tile_of_others : float
        The fewest cycles of an SM for a tile of another kernel.
    copy_launch, copy_bytes : float
        Cycles of a launch that copies operands which TMA cannot read, and the bytes that it reads
        and writes per cycle of the GPU.
    direct_bytes, direct_row : float
        Bytes of results that other kernels store without TMA per cycle of the GPU, besides the time
        of stores by TMA, and the bytes that take as long as what each row adds.
    batches_of_f32 : float
        Factor by which cuBLAS's batches of fp32 take longer if an extent is 128 or less.
    """

    launch: float
    latency: float
    next_round: float
    slab: float
    next_slab: Mapping[int, float]
    fma_per_clock: Mapping[str, float]
    load_bytes: float
    of_vector: Mapping[int, float]
    store_bytes: Mapping[int, float]
    further_slabs: float
    issue: float
    memory: float
    memory_of_others: float
    tile_of_others: float
    copy_launch: float
    copy_bytes: float
    direct_bytes: float
    direct_row: float
    batches_of_f32: float


SMALL = SmallConstants(
    launch=3000.0,
    latency=1500.0,
    next_round=500.0,
    slab=700.0,
    next_slab={2: 2500.0, 4: 700.0, 8: 700.0},
    fma_per_clock={"bf16": 500.0, "f16": 500.0, "f32": 80.0, "f64": 78.0},
    load_bytes=18.0,
    of_vector={16: 1.0, 8: 1.5, 4: 2.5, 2: 6.0},
    store_bytes={1: 9.0, 2: 18.0, 4: 24.0, 8: 26.0},
    further_slabs=0.3,
    issue=60.0,
    memory=1.22,
    memory_of_others=1.37,
    tile_of_others=1000.0,
    copy_launch=2500.0,
    copy_bytes=2400.0,
    direct_bytes=700.0,
    direct_row=0.0,
    batches_of_f32=0.45,
)
SMALL_OF_BATCHES = replace(
    SMALL, of_vector={16: 1.0, 8: 1.5, 4: 2.0, 2: 3.5}, direct_bytes=900.0, direct_row=160.0
)
"""For more than one matrix. With them, single products of 1200 to 2700 rows that do not begin at
multiples of 16 bytes would take 1.5 to 1.7 times as long (measured, an H200, 2026-11-29)."""
