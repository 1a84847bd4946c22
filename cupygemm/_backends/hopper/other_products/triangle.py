"""Symmetric products on Hopper: the tiles of the lower triangle are computed, then mirrored.

This is done if the model says that it takes less time than computing both triangles. k is not
split, and the grid has no other tiles, so with many tiles it takes little more than half of the
multiplications. The result is exactly symmetric.
"""

from __future__ import annotations

from dataclasses import replace

from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import HopperSelection
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.fixed import launch_cycles
from cupygemm._backends.hopper.cost.memory import memory_cycles
from cupygemm._backends.hopper.cost.model import kernel_cost, tile_costs, total
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout

_MIRROR = 3000  # cycles of a second kernel, without the time for the bytes that it moves


def choose_triangle(layout: Layout, arch: HopperArch) -> HopperChoice | None:
    """Return the kernels for a product with its own transpose; None if both triangles cost less."""
    try:
        whole = choose(layout, arch)
    except ValueError:  # no kernel of this library supports it
        return None
    problem = as_computed(layout.problem, transposed_c=False)
    if problem.m != problem.n or problem.batch:
        return None
    moved = problem.m * problem.n * ITEMSIZE[problem.out_dtype]
    stored = problem
    if replace(whole, lower_triangle=True).finishes:
        if problem.a_dtype in ("i8", "f64"):  # whose sums are not fp32
            return None
        moved += problem.m * problem.n * ITEMSIZE["f32"] // 2
        stored = replace(problem, out_dtype="f32")
    later = _MIRROR + moved / arch.hbm_bytes_per_clock
    ranked = [
        (estimate(config, stored, arch), config)
        for config in configs_for(problem.a_dtype)
        if check(config, problem, arch) is None
    ]
    cycles, config = min(ranked, key=lambda each: each[0])
    if cycles + later >= kernel_cost(whole.config, whole.problem, arch).cycles:
        return None
    units = num_units(config, problem)
    reason = f"one triangle: {units} of {config.num_units(problem)} tiles, then mirrored (modelled)"
    chosen = choose(layout, arch, config)  # the whole product may be computed as its transpose
    return replace(
        chosen, by_sm=False, lower_triangle=True, selection=HopperSelection(config, reason)
    )


def num_units(config: HopperConfig, problem: GemmProblem) -> int:
    """Return the number of clusters' tiles with an element on or below the diagonal."""
    rows, columns = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    tiles_m, tiles_n = config.num_tiles(problem)
    return sum(min(tiles_n, -(-(row + 1) * rows // columns)) for row in range(tiles_m))


def estimate(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> float:
    """Return the modelled cycles of the lower triangle."""
    clusters, units = arch.num_clusters(config.cluster_size), num_units(config, problem)
    shapes = shapes_of(problem)
    tile = tile_costs(config, shapes, arch, units)
    steps = -(-problem.k // config.tile_k)
    compute = -(-units // clusters) * (steps * tile.step + tile.epilogue)
    return float(total(launch_cycles(config), compute, memory_cycles(shapes)))
