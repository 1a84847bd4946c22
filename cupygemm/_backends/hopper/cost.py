"""The modelled time of a Hopper kernel, by which configurations are ranked.

The model counts, for the SM with the most tiles, the cycles of the tensor cores or of the path from
L2, whichever binds, with the fill and the epilogue of each tile. The memory bounds the whole, and
the addition of partial sums comes after it. The constants are fitted to measured times:
`cupygemm._backends.hopper.constants` names the device and the date, and ``python -m benchmarks.fit
hopper`` refits them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cupygemm._backends.hopper.config import (
    BLOCK_ROWS,
    CAMP_BYTES,
    LINE_BYTES,
    SLAB_BYTES,
    SWIZZLE_LINES,
    HopperArch,
    HopperConfig,
    a_in_registers,
)
from cupygemm._backends.hopper.constants import KERNELS
from cupygemm._backends.hopper.cost_constants import KernelConstants
from cupygemm._backends.hopper.source import parts_dtype
from cupygemm._backends.hopper.stack import copied_pitch
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

_SLICES = 96  # of L2


@dataclass(frozen=True)
class TileCost:
    """The cycles that an SM spends on one tile.

    Attributes
    ----------
    step : float
        The cycles of one step along k.
    epilogue : float
        The cycles from the last step to the end of the stores.
    bound : str
        What limits a step: ``"tensor cores"`` or ``"L2"``.
    """

    step: float
    epilogue: float
    bound: str


def tile_cost(
    config: HopperConfig,
    problem: GemmProblem,
    arch: HopperArch,
    units: int,
    constants: KernelConstants = KERNELS,
) -> TileCost:
    """Return the cost of one tile of a kernel with `units` tiles of clusters in all."""
    size = config.cluster_size
    alone = size == 1 and units > arch.num_clusters(size)
    mma = _multiply_cycles(config, problem, constants, alone=alone)
    l2 = _load_cycles(config, problem, _blocks_at_work(config, arch, units), constants)
    work = problem.m * problem.n * problem.k * problem.num_batches * ITEMSIZE[problem.a_dtype]
    power = constants.power * min(1.0, work / constants.long_work)
    power *= constants.power_alone if alone else 1.0
    slower = 1 if config.mma_sync else 1 + power
    stored = ITEMSIZE[parts_dtype(problem) if config.split_k > 1 else problem.out_dtype]
    rate = constants.epilogue_bytes_f64 if config.mma_sync else constants.epilogue_bytes
    turning = constants.transposed_c if config.transposed_c else 1.0
    stores = config.tile_m * config.tile_n * stored / rate * turning
    stores *= constants.one_buffer if config.epilogue_buffers == 1 else 1.0
    epilogue = constants.epilogue + stores
    if size > 1:
        epilogue += constants.cluster
    bound = "tensor cores" if mma >= l2 else "L2"
    slabs = config.tile_k * ITEMSIZE[problem.a_dtype] / SLAB_BYTES
    meeting = _of_clusters(constants.meeting, config) * slabs
    if config.num_consumers == 1:
        meeting *= constants.meeting_alone
    step = max(mma, l2) + constants.step + meeting
    return TileCost(step * slower, epilogue, bound)


def _blocks_at_work(config: HopperConfig, arch: HopperArch, units: int) -> int:
    """Return how many blocks compute at a time."""
    clusters = arch.num_clusters(config.cluster_size)
    return (clusters if config.stream_k else min(units, clusters)) * config.cluster_size


def _multiply_cycles(
    config: HopperConfig, problem: GemmProblem, constants: KernelConstants, *, alone: bool
) -> float:
    """Return the cycles of the tensor cores in one step."""
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    if config.mma_sync:
        cycles = constants.mma_f64[config.num_consumers] * multiply_adds / 128
    else:
        cycles = constants.mma * multiply_adds * ITEMSIZE[problem.a_dtype] / (64 * 2 * 32)
        if config.tile_n < 128:
            cycles *= 1 + constants.below_128 * (2 - config.tile_n / 64)
        if config.promote and config.tile_m == BLOCK_ROWS * config.num_consumers:
            cycles *= constants.lone_block
        if config.num_consumers == 3:
            cycles *= constants.three_consumers
        elif alone and not config.transposed_c and not a_in_registers(problem):
            cycles *= constants.alone
    return cycles + (constants.lone_step if config.num_consumers == 1 else 0)


def _load_cycles(
    config: HopperConfig, problem: GemmProblem, active: int, constants: KernelConstants
) -> float:
    """Return the cycles of the path from L2 in one step, while `active` blocks compute.

    An SM receives the data that it requests and the data that is multicast to it. Each cache line
    is read from one slice of L2, once for nearly every request, because few requests are merged.
    The fewer different lines are requested at a time, the less evenly they spread over the slices.
    """
    step_bytes = config.tile_k * ITEMSIZE[problem.a_dtype]
    alone = config.cluster_size == 1
    merged = constants.merged_alone if alone else constants.merged_in_clusters
    taken = asked = of_slices = 0.0
    a_in_flight, b_in_flight = _tiles_in_flight(config, problem, active)
    a_rows, b_rows = _rows(problem)
    for rows, tile, shares, in_flight in (
        (a_rows, config.tile_m, config.cluster_n, a_in_flight),
        (b_rows, config.tile_n, config.cluster_m, b_in_flight),
    ):
        indices = float(tile if rows.indices is None else min(tile, rows.indices))
        if rows.indices is None and tile % BLOCK_ROWS:
            indices *= 1 + constants.narrow
        crosses = rows.crosses
        camps = constants.camping_across if rows.indices is None else constants.camping_along_k
        more_in_l2 = crosses * constants.lines_l2 + (camps if rows.camps else 0.0)
        more_sent = crosses * (constants.lines if shares == 1 else constants.lines_sent)
        taken += indices * (1 + more_sent)
        asked += indices / shares * (1 + crosses * constants.lines)
        lines = indices * step_bytes / LINE_BYTES * (1 + more_in_l2)
        of_slice = in_flight * lines / _SLICES
        requests = max(1.0, active / in_flight / shares) ** merged  # for each line
        of_slices += requests * (of_slice + constants.uneven * math.sqrt(of_slice))
    of_sm = step_bytes * max(taken, asked) / constants.l2_of_sm
    cycles = max(of_sm, constants.slice_clocks * of_slices)
    cycles *= 1 + _of_clusters(constants.sent, config)
    cycles *= constants.batch if problem.batch else 1.0
    return max(cycles, constants.issue + constants.issue_box * _boxes(config, problem))


def _boxes(config: HopperConfig, problem: GemmProblem) -> int:
    """Return the number of TMA boxes that a block loads in one step. One thread issues them all."""
    slab_k = SLAB_BYTES // ITEMSIZE[problem.a_dtype]
    count = 0
    for tile, major, shares in (
        (config.tile_m, problem.a_major, config.cluster_n),
        (config.tile_n, problem.b_major, config.cluster_m),
    ):
        by_boxes = major != "k" and tile / shares % slab_k == 0
        count += 1 if major == "k" else -(-tile // slab_k) // (shares if by_boxes else 1)
    return count * config.tile_k // slab_k


def _tiles_in_flight(
    config: HopperConfig, problem: GemmProblem, active: int
) -> tuple[float, float]:
    """Return how many different tiles of A and of B are loaded while `active` blocks compute."""
    rows, columns = -(-problem.m // config.tile_m), -(-problem.n // config.tile_n)
    matrices = config.split_k * problem.num_batches
    matrices_in_flight = max(1.0, min(matrices, active / (rows * columns)))
    blocks = active / matrices_in_flight
    of_a = min(rows, config.group_m * config.cluster_m, blocks)
    of_b = max(1, min(columns, math.ceil(blocks / of_a)))
    return of_a * matrices_in_flight, of_b * matrices_in_flight


def kernel_cycles(
    config: HopperConfig,
    problem: GemmProblem,
    arch: HopperArch,
    constants: KernelConstants = KERNELS,
) -> tuple[float, str, float]:
    """Return a product's cycles, what limits it, and the rounds of tiles that an SM computes."""
    clusters = arch.num_clusters(config.cluster_size)
    units = config.num_units(problem)
    whole = -(-units // clusters)
    rounds = units / clusters if config.stream_k else float(whole)
    steps = -(-problem.k // config.tile_k) / config.split_k
    tile = tile_cost(config, problem, arch, units, constants)
    compute = rounds * steps * tile.step + whole * tile.epilogue
    size = ITEMSIZE[problem.a_dtype]
    strips = (
        config.tile_m * config.cluster_m * size,
        config.tile_n * config.cluster_n * size,
    )
    active = _blocks_at_work(config, arch, units)
    idle = constants.idle_alone if config.cluster_size == 1 else constants.idle_in_clusters
    slower = 1 + idle * max(0.0, 1 - active / arch.num_sms)
    few = max(1.0, constants.memory / (constants.memory_of_sm * active))
    slower = max(slower, 1 + _memory(problem, constants).cold * (few - 1))
    memory = memory_cycles(problem, strips, constants) * slower
    if config.stream_k:
        memory *= 1 + constants.stream_memory
        sums = 4 * config.tile_m * config.tile_n / constants.sum_bytes
        compute += constants.wait + sums * (1 + max(1.0, clusters / units))
    cycles = total(config, compute, memory, constants)
    cycles *= constants.cut if config.stream_k else 1.0
    if config.split_k > 1:
        parts = problem.m * problem.n * problem.num_batches * config.split_k
        cycles += constants.add + parts * ITEMSIZE[parts_dtype(problem)] / constants.add_bytes
    return cycles, "memory" if memory > compute else tile.bound, rounds


def memory_cycles(
    problem: GemmProblem,
    strips: tuple[int, int] | None = None,
    constants: KernelConstants = KERNELS,
) -> float:
    """Return the cycles of the memory to read the operands and write the result once.

    `strips` gives the adjacent bytes of A and of B that are read together, for an operand in which
    the elements along k are not adjacent.
    """
    memory = _memory(problem, constants)
    read_a, read_b = memory.of_a, memory.of_b
    if strips is not None:
        read_a *= _slower_in_strips(problem.a_major, strips[0], constants)
        read_b *= _slower_in_strips(problem.b_major, strips[1], constants)
    return (read_a + read_b + memory.written) / memory.rate


def _slower_in_strips(major: str, strip: int, constants: KernelConstants) -> float:
    return 1.0 if major == "k" else 1 + constants.strip * LINE_BYTES / max(LINE_BYTES, strip)


class _Memory(NamedTuple):
    """The memory traffic of a product, the same for all configurations."""

    of_a: float  # bytes read; rows that cross lines are read in part twice
    of_b: float
    written: float
    rate: float  # bytes per clock
    cold: float  # the share of it that L2 cannot hold


@functools.lru_cache(maxsize=1024)
def _memory(problem: GemmProblem, constants: KernelConstants) -> _Memory:
    """Return the memory traffic of a product.

    L2 keeps small operands from call to call; each of its halves may keep a copy.
    """
    of_a, of_b = (1 + constants.lines_memory * rows.crosses for rows in _rows(problem))
    row = problem.k * ITEMSIZE[problem.a_dtype] * problem.num_batches
    written = problem.m * problem.n * ITEMSIZE[problem.out_dtype] * problem.num_batches
    moved = (problem.m + problem.n) * row + written
    lost = _between(moved, constants.warm_bytes_all, constants.warm_bytes_none)
    rate = constants.memory / (constants.warm + (1 - constants.warm) * lost)
    cold = _between(moved, constants.cold_bytes_none, constants.cold_bytes_all)
    return _Memory(
        of_a=problem.m * row * of_a,
        of_b=problem.n * row * of_b,
        written=written,
        rate=rate,
        cold=cold,
    )


def _between(value: float, least: float, most: float) -> float:
    """Return where a value lies between `least` (0) and `most` (1)."""
    return min(1.0, max(0.0, (value - least) / (most - least)))


def total(
    config: HopperConfig, compute: float, memory: float, constants: KernelConstants = KERNELS
) -> float:
    """Return the cycles of a launch, from those of its SMs and those of the memory."""
    launch = constants.launch + _of_clusters(constants.launch_of_clusters, config)
    compute, memory = launch + compute, launch + memory
    return max(compute, memory) + constants.overlap * min(compute, memory)


def _of_clusters(table: Mapping[int, float], config: HopperConfig) -> float:
    """Return a table's entry for the largest cluster that is not above the configuration's."""
    return table[max(size for size in table if size <= config.cluster_size)]


class _Rows(NamedTuple):
    """The rows of an operand in memory."""

    indices: int | None  # the most that are loaded, of m or n; None if they are adjacent
    crosses: float  # the share of rows that do not begin at a cache line
    camps: bool  # they begin at multiples of 4 KiB


@functools.lru_cache(maxsize=1024)
def _rows(problem: GemmProblem) -> tuple[_Rows, _Rows]:
    """Return the layouts of A and B, the same for all configurations."""
    found = []
    for name, extent, major in (
        ("a", problem.m, problem.a_major),
        ("b", problem.n, problem.b_major),
    ):
        pitch, adjacent_k = _row_bytes(problem, name), major == "k"
        indices = -(-extent // SWIZZLE_LINES) * SWIZZLE_LINES if adjacent_k else None
        crosses = 1 - math.gcd(pitch, LINE_BYTES) / LINE_BYTES
        found.append(_Rows(indices, crosses, camps=pitch % CAMP_BYTES == 0))
    return found[0], found[1]


def _row_bytes(problem: GemmProblem, name: str) -> int:
    """Return the bytes from one row of an operand to the next, if it is packed or copied."""
    is_a = name == "a"
    major, align = (
        (problem.a_major, problem.a_align) if is_a else (problem.b_major, problem.b_align)
    )
    adjacent = problem.k if major == "k" else problem.m if is_a else problem.n
    row = adjacent * ITEMSIZE[problem.a_dtype]
    return copied_pitch(row) if align == LINE_BYTES else -(-row // align) * align
