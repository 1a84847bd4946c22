"""Choose a configuration for batches of small matrices, by its modelled time.

A launch takes as long as the memory or the multipliers need, whichever is slower, plus the time
until the first tile of each team arrives. `constants` holds the measured constants.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from cupygemm._backends.config_table import ConfigTable
from cupygemm._backends.hopper.choice import tf32x3
from cupygemm._backends.hopper.choice.fp64 import cublas_cycles
from cupygemm._backends.hopper.choice.select import select
from cupygemm._backends.hopper.config import TMA_BYTES, HopperArch
from cupygemm._backends.hopper.cost.memory import memory_cycles
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._backends.hopper.small.constants import SMALL, SMALL_OF_BATCHES, SmallConstants
from cupygemm._backends.hopper.small_config import (
    SMALL_PRODUCTS,
    SmallConfig,
    blocks_on,
    check_small,
)
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

_HALVES = ConfigTable(
    "small matrices of 16-bit floats",
    SmallConfig,
    """
    tile_m  tile_n  tile_k  warps_m  warps_n  num_teams  num_stages
       128     128      64        2        2          1           2
        96      96      96        3        2          1           1
        64      64      64        2        2          1           2
        48      48      48        3        1          2           1
        32      32      32        2        2          2           1
        16      16      16        1        1          8           1
    """,
)
_F32 = ConfigTable(
    "small matrices of fp32",
    SmallConfig,
    """
    tile_m  tile_n  tile_k  warps_m  warps_n  num_teams  num_stages
       128     128      32        2        2          1           2
        96      96      48        2        3          1           2
        64      64      32        2        2          1           2
        48      48      48        1        3          1           1
        32      32      32        1        2          1           1
        16      16      16        1        1          4           1
    """,
)
_F64 = ConfigTable(
    "small matrices of fp64",
    SmallConfig,
    """
    tile_m  tile_n  tile_k  warps_m  warps_n  num_teams  num_stages
        96      96      16        3        2          1           3
        64      64      32        2        2          1           2
        48      48      48        3        1          1           1
        32      32      32        2        2          2           1
        16      16      16        1        1          8           1
    """,
)
SMALL_CONFIGS: Mapping[DType, ConfigTable[SmallConfig]] = MappingProxyType(
    {"bf16": _HALVES, "f16": _HALVES, "f32": _F32, "f64": _F64}
)
"""The configurations of each type; among equal costs, the first is chosen."""


class SmallCandidate(NamedTuple):
    """A configuration that can run, with its modelled cost."""

    config: SmallConfig
    cycles: float


@functools.lru_cache(maxsize=4096)
def small_candidates(problem: GemmProblem, arch: HopperArch) -> tuple[SmallCandidate, ...]:
    """Return the configurations that can run, the cheapest first."""
    found = [
        SmallCandidate(config, small_cycles(config, problem, arch))
        for config in SMALL_CONFIGS.get(problem.a_dtype, ())
        if check_small(config, problem) is None
    ]
    return tuple(sorted(found, key=lambda candidate: candidate.cycles))


def _constants(problem: GemmProblem) -> SmallConstants:
    return SMALL_OF_BATCHES if problem.num_batches > 1 else SMALL


def small_cycles(config: SmallConfig, problem: GemmProblem, arch: HopperArch) -> float:
    """Return the modelled cycles of the kernel."""
    constants = _constants(problem)
    units, slabs = config.num_units(problem), -(-problem.k // config.tile_k)
    size, warps = ITEMSIZE[problem.a_dtype], config.warps_m * config.warps_n
    rounds = -(-units // (blocks_on(config, problem, arch) * config.num_teams))
    later = constants.next_slab[size] * (slabs - 1) / max(1, config.num_stages - 1)
    waits = constants.slab + later
    latency = constants.latency + (rounds - 1) * constants.next_round + rounds * waits
    multiply_adds = config.tile_m * config.tile_n * config.tile_k
    of_slab = multiply_adds / constants.fma_per_clock[problem.a_dtype]
    latency += slabs * of_slab
    work = slabs * units / arch.num_sms
    loads = 0.0
    for extent, alignment in ((config.tile_m, problem.a_align), (config.tile_n, problem.b_align)):
        vector = min(16, max(size, alignment))
        loads += work * extent * config.tile_k * size * constants.of_vector[vector]
    late = constants.further_slabs / max(1, config.num_stages - 1)
    moved = loads * (1 + late * (slabs - 1) / slabs) / constants.load_bytes
    out_size = ITEMSIZE[problem.out_dtype]
    stored = units / arch.num_sms * config.tile_m * config.tile_n * out_size
    moved += stored / constants.store_bytes[out_size]
    issue = work * warps * constants.issue
    memory = constants.memory * float(memory_cycles(shapes_of(problem)))
    return constants.launch + max(memory, work * of_slab, moved, issue, latency)


def other_cycles(problem: GemmProblem, arch: HopperArch) -> float:
    """Return the modelled cycles of the fastest other kernel, including cuBLAS's.

    Their models are fitted to larger products, and too low for batches of small products.
    """
    constants = _constants(problem)
    if problem.a_dtype == "f32":
        cycles = tf32x3.cublas_cycles(problem, arch)
        if problem.batch:
            shortest = min(problem.m, problem.n, problem.k)
            cycles *= 1 + constants.batches_of_f32 * min(1.0, 128 / shortest)
    else:
        cycles = select(problem, arch).cycles + _unaligned_cycles(problem, constants)
        if problem.a_dtype == "f64" and problem.epilogue is None:
            cycles = min(cycles, cublas_cycles(problem, arch))
    if problem.num_batches == 1:
        return cycles
    memory = constants.memory_of_others * float(memory_cycles(shapes_of(problem)))
    tiles = problem.num_batches * -(-problem.m // 128) * -(-problem.n // 128)
    least = max(memory, tiles * constants.tile_of_others / arch.num_sms)
    return max(cycles, constants.launch + least)


def _unaligned_cycles(problem: GemmProblem, constants: SmallConstants) -> float:
    """Return the modelled cycles of what other kernels do if TMA cannot read or write rows."""
    size, out_size = ITEMSIZE[problem.a_dtype], ITEMSIZE[problem.out_dtype]
    rows = problem.m if problem.a_align < TMA_BYTES else 0
    rows += problem.n if problem.b_align < TMA_BYTES else 0
    cycles = 0.0
    if rows:
        copied = 2.0 * size * rows * problem.k * problem.num_batches
        cycles += constants.copy_launch + copied / constants.copy_bytes
    if problem.c_align < TMA_BYTES or problem.n * out_size % TMA_BYTES:
        of_row = constants.direct_row + float(out_size) * problem.n
        cycles += of_row * problem.m * problem.num_batches / constants.direct_bytes
    return cycles


class SmallSelection(NamedTuple):
    """The configuration for a problem, and why."""

    config: SmallConfig
    reason: str


@functools.lru_cache(maxsize=4096)
def select_small(problem: GemmProblem, arch: HopperArch) -> SmallSelection | None:
    """Return the configuration for a problem if the model prefers it to all other kernels."""
    if problem.a_dtype not in SMALL_PRODUCTS:
        return None
    candidates = small_candidates(replace(problem, a_span=0, b_span=0, c_span=0), arch)
    if not candidates:
        return None
    best = candidates[0]
    other = other_cycles(problem, arch)
    if best.cycles >= other:
        return None
    config = best.config
    return SmallSelection(
        config,
        f"tile {config.tile_m}x{config.tile_n}x{config.tile_k} by {config.warps_m}x{config.warps_n}"
        f" warps: {config.num_units(problem)} units of work take {best.cycles:.0f} cycles, and the "
        f"fastest other kernel {other:.0f} (modelled)",
    )
