"""Kernels that assign each SM the tile of its number, and the memory in which blocks mark SMs.

Each half of L2 keeps its own copy of the data that its SMs read. If the blocks of a launch leave
some SMs idle, the blocks of the next launch, which start early (`enqueue`), run on other SMs. Then
both halves eventually hold all of an operand, and L2 keeps less. If a tile always runs on the same
SM, half of L2 suffices for half of the operand, and the launches still overlap.

Measured on an H200 (60 MB of L2, driver 580.159.04, 2026-11-27), compared with an early start in
any order: 435 kernels without clusters for layers of models take 0.90 of the time in the mean, 0.46
to 0.56 of it warm where 72 blocks read 38 MB, and 1.07 at most. Kernels with fewer blocks or bytes
than the limits below take up to 1.07 times as long.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.cost.fixed import Config
from cupygemm._backends.hopper.cost.model import num_units
from cupygemm._backends.hopper.cost.shapes import Number, Shapes
from cupygemm._records.problem import GemmProblem

_MOST_ROWS = 256  # or columns; larger products were not measured
_LEAST_BLOCKS = 0.25  # of the SMs
_LEAST_BYTES = 0.1  # of L2
SHARED_BYTES = 44
"""Shared memory of a block for its marks: a barrier, and words for the bits of 256 SMs."""
_GLOBAL_BYTES = 36  # bits, and a counter


def runs_by_sm(configs: Config, shapes: Shapes, arch: HopperArch) -> Number:
    """Return whether a product's kernel assigns each SM the tile of its number."""
    return can_place(configs) & places(shapes, num_units(configs, shapes), arch)


def can_place(configs: Config) -> Number:
    """Return whether kernels can assign each SM the tile of its number.

    Their blocks use more than half of an SM's shared memory, so an SM holds only one.
    """
    c = configs
    alone = (c.cluster_size == 1) & (c.split_k == 1) & (c.stream_k == 0)
    special = np.logical_or(np.logical_or(c.promote, c.mma_sync), c.ping_pong)
    return alone & np.logical_not(special)


def places(shapes: Shapes, blocks: Number, arch: HopperArch) -> Number:
    """Return whether placing tiles by SM pays for a product that has `blocks` blocks."""
    s = shapes
    few = (s.m <= _MOST_ROWS) | (s.n <= _MOST_ROWS)
    suits = few & (s.size == 2) & (s.moved_bytes >= _LEAST_BYTES * arch.l2_bytes)
    if suits is False or not arch.places_by_sm:
        return False
    some = (blocks >= _LEAST_BLOCKS * arch.num_sms) & (blocks <= arch.num_sms)
    return some & suits & np.logical_not(s.has_batch)


def can_repeat(problem: GemmProblem) -> bool:
    """Whether a tile may be computed twice in a launch: its epilogue reads no result."""
    return problem.epilogue is None or problem.epilogue.c is None


def marks(stream: int) -> int:
    """Return the address of the marks for launches in the current stream, or 0.

    Only the default stream of a device has marks, which are 0 between launches: concurrent launches
    must not share them. Another stream may have the handle of a destroyed stream whose work is
    unfinished, the per-thread default streams share one handle, and kernels of a graph may overlap
    those of its next launch. Without marks, tiles are assigned in order.
    """
    from cupy.cuda import runtime

    return 0 if stream else int(_memory(runtime.getDevice()).ptr)


@functools.cache
def _memory(device: int) -> Any:
    """Return zeroed memory, which stays allocated because launches in flight may use it."""
    from cupy.cuda import Device, Memory, MemoryPointer, Stream

    with Device(device):
        memory = MemoryPointer(Memory(_GLOBAL_BYTES), 0)
        memory.memset_async(0, _GLOBAL_BYTES, Stream.null)
    return memory
