"""Row swaps: all swaps of a block or of a panel in one pass over the rows that they displace."""

from __future__ import annotations

from cupygemm._request.arrays import Array
from cupygemm._solvers.blocks import words
from cupygemm._solvers.kernels import SWAP_MOVES, SWAP_ROWS, load
from cupygemm._solvers.matrices import Matrices

_THREADS = 256
_FEW_PIVOTS, _MOST_PIVOTS = 32, 256
_NO_GAP = 1 << 30
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
        _NO_GAP,
        0,
    )


def swap_around(a: Matrices, pivots: Array, first: int, end: int) -> None:
    """Apply the swaps of a panel to all columns but its own.

    Parameters
    ----------
    a : Matrices
    pivots : cupy.ndarray
        (batches, k).
    first, end : int
        The panel's first column, and the one behind its last.
    """
    import cupy

    columns = a.n - (end - first)
    if columns <= 0:
        return
    count = end - first
    few = count <= _FEW_PIVOTS
    most = _FEW_PIVOTS if few else _MOST_PIVOTS
    moves = cupy.empty((a.batches, 2 * most, 2), "uint32")
    trace = load(SWAP_MOVES, a.dtype, _MOVES_THREADS, max_pivots=most)
    trace(
        (-(-2 * most // _MOVES_THREADS), a.batches),
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        moves.data.ptr,
        first,
        count,
    )
    across = _strip(a, few=few)
    launch = load(
        SWAP_ROWS,
        a.dtype,
        _THREADS,
        max_pivots=most,
        across=across,
        solve=False,
        planned=True,
    )
    launch(
        (-(-columns // across), a.batches),
        a.address(0, 0),
        a.pitch,
        a.stride,
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        first,
        count,
        0,
        columns,
        -1,
        1,
        across,
        0,
        moves.data.ptr,
        first,
        count,
    )


def permute(x: Matrices, pivots: Array, *, inverse: bool) -> None:
    """Swap rows as the pivots of a whole matrix say, the last swap first for the inverse."""
    n = pivots.shape[1]
    firsts = range(0, n, _MOST_PIVOTS)
    shared = pivots.shape[0] == 1 and x.batches > 1
    for first in reversed(firsts) if inverse else firsts:
        count = min(_MOST_PIVOTS, n - first)
        swap(x, pivots, first, count, 0, x.n, shared=shared, inverse=inverse)
