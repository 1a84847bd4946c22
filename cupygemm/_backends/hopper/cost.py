"""The modelled time of a Hopper kernel, by which configurations are ranked.

The model counts, for the SM with the most tiles, the cycles of the tensor cores or of the path from
L2, whichever binds, with the fill and the epilogue of each tile. The memory bounds the whole, and
the addition of partial sums comes after it. The constants are fitted to measured times:
`cupygemm._backends.hopper.constants` names the device and the date, and ``python -m benchmarks.fit
hopper`` refits them.

All functions take numbers or columns of them, see `cupygemm._backends.hopper.cost_shapes`.
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
    SLAB_BYTES,
    HopperArch,
    HopperConfig,
)
from cupygemm._backends.hopper.constants import KERNELS
from cupygemm._backends.hopper.cost_constants import KernelConstants
from cupygemm._backends.hopper.cost_shapes import ConfigColumns, Number, Shapes, shapes_of
from cupygemm._records.problem import GemmProblem

Config = HopperConfig | ConfigColumns
_SLICES = 96  # of L2


class TileCost(NamedTuple):
    """The cycles that an SM spends on one tile.

    Attributes
    ----------
    step : float
        The cycles of one step along k.
    epilogue : float
        The cycles from the last step to the end of the stores.
    mma, l2 : float
        The cycles of a step of the tensor cores, and of the path from L2.
    """

    step: Number
    epilogue: Number
    mma: Number
    l2: Number

    @property
    def of_tensor_cores(self) -> Number:
        """Return whether the tensor cores limit a step, and not L2."""
        return self.mma >= self.l2


class Cost(NamedTuple):
    """The modelled cost of a product.

    Attributes
    ----------
    cycles : float
    rounds : float
        The rounds of tiles that an SM computes.
    of_memory, of_tensor_cores : bool
        What limits it; L2 if neither does.
    memory : float
        The cycles of the memory.
    """

    cycles: Number
    rounds: Number
    of_memory: Number
    of_tensor_cores: Number
    memory: Number

    @property
    def bound(self) -> str:
        """Return what limits one product, as a word."""
        return "memory" if self.of_memory else "tensor cores" if self.of_tensor_cores else "L2"


class Pieces(NamedTuple):
    """What the cost of a product is put together from.

    Attributes
    ----------
    clusters, units, active : int
        The clusters that fit on the GPU, the units of work, and the blocks at work at a time.
    whole, rounds : float
        The tiles that an SM stores, and the rounds of tiles that it computes.
    steps : float
        The steps of k of a unit.
    tile : TileCost
    compute : float
        The cycles of the SM with the most tiles.
    added : float
        The cycles of the kernel that adds parts of k.
    """

    clusters: Number
    units: Number
    active: Number
    whole: Number
    rounds: Number
    steps: Number
    tile: TileCost
    compute: Number
    added: Number


def kernel_cost(
    config: HopperConfig,
    problem: GemmProblem,
    arch: HopperArch,
    constants: KernelConstants = KERNELS,
) -> Cost:
    """Return the cost of one product by one kernel, with what L2 keeps from call to call."""
    shapes = shapes_of(problem)
    return costs(config, shapes, arch, pieces(config, shapes, arch, constants), constants)


def pieces(
    configs: Config, shapes: Shapes, arch: HopperArch, constants: KernelConstants = KERNELS
) -> Pieces:
    """Return what the costs of products by kernels consist of.

    Parameters
    ----------
    configs : HopperConfig or ConfigColumns
        Either all of fp64 or none.
    shapes : Shapes
    arch : HopperArch
    constants : KernelConstants
    """
    c, s = configs, shapes
    clusters = clusters_on(arch, c.cluster_size)
    units = num_units(c, s)
    whole = -(-units // clusters)
    cuts = c.stream_k > 0
    rounds = np.where(cuts, units / clusters, whole)
    steps = -(-s.k // c.tile_k) / (c.split_k * c.cluster_k)
    tile = tile_costs(c, s, arch, units, constants)
    # Consumers that take turns store all tiles but the last one while they multiply.
    hidden = np.where(c.ping_pong, np.minimum(tile.epilogue, steps * tile.step), 0.0)
    compute = rounds * steps * tile.step + whole * tile.epilogue - (whole - 1) * hidden
    sums = 4 * c.tile_m * c.tile_n / constants.sum_bytes
    collected = constants.wait + sums * (1 + np.maximum(1.0, clusters / units))
    parts = s.m * s.n * s.num_batches * c.split_k
    adding = constants.add + parts * s.part_size / constants.add_bytes
    return Pieces(
        clusters=clusters,
        units=units,
        active=_blocks_at_work(c, arch, units),
        whole=whole,
        rounds=rounds,
        steps=steps,
        tile=tile,
        compute=compute + np.where(cuts, collected, 0.0),
        added=np.where(c.split_k > 1, adding, 0.0),
    )


def costs(
    configs: Config,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    constants: KernelConstants = KERNELS,
    *,
    cold: bool = False,
) -> Cost:
    """Return the costs of products; L2 holds nothing of `cold` operands, however small."""
    c, s = configs, shapes
    cuts = c.stream_k > 0
    strips = (c.tile_m * c.cluster_m * s.size, c.tile_n * c.cluster_n * s.size)
    idle = np.where(c.cluster_size == 1, constants.idle_alone, constants.idle_in_clusters)
    slower = 1 + idle * np.maximum(0.0, 1 - of.active / arch.num_sms)
    few = np.maximum(1.0, constants.memory / (constants.memory_of_sm * of.active))
    moved = moved_bytes(s)
    share = 1.0 if cold else _between(moved, constants.cold_bytes_none, constants.cold_bytes_all)
    slower = np.maximum(slower, 1 + share * (few - 1))
    memory = memory_cycles(s, strips, constants, cold=cold) * slower
    memory = memory * np.where(cuts, 1 + constants.stream_memory, 1.0)
    cycles = total(c, of.compute, memory, constants) * np.where(cuts, constants.cut, 1.0)
    return Cost(cycles + of.added, of.rounds, memory > of.compute, of.tile.of_tensor_cores, memory)


def tile_costs(
    configs: Config,
    shapes: Shapes,
    arch: HopperArch,
    units: Number,
    constants: KernelConstants = KERNELS,
) -> TileCost:
    """Return the costs of one tile of kernels with `units` tiles of clusters in all."""
    c, s = configs, shapes
    is_f64 = bool(np.all(c.mma_sync))
    alone = (c.cluster_size == 1) & (units > clusters_on(arch, c.cluster_size))
    mma = _multiply_cycles(c, s, constants, alone, is_f64=is_f64)
    l2 = _load_cycles(c, s, _blocks_at_work(c, arch, units), constants)
    work = s.m * s.n * (s.k * s.num_batches * 1.0) * s.size
    power = constants.power * np.minimum(1.0, work / constants.long_work)
    power = power * np.where(alone, constants.power_alone, 1.0)
    slower = 1 if is_f64 else 1 + power
    stored: Number = np.where(c.split_k > 1, s.part_size, s.out_size)
    rate = constants.epilogue_bytes_f64 if is_f64 else constants.epilogue_bytes
    stores = c.tile_m * c.tile_n * stored / (rate * c.cluster_k)
    stores = stores * np.where(c.transposed_c, constants.transposed_c, 1.0)
    stores = stores * np.where(c.epilogue_buffers == 1, constants.one_buffer, 1.0)
    epilogue = constants.epilogue + stores + np.where(c.cluster_size > 1, constants.cluster, 0.0)
    sums = 4 * c.tile_m * c.tile_n * (1 - 1 / c.cluster_k) / constants.exchange_bytes
    epilogue = epilogue + np.where(c.cluster_k > 1, constants.exchange + sums, 0.0)
    slabs = c.tile_k * s.size / SLAB_BYTES
    meeting = _table(constants, "meeting")[c.cluster_m * c.cluster_n] * slabs
    meeting = meeting * np.where(c.num_consumers == 1, constants.meeting_alone, 1.0)
    step = np.maximum(mma, l2) + constants.step + meeting
    return TileCost(step * slower, epilogue, mma, l2)


def num_units(configs: Config, shapes: Shapes) -> Number:
    """Return the units of work for clusters: tiles times batch times parts of k."""
    c, s = configs, shapes
    tiles_m = -(-s.m // (c.tile_m * c.cluster_m))
    tiles_n = -(-s.n // (c.tile_n * c.cluster_n))
    return tiles_m * tiles_n * s.num_batches * c.split_k


def clusters_on(arch: HopperArch, sizes: Number) -> Number:
    """Return how many clusters of these sizes fit on the GPU at once."""
    return _clusters(arch)[sizes]


@functools.cache
def _clusters(arch: HopperArch) -> NDArray[np.int64]:
    return np.array([0, *(arch.num_clusters(size) for size in range(1, MAX_CLUSTER + 1))])


def _blocks_at_work(configs: Config, arch: HopperArch, units: Number) -> Number:
    """Return how many blocks compute at a time."""
    clusters = clusters_on(arch, configs.cluster_size)
    busy = np.where(configs.stream_k > 0, clusters, np.minimum(units, clusters))
    return busy * configs.cluster_size


def _multiply_cycles(
    configs: Config, shapes: Shapes, constants: KernelConstants, alone: Number, *, is_f64: bool
) -> Number:
    """Return the cycles of the tensor cores in one step."""
    c = configs
    lone_step = np.where(c.num_consumers == 1, constants.lone_step, 0.0)
    multiply_adds = c.tile_m * c.tile_n * c.tile_k
    if is_f64:
        return _table(constants, "mma_f64")[c.num_consumers] * multiply_adds / 128 + lone_step
    cycles = constants.mma * multiply_adds * shapes.size / (64 * 2 * 32)
    narrow = 1 + constants.below_128 * (2 - c.tile_n / 64)
    lone_block = c.promote & (c.tile_m == BLOCK_ROWS * c.num_consumers)
    single = alone & ~np.logical_or(c.transposed_c, shapes.from_registers)
    of_consumers = np.where(single, constants.alone, 1.0)
    of_consumers = np.where(c.num_consumers == 3, constants.three_consumers, of_consumers)
    cycles = cycles * np.where(c.tile_n < 128, narrow, 1.0) * of_consumers
    return cycles * np.where(lone_block, constants.lone_block, 1.0) + lone_step


def _load_cycles(
    configs: Config, shapes: Shapes, active: Number, constants: KernelConstants
) -> Number:
    """Return the cycles of the path from L2 in one step, while `active` blocks compute.

    An SM receives the data that it requests and the data that is multicast to it. Each cache line
    is read from one slice of L2, once for nearly every request, because few requests are merged.
    The fewer different lines are requested at a time, the less evenly they spread over the slices.
    """
    c, s = configs, shapes
    step_bytes = c.tile_k * s.size
    alone = c.cluster_size == 1
    merged = np.where(alone, constants.merged_alone, constants.merged_in_clusters)
    taken: Number = 0.0
    asked: Number = 0.0
    of_slices: Number = 0.0
    a_in_flight, b_in_flight = _tiles_in_flight(c, s, active)
    for most, crosses, camps, along_k, tile, shares, in_flight in (
        (s.a_indices, s.a_crosses, s.a_camps, s.a_along_k, c.tile_m, c.cluster_n, a_in_flight),
        (s.b_indices, s.b_crosses, s.b_camps, s.b_along_k, c.tile_n, c.cluster_m, b_in_flight),
    ):
        across = np.logical_not(along_k)
        indices = np.minimum(tile, most)
        indices = indices * np.where(across & (tile % BLOCK_ROWS > 0), 1 + constants.narrow, 1.0)
        camping = np.where(across, constants.camping_across, constants.camping_along_k) * camps
        more_in_l2 = crosses * constants.lines_l2 + camping
        more_sent = crosses * np.where(shares == 1, constants.lines, constants.lines_sent)
        taken = taken + indices * (1 + more_sent)
        asked = asked + indices / shares * (1 + crosses * constants.lines)
        of_slice = in_flight * indices * step_bytes / LINE_BYTES * (1 + more_in_l2) / _SLICES
        requests = np.maximum(1.0, active / in_flight / shares) ** merged  # for each line
        of_slices = of_slices + requests * (of_slice + constants.uneven * np.sqrt(of_slice))
    of_sm = step_bytes * np.maximum(taken, asked) / constants.l2_of_sm
    cycles = np.maximum(of_sm, constants.slice_clocks * of_slices)
    cycles = cycles * (1 + _table(constants, "sent")[c.cluster_m * c.cluster_n])
    cycles = cycles * np.where(s.has_batch, constants.batch, 1.0)
    return np.maximum(cycles, constants.issue + constants.issue_box * _boxes(c, s))


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


def _tiles_in_flight(configs: Config, shapes: Shapes, active: Number) -> tuple[Number, Number]:
    """Return how many different tiles of A and of B are loaded while `active` blocks compute."""
    c, s = configs, shapes
    rows, columns = -(-s.m // c.tile_m), -(-s.n // c.tile_n)
    matrices = c.split_k * c.cluster_k * s.num_batches
    matrices_in_flight = np.maximum(1.0, np.minimum(matrices, active / (rows * columns)))
    blocks = active / matrices_in_flight
    of_a = np.minimum(np.minimum(rows, c.group_m * c.cluster_m), blocks)
    of_b = np.maximum(1, np.minimum(columns, np.ceil(blocks / of_a)))
    return of_a * matrices_in_flight, of_b * matrices_in_flight


def memory_cycles(
    shapes: Shapes,
    strips: tuple[Number, Number] | None = None,
    constants: KernelConstants = KERNELS,
    *,
    cold: bool = False,
) -> Number:
    """Return the cycles of the memory to read the operands and write the result once.

    Rows that cross lines are read in part twice. L2 keeps small operands from call to call, unless
    `cold`; each of its halves may keep a copy. `strips` gives the adjacent bytes of A and of B that
    are read together, for an operand in which the elements along k are not adjacent.
    """
    s = shapes
    row = s.k * s.size * s.num_batches * 1.0
    read_a = s.m * row * (1 + constants.lines_memory * s.a_crosses)
    read_b = s.n * row * (1 + constants.lines_memory * s.b_crosses)
    if strips is not None:
        read_a = read_a * _slower_in_strips(s.a_along_k, strips[0], constants)
        read_b = read_b * _slower_in_strips(s.b_along_k, strips[1], constants)
    lost = _between(moved_bytes(s), constants.warm_bytes_all, constants.warm_bytes_none)
    rate = constants.memory / (constants.warm + (1 - constants.warm) * (1.0 if cold else lost))
    return (read_a + read_b + _written(s)) / rate


def moved_bytes(shapes: Shapes) -> Number:
    """Return the bytes of the operands and of the result."""
    s = shapes
    return (s.m + s.n) * (s.k * s.size * s.num_batches * 1.0) + _written(s)


def _written(shapes: Shapes) -> Number:
    return shapes.m * shapes.n * (shapes.out_size * shapes.num_batches * 1.0)


def _slower_in_strips(along_k: Number, strip: Number, constants: KernelConstants) -> Number:
    slower = 1 + constants.strip * LINE_BYTES / np.maximum(LINE_BYTES, strip)
    return np.where(along_k, 1.0, slower)


def _between(value: Number, least: float, most: float) -> Number:
    """Return where a value lies between `least` (0) and `most` (1)."""
    return np.minimum(1.0, np.maximum(0.0, (value - least) / (most - least)))


def total(
    configs: Config, compute: Number, memory: Number, constants: KernelConstants = KERNELS
) -> Number:
    """Return the cycles of a launch, from those of its SMs and those of the memory."""
    launch = constants.launch + _table(constants, "launch_of_clusters")[configs.cluster_size]
    compute, memory = launch + compute, launch + memory
    return np.maximum(compute, memory) + constants.overlap * np.minimum(compute, memory)


@functools.lru_cache(maxsize=64)
def _table(constants: KernelConstants, name: str) -> NDArray[np.float64]:
    """Return a table as an array, in which a key that is absent has the value of the one below."""
    table: Mapping[int, Any] = getattr(constants, name)
    keys = [
        max((key for key in table if key <= size), default=0) for size in range(MAX_CLUSTER + 1)
    ]
    return np.array([table.get(key, 0.0) for key in keys])
