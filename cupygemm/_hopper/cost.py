"""The modelled time of a Hopper kernel, which serves to rank configurations.

Counted are, for the SM with the most tiles, the cycles of the tensor cores or of the path from L2,
whichever binds, with the fill and the epilogue of each tile; then those of the memory, which bounds
the whole, and of adding what was summed in parts. The constants were fitted to 1400 measured times
of 56 products of bf16, row-major, by 42 kernels (H200, driver 580, 2026-11-21): what they choose
takes 2.5 % longer than the fastest of them on average.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._hopper.config import HopperArch, HopperConfig, a_in_registers
from cupygemm._hopper.source import parts_dtype
from cupygemm._problem import ITEMSIZE, GemmProblem

_LAUNCH = 1700  # until the first stage is full, and from the last store to the kernel's end
_CLUSTERS = 1300  # more for a launch of clusters of two
_MMA = 0.994  # of the tensor cores' cycles at their full rate, at the clock of HopperArch
_MMA_F64 = (1.5, 1.0, 1.0)  # of fp64, by consumers: one alone cannot hide its loads
_BELOW_256 = 0.975  # the same, for instructions of fewer columns than 256
_BELOW_128 = 1.535  # and than 128: they read more of A from shared memory
_POWER = 0.13  # by which power limits slow down the clock in long products
_LONG = 6e10  # multiply-adds times bytes of an element: of a long product
_STEP = 9  # of each step, and more where a consumer has the SM to itself
_LONE_STEP = 69
_MULTICAST_STEP = 18  # of a step bound by L2 in a cluster: the two wait for each other
_ALONE = 1.176  # of a block without multicast that computes several tiles
_L2_OF_SM, _L2 = 96, 7950  # bytes per clock that an SM takes in, and that L2 gives
_LINES, _MEMORY_LINES = 0.71, 0.18  # more is read of rows that begin elsewhere than at lines
_BATCH = 1.15  # the tiles of a small matrix fetch it from memory all at once
_EPILOGUE, _EPILOGUE_BYTES = 324, 25.1  # cycles of a tile, and bytes per clock that it stores
_EPILOGUE_BYTES_F64 = 60
_CLUSTER = 130  # two blocks begin a tile when the slower one does
_MEMORY = 3108  # bytes per clock
_STREAM_MEMORY = 0.26  # the same is read more slowly where clusters are at different depths
_OVERLAP = 0.171  # of what does not bind, which delays what does
_ADD, _ADD_BYTES = 4500, 1313  # cycles of the kernel that adds parts, and bytes per clock
_WAIT, _SUM_BYTES = 7900, 69  # the same of a cluster that adds what others left
_CUT = 1.03  # by how much cutting tiles must promise to be sooner: it costs power, too
_LINE = 128


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
    itemsize, size = ITEMSIZE[problem.a_dtype], config.cluster_size
    clusters = arch.num_sms // size
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    if config.mma_sync:
        mma = _MMA_F64[config.num_consumers - 1] * multiply_adds / 128
    else:
        mma = _MMA * multiply_adds * itemsize / (64 * 2 * 32)
        if config.tile_n < 256:
            mma *= _BELOW_256 if config.tile_n >= 128 else _BELOW_128
        if size == 1 and units > clusters and not a_in_registers(problem):
            mma *= _ALONE
    if config.num_consumers == 1:
        mma += _LONE_STEP
    of_a, of_b = (1 + _LINES * crosses for crosses in _cross_lines(problem))
    rows = float(config.tile_m)  # of A that come to the SM
    if size == 1 and problem.a_major == "k":
        rows = min(rows, -(-problem.m // 8) * 8)
    taken = rows * of_a + config.tile_n * of_b
    asked = rows / config.cluster_n * of_a + config.tile_n / config.cluster_m * of_b
    active = arch.num_sms if config.stream_k else min(units, clusters) * size
    row_bytes = config.tile_k * itemsize
    l2 = row_bytes * max(taken / _L2_OF_SM, asked * active / _L2)
    if size > 1:
        l2 += _MULTICAST_STEP
    if problem.batch:
        l2 *= _BATCH
    work = problem.m * problem.n * problem.k * problem.num_batches * itemsize
    slower = 1 if config.mma_sync else 1 + _POWER * min(1.0, work / _LONG)
    stored = ITEMSIZE[parts_dtype(problem) if config.split_k > 1 else problem.out_dtype]
    rate = _EPILOGUE_BYTES_F64 if config.mma_sync else _EPILOGUE_BYTES
    epilogue = _EPILOGUE + config.tile_m * config.tile_n * stored / rate
    if size > 1:
        epilogue += _CLUSTER
    bound = "tensor cores" if mma >= l2 else "L2"
    return TileCost((max(mma, l2) + _STEP) * slower, epilogue, bound)


def kernel_cycles(
    config: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> tuple[float, str, float]:
    """Return a product's cycles, what binds, and how many rounds of tiles an SM computes."""
    clusters = arch.num_sms // config.cluster_size
    units = config.num_units(problem)
    whole = -(-units // clusters)
    rounds = units / clusters if config.stream_k else float(whole)
    steps = -(-problem.k // config.tile_k) / config.split_k
    tile = tile_cost(config, problem, arch, units)
    compute = rounds * steps * tile.step + whole * tile.epilogue
    memory = memory_cycles(problem)
    if config.stream_k:
        memory *= 1 + _STREAM_MEMORY
        sums = 4 * config.tile_m * config.tile_n / _SUM_BYTES
        compute += _WAIT + sums * (1 + max(1.0, clusters / units))
    cycles = total(config, compute, memory) * (_CUT if config.stream_k else 1.0)
    if config.split_k > 1:
        parts = problem.m * problem.n * problem.num_batches * config.split_k
        cycles += _ADD + parts * ITEMSIZE[parts_dtype(problem)] / _ADD_BYTES
    return cycles, "memory" if memory > compute else tile.bound, rounds


def memory_cycles(problem: GemmProblem) -> float:
    """Return how long the memory takes to read the operands and write the result once."""
    of_a, of_b = (1 + _MEMORY_LINES * crosses for crosses in _cross_lines(problem))
    read = (problem.m * of_a + problem.n * of_b) * problem.k * ITEMSIZE[problem.a_dtype]
    written = problem.m * problem.n * ITEMSIZE[problem.out_dtype]
    return (read + written) * problem.num_batches / _MEMORY


def total(config: HopperConfig, compute: float, memory: float) -> float:
    """Return the cycles of a launch whose SMs and whose memory are busy for so many."""
    launch = _LAUNCH + (_CLUSTERS if config.cluster_size > 1 else 0)
    compute, memory = launch + compute, launch + memory
    return max(compute, memory) + _OVERLAP * min(compute, memory)


def _cross_lines(problem: GemmProblem) -> tuple[bool, bool]:
    """Whether rows of A and of B, packed, begin elsewhere than at lines of the caches."""
    itemsize = ITEMSIZE[problem.a_dtype]
    of_a = problem.k if problem.a_major == "k" else problem.m
    of_b = problem.k if problem.b_major == "k" else problem.n
    return of_a * itemsize % _LINE != 0, of_b * itemsize % _LINE != 0
