"""Row swaps: all swaps of a block or of a panel in one pass over the rows that they displace."""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._request.arrays import Array
from cupygemm._solvers.blocks import words
from cupygemm._solvers.kernels import SWAP_MOVES, SWAP_ROWS, load
from cupygemm._solvers.matrices import Matrices

_THREADS = 256
_FEW_PIVOTS, _MOST_PIVOTS = 32, 256
_NO_GAP = range(1 << 30, 1 << 30)
_MOVES_THREADS = 64


def _strip(a: Matrices, *, few: bool) -> int:
    """Return the columns of a workgroup, whose rows it holds in registers."""
    return min((128 if few else 64) // words(a.dtype), 32)


def swap(
    a: Matrices,
    pivots: Array,
    first: int,
    count: int,
    column: int,
    columns: int,
    *,
    leaf: int | None = None,
    shared: bool = False,
    inverse: bool = False,
    solve: bool = False,
) -> None:
    """Apply the swaps of `count` pivots, from row `first` on, to columns.

    Parameters
    ----------
    a : Matrices
    pivots : cupy.ndarray
        (batches, k).
    first, count : int
        The rows that are swapped.
    column, columns : int
        The first column and the number of columns.
    leaf : int, optional
        The width of the blocks of the panel that the pivots belong to. Within that panel, only
        swaps apply that belong to later blocks than the column.
    shared : bool
        Whether all matrices have the same pivots, (1, k).
    inverse : bool
        Whether the last swap comes first, which undoes the swaps.
    solve : bool
        Whether to solve for the rows of U in the columns, too, for at most 32 pivots.
    """
    few = count <= _FEW_PIVOTS
    across = _strip(a, few=few)
    strip = across if leaf is None else min(across, leaf)
    launch = load(
        SWAP_ROWS,
        a.dtype,
        _THREADS,
        max_pivots=_FEW_PIVOTS if few else _MOST_PIVOTS,
        across=across,
        solve=solve,
        planned=False,
    )
    launch(
        (-(-columns // strip), a.batches),
        a.address(0, 0),
        a.pitch,
        a.stride,
        pivots.data.ptr + 4 * first,
        0 if shared else pivots.shape[1],
        first,
        count,
        column,
        columns,
        -1 if leaf is None else first,
        leaf or 1,
        strip,
        int(inverse),
        0,
        _NO_GAP.start,
        0,
    )


@dataclass(frozen=True, eq=False)
class Moves:
    """The rows that the swaps of a panel displace, traced by the device.

    Attributes
    ----------
    array : cupy.ndarray
        (batches, 2 * most, 2), uint32: destinations and sources.
    first, end : int
        The panel's first column, and the one behind its last.
    most : int
        The most pivots that the kernel takes.
    """

    array: Array
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
        The panel's first column, and the one behind its last.
    """
    import cupy

    count = end - first
    most = _FEW_PIVOTS if count <= _FEW_PIVOTS else _MOST_PIVOTS
    moves = cupy.empty((a.batches, 2 * most, 2), "uint32")
    launch = load(SWAP_MOVES, a.dtype, _MOVES_THREADS, max_pivots=most)
    launch(
        (-(-2 * most // _MOVES_THREADS), a.batches),
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        moves.data.ptr,
        first,
        count,
    )
    return Moves(moves, first, end, most)


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
    count = len(columns) - len(gap)
    if count <= 0:
        return
    across = _strip(a, few=moves.most == _FEW_PIVOTS)
    launch = load(
        SWAP_ROWS,
        a.dtype,
        _THREADS,
        max_pivots=moves.most,
        across=across,
        solve=False,
        planned=True,
    )
    launch(
        (-(-count // across), a.batches),
        a.address(0, 0),
        a.pitch,
        a.stride,
        0,
        0,
        moves.first,
        moves.end - moves.first,
        columns.start,
        count,
        -1,
        1,
        across,
        0,
        moves.array.data.ptr,
        gap.start,
        len(gap),
    )


def permute(x: Matrices, pivots: Array, *, inverse: bool) -> None:
    """Swap rows as the pivots of a whole matrix say, the last swap first for the inverse."""
    n = pivots.shape[1]
    firsts = range(0, n, _MOST_PIVOTS)
    shared = pivots.shape[0] == 1 and x.batches > 1
    for first in reversed(firsts) if inverse else firsts:
        count = min(_MOST_PIVOTS, n - first)
        swap(x, pivots, first, count, 0, x.n, shared=shared, inverse=inverse)
