"""Choose a configuration by a model of compute units, residency and tile quantisation.

For the compute unit with the most tiles, the model counts the cycles of the resource that limits
its main loop: MFMA, LDS, or the path from L2. L2 and memory bandwidth limit the whole product. Each
configuration is estimated with whole tiles, with split k, and with a persistent grid that splits
some tiles (stream-k). Sums over parts of k pass through memory to a second kernel. The figures are
modelled from published rates (`arch`) and fitted constants (`constants`). They rank configurations
and do not predict times. Atomic additions are assumed to cost as much as stores, although other
workgroups add to the same lines.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from cupygemm._backends.cdna import epilogue_cost
from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.constants import KERNELS
from cupygemm._backends.cdna.cost_constants import KernelConstants
from cupygemm._backends.cdna.mainloops import configs_for, mainloop_of, resident_workgroups
from cupygemm._backends.cdna.split import (
    ROUND_PARTS,
    adds_to_result,
    slots_written,
    stream_tiles,
    sum_bytes,
)
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

_L1_BYTES_PER_CLOCK = 64
# The fewest bytes of a part of k, and the fewest steps of a workgroup's share of shared tiles. A
# smaller one would consist of its prologue.
_LEAST_K_BYTES, _LEAST_STEPS = 512, 3


@dataclass(frozen=True)
class Candidate:
    """A configuration that can run, with its modelled cost.

    Attributes
    ----------
    config : GemmConfig
    cycles : float
        Modelled cycles of the launch, at the boost clock.
    bound : str
        The limiting resource: ``"MFMA"``, ``"LDS"``, ``"L1"``, ``"latency"``, ``"L2"`` or
        ``"memory"``.
    tiles : int
        The number of tiles of C, or of their parts if k is split.
    resident : int
        The number of workgroups that a CU holds.
    efficiency : float
        The useful share of the multiply-adds; the rest falls outside the matrices.
    """

    config: GemmConfig
    cycles: float
    bound: str
    tiles: int
    resident: int
    efficiency: float


@dataclass(frozen=True)
class Selection:
    """The configuration for a problem, and why.

    Attributes
    ----------
    config : GemmConfig
    reason : str
        A readable sentence.
    candidates : tuple of Candidate
        All configurations that can run, the cheapest first.
    """

    config: GemmConfig
    reason: str
    candidates: tuple[Candidate, ...] = ()


@functools.lru_cache(maxsize=4096)
def select(problem: GemmProblem, arch: Arch, *, reproducible: bool = True) -> Selection:
    """Return the configuration that the cost model prefers.

    Parameters
    ----------
    problem : GemmProblem
    arch : Arch
    reproducible : bool
        Sums must not depend on the order in which workgroups run. If false, parts of k may be added
        atomically.

    Raises
    ------
    ValueError
        No configuration can run; the message has each distinct reason.
    """
    candidates, objections = [], []
    for base in configs_for(problem.a_dtype, arch.name):
        objection = check(base, problem, arch)
        if objection is None:
            candidates += [
                estimate(config, problem, arch)
                for config in partitions(base, problem, arch, reproducible=reproducible)
                if check(config, problem, arch) is None
            ]
        elif objection not in objections:
            objections.append(objection)
    if not candidates:
        raise ValueError(f"no kernel for this product on {arch.name}: {'; '.join(objections)}")
    ranked = tuple(sorted(candidates, key=lambda candidate: candidate.cycles))
    return Selection(ranked[0].config, _reason(ranked, problem, arch), ranked)


def partitions(
    base: GemmConfig, problem: GemmProblem, arch: Arch, *, reproducible: bool = True
) -> Iterator[GemmConfig]:
    """Yield a configuration with whole tiles, with k in parts, and with a persistent grid.

    The numbers of parts fill the compute units with one workgroup each, and with as many as fit.
    """
    yield base
    tiles_m, tiles_n = base.num_tiles(problem)
    tiles = tiles_m * tiles_n * problem.num_batches
    steps = base.num_steps(problem)
    resident = resident_workgroups(base, arch, ITEMSIZE[problem.a_dtype])
    slots = arch.num_cus * resident
    most = min(steps, problem.k * ITEMSIZE[problem.a_dtype] // _LEAST_K_BYTES)
    for parts in sorted({min(n // tiles, most) for n in (arch.num_cus, slots, 2 * slots)}):
        if parts >= 2:
            yield replace(base, split_k=parts)
            if not reproducible:
                yield replace(base, split_k=parts, atomic=True)
    if tiles % slots * steps >= _LEAST_STEPS * slots:
        yield replace(base, stream_k=slots)


def estimate(
    config: GemmConfig,
    problem: GemmProblem,
    arch: Arch,
    constants: KernelConstants = KERNELS,
) -> Candidate:
    """Return the modelled cost of a configuration that can run."""
    itemsize = ITEMSIZE[problem.a_dtype]
    tiles_m, tiles_n = config.num_tiles(problem)
    tiles = tiles_m * tiles_n * problem.num_batches
    steps = config.num_steps(problem)
    resident = resident_workgroups(config, arch, itemsize)
    step = _step_cycles(config, arch, problem.a_dtype)
    binding, throughput = max(step.items(), key=lambda item: item[1])
    mainloop = mainloop_of(config)
    idle = mainloop.idle_cycles(config)
    load = constants.load_ns * arch.clock_mhz / 1000
    alone = max(step["MFMA"] + idle, load / mainloop.tiles_ahead(config))
    cu = _Cu(constants.start_cycles[config.mainloop], step["MFMA"], idle, throughput, alone)
    compute, most = _compute_cycles(cu, config, problem, arch, tiles, resident)
    l2, memory = _traffic_cycles(config, problem, arch, tiles, constants)

    if min(most, resident) * throughput < 0.9 * alone:
        binding = "latency"
    cycles, bound = max((compute, binding), (l2, "L2"), (memory, "memory"))
    if config.partition != "tiles":
        cycles *= constants.sharing
    padded = tiles_m * config.tile_m * tiles_n * config.tile_n * steps * config.tile_k
    return Candidate(
        config=config,
        # Resources that are not the bottleneck still cost a little. This orders candidates that are
        # equally bound by memory.
        cycles=cycles
        + 0.05 * (compute + l2 + memory)
        + _sharing_cycles(config, problem, arch, tiles, constants),
        bound=bound,
        tiles=tiles * config.split_k,
        resident=resident,
        efficiency=problem.m * problem.n * problem.k / padded,
    )


class _Cu(NamedTuple):
    """The cycles of workgroups on a CU.

    Attributes
    ----------
    start : float
        From the start of a workgroup to its first step.
    mfma, idle : float
        For which the matrix units are busy in a step of one workgroup, and for which they are idle.
    throughput : float
        Of a step, if the resource that limits it is always busy.
    alone : float
        Of a step, if no other workgroup is on the CU.
    """

    start: float
    mfma: float
    idle: float
    throughput: float
    alone: float

    def batch_cycles(self, workgroups: int, depth: float, store: float) -> float:
        """Return the cycles of workgroups that share a CU from start to end, `depth` steps deep."""
        if not workgroups:
            return 0.0
        # The matrix units are idle when all workgroups idle at the same time, each independently.
        busy = 1 - (self.idle / (self.mfma + self.idle)) ** workgroups
        each = max(self.throughput, self.mfma / busy)
        each_step = max(workgroups * each, self.alone)
        return self.start + depth * each_step + workgroups * store


def _compute_cycles(
    cu: _Cu, config: GemmConfig, problem: GemmProblem, arch: Arch, tiles: int, resident: int
) -> tuple[float, int]:
    """Return the cycles of the busiest CU, without memory, and its total number of workgroups."""
    steps = config.num_steps(problem)
    elements = config.tile_m * config.tile_n
    finished = _finished_bytes(problem, config.tile_m, config.tile_n)
    store = finished / _L1_BYTES_PER_CLOCK + epilogue_cost.cycles(problem, elements)
    part_store = elements * sum_bytes(problem) / _L1_BYTES_PER_CLOCK
    if config.stream_k:
        rounds, shared = divmod(tiles, config.stream_k)
        compute = rounds * cu.batch_cycles(resident, steps, store)
        # A workgroup may have the end of one tile and the beginning of another.
        depth = shared * steps / config.stream_k
        compute += cu.batch_cycles(resident, depth, 2 * part_store) + cu.start
        return compute, resident
    depth = steps / config.split_k
    most = -(-tiles * config.split_k // arch.num_cus)
    full, rest = divmod(most, resident)
    stored = store if config.split_k == 1 else part_store
    compute = full * cu.batch_cycles(resident, depth, stored)
    return compute + cu.batch_cycles(rest, depth, stored), most


def _sharing_cycles(
    config: GemmConfig, problem: GemmProblem, arch: Arch, tiles: int, constants: KernelConstants
) -> float:
    """Return the extra cycles of shared tiles: a second kernel reads their sums from memory.

    That kernel also applies their epilogue, on all compute units.
    """
    written = slots_written(config, problem)
    if not written:
        return 0.0
    shared = _shared_tiles(config, problem, tiles)
    rows, columns = min(config.tile_m, problem.m), min(config.tile_n, problem.n)
    slot = rows * columns * sum_bytes(problem)
    moved, kernels, parts = 2 * written, 1, written / shared
    if adds_to_result(config, problem):  # zeros are stored first, and the sums stay there
        zeros_and_sums = (tiles + written) * slot / _memory_bytes_per_clock(arch)
        return constants.next_kernel_cycles + zeros_and_sums
    if config.atomic:  # zeros are stored first; then the sums stay there
        moved, kernels, parts = written + 2 * tiles, 2, 1
    finished = shared * _finished_bytes(problem, rows, columns)
    return (
        kernels * constants.next_kernel_cycles
        + constants.add_cycles
        + constants.add_round_cycles * -(-parts // ROUND_PARTS)
        + (moved * slot + finished) / _memory_bytes_per_clock(arch)
        + epilogue_cost.cycles(problem, shared * rows * columns) / arch.num_cus
    )


def _shared_tiles(config: GemmConfig, problem: GemmProblem, tiles: int) -> int:
    """Return the tiles that the second kernel finishes."""
    if config.stream_k:
        return stream_tiles(config, problem)
    return tiles if config.split_k > 1 else 0


def _finished_bytes(problem: GemmProblem, rows: int, columns: int) -> int:
    """Return the bytes moved for a block of C after its sums: the epilogue's sources, and C."""
    stored = rows * columns * ITEMSIZE[problem.out_dtype]
    return stored + epilogue_cost.read_bytes(problem.epilogue, rows, columns)


def _step_cycles(config: GemmConfig, arch: Arch, dtype: DType) -> dict[str, float]:
    """Return the cycles for which one tile_k step of a workgroup occupies each resource of a CU."""
    waves = config.waves_m * config.waves_n
    instructions = (config.tile_m // config.mma_m) * (config.tile_n // config.mma_n)
    instructions *= config.tile_k // config.mma_k
    issue = arch.mfma_cycles[dtype][config.mma]
    staged = (config.tile_m + config.tile_n) * config.tile_k * ITEMSIZE[dtype]
    through_lds = mainloop_of(config).lds_traffic(config, ITEMSIZE[dtype])
    return {
        "MFMA": instructions * issue / min(waves, arch.simds_per_cu),
        "LDS": through_lds / arch.lds_bytes_per_clock,
        "L1": staged / _L1_BYTES_PER_CLOCK,
    }


def _traffic_cycles(
    config: GemmConfig, problem: GemmProblem, arch: Arch, tiles: int, constants: KernelConstants
) -> tuple[float, float]:
    """Return the cycles that L2 and memory take for the launch, all CUs together."""
    itemsize = ITEMSIZE[problem.a_dtype]
    step = (config.tile_m + config.tile_n) * config.tile_k * itemsize
    staged = tiles * config.num_steps(problem) * step
    m, n, k = problem.m, problem.n, problem.k
    whole = 1 - _shared_tiles(config, problem, tiles) / tiles
    once = (m * k + n * k) * itemsize + whole * _finished_bytes(problem, m, n)
    l2_bytes_per_clock = arch.num_xcds * arch.l2_bytes_per_clock
    # A few compute units cannot saturate memory.
    busy = arch.num_cus if config.stream_k else min(arch.num_cus, tiles * config.split_k)
    bytes_per_clock = min(_memory_bytes_per_clock(arch), busy * constants.cu_bytes_per_clock)
    memory = once * problem.num_batches / bytes_per_clock
    return staged / l2_bytes_per_clock, memory


def _memory_bytes_per_clock(arch: Arch) -> float:
    return arch.hbm_gbytes_per_s * 1000 / arch.clock_mhz


def _named(config: GemmConfig) -> str:
    text = f"{config.mainloop}, tile {config.tile_m}x{config.tile_n}x{config.tile_k}"
    if config.stream_k:
        return f"{text} with stream-k"
    return text + (f" with k in {config.split_k} parts" if config.split_k > 1 else "")


def _workgroups(best: Candidate, problem: GemmProblem, arch: Arch) -> str:
    """Return a description of how the tiles are assigned to the device."""
    config = best.config
    if config.stream_k:
        cut = stream_tiles(config, problem)
        return (
            f"{config.stream_k} workgroups on {arch.num_cus} CUs, {cut} of {best.tiles} tiles cut "
            "along k to make their shares equal (stream-k)"
        )
    text = f"{best.tiles} workgroups on {arch.num_cus} CUs"
    if config.split_k > 1:
        how = "atomically" if config.atomic else "by a second kernel"
        text += f" ({config.split_k} parts of k, added {how})"
    return text


def _reason(ranked: tuple[Candidate, ...], problem: GemmProblem, arch: Arch) -> str:
    best = ranked[0]
    config = best.config
    text = (
        f"{config.mainloop}, tile {config.tile_m}x{config.tile_n}x{config.tile_k}: "
        f"{_workgroups(best, problem, arch)}, {best.efficiency:.0%} of the work useful, "
        f"bound by {best.bound} (modelled)"
    )
    others = [other for other in ranked if _named(other.config) != _named(config)]
    if others:
        other = others[0]
        times = other.cycles / best.cycles
        text += f"; the next, {_named(other.config)}, costs {times:.2f} times as much"
    return text
