"""The modelled time of a Hopper kernel, which serves to rank configurations.

Counted are, for the SM with the most tiles, the cycles of the tensor cores or of the path from L2,
whichever binds, with the fill and the epilogue of each tile; then those of the memory, which bounds
the whole, and of adding what was summed in parts. The constants were fitted to 14,900 measured
times of 340 products of bf16, row-major, by 590 kernels (H200, driver 580, 2026-11-22): what they
choose, of the kernels that are built, takes 3.2 % longer than the fastest that was measured.
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
from cupygemm._backends.hopper.source import parts_dtype
from cupygemm._backends.hopper.stack import copied_pitch
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

_LAUNCH = 1654  # until the first stage is full, and from the last store to the kernel's end
_CLUSTERS = {1: 0, 2: 1318, 4: 316}  # more for a launch of clusters of so many, or more
_MMA = 1.02  # of the tensor cores' cycles at their full rate, at the clock of HopperArch
_MMA_F64 = (1.5, 1.0, 1.0)  # of fp64, by consumers: one alone cannot hide its loads
_BELOW_128 = 0.164  # for each 64 columns fewer than 128: they read more of A from shared memory
_THREE_CONSUMERS = 0.986  # while one waits, two multiply
_ALONE = 1.09  # of a block without multicast that computes several tiles
_POWER, _POWER_ALONE = 0.0767, 1.3  # power slows long products, and those blocks more
_LONG = 6e10  # multiply-adds times bytes of an element: of a long product
_STEP = 7.45  # of each step, and more where a consumer has the SM to itself
_LONE_STEP = 29.8
_ISSUE, _ISSUE_BOX = 57.8, 33.5  # cycles of a step, and of each of its boxes, of the producer
_L2_OF_SM = 189  # bytes per clock that an SM takes in
_SLICES, _SLICE = 96, 1.97  # of L2, and clocks in which one gives a line
_UNEVEN = 0.574  # how lines lie on slices; see _load_cycles
_MERGED = {True: 0.916, False: 0.88}  # how requests meet: without clusters, and with
# More for the loads of clusters of so many, or more, and for each of their steps: blocks wait for
# each other.
_SENT = {1: 0.0, 2: 0.0942, 4: 0.0488, 8: 0.158}
_MEETING = {1: 0.0, 2: 10.3, 4: 8.37, 8: 29.6}
_MEETING_ALONE = 1.68  # as often, where a consumer has the SM to itself
# More is read of rows that lie in one line more than they fill: by the SM that asks for them, by
# one that they are multicast to, by L2, and by the memory.
_LINES, _LINES_SENT, _LINES_L2, _LINES_MEMORY = 4.64, 0.221, 0.594, 0.149
_CAMPING = {True: 0.167, False: 0.0796}  # and of rows at multiples of 4 KiB, along k or across
_NARROW = 0.127  # and of tiles whose columns begin and end within lines
_BATCH = 1.15  # the tiles of a small matrix fetch it from memory all at once
_EPILOGUE, _EPILOGUE_BYTES = 350, 32.7  # cycles of a tile, and bytes per clock that it stores
_TURNING = 0.997  # of the stores of a transpose
_EPILOGUE_BYTES_F64 = 60
_ONE_BUFFER = 1.5  # of stores where a block waits for the one before it
_CLUSTER = 93  # blocks of a cluster begin a tile when the slowest does
_MEMORY_OF_SM = 24  # bytes per clock of what L2 does not hold, that an SM takes in
_MEMORY = 2820  # bytes per clock
_WARM, _WARM_BYTES = 0.572, (18e6, 36e6)  # of what L2 holds: all, and hardly any, of so many bytes
_STRIP = 0.0659  # the memory reads strips of one line more slowly, and wider ones less so
_STREAM_MEMORY = 0.259  # the same where clusters are at different depths
_COLD_BYTES = (4e7, 1e8)  # of which an SM takes in what L2 holds, or only what the memory gives
_IDLE = {True: 0.771, False: 0.357}  # and where SMs are idle: without clusters, and with them
_OVERLAP = 0.103  # of what does not bind, which delays what does
_ADD, _ADD_BYTES = 2641, 1102  # cycles of the kernel that adds parts, and bytes per clock
_WAIT, _SUM_BYTES = 3469, 42.6  # the same of a cluster that adds what others left
_CUT = 1.03  # by how much cutting tiles must promise to be sooner: it costs power, too
_LONE_BLOCK = 1.08  # of promoted sums of one block of rows: nothing is multiplied while it is added


@dataclass(frozen=True)
class TileCost:
    """Cycles that a tile takes an SM.

    Attributes
    ----------
    step, epilogue : float
        Each step of k, and all that comes after them.
    bound : str
        Of a step: ``"tensor cores"`` or ``"L2"``.
    """

    step: float
    epilogue: float
    bound: str


def tile_cost(config: HopperConfig, problem: GemmProblem, arch: HopperArch, units: int) -> TileCost:
    """Return what a tile costs where there are `units` tiles of clusters in all."""
    size = config.cluster_size
    alone = size == 1 and units > arch.num_clusters(size)
    mma = _multiply_cycles(config, problem, alone=alone)
    l2 = _load_cycles(config, problem, _blocks_at_work(config, arch, units))
    work = problem.m * problem.n * problem.k * problem.num_batches * ITEMSIZE[problem.a_dtype]
    power = _POWER * min(1.0, work / _LONG) * (_POWER_ALONE if alone else 1.0)
    slower = 1 if config.mma_sync else 1 + power
    stored = ITEMSIZE[parts_dtype(problem) if config.split_k > 1 else problem.out_dtype]
    rate = _EPILOGUE_BYTES_F64 if config.mma_sync else _EPILOGUE_BYTES
    turning = _TURNING if config.c_turned else 1.0
    stores = config.tile_m * config.tile_n * stored / rate * turning
    epilogue = _EPILOGUE + stores * (_ONE_BUFFER if config.epilogue_buffers == 1 else 1.0)
    if size > 1:
        epilogue += _CLUSTER
    bound = "tensor cores" if mma >= l2 else "L2"
    slabs = config.tile_k * ITEMSIZE[problem.a_dtype] / SLAB_BYTES
    meeting = _of_clusters(_MEETING, config) * slabs
    if config.num_consumers == 1:
        meeting *= _MEETING_ALONE
    step = max(mma, l2) + _STEP + meeting
    return TileCost(step * slower, epilogue, bound)


def _blocks_at_work(config: HopperConfig, arch: HopperArch, units: int) -> int:
    """Return how many blocks compute at a time."""
    clusters = arch.num_clusters(config.cluster_size)
    return (clusters if config.stream_k else min(units, clusters)) * config.cluster_size


def _multiply_cycles(config: HopperConfig, problem: GemmProblem, *, alone: bool) -> float:
    """Return the cycles that a step takes the tensor cores."""
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    if config.mma_sync:
        cycles = _MMA_F64[config.num_consumers - 1] * multiply_adds / 128
    else:
        cycles = _MMA * multiply_adds * ITEMSIZE[problem.a_dtype] / (64 * 2 * 32)
        if config.tile_n < 128:
            cycles *= 1 + _BELOW_128 * (2 - config.tile_n / 64)
        if config.promote and config.tile_m == BLOCK_ROWS * config.num_consumers:
            cycles *= _LONE_BLOCK
        if config.num_consumers == 3:
            cycles *= _THREE_CONSUMERS
        elif alone and not config.c_turned and not a_in_registers(problem):
            cycles *= _ALONE
    return cycles + (_LONE_STEP if config.num_consumers == 1 else 0)


def _load_cycles(config: HopperConfig, problem: GemmProblem, active: int) -> float:
    """Return the cycles that the path from L2 takes for a step, of so many blocks at work.

    An SM takes in what it asks for and what is multicast to it. Each line comes out of one slice
    of L2, nearly as often as it is asked for, since few requests meet on their way; and the fewer
    different lines are wanted at a time, the more unevenly they lie on the slices.
    """
    step_bytes = config.tile_k * ITEMSIZE[problem.a_dtype]
    merged = _MERGED[config.cluster_size == 1]
    taken = asked = of_slices = 0.0
    a_in_flight, b_in_flight = _tiles_in_flight(config, problem, active)
    a_rows, b_rows = _rows(problem)
    for rows, tile, shares, in_flight in (
        (a_rows, config.tile_m, config.cluster_n, a_in_flight),
        (b_rows, config.tile_n, config.cluster_m, b_in_flight),
    ):
        indices = float(tile if rows.indices is None else min(tile, rows.indices))
        if rows.indices is None and tile % BLOCK_ROWS:
            indices *= 1 + _NARROW
        crosses, camps = rows.crosses, rows.camps
        taken += indices * (1 + crosses * (_LINES if shares == 1 else _LINES_SENT))
        asked += indices / shares * (1 + crosses * _LINES)
        lines = indices * step_bytes / LINE_BYTES * (1 + crosses * _LINES_L2 + camps)
        of_slice = in_flight * lines / _SLICES
        requests = max(1.0, active / in_flight / shares) ** merged  # for each line
        of_slices += requests * (of_slice + _UNEVEN * math.sqrt(of_slice))
    cycles = max(step_bytes * max(taken, asked) / _L2_OF_SM, _SLICE * of_slices)
    cycles *= (1 + _of_clusters(_SENT, config)) * (_BATCH if problem.batch else 1.0)
    return max(cycles, _ISSUE + _ISSUE_BOX * _boxes(config, problem))


def _boxes(config: HopperConfig, problem: GemmProblem) -> int:
    """Return how many boxes a block loads for a step: one thread issues them all."""
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
    """Return how many different tiles of A and of B so many blocks load at a time."""
    rows, columns = -(-problem.m // config.tile_m), -(-problem.n // config.tile_n)
    matrices = config.split_k * problem.num_batches
    matrices_in_flight = max(1.0, min(matrices, active / (rows * columns)))
    blocks = active / matrices_in_flight
    of_a = min(rows, config.group_m * config.cluster_m, blocks)
    of_b = max(1, min(columns, math.ceil(blocks / of_a)))
    return of_a * matrices_in_flight, of_b * matrices_in_flight


def kernel_cycles(
    config: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> tuple[float, str, float]:
    """Return a product's cycles, what binds, and how many rounds of tiles an SM computes."""
    clusters = arch.num_clusters(config.cluster_size)
    units = config.num_units(problem)
    whole = -(-units // clusters)
    rounds = units / clusters if config.stream_k else float(whole)
    steps = -(-problem.k // config.tile_k) / config.split_k
    tile = tile_cost(config, problem, arch, units)
    compute = rounds * steps * tile.step + whole * tile.epilogue
    size = ITEMSIZE[problem.a_dtype]
    strips = (
        config.tile_m * config.cluster_m * size,
        config.tile_n * config.cluster_n * size,
    )
    active = _blocks_at_work(config, arch, units)
    idle = 1 + _IDLE[config.cluster_size == 1] * max(0.0, 1 - active / arch.num_sms)
    few = max(1.0, _MEMORY / (_MEMORY_OF_SM * active))
    memory = memory_cycles(problem, strips) * max(idle, 1 + _memory(problem).cold * (few - 1))
    if config.stream_k:
        memory *= 1 + _STREAM_MEMORY
        sums = 4 * config.tile_m * config.tile_n / _SUM_BYTES
        compute += _WAIT + sums * (1 + max(1.0, clusters / units))
    cycles = total(config, compute, memory) * (_CUT if config.stream_k else 1.0)
    if config.split_k > 1:
        parts = problem.m * problem.n * problem.num_batches * config.split_k
        cycles += _ADD + parts * ITEMSIZE[parts_dtype(problem)] / _ADD_BYTES
    return cycles, "memory" if memory > compute else tile.bound, rounds


def memory_cycles(problem: GemmProblem, strips: tuple[int, int] | None = None) -> float:
    """Return how long the memory takes to read the operands and write the result once.

    Of `strips` of so many bytes, an operand is read that does not lie along k.
    """
    memory = _memory(problem)
    read_a, read_b = memory.of_a, memory.of_b
    if strips is not None:
        read_a *= _slower_in_strips(problem.a_major, strips[0])
        read_b *= _slower_in_strips(problem.b_major, strips[1])
    return (read_a + read_b + memory.written) / memory.rate


def _slower_in_strips(major: str, strip: int) -> float:
    return 1.0 if major == "k" else 1 + _STRIP * LINE_BYTES / max(LINE_BYTES, strip)


class _Memory(NamedTuple):
    """What a product moves, the same for all configurations."""

    of_a: float  # bytes read, more than there are where rows cross lines
    of_b: float
    written: float
    rate: float  # bytes per clock
    cold: float  # how much of it L2 cannot hold, from 0 to 1


@functools.lru_cache(maxsize=1024)
def _memory(problem: GemmProblem) -> _Memory:
    """Return what a product moves.

    L2 keeps small operands from call to call; each of its halves may keep a copy.
    """
    of_a, of_b = (1 + _LINES_MEMORY * rows.crosses for rows in _rows(problem))
    row = problem.k * ITEMSIZE[problem.a_dtype] * problem.num_batches
    written = problem.m * problem.n * ITEMSIZE[problem.out_dtype] * problem.num_batches
    moved = (problem.m + problem.n) * row + written
    rate = _MEMORY / (_WARM + (1 - _WARM) * _between(moved, *_WARM_BYTES))
    cold = _between(moved, *_COLD_BYTES)
    return _Memory(problem.m * row * of_a, problem.n * row * of_b, written, rate, cold)


def _between(value: float, least: float, most: float) -> float:
    """Return how far a value is from `least` to `most`, from 0 to 1."""
    return min(1.0, max(0.0, (value - least) / (most - least)))


def total(config: HopperConfig, compute: float, memory: float) -> float:
    """Return the cycles of a launch whose SMs and whose memory are busy for so many."""
    launch = _LAUNCH + _of_clusters(_CLUSTERS, config)
    compute, memory = launch + compute, launch + memory
    return max(compute, memory) + _OVERLAP * min(compute, memory)


def _of_clusters(table: Mapping[int, float], config: HopperConfig) -> float:
    """Return the entry of a table for clusters as large as a configuration's, or smaller."""
    return table[max(size for size in table if size <= config.cluster_size)]


class _Rows(NamedTuple):
    """The rows of an operand in memory."""

    indices: int | None  # of m or n that are loaded at most; None where they lie along the rows
    crosses: float  # the share of rows that begin elsewhere than at lines
    camps: float  # how much more is read since they begin at multiples of 4 KiB


@functools.lru_cache(maxsize=1024)
def _rows(problem: GemmProblem) -> tuple[_Rows, _Rows]:
    """Return how A and B lie, the same for all configurations."""
    found = []
    for name, extent, major in (
        ("a", problem.m, problem.a_major),
        ("b", problem.n, problem.b_major),
    ):
        pitch, adjacent_k = _row_bytes(problem, name), major == "k"
        indices = -(-extent // SWIZZLE_LINES) * SWIZZLE_LINES if adjacent_k else None
        crosses = 1 - math.gcd(pitch, LINE_BYTES) / LINE_BYTES
        camps = _CAMPING[adjacent_k] if pitch % CAMP_BYTES == 0 else 0.0
        found.append(_Rows(indices, crosses, camps))
    return found[0], found[1]


def _row_bytes(problem: GemmProblem, name: str) -> int:
    """Return the bytes from a row of an operand to the next where it is packed, or copied."""
    is_a = name == "a"
    major, align = (
        (problem.a_major, problem.a_align) if is_a else (problem.b_major, problem.b_align)
    )
    adjacent = problem.k if major == "k" else problem.m if is_a else problem.n
    row = adjacent * ITEMSIZE[problem.a_dtype]
    return copied_pitch(row) if align == LINE_BYTES else -(-row // align) * align
