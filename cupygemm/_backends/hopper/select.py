"""Choose a Hopper configuration, and how k is divided, by their modelled cost."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cupygemm._backends.hopper.check import check
from cupygemm._backends.hopper.config import RASTERS, HopperArch, HopperConfig
from cupygemm._backends.hopper.cost import kernel_cycles
from cupygemm._backends.hopper.orientation import as_computed
from cupygemm._backends.hopper.tile_shapes import configs_for_product
from cupygemm._records.problem import GemmProblem

_PART_STEPS = 4  # the fewest steps of a part of k


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
        The useful share of the multiply-adds that all SMs could do while the busiest one works.
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
        All that can run, the cheapest first; none if the configuration was given or measured.
    """

    config: HopperConfig
    reason: str
    candidates: tuple[HopperCandidate, ...] = ()


@functools.lru_cache(maxsize=4096)
def select(
    asked: GemmProblem, arch: HopperArch, among: tuple[HopperConfig, ...] | None = None
) -> HopperSelection:
    """Return the configuration that the cost model prefers, of all or of those in `among`.

    Raises
    ------
    ValueError
        No configuration can run; the message says why not.
    """
    ways = {flag: as_computed(asked, transposed_c=flag) for flag in (False, True)}
    candidates, objections = [], []
    for base in configs_for_product(asked) if among is None else among:
        problem = ways[base.transposed_c]
        for config in _with_splits(base, problem, arch):
            objection = check(config, problem, arch)
            if objection is None:
                candidates.append(estimate(config, problem, arch))
            elif objection not in objections:
                objections.append(objection)
    if not candidates:
        raise ValueError(f"no kernel for {asked} on {arch.part}: {'; '.join(objections)}")
    ranked = tuple(sorted(candidates, key=lambda candidate: candidate.cycles))
    best = ranked[0]
    return HopperSelection(best.config, _reason(best, ways[best.config.transposed_c], arch), ranked)


def estimate(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> HopperCandidate:
    """Return the modelled cost of a configuration that can run."""
    cycles, bound, rounds = kernel_cycles(config, problem, arch)
    steps = -(-problem.k // config.tile_k) / config.split_k
    tile_work = config.tile_m * config.tile_n * config.tile_k * steps
    done = rounds * arch.num_clusters(config.cluster_size) * config.cluster_size * tile_work
    useful = problem.m * problem.n * problem.k * problem.num_batches
    return HopperCandidate(config, cycles, bound, useful / done)


def _with_splits(
    base: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> Iterator[HopperConfig]:
    """Yield the configuration with whole tiles, with stream-K, and with k in parts.

    The parts fill the SMs once or twice; there are fewer if they would be shorter than four steps.
    Nothing is yielded if half of the blocks of each cluster would have no work.
    """
    for extent, tile, blocks in (
        (problem.m, base.tile_m, base.cluster_m),
        (problem.n, base.tile_n, base.cluster_n),
    ):
        if blocks > 1 and -(-extent // tile) <= blocks // 2:
            return
    yield base
    units, clusters = base.num_units(problem), arch.num_clusters(base.cluster_size)
    steps = -(-problem.k // base.tile_k)
    filling = (clusters // units, 2 * clusters // units)
    if units % clusters:
        yield _cut(base, stream_k=clusters)
    for parts in sorted({min(each, steps // _PART_STEPS) for each in filling}):
        if parts >= 2:
            yield _cut(base, split_k=parts)


@functools.lru_cache(maxsize=4096)
def _cut(base: HopperConfig, *, split_k: int = 1, stream_k: int = 0) -> HopperConfig:
    """Return a configuration that divides k; many problems share it, so it is cached."""
    return replace(base, split_k=split_k, stream_k=stream_k)


def in_other_orders(
    config: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> tuple[HopperConfig, ...]:
    """Return the configuration with every other order of tiles; none if all tiles run at once.

    The cost model assigns them the same cost, because repeated reads mostly hit L2.
    """
    if config.num_units(problem) <= arch.num_clusters(config.cluster_size):
        return ()
    return tuple(replace(config, raster=each) for each in RASTERS if each != config.raster)


def _reason(best: HopperCandidate, problem: GemmProblem, arch: HopperArch) -> str:
    config = best.config
    text = f"tile {config.tile_m}x{config.tile_n}x{config.tile_k}"
    if config.transposed_c:
        text += " of the transpose"
    if config.cluster_size > 1:
        text += f" in clusters of {config.cluster_m}x{config.cluster_n}"
    text += f": {config.num_units(problem) * config.cluster_size} units of work"
    if config.stream_k:
        text += f", steps dealt evenly to {config.stream_k} clusters"
    if config.split_k > 1:
        text += f" ({config.split_k} parts of k, added by a second kernel)"
    return (
        f"{text} on {arch.num_sms} SMs, {best.efficiency:.0%} of the work useful, "
        f"bound by {best.bound} (modelled)"
    )
