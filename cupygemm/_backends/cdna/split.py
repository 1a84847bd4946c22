"""Tiles that several workgroups share: their number, the workspace of their sums, and its size.

This module corresponds to ``kernels/cdna/scheduler.hpp`` and ``parts.hpp``. With ``split_k``, the k
of each tile is split into equal parts. With ``stream_k``, a persistent grid computes as many whole
tiles as fill it evenly, and equal ranges of the k steps of the remaining tiles. Sums over a part of
k go to slots of a workspace, each as large as a tile in the type of the sums, and
``cupygemm_add_parts`` adds them. If parts are added to C atomically, there is no workspace; that
kernel then runs first and stores zeros.
"""

from __future__ import annotations

from cupygemm._backends.cdna.config import GemmConfig, batch_grid
from cupygemm._records.dtypes import COMPLEX_NAMES, ITEMSIZE
from cupygemm._records.problem import GemmProblem

ADD_THREADS = 256
"""The work-items of a workgroup of ``cupygemm_add_parts``."""
ROUND_PARTS = 16
"""The parts of a tile that such a workgroup loads together: four for each of its four waves."""
_LANES = 64


def check(config: GemmConfig, problem: GemmProblem) -> str | None:
    """Return why the tiles cannot be shared as configured, or None if they can."""
    steps = config.num_steps(problem)
    if config.split_k < 1 or config.stream_k < 0:
        return f"split_k = {config.split_k}, stream_k = {config.stream_k}: at least 1 and 0"
    if config.split_k > 1 and config.stream_k:
        return f"split_k = {config.split_k} and stream_k = {config.stream_k}: tiles are cut one way"
    if config.split_k > steps:
        return f"split_k = {config.split_k} exceeds the {steps} steps of k"
    if config.atomic and config.split_k == 1:
        return "atomic addition is for the parts of split_k, and split_k = 1"
    if config.atomic and problem.a_dtype in COMPLEX_NAMES:
        return "no instruction adds complex numbers atomically"
    if config.stream_k and not stream_tiles(config, problem):
        return f"tiles fill the {config.stream_k} workgroups of stream_k evenly: none are cut"
    if stream_tiles(config, problem) * steps >= 1 << 31:
        return f"{steps} steps of k for {stream_tiles(config, problem)} tiles: at most 2**31 in all"
    if num_slots(config, problem) >= 1 << 31 or _total_tiles(config, problem) >= 1 << 31:
        return f"{num_slots(config, problem)} parts of tiles: at most 2**31"
    return None


def sum_bytes(problem: GemmProblem) -> int:
    """Return the bytes of a sum before it is rounded."""
    return {"f64": 8, "c64": 8, "c128": 16}.get(problem.a_dtype, 4)


def adds_to_result(config: GemmConfig, problem: GemmProblem) -> bool:
    """Tell whether parts are added to C itself, which needs no workspace.

    Atomic instructions add sums, so C must have the type of the sums, without an epilogue.
    """
    sums = {"f64": "f64", "i8": "i32"}.get(problem.a_dtype, "f32")
    return config.atomic and problem.epilogue is None and problem.out_dtype == sums


def stream_tiles(config: GemmConfig, problem: GemmProblem) -> int:
    """Return the number of shared tiles of a persistent grid: the rest after whole rounds."""
    return _total_tiles(config, problem) % config.stream_k if config.stream_k else 0


def num_slots(config: GemmConfig, problem: GemmProblem) -> int:
    """Return the slots of the workspace; 0 if no tile is shared."""
    if config.stream_k:
        return 2 * config.stream_k  # the end of one tile, and the beginning of another
    if config.split_k == 1 or adds_to_result(config, problem):
        return 0
    return _total_tiles(config, problem) * (1 if config.atomic else config.split_k)


def slots_written(config: GemmConfig, problem: GemmProblem) -> int:
    """Return the number of sums over parts of k that are written; each atomic addition counts."""
    if config.stream_k:  # each range's end splits a tile, unless a tile ends there
        shared = stream_tiles(config, problem)
        return shared + config.stream_k - 1 if shared else 0
    return _total_tiles(config, problem) * config.split_k if config.split_k > 1 else 0


def workspace_bytes(config: GemmConfig, problem: GemmProblem) -> int:
    """Return the size of the workspace."""
    return num_slots(config, problem) * config.tile_m * config.tile_n * sum_bytes(problem)


def add_grid(config: GemmConfig, problem: GemmProblem) -> tuple[int, int, int]:
    """Return the workgroups of ``cupygemm_add_parts``: one for each store of 64 lanes."""
    at_once = 8 if ITEMSIZE[problem.out_dtype] < 4 and problem.a_dtype != "f64" else 4
    of_tile = config.tile_m * config.tile_n // (_LANES * at_once)
    if config.stream_k:
        return stream_tiles(config, problem) * of_tile, 1, 1
    tiles_m, tiles_n = config.num_tiles(problem)
    return tiles_m * tiles_n * of_tile, *batch_grid(problem)


def _total_tiles(config: GemmConfig, problem: GemmProblem) -> int:
    tiles_m, tiles_n = config.num_tiles(problem)
    return tiles_m * tiles_n * problem.num_batches
