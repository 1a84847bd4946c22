"""The modelled time of a Hopper kernel, by which configurations are ranked.

The model counts, for the SM with the most tiles, the cycles of the tensor cores or of the path from
L2, whichever is the bottleneck, with the fill and the epilogue of each tile. The memory bounds the
whole, and the addition of partial sums comes after it. The constants are fitted to measured times:
`constants` names the device and the date, and ``python -m benchmarks.fit hopper`` refits them.

All functions take numbers or columns of them, see `shapes`.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.config import LINE_BYTES, MAX_CLUSTER, HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.constants import KERNELS
from cupygemm._backends.hopper.cost.fixed import Config, FixedCosts, fixed_costs
from cupygemm._backends.hopper.cost.memory import between, memory_bytes, memory_rate
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from cupygemm._backends.hopper.cost.shapes import Number, Shapes, by_flag, shapes_of
from cupygemm._records.problem import GemmProblem

_BYTES_OF_SLICES = 96 * LINE_BYTES  # a line of each slice of L2


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
        The bottleneck; L2 if neither.
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
        """Return the bottleneck of one product, as a word."""
        return "memory" if self.of_memory else "tensor cores" if self.of_tensor_cores else "L2"


class Tiles(NamedTuple):
    """How a product is divided into tiles.

    Attributes
    ----------
    rows, columns : int
        The tiles of blocks along each axis.
    across : int
        The tiles of clusters along the kernel's n.
    units : int
        The units of work for clusters: tiles times batch times parts of k.
    clusters : int
        The clusters that fit on the GPU.
    steps : int
        The steps of a tile along k.
    """

    rows: Number
    columns: Number
    across: Number
    units: Number
    clusters: Number
    steps: Number


class Pieces(NamedTuple):
    """The parts of the cost of a product.

    Attributes
    ----------
    fixed : FixedCosts
    tiles : Tiles
    active : int
        The blocks at work at a time.
    whole, rounds : float
        The tiles that an SM stores, and the rounds of tiles that it computes.
    steps : float
        The steps of k of a unit.
    evenly : bool
        Whether tiles are split along k into equal parts, one for each cluster.
    tile : TileCost
    compute : float
        The cycles of the SM with the most tiles.
    memory_bytes : float
        The bytes that the memory reads and writes.
    slower, few : float
        The factors of the memory's time if SMs are idle, and if few SMs request data that is not in
        L2.
    added : float
        The cycles of the kernel that adds parts of k.
    """

    fixed: FixedCosts
    tiles: Tiles
    active: Number
    whole: Number
    rounds: Number
    steps: Number
    evenly: Number
    tile: TileCost
    compute: Number
    memory_bytes: Number
    slower: Number
    few: Number
    added: Number


def kernel_cost(
    config: HopperConfig,
    problem: GemmProblem,
    arch: HopperArch,
    constants: KernelConstants = KERNELS,
) -> Cost:
    """Return the cost of one product by one kernel, if L2 keeps data from call to call."""
    shapes = shapes_of(problem)
    return costs(shapes, pieces(config, shapes, arch, constants), constants)


def pieces(
    configs: Config,
    shapes: Shapes,
    arch: HopperArch,
    constants: KernelConstants = KERNELS,
    tiles: Tiles | None = None,
    fixed: FixedCosts | None = None,
) -> Pieces:
    """Return the parts of the costs of products by kernels.

    Parameters
    ----------
    configs : HopperConfig or ConfigColumns
        Either all of fp64 or none.
    shapes : Shapes
    arch : HopperArch
    constants : KernelConstants
    tiles : Tiles, optional
    fixed : FixedCosts, optional
        The fixed costs of the kernels, if known.
    """
    c, s = configs, shapes
    t = tiles_of(c, s, arch) if tiles is None else tiles
    f = fixed_costs(c, s, constants) if fixed is None else fixed
    cuts, rounds = c.stream_k > 0, t.units / t.clusters
    active = _blocks_at_work(c, t, cuts)
    tile = _tile_costs(c, s, t, f, active, constants)
    whole = np.ceil(rounds)
    rounds = np.where(cuts, rounds, whole)
    steps = t.steps / (c.split_k * c.cluster_k)
    of_steps = steps * tile.step
    # Consumers that take turns store all tiles but the last one while they multiply.
    hidden = c.ping_pong * np.minimum(tile.epilogue, of_steps)
    compute = rounds * of_steps + whole * tile.epilogue - (whole - 1) * hidden
    evenly, collected = _collected(t, f, cuts, constants)
    added_bytes = c.split_k * (s.num_results * s.part_size / constants.add_bytes)
    return Pieces(
        fixed=f,
        tiles=t,
        active=active,
        whole=whole,
        rounds=rounds,
        steps=steps,
        evenly=evenly,
        tile=tile,
        compute=compute + collected,
        memory_bytes=memory_bytes(s, constants, f.strip_a, f.strip_b),
        slower=1 + f.idle * np.maximum(0.0, 1 - active / arch.num_sms),
        few=np.maximum(1.0, constants.memory / constants.memory_of_sm / active),
        added=(c.split_k > 1) * (constants.add + added_bytes),
    )


def costs(
    shapes: Shapes, of: Pieces, constants: KernelConstants = KERNELS, *, cold: Number = False
) -> Cost:
    """Return the costs of products; L2 holds no part of `cold` operands, however small."""
    limits = constants.cold_bytes_none, constants.cold_bytes_all
    share = by_flag(cold, 1.0, between(shapes.moved_bytes, *limits))
    slower = np.maximum(of.slower, 1 + share * (of.few - 1))
    memory = of.memory_bytes / memory_rate(shapes, constants, cold=cold) * slower
    memory = memory * of.fixed.stream_memory
    cycles = total(of.fixed.launch, of.compute, memory, constants) * of.fixed.cut
    return Cost(cycles + of.added, of.rounds, memory > of.compute, of.tile.of_tensor_cores, memory)


def tile_costs(configs: Config, shapes: Shapes, arch: HopperArch, units: Number) -> TileCost:
    """Return the costs of one tile of kernels with `units` tiles of clusters in total."""
    tiles = tiles_of(configs, shapes, arch)._replace(units=units)
    active = _blocks_at_work(configs, tiles, configs.stream_k > 0)
    return _tile_costs(configs, shapes, tiles, fixed_costs(configs, shapes), active, KERNELS)


def _tile_costs(
    configs: Config,
    shapes: Shapes,
    tiles: Tiles,
    fixed: FixedCosts,
    active: Number,
    constants: KernelConstants,
) -> TileCost:
    f = fixed
    alone = f.alone & (tiles.units > tiles.clusters)
    mma = np.where(alone, f.mma_alone, f.mma)
    l2 = _load_cycles(configs, shapes, tiles, f, active, constants)
    power = constants.power * between(shapes.heating_work, 0.0, constants.long_work)
    slower = np.where(alone, 1 + power * constants.power_alone, 1 + power)
    step = _of_both(mma, l2) + constants.step + f.meeting
    return TileCost(step * slower, f.epilogue, mma, l2)


def _of_both(mma: Number, l2: Number) -> Number:
    """Return the cycles of a step, in which tensor cores and loads work at the same time.

    It takes as long as the slower of the two, and longer if both take about as long, since either
    is late at times. The eighth root of the sum of eighth powers describes that best: of 3 to 16.
    """
    for _ in range(3):
        mma, l2 = mma * mma, l2 * l2
    return np.sqrt(np.sqrt(np.sqrt(mma + l2)))


def tiles_of(configs: Config, shapes: Shapes, arch: HopperArch) -> Tiles:
    """Return how products are divided into tiles."""
    c, s = configs, shapes
    across, down = np.ceil(s.n / c.span_n), np.ceil(s.m / c.span_m)
    return Tiles(
        rows=np.ceil(s.m / c.tile_m),
        columns=np.ceil(s.n / c.tile_n),
        across=across,
        units=down * across * (s.num_batches * c.split_k),
        clusters=clusters_on(arch, c.cluster_size),
        steps=np.ceil(s.k / c.tile_k),
    )


def num_units(configs: Config, shapes: Shapes) -> Number:
    """Return the units of work for clusters: tiles times batch times parts of k."""
    c, s = configs, shapes
    tiles_m, tiles_n = -(-s.m // c.span_m), -(-s.n // c.span_n)
    return tiles_m * tiles_n * (s.num_batches * c.split_k)


def clusters_on(arch: HopperArch, sizes: Number) -> Number:
    """Return how many clusters of these sizes fit on the GPU."""
    return _clusters(arch)[np.asarray(sizes, np.intp)]


@functools.cache
def _clusters(arch: HopperArch) -> NDArray[np.float64]:
    sizes = range(1, MAX_CLUSTER + 1)
    return np.array([0, *map(arch.num_clusters, sizes)], np.float64)


def _blocks_at_work(configs: Config, tiles: Tiles, cuts: Number) -> Number:
    """Return how many blocks compute at a time."""
    clusters = tiles.clusters
    return np.where(cuts, clusters, np.minimum(tiles.units, clusters)) * configs.cluster_size


def _collected(
    tiles: Tiles, fixed: FixedCosts, cuts: Number, constants: KernelConstants
) -> tuple[Number, Number]:
    """Return which kernels split tiles into equal parts, and the cycles to add parts (stream-K).

    Parts are equal if each cluster computes one part of one tile, with as many steps as others.
    """
    parts = tiles.clusters / tiles.units  # of each tile
    of_groups = np.ceil(tiles.steps / fixed.step_group) / parts
    most = np.maximum(1.0, parts)
    # A number of tiles that divides the clusters, and a number of parts that divides the groups.
    evenly = cuts & (np.floor(most) == parts) & (np.floor(of_groups) == of_groups)
    early = np.where(parts < 1, constants.wait_behind, constants.wait)
    waiting = cuts * np.where(evenly, constants.wait_evenly, early)
    return evenly, waiting + fixed.sums * (1 + most)


def _load_cycles(
    configs: Config,
    shapes: Shapes,
    tiles: Tiles,
    fixed: FixedCosts,
    active: Number,
    constants: KernelConstants,
) -> Number:
    """Return the cycles of the path from L2 in one step, while `active` blocks compute.

    An SM receives the data that it requests and the data that is multicast to it. Each cache line
    is read from one slice of L2, once for nearly every request, because few requests are merged.
    The fewer different lines are in flight, the less evenly they spread over the slices.
    """
    c, s, f = configs, shapes, fixed
    a_in_flight, b_in_flight = _tiles_in_flight(c, tiles, f, s.num_batches, active)
    taken: list[Number] = []
    asked: list[Number] = []
    of_slices: list[Number] = []
    of_a = s.a_indices, s.a_along_k, s.a_crosses, s.a_camps
    of_b = s.b_indices, s.b_along_k, s.b_crosses, s.b_camps
    for tile, shares, (most, along_k, crosses, camps), narrow, crossed, in_flight in (
        (c.tile_m, c.cluster_n, of_a, f.narrow_a, f.crossed_a, a_in_flight),
        (c.tile_n, c.cluster_m, of_b, f.narrow_b, f.crossed_b, b_in_flight),
    ):
        indices = (tile if most is math.inf else np.minimum(tile, most)) * narrow
        camping = by_flag(along_k, constants.camping_along_k, constants.camping_across) * camps
        more_in_l2 = crosses * constants.lines_l2 + camping
        taken.append(indices * (1 + crosses * crossed))
        asked.append(indices / shares * (1 + crosses * constants.lines))
        of_slice = in_flight * indices * f.step_bytes * ((1 + more_in_l2) / _BYTES_OF_SLICES)
        requests = np.maximum(1.0, active / (in_flight * shares)) ** f.merged  # for each line
        of_slices.append(requests * (of_slice + constants.uneven * np.sqrt(of_slice)))
    (taken_a, taken_b), (asked_a, asked_b), (slices_a, slices_b) = taken, asked, of_slices
    of_sm = np.maximum(taken_a + taken_b, asked_a + asked_b) * f.step_bytes / constants.l2_of_sm
    cycles = np.maximum(of_sm, constants.slice_clocks * (slices_a + slices_b)) * f.sent
    return np.maximum(cycles * by_flag(s.has_batch, constants.batch, 1.0), f.issue)


def _tiles_in_flight(
    configs: Config, tiles: Tiles, fixed: FixedCosts, batches: Number, active: Number
) -> tuple[Number, Number]:
    """Return how many different tiles of A and of B are loaded while `active` blocks compute."""
    c, rows, columns = configs, tiles.rows, tiles.columns
    matrices = c.split_k * c.cluster_k * batches
    matrices_in_flight = np.maximum(1.0, np.minimum(matrices, active / (rows * columns)))
    blocks = active / matrices_in_flight
    of_a = np.minimum(np.minimum(rows, fixed.raster_rows), blocks)
    of_b = np.maximum(1, np.minimum(columns, np.ceil(blocks / of_a)))
    return of_a * matrices_in_flight, of_b * matrices_in_flight


def total(
    launch: Number, compute: Number, memory: Number, constants: KernelConstants = KERNELS
) -> Number:
    """Return the cycles of a launch, from its own, those of its SMs and those of the memory."""
    compute, memory = launch + compute, launch + memory
    return np.maximum(compute, memory) + constants.overlap * np.minimum(compute, memory)
