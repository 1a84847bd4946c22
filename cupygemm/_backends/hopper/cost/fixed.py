"""The terms of a Hopper kernel's cost that depend only on configuration and kind of product.

These terms do not depend on the extents of a product. The selector computes them once for each kind
of product, for arrays of all kernels, which halves its time.

All functions take numbers or columns of them, see `cupygemm._backends.hopper.cost.shapes`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.config import (
    BLOCK_ROWS,
    LINE_BYTES,
    MAX_CLUSTER,
    SECTOR_BYTES,
    SLAB_BYTES,
    HopperConfig,
)
from cupygemm._backends.hopper.cost.constants import KERNELS
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Number, Shapes

Config = HopperConfig | ConfigColumns


class FixedCosts(NamedTuple):
    """The terms of a kernel's cost that do not depend on extents.

    Attributes
    ----------
    alone : bool
        Whether a cluster is a single block.
    raster_rows : int
        The rows of tiles of a group of the raster.
    step_bytes : int
        The bytes of a row of an operand's tile in one step along k.
    mma, mma_alone : float
        The cycles of the tensor cores in one step, and those of a block without multicast that
        computes several tiles.
    meeting : float
        The cycles of a step in which the blocks of a cluster wait for each other.
    issue : float
        The cycles in which the producer issues the loads of a step.
    epilogue : float
        The cycles from the last step to the end of the stores.
    narrow_a, narrow_b : float
        Factor for the loaded rows, if columns begin and end within lines.
    crossed_a, crossed_b : float
        Share that rows that begin within lines add to the data that an SM receives.
    merged : float
        Exponent of the requests for a line that reach its slice of L2.
    sent : float
        Factor of the loads of a cluster.
    strip_a, strip_b : float
        Factor of the time of the memory, which reads strips of lines.
    idle : float
        Share that the memory loses while all SMs are idle.
    stream_memory, cut : float
        Factors of the memory's time and of the total if tiles are split along k.
    launch : float
        The cycles of the launch.
    step_group : int
        The steps of k that a kernel computes together, see `config.step_group`.
    sums : float
        The cycles in which a cluster adds one tile of sums of other clusters (stream-K).
    """

    alone: Number
    raster_rows: Number
    step_bytes: Number
    mma: Number
    mma_alone: Number
    meeting: Number
    issue: Number
    epilogue: Number
    narrow_a: Number
    narrow_b: Number
    crossed_a: Number
    crossed_b: Number
    merged: Number
    sent: Number
    strip_a: Number
    strip_b: Number
    idle: Number
    stream_memory: Number
    cut: Number
    launch: Number
    step_group: Number
    sums: Number


def fixed_costs(
    configs: Config, shapes: Shapes, constants: KernelConstants = KERNELS
) -> FixedCosts:
    """Return the fixed terms; only the types and memory orders of `shapes` matter."""
    c, s = configs, shapes
    cuts, single = c.stream_k > 0, c.cluster_size == 1
    step_bytes = c.tile_k * s.size
    slabs = step_bytes / SLAB_BYTES
    meeting = table(constants, "meeting", c.cluster_m * c.cluster_n) * slabs
    by_twos = np.logical_or(s.from_registers, c.promote & (step_bytes == SLAB_BYTES))
    mma, mma_alone = _multiply_cycles(c, s, constants)
    a = (s.a_along_k, c.tile_m, c.tile_m * c.cluster_m, c.cluster_n)
    b = (s.b_along_k, c.tile_n, c.tile_n * c.cluster_n, c.cluster_m)
    narrow, crossed, strips = zip(
        *(
            (
                np.where(
                    np.logical_not(along_k) & (tile % BLOCK_ROWS > 0), 1 + constants.narrow, 1.0
                ),
                np.where(shares == 1, constants.lines, constants.lines_sent),
                _slower_in_strips(along_k, span * s.size, constants),
            )
            for along_k, tile, span, shares in (a, b)
        ),
        strict=True,
    )
    return FixedCosts(
        alone=single,
        raster_rows=c.group_m * c.cluster_m,
        step_bytes=step_bytes,
        mma=mma,
        mma_alone=mma_alone,
        meeting=meeting * np.where(c.num_consumers == 1, constants.meeting_alone, 1.0),
        issue=constants.issue + constants.issue_box * _boxes(c, s),
        epilogue=_epilogue_cycles(c, s, constants),
        narrow_a=narrow[0],
        narrow_b=narrow[1],
        crossed_a=crossed[0],
        crossed_b=crossed[1],
        merged=np.where(single, constants.merged_alone, constants.merged_in_clusters),
        sent=1 + table(constants, "sent", c.cluster_m * c.cluster_n),
        strip_a=strips[0],
        strip_b=strips[1],
        idle=np.where(single, constants.idle_alone, constants.idle_in_clusters),
        stream_memory=np.where(cuts, 1 + constants.stream_memory, 1.0),
        cut=np.where(cuts, constants.cut, 1.0),
        launch=launch_cycles(c, constants),
        step_group=np.where(by_twos, 2, 1),
        sums=np.where(cuts, 4 * c.tile_m * c.tile_n / constants.sum_bytes, 0.0),
    )


def launch_cycles(configs: Config, constants: KernelConstants = KERNELS) -> Number:
    """Return the cycles of a launch."""
    return constants.launch + table(constants, "launch_of_clusters", configs.cluster_size)


def _multiply_cycles(
    configs: Config, shapes: Shapes, constants: KernelConstants
) -> tuple[Number, Number]:
    """Return the cycles of the tensor cores in one step: of a block, and of a lone block."""
    c = configs
    lone_step = np.where(c.num_consumers == 1, constants.lone_step, 0.0)
    multiply_adds = c.tile_m * c.tile_n * c.tile_k
    if np.all(c.mma_sync):  # fp64
        cycles = table(constants, "mma_f64", c.num_consumers) * multiply_adds / 128 + lone_step
        return cycles, cycles
    cycles = constants.mma * multiply_adds * shapes.size / (64 * 2 * 32)
    narrow = 1 + constants.below_128 * (2 - c.tile_n / 64)
    cycles = cycles * np.where(c.tile_n < 128, narrow, 1.0)
    tall = np.logical_and(shapes.from_registers, c.tile_m > BLOCK_ROWS * c.num_consumers)
    wide = np.logical_and(shapes.size == 4, np.logical_and(c.ping_pong, c.tile_n > 128))
    cycles = cycles * np.where(tall, 1 + constants.tall_fragments, 1.0)
    cycles = cycles * np.where(wide, 1 + constants.wide_turns, 1.0)
    lone_block = c.promote & (c.tile_m == BLOCK_ROWS * c.num_consumers)
    slower = np.where(lone_block, constants.lone_block, 1.0)
    three = c.num_consumers == 3
    usual = np.where(three, constants.three_consumers, 1.0)
    never = np.logical_or(c.transposed_c, shapes.from_registers)
    alone = np.where(three | never, usual, constants.alone)
    return cycles * usual * slower + lone_step, cycles * alone * slower + lone_step


def _epilogue_cycles(configs: Config, shapes: Shapes, constants: KernelConstants) -> Number:
    """Return the cycles from the last step of a tile to the end of its stores."""
    c, s = configs, shapes
    stored: Number = np.where(c.split_k > 1, s.part_size, s.out_size)
    rate = np.where(c.mma_sync, constants.epilogue_bytes_f64, constants.epilogue_bytes)
    stores = c.tile_m * c.tile_n * stored / (rate * c.cluster_k)
    stores = stores * np.where(c.transposed_c, constants.transposed_c, 1.0)
    stores = stores * np.where(c.epilogue_buffers == 1, constants.one_buffer, 1.0)
    amid_sectors = (c.tile_n * stored % SECTOR_BYTES > 0) & np.logical_not(c.transposed_c)
    stores = stores * np.where(amid_sectors, 1 + constants.half_sectors, 1.0)
    epilogue = constants.epilogue + stores + np.where(c.cluster_size > 1, constants.cluster, 0.0)
    sums = 4 * c.tile_m * c.tile_n * (1 - 1 / c.cluster_k) / constants.exchange_bytes
    return epilogue + np.where(c.cluster_k > 1, constants.exchange + sums, 0.0)


def _boxes(configs: Config, shapes: Shapes) -> Number:
    """Return the number of TMA boxes that a block loads in one step. One thread issues them all."""
    c, slab_k = configs, SLAB_BYTES // shapes.size
    count: Number = 0
    for tile, along_k, shares in (
        (c.tile_m, shapes.a_along_k, c.cluster_n),
        (c.tile_n, shapes.b_along_k, c.cluster_m),
    ):
        by_boxes = (tile % (shares * slab_k)) == 0
        blocks = -(-tile // slab_k) // np.where(by_boxes, shares, 1)
        count = count + np.where(along_k, 1, blocks)
    return count * c.tile_k // slab_k


def _slower_in_strips(along_k: Number, strip: Number, constants: KernelConstants) -> Number:
    """Return the factor of an operand whose elements along k are not adjacent.

    `strip` gives the adjacent bytes that are read together.
    """
    slower = 1 + constants.strip * LINE_BYTES / np.maximum(LINE_BYTES, strip)
    return np.where(along_k, 1.0, slower)


def table(constants: KernelConstants, name: str, keys: Number) -> Number:
    """Return the values of a table; an absent key has the value of the next lower key."""
    return _values(constants, name)[np.asarray(keys, np.intp)]


@functools.lru_cache(maxsize=64)
def _values(constants: KernelConstants, name: str) -> NDArray[np.float64]:
    found: Mapping[int, Any] = getattr(constants, name)
    keys = [
        max((key for key in found if key <= size), default=0) for size in range(MAX_CLUSTER + 1)
    ]
    return np.array([found.get(key, 0.0) for key in keys])
