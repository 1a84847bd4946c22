"""The modelled time of a Hopper kernel, which serves to rank configurations.

Counted are, for the SM with the most tiles, the cycles of the tensor cores or of the path from L2,
whichever binds, with the fill and the epilogue of each tile; then those of the memory, which bounds
the whole, and of adding what was summed in parts. The constants were fitted to 1400 measured times
of 56 products of bf16, row-major, by 42 kernels (H200, driver 580, 2026-11-21): what they choose
takes 2.5 % longer than the fastest of them on average.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._hopper.config import (
    BLOCK_ROWS,
    CAMP_BYTES,
    SLAB_BYTES,
    HopperArch,
    HopperConfig,
    a_in_registers,
)
from cupygemm._hopper.source import parts_dtype
from cupygemm._hopper.stack import copied_pitch
from cupygemm._problem import ITEMSIZE, GemmProblem

_LAUNCH = 1515  # until the first stage is full, and from the last store to the kernel's end
_CLUSTERS = {1: 0, 2: 1540, 4: 1440, 8: 1440}  # more for a launch of clusters of so many
_MMA = 0.961  # of the tensor cores' cycles at their full rate, at the clock of HopperArch
_MMA_F64 = (1.5, 1.0, 1.0)  # of fp64, by consumers: one alone cannot hide its loads
_BELOW_256 = 1.01  # the same, for instructions of fewer columns than 256
_BELOW_128 = 0.58  # and for half as many as 128: they read A from shared memory once, too
_POWER = 0.125  # by which power limits slow down the clock in long products
_LONG = 6e10  # multiply-adds times bytes of an element: of a long product
_STEP = 9  # of each step, and more where a consumer has the SM to itself
_LONE_STEP = 56
_MULTICAST_STEP = {1: 0, 2: 19, 4: 26, 8: 26}  # of a step bound by L2: a cluster's blocks wait
_ALONE = 1.2  # of a block without multicast that computes several tiles
_L2_OF_SM, _L2 = 157, 7970  # bytes per clock that an SM takes in, and that L2 gives
# More is read of rows that begin elsewhere than at lines: by the SM that asks for them, by one that
# they are multicast to, by L2, and by the memory.
_LINES, _LINES_SENT, _LINES_L2, _LINES_MEMORY = 2.75, 0.24, 0.585, 0.153
_CAMPING = 0.225  # and of rows at multiples of 4 KiB, which few slices of L2 hold
_BATCH = 1.15  # the tiles of a small matrix fetch it from memory all at once
_EPILOGUE, _EPILOGUE_BYTES = 295, 28  # cycles of a tile, and bytes per clock that it stores
_EPILOGUE_BYTES_F64 = 60
_CLUSTER = 124  # blocks of a cluster begin a tile when the slowest does
_MEMORY = 3100  # bytes per clock
_STREAM_MEMORY = 0.29  # the same is read more slowly where clusters are at different depths
_OVERLAP = 0.158  # of what does not bind, which delays what does
_ADD, _ADD_BYTES = 5110, 1300  # cycles of the kernel that adds parts, and bytes per clock
_WAIT, _SUM_BYTES = 8700, 73  # the same of a cluster that adds what others left
_CUT = 1.03  # by how much cutting tiles must promise to be sooner: it costs power, too
_OTHER_WIDTHS = 1.03  # the same of widths that were not among the measured ones, multiples of 64
_LONE_BLOCK = 1.08  # of promoted sums of one block of rows: nothing is multiplied while it is added
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
    clusters = arch.num_clusters(size)
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    if config.mma_sync:
        mma = _MMA_F64[config.num_consumers - 1] * multiply_adds / 128
    else:
        mma = _MMA * multiply_adds * itemsize / (64 * 2 * 32)
        if config.tile_n < 256:
            below_128 = 1 + _BELOW_128 * (128 / config.tile_n - 1)
            mma *= _BELOW_256 if config.tile_n >= 128 else below_128
        if config.promote and config.tile_m == BLOCK_ROWS * config.num_consumers:
            mma *= _LONE_BLOCK
        if size == 1 and units > clusters and not a_in_registers(problem):
            mma *= _ALONE
    if config.num_consumers == 1:
        mma += _LONE_STEP
    step_bytes = config.tile_k * itemsize
    rows, columns = float(config.tile_m), float(config.tile_n)  # that come to the SM
    if size == 1 and problem.a_major == "k":
        rows = min(rows, -(-problem.m // 8) * 8)
    if size == 1 and problem.b_major == "k":
        columns = min(columns, -(-problem.n // 8) * 8)
    taken = asked = of_l2 = 0.0
    for loaded, pitch, shares in (
        (rows, _row_bytes(problem, "a"), config.cluster_n),
        (columns, _row_bytes(problem, "b"), config.cluster_m),
    ):
        crosses, camps = pitch % _LINE != 0, _CAMPING * (pitch % CAMP_BYTES == 0)
        taken += loaded * (1 + crosses * (_LINES if shares == 1 else _LINES_SENT))
        asked += loaded / shares * (1 + crosses * _LINES + camps)
        of_l2 += loaded / shares * (1 + crosses * _LINES_L2 + camps)
    active = (clusters if config.stream_k else min(units, clusters)) * size
    l2 = step_bytes * max(max(taken, asked) / _L2_OF_SM, of_l2 * active / _L2)
    l2 += _MULTICAST_STEP[size]
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
    clusters = arch.num_clusters(config.cluster_size)
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
    of_a, of_b = (
        1 + _LINES_MEMORY * (_row_bytes(problem, name) % _LINE != 0) for name in ("a", "b")
    )
    read = (problem.m * of_a + problem.n * of_b) * problem.k * ITEMSIZE[problem.a_dtype]
    written = problem.m * problem.n * ITEMSIZE[problem.out_dtype]
    return (read + written) * problem.num_batches / _MEMORY


def total(config: HopperConfig, compute: float, memory: float) -> float:
    """Return the cycles of a launch whose SMs and whose memory are busy for so many."""
    launch = _LAUNCH + _CLUSTERS[config.cluster_size]
    compute, memory = launch + compute, launch + memory
    cycles = max(compute, memory) + _OVERLAP * min(compute, memory)
    return cycles * (_OTHER_WIDTHS if config.tile_n % 64 else 1.0)


def _row_bytes(problem: GemmProblem, name: str) -> int:
    """Return the bytes from a row of an operand to the next where it is packed, or copied."""
    is_a = name == "a"
    major, align = (
        (problem.a_major, problem.a_align) if is_a else (problem.b_major, problem.b_align)
    )
    adjacent = problem.k if major == "k" else problem.m if is_a else problem.n
    row = adjacent * ITEMSIZE[problem.a_dtype]
    return copied_pitch(row) if align == SLAB_BYTES else -(-row // align) * align
