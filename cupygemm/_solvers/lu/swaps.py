"""Row swaps: all swaps of a block or of a panel in one pass over the rows that they displace."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call, Launch
from cupygemm._request.arrays import Array
from cupygemm._solvers.common.blocks import words
from cupygemm._solvers.common.kernels import SWAP_MOVES, SWAP_ROWS, load
from cupygemm._solvers.common.matrices import Layout, Matrices, copied

_THREADS = 256
_FEW_PIVOTS, _MOST_PIVOTS = 32, 256
MOVES_BYTES = 8 * 2 * _FEW_PIVOTS
"""The bytes of the moves of a block of one matrix, which has at most 32 pivots."""
_NO_GAP = range(1 << 30, 1 << 30)
_MOVES_THREADS = 64


@functools.lru_cache(maxsize=256)
def _kernel(index: int, char: str, few: bool, solve: bool, planned: bool) -> tuple[Launch, int]:
    """Return the kernel that swaps rows, and the columns of a workgroup, which are in registers.

    With many pivots, these are 128 bytes of each row: then an SM has room for two workgroups, of
    which one loads while the other stores.
    """
    dtype = np.dtype(char)
    across = min((128 if few else 32) // words(dtype), 32)
    launch = load(
        SWAP_ROWS,
        dtype,
        _THREADS,
        max_pivots=_FEW_PIVOTS if few else _MOST_PIVOTS,
        across=across,
        solve=solve,
        planned=planned,
    )
    return launch, across


def swap(
    a: Matrices,
    pivots: Array,
    first: int,
    count: int,
    *,
    shared: bool = False,
    inverse: bool = False,
) -> None:
    """Apply the swaps of `count` pivots, from row `first` on, to all columns.

    Parameters
    ----------
    a : Matrices
    pivots : cupy.ndarray
        (batches, k).
    first, count : int
        The rows that are swapped.
    shared : bool
        Whether all matrices have the same pivots, (1, k).
    inverse : bool
        Whether the last swap comes first, which undoes the swaps.
    """
    few = count <= _FEW_PIVOTS
    _call(
        a,
        few=few,
        columns=range(a.n),
        rows=range(first, first + count),
        pivots=(pivots.data.ptr + 4 * first, 0 if shared else pivots.shape[1]),
        inverse=inverse,
    ).enqueue()


def _call(
    a: Matrices | Layout,
    *,
    few: bool,
    columns: range,
    rows: range,
    pivots: tuple[int, int] = (0, 0),
    moves: int = 0,
    gap: range = _NO_GAP,
    inverse: bool = False,
    solve: bool = False,
) -> Call:
    launch, across = _kernel(current_device(), a.dtype.char, few, solve, moves != 0)
    count = len(columns) - len(gap)
    arguments = (
        a.address(0, 0),
        a.pitch,
        a.stride,
        *pivots,
        moves,
        rows.start,
        len(rows),
        columns.start,
        count,
        gap.start,
        len(gap),
        int(inverse),
        0,
    )
    return Call(launch, (-(-count // across), a.batches), arguments)


@dataclass(frozen=True, eq=False)
class Moves:
    """The rows that the swaps of a block or a panel displace, as the device found them.

    Attributes
    ----------
    memory : cupy.cuda.MemoryPointer
        (batches, 2 * most, 2), uint32: destinations and sources.
    first, end : int
        The panel's first column, and one past its last.
    most : int
        The most pivots that the kernel takes, 32 or 256.
    """

    memory: Any
    first: int
    end: int
    most: int


def trace(a: Matrices, pivots: Array, first: int, end: int) -> Moves:
    """Trace the swaps of a panel.

    Parameters
    ----------
    a : Matrices
    pivots : cupy.ndarray
        (batches, k).
    first, end : int
        The panel's first column, and one past its last.
    """
    from cupy.cuda import alloc

    count = end - first
    most = _FEW_PIVOTS if count <= _FEW_PIVOTS else _MOST_PIVOTS
    moves = alloc(8 * 2 * most * a.batches)
    launch = load(SWAP_MOVES, a.dtype, _MOVES_THREADS, max_pivots=most)
    launch(
        (-(-2 * most // _MOVES_THREADS), a.batches),
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        moves.ptr,
        first,
        count,
    )
    return Moves(moves, first, end, most)


def block_move(a: Layout, moves: int, block: range, columns: range, gap: range) -> Call | None:
    """Return the launch that applies the swaps of a block, and solves for its rows of U.

    Parameters
    ----------
    a : Layout
    moves : int
        The address of the moves, which the kernel that factors the block writes.
    block : range
        The columns of the block.
    columns : range
        The columns that are swapped, and those of the gap. Columns after the gap are also solved.
    gap : range
        Columns among them that are left alone.
    """
    if len(columns) <= len(gap):
        return None
    return _call(a, few=True, columns=columns, rows=block, moves=moves, gap=gap, solve=True)


def planned_move(a: Layout, moves: int, rows: range, columns: range, gap: range = _NO_GAP) -> Call:
    """Return the launch that moves the rows of some columns, as a kernel has planned.

    Parameters
    ----------
    a : Layout
    moves : int
        The address of 512 moves, of which the first 256 are to `rows`.
    rows : range
        At most 256.
    columns, gap : range
        As of `move`.
    """
    return _call(a, few=False, columns=columns, rows=rows, moves=moves, gap=gap)


def move(a: Matrices, moves: Moves, columns: range, gap: range = _NO_GAP) -> None:
    """Move the rows of some columns in one pass.

    Parameters
    ----------
    a : Matrices
    moves : Moves
    columns : range
        The columns to move, and those of the gap.
    gap : range
        Columns among them that are left alone.
    """
    if len(columns) > len(gap):
        _call(
            a,
            few=moves.most == _FEW_PIVOTS,
            columns=columns,
            rows=range(moves.first, moves.end),
            moves=moves.memory.ptr,
            gap=gap,
        ).enqueue()


def permute(x: Matrices, pivots: Array, *, inverse: bool) -> None:
    """Swap rows as the pivots of a whole matrix say, the last swap first for the inverse."""
    n = pivots.shape[1]
    firsts = range(0, n, _MOST_PIVOTS)
    shared = pivots.shape[0] == 1 and x.batches > 1
    for first in reversed(firsts) if inverse else firsts:
        count = min(_MOST_PIVOTS, n - first)
        swap(x, pivots, first, count, shared=shared, inverse=inverse)


def permutation(pivots: Array, *, inverse: bool = False) -> Array:
    """Return the row that ends up at each place, (batches, n), int64: P A is A[permutation]."""
    import cupy

    batches, n = pivots.shape
    rows = copied(cupy.broadcast_to(cupy.arange(n)[:, None], (batches, n, 1)), np.dtype("d"))
    permute(rows, pivots, inverse=inverse)
    return rows.view[:, :, 0].astype("int64")
