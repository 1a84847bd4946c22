"""The modelled time of cuBLASLt's algorithms on Hopper, by which they are ranked.

cuBLASLt's heuristics order their algorithms by a time of their own, and the first one is not always
the fastest. This model takes the tiles of the busiest SM, the memory's time, and the addition of
parts of k. A small network corrects it; it was trained on the times of all algorithms for products
of fp64, complex64 and complex128. ``python -m benchmarks.fit.cublaslt train --write`` writes its
weights to ``model.json``.

The numbers of algorithms, tiles and stages are those of ``cublasLt.h``; see `LtConfig`. An unknown
algorithm or tile is one without the corresponding features.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.cublaslt.algorithm import LtConfig
from cupygemm._backends.network import Features, Network, filled, read_network
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

PATH = Path(__file__).with_name("model.json")
"""The file of the weights."""
RATES = MappingProxyType({"f64": 128.0, "c64": 32.0, "c128": 32.0})
"""Multiply-adds of an SM per cycle, by the type of the operands that the model knows."""
_TILES = MappingProxyType(
    {
        1: (8, 8),
        2: (8, 16),
        3: (16, 8),
        4: (8, 32),
        5: (16, 16),
        6: (32, 8),
        7: (8, 64),
        8: (16, 32),
        9: (32, 16),
        10: (64, 8),
        11: (32, 32),
        12: (32, 64),
        13: (64, 32),
        14: (32, 128),
        15: (64, 64),
        16: (128, 32),
        17: (64, 128),
        18: (128, 64),
        19: (64, 256),
        20: (128, 128),
        21: (256, 64),
    }
)
"""Rows and columns of a ``cublasLtMatmulTile_t``; the rows are those of column-major matrices."""
_UNKNOWN_TILE = (32, 32)
_STAGES_OF_SLAB = 6  # ``cublasLtMatmulStages_t`` is 1 to 6 stages of 16, then of 32, 64, 128
_ALGORITHMS = (22, 33, 35, 36, 46, 54)
_LAUNCH, _SPLIT, _BYTES = 2500.0, 3000.0, 2700.0  # cycles, cycles, and bytes of the GPU per cycle
_LATER = 7  # the heuristics' order is not told apart after this number

FEATURES = (
    *("known tile", "tile_n", "tile_m", "stages", "slab"),
    *("mma 16x8x4", "mma 16x8x8", "mma 16x8x16"),
    *(f"algorithm {number}" for number in _ALGORITHMS),
    *("k is split", "split_k", "custom 1", "custom 2", "reduction", "swizzle", "order", "first"),
    *("tiles of an SM", "uneven", "residents used", "rounds", "residents", "steps"),
    *("useful m", "useful n", "memory over all", "parts over all", "cycles"),
    *("m", "n", "k", "a along k", "b along k", "a unaligned", "b unaligned", "c unaligned"),
    *("f64", "c128"),
)
"""The network's inputs. Extents, counts and ratios are logarithms."""


def knows(problem: GemmProblem) -> bool:
    """Whether the network was trained on such products: single ones, of its types."""
    return problem.a_dtype in RATES and problem.num_batches == 1


def modelled_cycles(
    problem: GemmProblem, configs: Sequence[LtConfig], waves: Sequence[float], num_sms: int
) -> NDArray[np.float64]:
    """Return the modelled cycles of algorithms, in the order of the heuristics.

    Parameters
    ----------
    problem : GemmProblem
    configs : sequence of LtConfig
    waves : sequence of float
        What the heuristics say: the tiles over those that run at once.
    num_sms : int
    """
    inputs, modelled = table(problem, configs, waves, num_sms)
    found: NDArray[np.float64] = np.exp(modelled + network()(inputs))
    return found


def table(
    problem: GemmProblem, configs: Sequence[LtConfig], waves: Sequence[float], num_sms: int
) -> tuple[Features, NDArray[np.float64]]:
    """Return the network's inputs, and the logarithms of the cycles that it corrects."""
    m, n, k, size = problem.m, problem.n, problem.k, ITEMSIZE[problem.a_dtype]
    rows = np.array([_numbers(config) for config in configs], float)
    tile_n, tile_m, known, stages, slab, split = rows.T
    tiles_m, tiles_n = np.ceil(m / tile_m), np.ceil(n / tile_n)
    units, steps = tiles_m * tiles_n * split, np.ceil(k / split)
    residents = np.round(units / np.maximum(waves, 1e-9) / num_sms)
    residents = np.where(known > 0, np.maximum(1, residents), 1)
    busiest = np.ceil(units / num_sms)
    work = busiest * tile_m * tile_n * steps / RATES[problem.a_dtype]
    memory = (m * k + k * n + m * n) * size / _BYTES
    parts = np.where(split > 1, split * (m * n * size / _BYTES), 0)
    added = np.where(split > 1, _SPLIT + 2 * parts, 0)
    cycles = _LAUNCH + np.maximum(work, memory) + added
    evenly = m * n * k / (RATES[problem.a_dtype] * num_sms)
    log2 = np.log2
    order = np.arange(len(configs))
    columns = [
        *(known, log2(tile_n) / 2 - 2.5, log2(tile_m) / 2 - 2.5),
        *(log2(stages + 1) - 2, log2(slab + 8) / 2 - 2.5),
        *([each.inner_shape == shape for each in configs] for shape in (2, 3, 4)),
        *([each.algorithm == number for each in configs] for number in _ALGORITHMS),
        *(split > 1, log2(split) / 2),
        *([each.custom == number for each in configs] for number in (1, 2)),
        [each.reduction > 0 for each in configs],
        [each.swizzle > 0 for each in configs],
        *(np.minimum(order, _LATER) / 4, order == 0),
        *(log2(busiest) / 3, np.minimum(2, log2(work / evenly))),
        *(np.minimum(1, busiest / residents), log2(np.ceil(busiest / residents)) / 2),
        *(residents / 4, log2(steps) / 3 - 3),
        *(m / (tiles_m * tile_m), n / (tiles_n * tile_n)),
        np.clip(log2(memory / cycles), -3, 2) / 2,
        np.clip(log2((parts + 1) / cycles), -4, 2) / 3,
        log2(cycles) / 3 - 5,
        *_of_product(problem, size),
    ]
    return filled(np.empty((len(configs), 0), np.float32), *columns), np.log(cycles)


def _of_product(problem: GemmProblem, size: int) -> tuple[Any, ...]:
    """Return the inputs that depend only on the product."""
    p = problem
    extents = tuple(np.log2(extent) / 3 - 3 for extent in (p.m, p.n, p.k))
    pitches = (p.k if p.a_major == "k" else p.m, p.k if p.b_major == "k" else p.n, p.n)
    aligns = (p.a_align, p.b_align, p.c_align)
    unaligned = (
        align < 16 or pitch * size % 16 > 0 for align, pitch in zip(aligns, pitches, strict=True)
    )
    along_k = (p.a_major == "k", p.b_major == "k")
    return (*extents, *along_k, *unaligned, p.a_dtype == "f64", p.a_dtype == "c128")


def _numbers(config: LtConfig) -> tuple[float, ...]:
    """Return a tile's columns and rows of C, whether it is known, its stages, and parts of k."""
    rows, columns = _TILES.get(config.tile, _UNKNOWN_TILE)
    slab, stages = 0, 0
    if 0 < config.stages <= 4 * _STAGES_OF_SLAB:
        power, stages = divmod(config.stages - 1, _STAGES_OF_SLAB)
        slab, stages = 16 << power, stages + 1
    return rows, columns, config.tile in _TILES, stages, slab, max(1, config.split_k)


@functools.cache
def network() -> Network:
    """Return the network with the weights in the package."""
    command = "python -m benchmarks.fit.cublaslt train --write"
    return read_network(PATH.read_text(encoding="utf-8"), FEATURES, command)
