"""The modelled time of groups of rows with scales along k, by which their kernels are ranked.

The tiles of all groups are dealt to the SMs in rounds. The model adds up the steps of k and the
epilogues of the SM with the most tiles, and then the time of the memory. The host knows only the
expected number of rows of a group, and a few rows more may need another tile. Therefore, the number
of rounds is a mean over likely numbers of tiles.
"""

from __future__ import annotations

import math
import statistics

from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._records.problem import GemmProblem

# Cycles, fitted to 24 such products by up to 15 kernels each (measured, H200, driver 580.159.04,
# 2026-11-23): the model's choices take 1.009 times as long as the fastest (geometric mean). Three
# consumers gained 2 % more than two from a change of the loop over k (2026-11-29).
# By the number of consumers: per step and 32 elements of a tile, and per step.
_MMA = {1: 1.22, 2: 0.667, 3: 0.577}
_STEP = {1: 33.0, 2: 96.0, 3: 125.5}
_EPILOGUE, _ELEMENT = 679.0, 0.202
_IN_PARTS = 158.0  # if the buffers of the epilogue do not hold a tile
_BYTES = 1259.0  # from memory per cycle
_SHARES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)  # likely rows, in units of the expected ones


def row_group_cycles(
    config: HopperConfig, problem: GemmProblem, groups: int, expected: int, arch: HopperArch
) -> float:
    """Return the modelled cycles of a kernel.

    Parameters
    ----------
    config : HopperConfig
    problem : GemmProblem
        Only its extents are used; no group has more than m rows.
    groups : int
    expected : int
        The expected rows of a group.
    arch : HopperArch
    """
    rows_of_cluster = config.tile_m * config.cluster_m
    tiles = [math.ceil(min(expected * share, problem.m) / rows_of_cluster) for share in _SHARES]
    mean, spread = statistics.fmean(tiles), statistics.pstdev(tiles) / math.sqrt(groups)
    columns = math.ceil(problem.n / (config.tile_n * config.cluster_n))
    clusters = arch.num_clusters(config.cluster_size)
    likely = (mean - spread, mean, min(mean + spread, max(tiles)))
    rounds = statistics.fmean(math.ceil(groups * x * columns / clusters - 0.001) for x in likely)
    area = config.tile_m * config.tile_n
    step = _MMA[config.num_consumers] * area / 32 + _STEP[config.num_consumers]
    tile = math.ceil(problem.k / config.tile_k) * step + _EPILOGUE + _ELEMENT * area
    if 2 * area > config.staging_bytes:
        tile += _IN_PARTS
    moved = groups * (problem.n * problem.k + expected * (problem.k + 2 * problem.n))
    return rounds * tile + moved / _BYTES
