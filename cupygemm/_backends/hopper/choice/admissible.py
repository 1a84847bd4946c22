"""The configurations that the selector ranks for a product, as columns.

`check` decides which kernels can run. Most of its conditions depend only on types and memory
orders, so its answers are cached for each such kind of product. Conditions that also depend on the
extents are evaluated here, for all configurations together; a test compares both.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.choice.by_sm import can_place
from cupygemm._backends.hopper.choice.check import check_divisions, ends_at_units
from cupygemm._backends.hopper.choice.configurations import (
    configs_for_product,
    has_short_widths,
    has_transposed_widths,
    short_widths,
    transposed_widths,
)
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.tile_rows import width_step
from cupygemm._backends.hopper.config import HopperArch, HopperConfig, step_group
from cupygemm._backends.hopper.cost.correction import config_features
from cupygemm._backends.hopper.cost.fixed import FixedCosts, fixed_costs
from cupygemm._backends.hopper.cost.model import Tiles, clusters_on, tiles_of
from cupygemm._backends.hopper.cost.shapes import (
    ConfigColumns,
    Shapes,
    entries,
    pair_of,
    shapes_of,
    without_constants,
)
from cupygemm._backends.network import Features
from cupygemm._records.dtypes import DType
from cupygemm._records.problem import Epilogue, GemmProblem

Column = NDArray[np.float64]
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
        fewer clusters across with the wider tiles. Infinite if there are no such tiles.
    most_across : numpy.ndarray
        The most clusters across.
    least_units, most_units : numpy.ndarray
        The fewest and the most units of work.
    least_steps : numpy.ndarray
        The fewest steps along k.
    most_groups : numpy.ndarray
        The most groups of steps of a tile that is split.
    """

    rows: Column
    columns: Column
    narrower: Column
    most_across: Column
    least_units: Column
    most_units: Column
    least_steps: Column
    most_groups: Column


class Ways(NamedTuple):
    """All configurations with each way to divide k, and the properties that extents do not change.

    First come all configurations with whole tiles, then all with stream-K, then all whose parts of
    k fill the SMs once, then all whose parts fill them twice.

    Attributes
    ----------
    rows : numpy.ndarray
        The configuration, as a row of `Admissible.columns`.
    exist : numpy.ndarray of bool
        Whether there is a kernel; (ways, configurations), unlike all others.
    stream_k : numpy.ndarray
    can_place : numpy.ndarray of bool
        Whether a kernel can assign tiles by SM.
    features : numpy.ndarray
        The rows of `config_features`.
    fixed : FixedCosts
    """

    rows: NDArray[np.int64]
    exist: NDArray[np.bool_]
    stream_k: Column
    can_place: NDArray[np.bool_]
    features: Features
    fixed: FixedCosts


class Admissible(NamedTuple):
    """The configurations that can compute products of one kind.

    Attributes
    ----------
    bases : tuple of HopperConfig
        Undivided.
    columns : ConfigColumns
    group_k : numpy.ndarray
        The elements of k that a kernel computes together.
    orientations : tuple of bool
        Whether kernels compute the transpose of C: one value for all, or both.
    turned : numpy.ndarray
        The index of each kernel's value.
    ways : Ways
    limits : Limits
    """

    bases: tuple[HopperConfig, ...]
    columns: ConfigColumns
    group_k: Column
    orientations: tuple[bool, ...]
    turned: NDArray[np.int64]
    ways: Ways
    limits: Limits


def kind_of(problem: GemmProblem) -> GemmProblem:
    """Return a product with the types and orders of a problem, of typical extents.

    `check` accepts these extents. TMA can store this product's C if and only if it can store the
    problem's. It is a batch if and only if the problem may have tiles of `short_widths`.
    """
    p = problem
    types, majors = (p.a_dtype, p.b_dtype, p.out_dtype), (p.a_major, p.b_major)
    return _kind(types, majors, p.epilogue is None, ends_at_units(p), has_short_widths(p))


@functools.cache
def _kind(
    types: tuple[DType, DType, DType],
    majors: tuple[Literal["k", "m"], Literal["k", "n"]],
    is_plain: bool,
    stores: bool,
    has_short: bool,
) -> GemmProblem:
    return GemmProblem(
        m=4096,
        n=4096,
        k=1 << 16,
        batch=(2,) if has_short else (),
        a_dtype=types[0],
        b_dtype=types[1],
        out_dtype=types[2],
        a_major=majors[0],
        b_major=majors[1],
        c_align=16 if stores else 1,
        epilogue=None if is_plain else Epilogue(),
    )


@functools.lru_cache(maxsize=128)
def admissible(
    kind: GemmProblem, among: tuple[HopperConfig, ...] | None, arch: HopperArch
) -> Admissible:
    """Return which of all or of the given configurations can compute a kind of product."""
    configs = configs_for_product(kind) if among is None else among
    ways = {flag: as_computed(kind, transposed_c=flag) for flag in (False, True)}
    found, short, has_narrower = [], frozenset[int](), frozenset[int]()
    if among is None:
        short, has_narrower = _short(kind), _with_narrower(kind)
    for config in configs:
        problem = ways[config.transposed_c]
        divided = (
            config,
            # One cluster more than there are tiles: none divides them evenly.
            config.changed(split_k=1, stream_k=config.num_units(problem) + 1),
            config.changed(split_k=2, stream_k=0),
        )
        accepted = check_divisions(divided, problem)
        if any(accepted):
            group_k = config.tile_k * step_group(config, problem)
            found.append(
                (config, group_k, *accepted, id(config) in has_narrower, id(config) in short)
            )
    bases, groups, *flags = zip(*found, strict=True) if found else ((),) * 7
    columns = ConfigColumns.of(bases)
    whole, can_cut, can_split, narrows, for_short = (np.array(each, bool) for each in flags)
    can_split &= np.logical_not(columns.ping_pong)
    rows, one = np.tile(np.arange(len(bases)), 4), np.ones(len(bases))
    clusters = clusters_on(arch, columns.cluster_size)
    stream_k = np.concatenate([0 * one, clusters, 0 * one, 0 * one])
    split_k = np.concatenate([one, one, 2 * one, 2 * one])
    of_ways = entries(columns, rows)._replace(split_k=split_k, stream_k=stream_k)
    orientations = tuple(sorted(set(columns.transposed_c.tolist()))) or (False,)
    turned = (columns.transposed_c > orientations[0]).astype(np.intp)
    shapes = entries(pair_of(*(shapes_of(ways[flag]) for flag in orientations)), turned[rows])
    of_each_way = Ways(
        rows,
        np.stack([whole, can_cut, can_split, can_split]),
        stream_k,
        can_place(of_ways),
        config_features(of_ways, shapes),
        without_constants(fixed_costs(of_ways, shapes)),
    )
    limits = _limits(columns, clusters, narrows, for_short)
    return Admissible(
        bases,
        without_constants(columns),
        np.array(groups, np.float64),
        orientations,
        turned,
        of_each_way,
        limits,
    )


def _short(kind: GemmProblem) -> frozenset[int]:
    """Return the ids of the configurations for matrices that are no wider than a tile."""
    return frozenset(map(id, short_widths() if has_short_widths(kind) else ()))


def _with_narrower(kind: GemmProblem) -> frozenset[int]:
    """Return the ids of the configurations with tiles that are narrower by one step beside them."""
    found = transposed_widths() if has_transposed_widths(kind) else ()
    if has_short_widths(kind):
        found += tuple(c for c in short_widths() if c.tile_n > width_step(c))
    return frozenset(map(id, found))


def _limits(
    c: ConfigColumns, clusters: Column, has_narrower: NDArray[np.bool_], short: NDArray[np.bool_]
) -> Limits:
    step = width_step(c)
    narrower = np.maximum(step, c.tile_n - step) * c.cluster_n
    fits = (_WORDS - 1) // c.cluster_size
    divides_k = c.cluster_k > 1  # among the blocks of clusters that run together
    return Limits(
        rows=c.cluster_m // 2,
        columns=c.cluster_n // 2,
        narrower=np.where(has_narrower, narrower, np.inf),
        most_across=np.where(short, 1.0, np.inf),
        least_units=np.where(c.ping_pong, clusters + 1, 0.0),
        most_units=np.where(divides_k, np.minimum(fits, clusters), fits),
        least_steps=np.where(divides_k, c.cluster_k, 0.0),
        most_groups=(_WORDS - 1) // clusters,
    )


class Divisions(NamedTuple):
    """The kernels that can compute a product, each with its division of k.

    Attributes
    ----------
    columns : ConfigColumns
    shapes : Shapes
    tiles : Tiles
    fixed : FixedCosts
    rows : numpy.ndarray
        The index of each configuration in `Admissible.bases`.
    ways : numpy.ndarray
        The index of its division of k in `Admissible.ways`.
    """

    columns: ConfigColumns
    shapes: Shapes
    tiles: Tiles
    fixed: FixedCosts
    rows: NDArray[np.int64]
    ways: NDArray[np.int64]


def divisions(found: Admissible, ways: Sequence[Shapes], arch: HopperArch) -> Divisions:
    """Return the kernels that can compute a product: with whole tiles, with stream-K, in parts.

    The parts fill the SMs once or twice; there are fewer if they would be shorter than four steps.
    Configurations are omitted if half of the blocks of each cluster would have no work, if
    consumers that take turns at tiles would have only one tile, if the same number of narrower
    tiles suffices, or if those for matrices with a short side do not cover it.

    Parameters
    ----------
    found : Admissible
    ways : sequence of Shapes
        The product as the kernels compute it, in each of the orientations.
    arch : HopperArch
    """
    c, of, pair = found.columns, found.limits, pair_of(*ways)
    m, n = entries((pair.m, pair.n), found.turned)
    tiles = tiles_of(c, pair._replace(m=m, n=n), arch)
    units, clusters, steps = tiles.units, tiles.clusters, tiles.steps
    busy = (tiles.rows > of.rows) & (tiles.columns > of.columns)
    busy &= (units >= of.least_units) & (units <= of.most_units)
    busy &= (np.ceil(n / of.narrower) != tiles.across) & (tiles.across <= of.most_across)
    busy &= steps >= of.least_steps
    groups, rounds, times = np.ceil(pair.k / found.group_k), units / clusters, clusters / units
    most_parts = np.floor(steps / _PART_STEPS)
    parts = np.ones(found.ways.exist.shape)
    once, twice = parts[2:]
    np.minimum(np.floor(times), most_parts, out=once)
    np.minimum(np.floor(2 * times), most_parts, out=twice)
    run = found.ways.exist & busy
    _, cut, split_once, split_twice = run
    cut &= (np.floor(rounds) != rounds) & (groups <= of.most_groups) & (groups >= times)
    split_once &= once >= 2
    split_twice &= (twice >= 2) & (twice > once)
    chosen = np.flatnonzero(run)
    rows, split_k = found.ways.rows[chosen], parts.ravel()[chosen]
    columns, divided = entries(c, rows), entries(tiles, rows)
    return Divisions(
        columns._replace(split_k=split_k, stream_k=found.ways.stream_k[chosen]),
        entries(pair, found.turned[rows]),
        divided._replace(units=divided.units * split_k),
        entries(found.ways.fixed, chosen),
        rows,
        chosen,
    )
