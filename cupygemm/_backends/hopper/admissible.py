"""Which configurations the selector ranks for a product, as columns.

`cupygemm._backends.hopper.check` says which kernels can run. Most of what it asks depends on types
and memory orders only, so its answers are kept for each such kind of product. What depends on the
extents as well is decided here, for all configurations at once; a test holds both to each other.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.check import check
from cupygemm._backends.hopper.config import HopperArch, HopperConfig, step_group
from cupygemm._backends.hopper.cost import clusters_on, num_units
from cupygemm._backends.hopper.cost_shapes import ConfigColumns, Shapes
from cupygemm._backends.hopper.orientation import as_computed
from cupygemm._backends.hopper.tile_rows import WIDTH_STEP
from cupygemm._backends.hopper.tile_shapes import configs_for_product, transposed_widths
from cupygemm._records.problem import Epilogue, GemmProblem

_PART_STEPS = 4  # the fewest steps of a part of k
_WORDS = 1 << 31


@dataclass(frozen=True, eq=False)
class Admissible:
    """The configurations that can compute products of one kind.

    Attributes
    ----------
    columns : ConfigColumns
    group_k : numpy.ndarray
        The elements of k that a kernel computes together.
    whole, can_cut, can_split : numpy.ndarray of bool
        Whether a kernel can compute whole tiles, cut tiles along k, and sum parts of k.
    has_narrower : numpy.ndarray of bool
        Whether there are tiles that are narrower by one step, and the same otherwise.
    """

    columns: ConfigColumns
    group_k: NDArray[np.int64]
    whole: NDArray[np.bool_]
    can_cut: NDArray[np.bool_]
    can_split: NDArray[np.bool_]
    has_narrower: NDArray[np.bool_]


def kind_of(problem: GemmProblem) -> GemmProblem:
    """Return a product with the types and orders of a problem, of typical extents.

    `check` has no objection to these extents.
    """
    return replace(
        problem,
        m=4096,
        n=4096,
        k=1 << 16,
        batch=(),
        a_align=16,
        b_align=16,
        c_align=16,
        a_span=0,
        b_span=0,
        c_span=0,
        epilogue=None if problem.epilogue is None else Epilogue(),
    )


@functools.lru_cache(maxsize=128)
def admissible(
    kind: GemmProblem, among: tuple[HopperConfig, ...] | None, arch: HopperArch
) -> Admissible:
    """Return the configurations that can compute a kind of product, of all or of those given."""
    configs = configs_for_product(kind) if among is None else among
    ways = {flag: as_computed(kind, transposed_c=flag) for flag in (False, True)}
    found, of_widths = [], frozenset(transposed_widths() if among is None else ())
    for config in configs:
        problem = ways[config.transposed_c]
        divided = (
            config,
            # One cluster more than there are tiles: none divides them evenly.
            replace(config, stream_k=config.num_units(problem) + 1),
            replace(config, split_k=2),
        )
        accepted = [check(each, problem, arch) is None for each in divided]
        if any(accepted):
            group_k = config.tile_k * step_group(config, problem)
            found.append((config, group_k, *accepted, config in of_widths))
    bases, groups, *flags = zip(*found, strict=True) if found else ((),) * 6
    columns = (np.array(each, bool) for each in flags)
    return Admissible(ConfigColumns(bases), np.array(groups, np.int64), *columns)


def divisions(
    found: Admissible, shapes: Shapes, arch: HopperArch
) -> tuple[ConfigColumns, NDArray[np.int64]]:
    """Return the kernels that can compute a product: with whole tiles, with stream-K, in parts.

    The parts fill the SMs once or twice; there are fewer if they would be shorter than four steps.
    Configurations are left out if half of the blocks of each cluster would have no work, if
    consumers that take turns at tiles would have only one tile, or if as many narrower tiles do.

    Parameters
    ----------
    found : Admissible
    shapes : Shapes
        With a number, or one entry for each of the configurations.
    arch : HopperArch

    Returns
    -------
    columns : ConfigColumns
    rows : numpy.ndarray
        The configuration of each kernel.
    """
    c = found.columns
    busy = _has_work(shapes.m, c.tile_m, c.cluster_m) & _has_work(shapes.n, c.tile_n, c.cluster_n)
    units, clusters = num_units(c, shapes), clusters_on(arch, c.cluster_size)
    busy &= (units * c.cluster_size < _WORDS) & (~c.ping_pong | (units > clusters))
    across = -(-shapes.n // (c.tile_n * c.cluster_n))
    narrower = np.maximum(WIDTH_STEP, c.tile_n - WIDTH_STEP) * c.cluster_n
    busy &= ~(found.has_narrower & (-(-shapes.n // narrower) == across))
    steps = -(-shapes.k // c.tile_k)
    busy &= (c.cluster_k == 1) | ((units <= clusters) & (steps >= c.cluster_k))
    groups = -(-shapes.k // found.group_k)
    cut = busy & found.can_cut & (units % clusters > 0)
    cut &= (2 * clusters * groups < 2 * _WORDS) & (units * groups >= clusters)
    once = np.minimum(clusters // units, steps // _PART_STEPS)
    twice = np.minimum(2 * clusters // units, steps // _PART_STEPS)
    split = busy & found.can_split & ~c.ping_pong
    whole_rows, cut_rows = np.flatnonzero(busy & found.whole), np.flatnonzero(cut)
    once_rows = np.flatnonzero(split & (once >= 2))
    twice_rows = np.flatnonzero(split & (twice >= 2) & (twice > once))
    rows = np.concatenate([whole_rows, cut_rows, once_rows, twice_rows])
    split_k, stream_k = np.ones_like(rows), np.zeros_like(rows)
    first = len(whole_rows)
    stream_k[first : first + len(cut_rows)] = clusters[cut_rows]
    first += len(cut_rows)
    split_k[first:] = np.concatenate([once[once_rows], twice[twice_rows]])
    return c.taken(rows, split_k, stream_k), rows


def _has_work(extent: int, tile: NDArray[np.int64], blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray((blocks == 1) | (-(-extent // tile) > blocks // 2))
