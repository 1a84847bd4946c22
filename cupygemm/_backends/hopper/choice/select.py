"""Choose a Hopper configuration, and how k is divided, by their modelled cost.

All kernels that can compute a product are ranked together, in columns. The cost is the geometric
mean of the times with operands in L2 (warm) and without (cold). Both occur, and the best kernel by
this mean is rarely more than 1 % slower than the best of either. The cost model is corrected only
for kernels that it ranks near the best. For all but nine of 2,056 measured products, the fastest
kernel is one of these.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.choice.admissible import (
    Admissible,
    Divisions,
    admissible,
    divisions,
    kind_of,
)
from cupygemm._backends.hopper.choice.by_sm import can_repeat, places
from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for_product
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.config import RASTERS, HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.constants import KERNELS
from cupygemm._backends.hopper.cost.correction import (
    cost_features,
    kernel_features,
    layers_of_product,
    network,
    product_features,
)
from cupygemm._backends.hopper.cost.model import Cost, costs, pieces
from cupygemm._backends.hopper.cost.shapes import Shapes, entries, shapes_of
from cupygemm._backends.network import filled
from cupygemm._records.problem import GemmProblem

_FAR = 1.3  # times the least modelled cycles


class HopperCandidate(NamedTuple):
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
    ranking : Ranking or None
        All kernels that can run; None if the configuration was given or measured.
    """

    config: HopperConfig
    reason: str
    ranking: Ranking | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def candidates(self) -> tuple[HopperCandidate, ...]:
        """Return all kernels that can run, the cheapest first; none without a ranking."""
        if self.ranking is None:
            return ()
        return tuple(map(self.ranking.candidate, self.ranking.order.tolist()))

    @property
    def cycles(self) -> float:
        """Return the modelled cycles of the cheapest kernel."""
        assert self.ranking is not None
        return float(self.ranking.cycles[self.ranking.best])


@dataclass(frozen=True, eq=False)
class Ranking:
    """The kernels that can compute a problem, in columns, with their costs.

    Attributes
    ----------
    bases : tuple of HopperConfig
        The configurations, undivided.
    kernels : Divisions
    cycles : numpy.ndarray
    cost : Cost
        Warm, and without the correction.
    useful : float
        The multiply-adds of the problem.
    arch : HopperArch
    k : int
        The extent that is divided into steps.
    """

    bases: tuple[HopperConfig, ...]
    kernels: Divisions
    cycles: NDArray[np.float64]
    cost: Cost
    useful: float
    arch: HopperArch
    k: int

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """Return the kernels by their cycles."""
        return np.argsort(self.cycles, kind="stable")

    @property
    def best(self) -> int:
        """Return the kernel with the least cycles."""
        return int(self.cycles.argmin())

    def config(self, index: int) -> HopperConfig:
        """Return a kernel's configuration."""
        columns = self.kernels.columns
        base: HopperConfig = self.bases[self.kernels.rows[index]]
        split_k, stream_k = int(columns.split_k[index]), int(columns.stream_k[index])
        return (
            base
            if split_k == 1 and stream_k == 0
            else base.changed(split_k=split_k, stream_k=stream_k)
        )

    def candidate(self, index: int) -> HopperCandidate:
        """Return a kernel with its cost."""
        config, cost = self.config(index), entries(self.cost, index)
        steps = -(-self.k // config.tile_k) / (config.split_k * config.cluster_k)
        size = config.cluster_size
        tile_work = config.tile_m * config.tile_n * config.tile_k * steps
        done = float(cost.rounds) * self.arch.num_clusters(size) * size * tile_work
        return HopperCandidate(config, float(self.cycles[index]), cost.bound, self.useful / done)


@functools.lru_cache(maxsize=4096)
def select(
    asked: GemmProblem, arch: HopperArch, among: tuple[HopperConfig, ...] | None = None
) -> HopperSelection:
    """Return the configuration that the cost model prefers, of all or of `among`.

    Raises
    ------
    ValueError
        No configuration can run; the message says why not.
    """
    found = admissible(kind_of(asked), among, arch)
    ways = {flag: as_computed(asked, transposed_c=flag) for flag in found.orientations}
    shapes = [shapes_of(way) for way in ways.values()]
    kernels = divisions(found, shapes, arch)
    if not len(kernels.ways):
        configs = configs_for_product(asked) if among is None else among
        reasons = _objections(asked, configs, arch)
        raise ValueError(f"no kernel for this product on {arch.part}: {reasons}")
    ranking = rank(asked, shapes, found, kernels, arch)
    best = ranking.candidate(ranking.best)
    reason = _reason(best, ways[best.config.transposed_c], arch)
    return HopperSelection(best.config, reason, ranking)


def rank(
    asked: GemmProblem,
    ways: Sequence[Shapes],
    found: Admissible,
    kernels: Divisions,
    arch: HopperArch,
) -> Ranking:
    """Return kernels with their costs.

    Parameters
    ----------
    asked : GemmProblem
    ways : sequence of Shapes
        The product as the kernels compute it, see `divisions`.
    found : Admissible
    kernels : Divisions
    arch : HopperArch
    """
    columns, shapes = kernels.columns, kernels.shapes
    of = pieces(columns, shapes, arch, KERNELS, kernels.tiles, kernels.fixed)
    warm, cold = (costs(shapes, of, cold=state) for state in (False, True))
    cycles = warm.cycles
    if asked.a_dtype != "f64":  # too few of these kernels were measured
        cycles = np.sqrt(cycles * cold.cycles)
        near = np.flatnonzero(cycles <= _FAR * cycles.min())
        near_ways = kernels.ways[near]
        by_sm = can_repeat(asked) & places(ways[0], of.tiles.units[near], arch)
        by_sm = by_sm & found.ways.can_place[near_ways]
        inputs = filled(
            found.ways.features[near_ways],
            *kernel_features(columns, shapes, arch, of, by_sm=by_sm, rows=near),
            1.0,  # for the properties of the product
            *cost_features(warm, cold=False, rows=near),
        )
        of_cold = filled(inputs[:, :0], *cost_features(cold, cold=True, rows=near))
        of_products = np.array([product_features(way, arch) for way in ways], np.float32)
        cycles[near] *= np.exp(layers_of_product(network(), of_products)(inputs, of_cold))
    useful = float(ways[0].num_results) * ways[0].k
    return Ranking(found.bases, kernels, cycles, warm, useful, arch, ways[0].k)


def _objections(asked: GemmProblem, configs: tuple[HopperConfig, ...], arch: HopperArch) -> str:
    ways = {flag: as_computed(asked, transposed_c=flag) for flag in (False, True)}
    found = [check(config, ways[config.transposed_c], arch) for config in configs]
    return "; ".join(dict.fromkeys(why for why in found if why is not None))


def sums_in_one_order(config: Any, problem: GemmProblem) -> bool:
    """Whether a kernel is one of those that give identical bits.

    wgmma adds products of 16-bit operands along k in the same order for every tile (measured, H200,
    driver 580.159.04, 2026-11-23; ``tests/cuda/test_parts.py``).
    """
    return (
        isinstance(config, HopperConfig)
        and problem.a_dtype in ("bf16", "f16")
        and not (config.promote or config.mma_sync or config.stream_k)
        and config.split_k == 1
        and config.cluster_k == 1
    )


def best_in_one_order(problem: GemmProblem, arch: HopperArch) -> HopperConfig | None:
    """Return the cheapest configuration with the bits of all others that do not split k."""
    ranking = select(problem, arch).ranking
    assert ranking is not None
    configs = (ranking.config(index) for index in ranking.order.tolist())
    return next((config for config in configs if sums_in_one_order(config, problem)), None)


def in_other_orders(
    config: HopperConfig, problem: GemmProblem, arch: HopperArch
) -> tuple[HopperConfig, ...]:
    """Return the configuration with every other order of tiles; none if all tiles run together.

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
    if config.cluster_k > 1:
        text += f" with {config.cluster_k} parts of k"
    text += f": {config.num_units(problem) * config.cluster_size} units of work"
    if config.stream_k:
        text += f", steps dealt evenly to {config.stream_k} clusters"
    if config.split_k > 1:
        text += f" ({config.split_k} parts of k, added by a second kernel)"
    return (
        f"{text} on {arch.num_sms} SMs, {best.efficiency:.0%} of the work useful, "
        f"bound by {best.bound} (modelled)"
    )
