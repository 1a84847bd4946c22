"""Choose a Hopper configuration, and the parts of k, by a cost model of an SM's tiles.

The model counts, for the SM with the most tiles, the cycles of the tensor cores or of the path from
L2, whichever binds, with the fill and the epilogue of each tile; bounds the whole by memory
bandwidth; and adds what summing parts of k costs. It serves to rank configurations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cupygemm._hopper.config import (
    HopperArch,
    HopperConfig,
    a_in_registers,
    check,
    configs_for,
)
from cupygemm._hopper.source import parts_dtype
from cupygemm._problem import ITEMSIZE, GemmProblem

# Cycles, from measurements on an H200 (driver 580, 2026-11-21).
LAUNCH = 3000  # until the first stage is full, and from the last store to the kernel's end
_STEP = 80  # of barriers, for each step of a consumer that has the SM to itself
_MMA = 1.16  # tensor cores are busy 90 % of the time, at a clock that power limits
_MMA_F64 = (1.5, 1.0, 1.0)  # of fp64, by consumers: one alone cannot hide its loads
_NARROW = 1.08  # instructions of fewer than 256 columns read more of A from shared memory
_ALONE = 1.02  # without multicast, more of the power goes into traffic
_CLUSTER = 150  # two blocks begin a tile when the slower one does
_BATCH = 1.15  # the tiles of a small matrix fetch it from memory all at once
_ADD_PARTS = 6000  # a second kernel
_PART_STEPS = 4  # of a part of k, at least
_L2_BYTES_PER_CLOCK = 5000  # of the GPU, for sequential parts
OVERLAP = 0.15  # of what does not bind, which delays what does


@dataclass(frozen=True)
class HopperCandidate:
    """A configuration that can run, with its modelled cost.

    Attributes
    ----------
    config : HopperConfig
    cycles : float
    bound : str
        ``"tensor cores"``, ``"L2"`` or ``"memory"``.
    efficiency : float
        Useful share of the multiply-adds that the busiest SM sets the time for.
    """

    config: HopperConfig
    cycles: float
    bound: str
    efficiency: float


@dataclass(frozen=True)
class HopperSelection:
    """The configuration for a problem, and why.

    Attributes
    ----------
    config : HopperConfig
    reason : str
    candidates : tuple of HopperCandidate
        All that can run, the cheapest first.
    """

    config: HopperConfig
    reason: str
    candidates: tuple[HopperCandidate, ...] = ()


@functools.lru_cache(maxsize=4096)
def select(
    problem: GemmProblem, arch: HopperArch, among: tuple[HopperConfig, ...] | None = None
) -> HopperSelection:
    """Return the configuration that the cost model prefers, of all or `among` some.

    Raises
    ------
    ValueError
        No configuration can run; the message says why not.
    """
    candidates, objections = [], []
    for base in configs_for(problem.a_dtype) if among is None else among:
        for config in _with_splits(base, problem, arch):
            objection = check(config, problem, arch)
            if objection is None:
                candidates.append(estimate(config, problem, arch))
            elif objection not in objections:
                objections.append(objection)
    if not candidates:
        raise ValueError(f"no kernel for {problem} on {arch.part}: {'; '.join(objections)}")
    ranked = tuple(sorted(candidates, key=lambda candidate: candidate.cycles))
    return HopperSelection(ranked[0].config, _reason(ranked[0], problem, arch), ranked)


def estimate(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> HopperCandidate:
    """Return the modelled cost of a configuration that can run."""
    clusters = arch.num_sms // config.cluster_size
    units = config.num_units(problem)
    rounds = -(-units // clusters)
    steps = -(-problem.k // config.tile_k) / config.split_k
    tile = tile_cost(config, problem, arch, alone=rounds == 1)
    compute = LAUNCH + rounds * (steps * tile.step + tile.epilogue)
    memory = LAUNCH + memory_cycles(problem, arch)
    batches = problem.num_batches
    cycles, bound = max((compute, tile.bound), (memory, "memory"))
    cycles += OVERLAP * min(compute, memory)
    if config.split_k > 1:
        part_size = ITEMSIZE[parts_dtype(problem)]
        parts = problem.m * problem.n * part_size * batches * config.split_k
        cycles += _ADD_PARTS + parts / _L2_BYTES_PER_CLOCK
    tile_work = config.tile_m * config.tile_n * config.tile_k * steps
    done = rounds * clusters * config.cluster_size * tile_work
    return HopperCandidate(
        config, cycles, bound, problem.m * problem.n * problem.k * batches / done
    )


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


def tile_cost(
    config: HopperConfig, problem: GemmProblem, arch: HopperArch, *, alone: bool
) -> TileCost:
    """Return what a tile costs; `alone`, if it is the SM's only one."""
    itemsize = ITEMSIZE[problem.a_dtype]
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    if config.mma_sync:
        mma = _MMA_F64[config.num_consumers - 1] * multiply_adds / 128
    else:
        mma = _MMA * multiply_adds * itemsize / (64 * 2 * 32)
        if config.tile_n < 256:
            mma *= _NARROW
        if config.cluster_size == 1 and not alone and not a_in_registers(problem):
            mma *= _ALONE
    if config.num_consumers == 1:
        mma += _STEP
    rows = config.tile_m / config.cluster_n + config.tile_n / config.cluster_m
    loaded = rows * config.tile_k * itemsize
    l2 = loaded / arch.l2_bytes_per_clock
    if problem.batch:
        l2 *= _BATCH
    stored_size = ITEMSIZE[parts_dtype(problem) if config.split_k > 1 else problem.out_dtype]
    epilogue = 600 + config.tile_m * config.tile_n * stored_size / 60
    if config.cluster_size > 1:
        epilogue += _CLUSTER
    return TileCost(max(mma, l2), epilogue, "tensor cores" if mma >= l2 else "L2")


def memory_cycles(problem: GemmProblem, arch: HopperArch) -> float:
    """Return how long the memory takes to read the operands and write the result once."""
    itemsize, out_size = ITEMSIZE[problem.a_dtype], ITEMSIZE[problem.out_dtype]
    once = (problem.m + problem.n) * problem.k * itemsize + problem.m * problem.n * out_size
    return once * problem.num_batches / arch.hbm_bytes_per_clock


def _with_splits(
    base: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> Iterator[HopperConfig]:
    """Yield the configuration whole, and with k in as many parts as fill the SMs once or twice.

    In fewer where parts would be shorter than four steps. None where the second block of each
    cluster would have nothing to do.
    """
    if (base.cluster_m > 1 and problem.m <= base.tile_m) or (
        base.cluster_n > 1 and problem.n <= base.tile_n
    ):
        return
    yield base
    units, clusters = base.num_units(problem), arch.num_sms // base.cluster_size
    steps = -(-problem.k // base.tile_k)
    filling = (clusters // units, 2 * clusters // units)
    for parts in sorted({min(each, steps // _PART_STEPS) for each in filling}):
        if parts >= 2:
            yield replace(base, split_k=parts)


def _reason(best: HopperCandidate, problem: GemmProblem, arch: HopperArch) -> str:
    config = best.config
    text = f"tile {config.tile_m}x{config.tile_n}x{config.tile_k}"
    if config.cluster_size > 1:
        text += f" in clusters of {config.cluster_m}x{config.cluster_n}"
    text += f": {config.num_units(problem) * config.cluster_size} units of work"
    if config.split_k > 1:
        text += f" ({config.split_k} parts of k, added by a second kernel)"
    return (
        f"{text} on {arch.num_sms} SMs, {best.efficiency:.0%} of the work useful, "
        f"bound by {best.bound} (modelled)"
    )
