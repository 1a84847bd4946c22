"""The configurations that the selector ranks for a product, as columns.

`check` decides which kernels can run. Most of its conditions depend only on types and memory
orders, so its answers are cached for each such kind of product. Conditions that also depend on the
extents are evaluated here, for all configurations together; a test compares both.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.choice.by_sm import can_place
from cupygemm._backends.hopper.choice.check import check, ends_at_units
from cupygemm._backends.hopper.choice.configurations import configs_for_product, transposed_widths
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.tile_rows import WIDTH_STEP
from cupygemm._backends.hopper.config import HopperArch, HopperConfig, step_group
from cupygemm._backends.hopper.cost.correction import config_features
from cupygemm._backends.hopper.cost.fixed import FixedCosts, fixed_costs
from cupygemm._backends.hopper.cost.model import Tiles, clusters_on, tiles_of
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Shapes, either, entries, shapes_of
from cupygemm._backends.network import Features
from cupygemm._records.problem import Epilogue, GemmProblem

_PART_STEPS = 4  # the fewest steps of a part of k
_WORDS = 1 << 31


class Limits(NamedTuple):
    """The limits of a product's extents within which each configuration is worthwhile.

    Attributes
    ----------
    rows, columns : numpy.ndarray
        A product must have more tiles along each axis: with fewer, half of the blocks of each
        cluster would have no work.
    narrower : numpy.ndarray
        The number of columns of a cluster whose tiles are narrower by one step. A product must have
        fewer clusters across with the wider tiles. -1 if there are no such tiles.
    least_units, most_units : numpy.ndarray
        The fewest and the most units of work.
    least_steps : numpy.ndarray
        The fewest steps along k.
    most_groups : numpy.ndarray
        The most groups of steps of a tile that is split.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    narrower: NDArray[np.int64]
    least_units: NDArray[np.int64]
    most_units: NDArray[np.int64]
    least_steps: NDArray[np.int64]
    most_groups: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Admissible:
    """The configurations that can compute products of one kind.

    Attributes
    ----------
    columns : ConfigColumns
    group_k : numpy.ndarray
        The elements of k that a kernel computes together.
    whole, can_cut, can_split : numpy.ndarray of bool
        Whether a kernel can compute whole tiles, split tiles along k (stream-K), and sum parts of
        k.
    limits : Limits
    fixed : FixedCosts
        Of all configurations with whole tiles, then of all with stream-K, then of all with parts of
        k.
    features : numpy.ndarray
        The rows of `config_features`, in the same order.
    can_place : numpy.ndarray of bool
        Whether a kernel can assign tiles by SM, in the same order.
    """

    columns: ConfigColumns
    group_k: NDArray[np.int64]
    whole: NDArray[np.bool_]
    can_cut: NDArray[np.bool_]
    can_split: NDArray[np.bool_]
    limits: Limits
    fixed: FixedCosts
    features: Features
    can_place: NDArray[np.bool_]


def kind_of(problem: GemmProblem) -> GemmProblem:
    """Return a product with the types and orders of a problem, of typical extents.

    `check` accepts these extents. TMA can store this product's C if and only if it can store the
    problem's.
    """
    return replace(
        problem,
        m=4096,
        n=4096,
        k=1 << 16,
        batch=(),
        a_align=16,
        b_align=16,
        c_align=16 if ends_at_units(problem) else 1,
        a_span=0,
        b_span=0,
        c_span=0,
        epilogue=None if problem.epilogue is None else Epilogue(),
    )


@functools.lru_cache(maxsize=128)
def admissible(
    kind: GemmProblem, among: tuple[HopperConfig, ...] | None, arch: HopperArch
) -> Admissible:
    """Return which of all or of the given configurations can compute a kind of product."""
    configs = configs_for_product(kind) if among is None else among
    ways = {flag: as_computed(kind, transposed_c=flag) for flag in (False, True)}
    found, of_widths = [], frozenset(transposed_widths() if among is None else ())
    for config in configs:
        problem = ways[config.transposed_c]
        divided = (
            config,
            # One cluster more than there are tiles: none divides them evenly.
            config.divided(stream_k=config.num_units(problem) + 1),
            config.divided(split_k=2),
        )
        accepted = [check(each, problem, arch) is None for each in divided]
        if any(accepted):
            group_k = config.tile_k * step_group(config, problem)
            found.append((config, group_k, *accepted, config in of_widths))
    bases, groups, *flags = zip(*found, strict=True) if found else ((),) * 6
    columns, count = ConfigColumns(bases), len(bases)
    whole, can_cut, can_split, has_narrower = (np.array(each, bool) for each in flags)
    one, zero = np.ones(count, np.int64), np.zeros(count, np.int64)
    split_k, stream_k = np.concatenate([one, one, one + 1]), np.concatenate([zero, one, zero])
    of_ways = columns.taken(np.tile(np.arange(count), 3), split_k, stream_k)
    shapes = either(shapes_of(ways[False]), shapes_of(ways[True]), of_ways.transposed_c)
    return Admissible(
        columns,
        np.array(groups, np.int64),
        whole,
        can_cut,
        can_split & np.logical_not(columns.ping_pong),
        limits=_limits(columns, has_narrower, arch),
        fixed=fixed_costs(of_ways, shapes),
        features=config_features(of_ways, shapes),
        can_place=can_place(of_ways),
    )


def _limits(c: ConfigColumns, has_narrower: NDArray[np.bool_], arch: HopperArch) -> Limits:
    clusters = clusters_on(arch, c.cluster_size)
    step = WIDTH_STEP * c.cluster_k
    narrower = np.maximum(step, c.tile_n - step) * c.cluster_n
    fits = (_WORDS - 1) // c.cluster_size
    divides_k = c.cluster_k > 1  # among the blocks of clusters that run together
    return Limits(
        rows=c.cluster_m // 2,
        columns=c.cluster_n // 2,
        narrower=np.where(has_narrower, narrower, -1),
        least_units=np.where(c.ping_pong, clusters + 1, 0),
        most_units=np.where(divides_k, np.minimum(fits, clusters), fits),
        least_steps=np.where(divides_k, c.cluster_k, 0),
        most_groups=(_WORDS - 1) // clusters,
    )


class Divisions(NamedTuple):
    """The kernels that can compute a product, each with its division of k.

    Attributes
    ----------
    columns : ConfigColumns
    tiles : Tiles
    rows : numpy.ndarray
        The configuration of each kernel, as a row of `Admissible.columns`.
    ways : numpy.ndarray
        The same with the division of k, as a row of `Admissible.fixed`.
    """

    columns: ConfigColumns
    tiles: Tiles
    rows: NDArray[np.int64]
    ways: NDArray[np.int64]


def divisions(found: Admissible, shapes: Shapes, arch: HopperArch) -> Divisions:
    """Return the kernels that can compute a product: with whole tiles, with stream-K, in parts.

    The parts fill the SMs once or twice; there are fewer if they would be shorter than four steps.
    Configurations are omitted if half of the blocks of each cluster would have no work, if
    consumers that take turns at tiles would have only one tile, or if the same number of narrower
    tiles suffices.

    Parameters
    ----------
    found : Admissible
    shapes : Shapes
        With a number, or one entry for each of the configurations.
    arch : HopperArch
    """
    c, of, tiles = found.columns, found.limits, tiles_of(found.columns, shapes, arch)
    units, clusters, steps = tiles.units, tiles.clusters, tiles.steps
    busy = (tiles.rows > of.rows) & (tiles.columns > of.columns)
    busy &= (units >= of.least_units) & (units <= of.most_units)
    busy &= -(-shapes.n // of.narrower) != tiles.across
    busy &= steps >= of.least_steps
    groups = -(-shapes.k // found.group_k)
    cut = busy & found.can_cut & (units % clusters > 0)
    cut &= (groups <= of.most_groups) & (units * groups >= clusters)
    most_parts = steps // _PART_STEPS
    once = np.minimum(clusters // units, most_parts)
    twice = np.minimum(2 * clusters // units, most_parts)
    split = busy & found.can_split
    whole_rows, cut_rows = np.flatnonzero(busy & found.whole), np.flatnonzero(cut)
    once_rows = np.flatnonzero(split & (once >= 2))
    twice_rows = np.flatnonzero(split & (twice >= 2) & (twice > once))
    rows = np.concatenate([whole_rows, cut_rows, once_rows, twice_rows])
    split_k, stream_k, ways = np.ones_like(rows), np.zeros_like(rows), rows.copy()
    first, count = len(whole_rows), len(c.rows)
    stream_k[first : first + len(cut_rows)] = clusters[cut_rows]
    ways[first : first + len(cut_rows)] += count
    first += len(cut_rows)
    split_k[first:] = np.concatenate([once[once_rows], twice[twice_rows]])
    ways[first:] += 2 * count
    divided = entries(tiles, rows)
    divided = divided._replace(units=divided.units * split_k)
    return Divisions(c.taken(rows, split_k, stream_k), divided, rows, ways)
