"""Products of fp64: when cuBLAS is faster than this library's kernels.

Both run on the same tensor cores and are bound by them, or by the GPU's power. This library is
faster if the operands' rows do not begin at multiples of 16 bytes, which costs cuBLAS a third of
its speed, and for batches of matrices that are not small. cuBLAS has smaller tiles, which leave
fewer SMs idle in a small product, and is faster for the largest products. This library always
computes products with an epilogue, which costs little.

cuBLAS's time is that of the busiest SM, for the best of its tiles and parts of k. It is fitted to
the fastest of cuBLASLt's algorithms, since `cublaslt.select` finds one that is hardly slower.
"""

from __future__ import annotations

import math

import numpy as np

from cupygemm._backends.hopper.choice.select import HopperSelection
from cupygemm._backends.hopper.config import TMA_BYTES, HopperArch
from cupygemm._backends.hopper.cost.constants import FP64
from cupygemm._backends.hopper.cost.memory import memory_cycles
from cupygemm._backends.hopper.cost.parameters import Fp64Constants
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

POWER = 0.12
"""Share by which our kernels exceed their modelled time in long products, unlike cuBLAS's.

Measured on H200s, driver 580.159.04, on 2026-11-23 and 2026-11-29.
"""
_SHORT, _LONG = 5e9, 1.4e11  # arithmetic operations
# Fitted to the fastest algorithm of 289 products (measured, H200, driver 580.159.04, 2026-11-29):
_START = 1250.0  # cycles of a launch besides `Fp64Constants.launch`
_ROUND, _STORE = 1415.0, 0.178  # cycles of a tile besides its products, and of each of its results
_SPLIT, _PART_BYTES = 6900.0, 2400.0  # cycles of adding parts of k, and their bytes in a cycle
_ALONE = 0.71  # of the rate of an SM's tensor cores, with a single tile
_MEMORY = 1.4  # times the modelled time of the memory
_LEAST_PART = 128  # of k
_TILES = np.array(
    [
        (m, n, split)
        for m, n in ((64, 128), (128, 64), (64, 64), (64, 32), (32, 64), (32, 32))
        for split in (1, 2, 3, 4, 6, 8, 12, 16, 32)
    ],
    float,
).T
"""cuBLAS's tiles, rows and columns, and the parts of k."""


def require(problem: GemmProblem, selection: HopperSelection, arch: HopperArch) -> None:
    """Raise ValueError if cuBLAS should compute a product of fp64.

    Parameters
    ----------
    problem : GemmProblem
        A product of fp64 operands.
    selection : HopperSelection
        The selection of its kernel; without a ranking if `tune` has measured it.
    arch : HopperArch
    """
    if problem.epilogue is not None or selection.ranking is None:
        return
    ours = selection.cycles * (1 + POWER * _long(problem)) + copy_cycles(problem)
    cublas = cublas_cycles(problem, arch)
    if cublas < ours:
        raise ValueError(
            f"cuBLAS multiplies fp64 in {cublas:.0f} cycles, and tiles of "
            f"{selection.config.tile_m}x{selection.config.tile_n} take {ours:.0f} (modelled)"
        )


def cublas_cycles(problem: GemmProblem, arch: HopperArch, constants: Fp64Constants = FP64) -> float:
    """Return cuBLAS's modelled cycles for a product of fp64."""
    rate = constants.fma_per_clock_of_batches if problem.batch else constants.fma_per_clock
    if min(problem.a_align, problem.b_align, problem.c_align) < TMA_BYTES:
        rate /= constants.unaligned
    tiles_m, tiles_n, splits = _TILES
    tiles = np.ceil(problem.m / tiles_m) * np.ceil(problem.n / tiles_n) * problem.num_batches
    rounds = np.ceil(tiles * splits / arch.num_sms)
    steps, area = np.ceil(problem.k / splits), tiles_m * tiles_n
    alone = np.where(rounds == 1, _ALONE, 1.0)
    cycles = rounds * (area * steps / (rate * alone) + _ROUND + area * _STORE)
    part_bytes = 2.0 * ITEMSIZE["f64"] * problem.m * problem.n * problem.num_batches
    cycles += np.where(splits > 1, _SPLIT + splits * part_bytes / _PART_BYTES, 0.0)
    busiest = float(cycles[steps >= np.minimum(problem.k, _LEAST_PART)].min())
    memory = _MEMORY * float(memory_cycles(shapes_of(problem)))
    return constants.launch + _START + max(busiest, memory)


def _long(problem: GemmProblem) -> float:
    """Return how much the power limit slows a product, from 0 to 1."""
    return min(1.0, max(0.0, math.log2(problem.flops / _SHORT) / math.log2(_LONG / _SHORT)))


def copy_cycles(problem: GemmProblem, constants: Fp64Constants = FP64) -> float:
    """Return the modelled cycles of the copies of operands that TMA cannot read."""
    rows = problem.m if problem.a_align < TMA_BYTES else 0
    rows += problem.n if problem.b_align < TMA_BYTES else 0
    return 16 * rows * problem.k * problem.num_batches / constants.copy_bytes_per_clock
