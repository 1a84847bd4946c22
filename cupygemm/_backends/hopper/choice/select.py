"""Choose a Hopper configuration, and how k is divided, by their modelled cost.

All kernels that can compute a product are ranked together, in columns. The cost is the geometric
mean of the times with operands in L2 (warm) and without (cold). Both occur, and the best kernel by
this mean is rarely more than 1 % slower than the best of either. The cost model is corrected only
for kernels that it ranks near the best. For all but nine of 2,056 measured products, the fastest
kernel is one of these.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

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
    features,
    network,
    product_features,
)
from cupygemm._backends.hopper.cost.model import Cost, costs, pieces
from cupygemm._backends.hopper.cost.shapes import (
    ConfigColumns,
    Shapes,
    either,
    entries,
    shapes_of,
)
from cupygemm._backends.network import Features
from cupygemm._records.problem import GemmProblem

_FAR = 1.3  # times the least modelled cycles
_STATES = np.array([[False], [True]])  # of the operands: warm, cold


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
    configs : ConfigColumns
    cycles : numpy.ndarray
    cost : Cost
        Warm, and without the correction.
    useful : float
        The multiply-adds of the problem.
    arch : HopperArch
    k : numpy.ndarray or int
    """

    configs: ConfigColumns
    cycles: NDArray[np.float64]
    cost: Cost
    useful: float
    arch: HopperArch
    k: Any

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """Return the kernels by their cycles."""
        return np.argsort(self.cycles, kind="stable")

    @property
    def best(self) -> int:
        """Return the kernel with the least cycles."""
        return int(np.argmin(self.cycles))

    def config(self, index: int) -> HopperConfig:
        """Return a kernel's configuration."""
        columns = self.configs
        base: HopperConfig = columns.bases[columns.rows[index]]
        split_k, stream_k = int(columns.split_k[index]), int(columns.stream_k[index])
        return (
            base
            if split_k == 1 and stream_k == 0
            else base.divided(split_k=split_k, stream_k=stream_k)
        )

    def candidate(self, index: int) -> HopperCandidate:
        """Return a kernel with its cost."""
        config, (cost, k) = self.config(index), entries((self.cost, self.k), index)
        steps = -(-int(k) // config.tile_k) / (config.split_k * config.cluster_k)
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
    ways = {flag: as_computed(asked, transposed_c=flag) for flag in (False, True)}
    found = admissible(kind_of(asked), among, arch)
    shapes = either(shapes_of(ways[False]), shapes_of(ways[True]), found.columns.transposed_c)
    kernels = divisions(found, shapes, arch)
    if not len(kernels.rows):
        configs = configs_for_product(asked) if among is None else among
        reasons = _objections(ways, configs, arch)
        raise ValueError(f"no kernel for this product on {arch.part}: {reasons}")
    problem = ways[bool(kernels.columns.transposed_c[0])]
    of_products = [product_features(shapes_of(way), arch) for way in ways.values()]
    ranking = rank(found, kernels, shapes, np.array(of_products, np.float32), arch, problem)
    best = ranking.candidate(ranking.best)
    reason = _reason(best, ways[best.config.transposed_c], arch)
    return HopperSelection(best.config, reason, ranking)


def rank(
    found: Admissible,
    kernels: Divisions,
    shapes: Shapes,
    of_products: Features,
    arch: HopperArch,
    problem: GemmProblem,
) -> Ranking:
    """Return kernels with their costs; `problem` is the problem of any of them.

    Parameters
    ----------
    found : Admissible
    kernels : Divisions
    shapes : Shapes
        With a number, or one entry for each of the admissible configurations.
    of_products : numpy.ndarray
        Rows of `product_features`: of the product, and of its transpose.
    arch : HopperArch
    problem : GemmProblem
    """
    columns, shapes = kernels.columns, entries(shapes, kernels.rows)
    of = pieces(columns, shapes, arch, KERNELS, kernels.tiles, entries(found.fixed, kernels.ways))
    both = costs(shapes, of, cold=_STATES)
    warm = both._replace(cycles=both.cycles[0], of_memory=both.of_memory[0], memory=both.memory[0])
    cycles = warm.cycles
    if problem.a_dtype != "f64":  # too few of these kernels were measured
        cycles = np.sqrt(both.cycles[0] * both.cycles[1])
        near = np.flatnonzero(cycles <= _FAR * cycles.min())
        ways, of_near = kernels.ways[near], entries((shapes, of.tiles.units), near)
        of_warm, of_cold = cost_features(both, cold=_STATES, rows=near)
        inputs = features(
            columns,
            shapes,
            arch,
            of,
            of_warm,
            by_sm=can_repeat(problem) & found.can_place[ways] & places(*of_near, arch),
            of_configs=found.features[ways],
            of_products=of_products[columns.at(near).transposed_c.astype(np.intp)],
            rows=near,
        )
        cycles[near] *= np.exp(network()(inputs, of_cold))
    useful = float(problem.m) * problem.n * problem.k * problem.num_batches
    return Ranking(columns, cycles, warm, useful, arch, shapes.k)


def _objections(
    ways: dict[bool, GemmProblem], configs: tuple[HopperConfig, ...], arch: HopperArch
) -> str:
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
