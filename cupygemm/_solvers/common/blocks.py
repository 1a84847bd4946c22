"""Block sizes: the division of a factorisation into panels, and of a panel among workgroups.

A factorisation proceeds by outer panels of `Blocks.outer` columns, and an outer panel by blocks of
`Blocks.width` columns, each of which is one launch. A workgroup holds its rows of such a block in
registers, so taller panels have narrower blocks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.device import current_device, device
from cupygemm._solvers.common.matrices import Layout, Matrices


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits within which block sizes are chosen. Objects are compared by identity.

    Attributes
    ----------
    threads : int
        The most threads of a workgroup.
    cluster_threads : int
        The threads of a workgroup in a cluster that factors a single LU panel. With few, the groups
        of 32 threads exchange candidates for the pivot without a barrier (hopper/team.cuh).
    registers : int
        The 32-bit registers of a thread that hold rows.
    width : int
        The most columns of a block.
    alone : int
        The most rows of a thread if one workgroup factors a panel.
    team : int
        The most workgroups of a team.
    outer : int
        The most columns of an outer panel; a multiple of `width`, and at most 256, the largest
        number of pivots of the kernel that swaps rows.
    part : int
        The most columns of the last part of an LU panel. When the panel is finished, only this part
        remains to be applied to the next panel's columns.
    half : int
        The most columns of half a panel of a QR factorisation.
    wide : int
        The fewest remaining columns that an LU factorisation updates once for two outer panels.
    tail : int
        The most rows and columns of the last panel of an LU factorisation, each of whose blocks
        updates all columns to its right.
    tail_before_others : int
        The same if these blocks leave some columns to a later update.
    few : int
        The most right-hand sides that the blocks of the last panel also update; fewer than `ahead`.
    grouped : int
        The fewest columns of a matrix whose LU factorisation delays updates of columns far to the
        right.
    group : int
        The most wide panels for which these updates are delayed.
    group_of_reals : int
        The same for products of real floating-point numbers, which gain little from more columns.
    substituted : int
        The most rows of a triangular matrix that one launch solves for.
    vector : int
        The same for few right-hand sides.
    ahead : int
        The fewest trailing columns whose update runs while the next panel is factored.
    blocks_of_part : int
        The most blocks of a part of an LU panel, if it is factored beside a long product. Each
        updates the columns to its right in the part.
    beside_lu_block, beside_lu : int
        The multiplications and additions in float64 that products compute while an LU panel is
        factored: for each of its blocks, and also for each of its columns.
    beside_lu_of_others : int
        The same in other types, for each column.
    after : int
        The fewest columns of an update that waits for the end of such a panel.
    early : int
        The same in float64, for each column, if products are so short that the panel's first parts
        can be applied to the next panel's columns meanwhile.
    ahead_of_qr : int
        The same for a QR factorisation, whose launches take more time.
    paired : int
        The fewest columns to the right of the next two QR panels that are updated once for two
        panels, in float32. Updates of fewer columns take less time than a panel.
    formed_beside : int
        The fewest columns of a matrix whose Q is formed while panels are factored; with fewer, the
        additional launches take longer.
    beside_qr : int
        The multiplications and additions that products compute for each column of a QR panel that
        is factored meanwhile: their total, divided by the columns.
    reflected : int
        The most columns whose reflections are applied together to form Q.
    reflected_of_float64 : int
        The same in float64.
    strip : int
        The most columns of Q that are formed at a time, while panels are factored.
    wide_float32 : int
        The fewest columns to which reflections in float32 are applied by products of tf32 terms, if
        there are at least a quarter as many reflections.
    recorded, most_recorded : int
        The fewest columns and the most elements of a matrix whose QR factorisation is recorded in a
        graph when it is repeated. Larger matrices take the device longer than the host.
    most_recorded_of_lu : int
        The same for a system whose LU factorisation is recorded.
    begun_early : int
        The fewest bytes of a matrix whose first panel is factored while the other columns are
        copied. Launching a second graph takes about as long as copying half of this.
    spared : int
        The compute units that an update leaves to the panel and to the updates inside it.
    spared_of_qr : int
        The same for a panel of a QR factorisation.
    spared_of_short_panel : int
        The same if there are as many products of float64 as `beside_qr` allows, which take longer
        than the panel.
    spared_by_halves : int
        The same for an update that multiplies 16-bit numbers, which takes less time than a panel.
    whole : int
        The most rows of a matrix that one workgroup factors alone.
    windowed : int
        The fewest rows of a matrix that is factored with pivots from windows, for refinement.
    """

    threads: int = 256
    cluster_threads: int = 128
    registers: int = 128
    width: int = 32
    alone: int = 2
    team: int = 64
    outer: int = 256
    part: int = 128
    half: int = 128
    wide: int = 4096
    tail: int = 3072
    tail_before_others: int = 2560
    few: int = 64
    grouped: int = 12288
    group: int = 4
    group_of_reals: int = 2
    substituted: int = 64
    vector: int = 64
    ahead: int = 2048
    blocks_of_part: int = 8
    beside_lu_block: int = 1_740_000_000
    beside_lu: int = 53_000_000
    beside_lu_of_others: int = 380_000_000
    after: int = 1024
    early: int = 60_000_000
    ahead_of_qr: int = 1024
    paired: int = 4096
    formed_beside: int = 4096
    beside_qr: int = 120_000_000
    reflected: int = 1024
    reflected_of_float64: int = 768
    strip: int = 1024
    wide_float32: int = 512
    recorded: int = 512
    most_recorded: int = 1 << 27
    most_recorded_of_lu: int = 1 << 29
    begun_early: int = 1 << 28
    spared: int = 24
    spared_of_qr: int = 16
    spared_of_short_panel: int = 12
    spared_by_halves: int = 48
    whole: int = 128
    windowed: int = 8192


LIMITS = Limits()


@dataclass(frozen=True)
class Blocks:
    """The shape of a panel's launch.

    Attributes
    ----------
    width : int
        The columns of a block.
    rows : int
        The rows of a thread.
    threads : int
        The threads of a workgroup.
    team : int
        The workgroups that factor a panel together.
    """

    width: int
    rows: int
    threads: int
    team: int


def words(dtype: np.dtype[Any]) -> int:
    """Return the 32-bit registers of an element."""
    return dtype.itemsize // 4


def lu_panel_blocks(a: Matrices | Layout, m: int) -> Blocks:
    """Return the shape of the launches that factor LU panels of `m` rows of some matrices.

    A single panel takes the least time in a cluster of many small workgroups, with one or two rows
    per thread. Stacks and taller panels are divided by `panel_blocks`.
    """
    max_cluster, _ = current_limits()
    if a.batches == 1:
        found = _in_clusters(m, words(a.dtype), max_cluster, LIMITS)
        if found is not None:
            return found
    return panel_blocks(m, a.dtype, max_cluster, wave_size())


@functools.lru_cache(maxsize=4096)
def _in_clusters(m: int, size: int, max_cluster: int, limits: Limits) -> Blocks | None:
    threads, width = limits.cluster_threads, _widest(size, limits)
    for rows in (1, 2):
        for team in _clusters(max_cluster)[1:]:
            fits = rows * width * size <= limits.registers
            if max_cluster > 1 and fits and m <= threads * rows * team:
                return Blocks(width, rows, threads, team)
    return None


def _widest(size: int, limits: Limits) -> int:
    return min(limits.width, 64 // size if size > 2 else 32)


def _clusters(max_cluster: int) -> list[int]:
    return [1 << log for log in range(max_cluster.bit_length())]


def panel_blocks(m: int, dtype: np.dtype[Any], max_cluster: int, wave_size: int) -> Blocks:
    """Return the shape of the launches that factor panels of `m` rows.

    Parameters
    ----------
    m : int
    dtype : numpy.dtype
        The element type.
    max_cluster : int
        The most workgroups of a thread-block cluster, which is preferred to a larger team.
    wave_size : int
        The fewest threads of a workgroup. Fewer would take as long, and need another kernel.

    Raises
    ------
    ValueError
        If the panel has more rows than a team can hold.
    """
    return _panel_blocks(m, words(dtype), max_cluster, wave_size, LIMITS)


@functools.lru_cache(maxsize=4096)
def _panel_blocks(m: int, size: int, max_cluster: int, wave_size: int, limits: Limits) -> Blocks:
    threads = min(limits.threads, max(wave_size, power_of_two(m)))
    widest = _widest(size, limits)
    # A small cluster suffices if its threads hold one row each.
    teams = [team for team in (*_clusters(max_cluster), 16, limits.team) if team <= limits.team]
    for team in sorted(set(teams)):
        width = widest
        while width >= (1 if team == teams[-1] else 4):
            rows = power_of_two(-(-m // (threads * team)))
            limit = limits.alone if team == 1 and len(teams) > 1 else rows
            limit = 1 if 1 < team < max_cluster else limit
            if rows <= limit and rows * width * size <= limits.registers:
                return Blocks(width, rows, threads, team)
            width //= 2
    most = limits.registers // size * threads * limits.team
    raise ValueError(
        f"a matrix of {m} rows is too tall for the panel kernels, which take {most}; factor "
        "blocks of its rows first"
    )


def power_of_two(x: int) -> int:
    """Return the smallest power of two that is at least `x`."""
    return 1 << max(x - 1, 0).bit_length()


def outer_width(k: int, width: int) -> int:
    """Return the columns of an outer panel.

    Parameters
    ----------
    k : int
        The number of columns to factor.
    width : int
        The columns of a block.
    """
    return min(LIMITS.outer, max(width, power_of_two(k) // 8, 64))


def outer_panels(k: int, outer: int) -> list[range]:
    """Return the columns of each outer panel."""
    return [range(first, min(first + outer, k)) for first in range(0, k, outer)]


def is_ahead(a: Matrices, trailing: int, least: int) -> bool:
    """Tell whether a panel is factored while the columns from `trailing` on are updated.

    There must be at least `least` of them. The panels of a stack of matrices fill a device alone.
    """
    return a.batches == 1 and a.n - trailing >= least


def current_limits() -> tuple[int, int]:
    """Return the largest cluster and the number of compute units of the current device."""
    return _device_limits(current_device())


def wave_size() -> int:
    """Return the threads that execute an instruction together on the current device."""
    return device(current_device()).kernels.wave_size


def has_tile_kernels(dtype: np.dtype[Any]) -> bool:
    """Tell whether the current device has the kernels for tiles of a type (tiles.py)."""
    return dtype.char in device(current_device()).kernels.solves_tiles


@functools.cache
def _device_limits(index: int) -> tuple[int, int]:
    from cupy.cuda import Device

    units = Device(index).attributes["MultiProcessorCount"]
    return device(index).kernels.max_cluster, int(units)
