"""Choose a configuration: a cost model over compute units, residency and tile quantisation.

The model counts, for the compute unit with the most tiles, the cycles of the resource that binds
its main loop: MFMA, LDS, or the path from L2; and bounds the whole by L2 and memory bandwidth. Its
figures are modelled, from published rates (`_arch`), and serve to rank configurations, not to
predict times.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from cupygemm._arch import Arch
from cupygemm._config import WAVE_SIZE, GemmConfig, check, configs_for
from cupygemm._problem import ITEMSIZE, DType, GemmProblem

# What a workgroup alone on its CU cannot hide, in cycles, from published figures for gfx942 (L2 hit
# about 300 ns, memory 500 ns and more): to start and to end; the barriers and the LDS latency of a
# step; and the load of a tile, of which one is in flight while another is multiplied.
_START_CYCLES = 3000
_STEP_CYCLES = 350
_LOAD_CYCLES = 1000
_L1_BYTES_PER_CLOCK = 64


@dataclass(frozen=True)
class Candidate:
    """A configuration that can run, with its modelled cost.

    Attributes
    ----------
    config : GemmConfig
    cycles : float
        Modelled cycles of the launch, at the boost clock.
    bound : str
        The resource that decides them: ``"MFMA"``, ``"LDS"``, ``"L1"``, ``"latency"``, ``"L2"`` or
        ``"memory"``.
    tiles : int
        Workgroups of the launch.
    resident : int
        Workgroups that a CU holds at once.
    efficiency : float
        Useful share of the multiply-adds: the rest falls outside the matrices.
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
        One sentence for people.
    candidates : tuple of Candidate
        All configurations that can run, the cheapest first.
    """

    config: GemmConfig
    reason: str
    candidates: tuple[Candidate, ...] = ()


@functools.lru_cache(maxsize=4096)
def select(problem: GemmProblem, arch: Arch) -> Selection:
    """Return the configuration that the cost model prefers.

    Raises
    ------
    ValueError
        No configuration can run; the message says why not, for each distinct reason.
    """
    candidates, objections = [], []
    for config in configs_for(problem.a_dtype, arch.name):
        objection = check(config, problem, arch)
        if objection is None:
            candidates.append(estimate(config, problem, arch))
        elif objection not in objections:
            objections.append(objection)
    if not candidates:
        raise ValueError(f"no kernel for {problem} on {arch.name}: {'; '.join(objections)}")
    ranked = tuple(sorted(candidates, key=lambda candidate: candidate.cycles))
    return Selection(ranked[0].config, _reason(ranked, arch), ranked)


def estimate(config: GemmConfig, problem: GemmProblem, arch: Arch) -> Candidate:
    """Return the modelled cost of a configuration that can run."""
    itemsize = ITEMSIZE[problem.a_dtype]
    tiles_m, tiles_n = config.num_tiles(problem)
    tiles = tiles_m * tiles_n * problem.num_batches
    steps = -(-problem.k // config.tile_k)
    resident = resident_workgroups(config, arch, itemsize)

    step = _step_cycles(config, arch, problem.a_dtype)
    binding, throughput = max(step.items(), key=lambda item: item[1])
    alone = max(step["MFMA"] + _STEP_CYCLES, _LOAD_CYCLES)
    store = config.tile_m * config.tile_n * ITEMSIZE[problem.out_dtype] / _L1_BYTES_PER_CLOCK

    def batch_cycles(workgroups: int) -> float:
        """Return the cycles of workgroups that share a CU from start to end."""
        if not workgroups:
            return 0.0
        return _START_CYCLES + steps * max(workgroups * throughput, alone) + workgroups * store

    most = -(-tiles // arch.num_cus)  # tiles of the busiest CU
    full, rest = divmod(most, resident)
    compute = full * batch_cycles(resident) + batch_cycles(rest)
    l2, memory = _traffic_cycles(config, problem, arch, tiles, steps)

    together = min(most, resident)
    if together * throughput < alone:
        binding = "latency"
    cycles, bound = max((compute, binding), (l2, "L2"), (memory, "memory"))
    padded = tiles_m * config.tile_m * tiles_n * config.tile_n * steps * config.tile_k
    return Candidate(
        config=config,
        # What does not bind still costs a little, which orders candidates that memory holds equal.
        cycles=cycles + 0.05 * (compute + l2 + memory),
        bound=bound,
        tiles=tiles,
        resident=resident,
        efficiency=problem.m * problem.n * problem.k / padded,
    )


def resident_workgroups(config: GemmConfig, arch: Arch, itemsize: int) -> int:
    """Return the workgroups that fit on a CU at once, by LDS and by registers."""
    waves = config.num_threads // WAVE_SIZE
    by_lds = arch.lds_bytes // config.lds_bytes(itemsize)
    by_registers = config.waves_per_simd * arch.simds_per_cu // waves
    return max(1, min(by_lds, by_registers))


def _step_cycles(config: GemmConfig, arch: Arch, dtype: DType) -> dict[str, float]:
    """Return the cycles for which one tile_k step of a workgroup occupies each resource of a CU."""
    waves = config.waves_m * config.waves_n
    instructions = (config.tile_m // config.mma_m) * (config.tile_n // config.mma_n)
    instructions *= config.tile_k // config.mma_k
    issue = arch.mfma_cycles[dtype][config.mma_m, config.mma_n, config.mma_k]
    row = config.tile_k * ITEMSIZE[dtype]
    staged = (config.tile_m + config.tile_n) * row
    read = (config.tile_m * config.waves_n + config.tile_n * config.waves_m) * row
    return {
        "MFMA": instructions * issue / min(waves, arch.simds_per_cu),
        "LDS": (read + staged) / arch.lds_bytes_per_clock,
        "L1": staged / _L1_BYTES_PER_CLOCK,
    }


def _traffic_cycles(
    config: GemmConfig, problem: GemmProblem, arch: Arch, tiles: int, steps: int
) -> tuple[float, float]:
    """Return the cycles that L2 and memory take for the launch, all CUs together."""
    itemsize = ITEMSIZE[problem.a_dtype]
    staged = tiles * steps * (config.tile_m + config.tile_n) * config.tile_k * itemsize
    m, n, k = problem.m, problem.n, problem.k
    once = (m * k + n * k) * itemsize + m * n * ITEMSIZE[problem.out_dtype]
    memory_bytes_per_clock = arch.hbm_gbytes_per_s * 1000 / arch.clock_mhz
    l2_bytes_per_clock = arch.num_xcds * arch.l2_bytes_per_clock
    return staged / l2_bytes_per_clock, once * problem.num_batches / memory_bytes_per_clock


def _tile(config: GemmConfig) -> str:
    return f"{config.tile_m}x{config.tile_n}x{config.tile_k}"


def _reason(ranked: tuple[Candidate, ...], arch: Arch) -> str:
    best = ranked[0]
    config = best.config
    text = (
        f"tile {_tile(config)}: {best.tiles} workgroups on "
        f"{arch.num_cus} CUs, {best.efficiency:.0%} of the work useful, bound by {best.bound} "
        f"(modelled)"
    )
    others = [other for other in ranked if _tile(other.config) != _tile(config)]
    if others:
        other = others[0]
        times = other.cycles / best.cycles
        text += f"; the next, {_tile(other.config)}, costs {times:.2f} times as much"
    return text
