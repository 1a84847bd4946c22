"""Panels of an LU factorisation with pivots from a window of rows, and their prepared launches.

Tiles are a chain: each is factored by one workgroup, and the window of the next one is computed
from it, apart from the matrix. Beside the next tile, the panel's rows are moved and the tile is
applied to them::

    chain    | factor tile 0 | window of 1 | factor tile 1                   | window of 2 | ...
    beside                                 | move rows, L = A U^-1, A -= L U |

So a tile is applied to the columns up to the first tile of the next panel, whose window follows
from the last tile in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call
from cupygemm._backends.launch_rows import LaunchRows, PlacedRows, region
from cupygemm._solvers.common.ahead import Streams
from cupygemm._solvers.common.kernels import NEXT_WINDOW, WINDOWED_TILE, load
from cupygemm._solvers.common.matrices import Layout, Matrices
from cupygemm._solvers.common.updates import Place, block_product
from cupygemm._solvers.lu.swaps import planned_move

TILE = 128
PANEL = 512
WINDOW_ROWS = 160
MOVES_BYTES = 8 * 512
"""Of the moves of a tile."""
DTYPE = np.dtype("f")
_LANES, _WIDTH = 32, 8
_THREADS_OF_WINDOW, _COLUMNS_OF_WINDOW = 1024, 4
_BOTH, _LOWER, _UPPER, _MOVES, _INFO, _WINDOW, _SCRATCH, _SCRATCH_LATER = map(region, range(1, 9))


class Ends(NamedTuple):
    """Events in the factorisation of a panel, each to be waited for once.

    Attributes
    ----------
    planned : cupy.cuda.Event
        The moves of all tiles are known.
    lower : cupy.cuda.Event
        L is complete in the panel's columns.
    applied : cupy.cuda.Event
        All launches have ended.
    """

    planned: Any
    lower: Any
    applied: Any


class Panel:
    """The launches that factor a panel, and move rows of the other columns.

    Parameters
    ----------
    both : Matrices
    starts : sequence of int
        The addresses of the inverses of L and of U, the moves, the info, and of memory for a window
        and for products.
    columns : range
    exact : bool
        Whether products multiply as in float32.

    Attributes
    ----------
    columns : range
    ahead : range
        The next panel's columns that the tiles are applied to.
    """

    def __init__(self, both: Matrices, starts: Sequence[int], columns: range, exact: bool) -> None:
        start = both.address(0, 0)
        prepared = _prepared(both.layout(_BOTH), columns, exact, current_device())
        self.columns, self.ahead = columns, _ahead(columns, both.m)
        self._prepared = prepared
        self._launches: PlacedRows = prepared.launches.at(start, *starts)

    def factor(self, streams: Streams, beside: int, updated: Any = None) -> Ends:
        """Factor the panel, on the side stream and on another.

        Parameters
        ----------
        streams : Streams
        beside : int
            The address of the other stream.
        updated : cupy.cuda.Event, optional
            Recorded after the update of the columns to the right of the panel's first tile.
        """
        chain = streams.side
        for tile in self._prepared.tiles:
            self._launches.enqueue(tile.factor, chain)
            streams.order(streams.recorded(beside), chain)  # the tile before has been applied
            if updated is not None:
                streams.order(updated, chain)
                updated = None
            self._enqueue(tile.window, chain)
            streams.order(streams.recorded(chain), beside)  # the window has read what it needs
            self._enqueue(tile.lower, beside)
            lower = streams.recorded(beside)
            self._enqueue(tile.others, beside)
        self._enqueue(self._prepared.join, beside)
        return Ends(streams.recorded(chain), lower, streams.recorded(beside))

    def move_next(self, stream: int) -> None:
        """Swap the rows of as many columns, to the right of those that the tiles are applied to."""
        self._enqueue(self._prepared.next, stream)

    def move_others(self, stream: int) -> None:
        """Swap the rows of the columns to the right of these, and of L."""
        self._enqueue(self._prepared.others, stream)

    def join(self, stream: int) -> None:
        """Join what is left of the inverses up to this panel, whose rows of L have moved."""
        self._enqueue(self._prepared.join_later, stream)

    def _enqueue(self, rows: range, stream: int) -> None:
        for row in rows:
            self._launches.enqueue(row, stream)


class _Tile(NamedTuple):
    """The launches of a tile.

    Attributes
    ----------
    factor : int
    window : range
        What computes the window of the next tile, if there is one.
    lower : range
        What moves rows, and computes the columns of L.
    others : range
        What computes the rows of U, and subtracts the product.
    """

    factor: int
    window: range
    lower: range
    others: range


class _Prepared(NamedTuple):
    """The launches of a panel: those that factor it, and those that move rows of other columns.

    Those that join inverses are divided: only the first, of the panel's L, are waited for.
    """

    launches: LaunchRows
    tiles: list[_Tile]
    join: range
    join_later: range
    next: range
    others: range


def second(size: int) -> int:
    """Return the first column of the factors, beside the matrix and the numbers of its rows."""
    return size + _LANES


def widest(size: int) -> int:
    """Return the rows of the largest blocks on the diagonal whose inverses are wanted."""
    return PANEL * (2 if size % (2 * PANEL) == 0 else 1)


def following(panel: range, size: int) -> range:
    """Return the columns that are updated by a panel before its next tile but one is factored."""
    start = _ahead(panel, size).stop
    return range(start, min(start + PANEL, size))


def _ahead(panel: range, size: int) -> range:
    return range(panel.stop, min(panel.stop + TILE, size))


@functools.lru_cache(maxsize=512)
def _prepared(both: Layout, panel: range, exact: bool, index: int) -> _Prepared:
    size = both.m
    firsts = range(panel.start, panel.stop, TILE)
    multiply = functools.partial(block_product, DTYPE, exact=exact)
    calls: list[Call] = []

    def added(more: list[Call]) -> range:
        calls.extend(more)
        return range(len(calls) - len(more), len(calls))

    tiles = []
    for first in firsts:
        factor = added([_factor(both, first)]).start
        window = added([_next_window(both, first)] if first + TILE < size else [])
        lower, others = _apply(both, panel, first, multiply)
        tiles.append(_Tile(factor, window, added(lower), added(others)))
    join = functools.partial(_joins, both, multiply=multiply)
    lower, upper = (
        [call for half in (TILE, 2 * TILE) for call in join(panel, half, upper=of_u)]
        for of_u in (False, True)
    )
    wide = range(panel.stop - widest(size), panel.stop)
    if len(wide) > PANEL and wide.start % len(wide) == 0:
        upper += [call for of_u in (False, True) for call in join(wide, PANEL, upper=of_u)]
    join_lower, join_later = added(lower), added(upper)
    columns = following(panel, size)
    trailing = range(columns.stop, second(size) + panel.start)
    moved = added([_move(both, first, columns) for first in firsts if columns])
    others_moved = added([_move(both, first, trailing) for first in firsts])
    return _Prepared(LaunchRows(calls), tiles, join_lower, join_later, moved, others_moved)


def _move(both: Layout, first: int, columns: range, *gap: range) -> Call:
    """Return the launch that moves rows of some columns as the tile at `first` says."""
    return planned_move(both, _moves_of(first), range(first, first + TILE), columns, *gap)


def _moves_of(first: int) -> int:
    """Return the address of the moves of the tile at `first`."""
    return _MOVES + first // TILE * MOVES_BYTES


def _of_inverses(first: int, width: int) -> int:
    """Return the bytes from the first inverse to that of the tile at `first`."""
    number, inside = divmod(first, width)
    return DTYPE.itemsize * (number * width * width + inside * width + inside)


def _factor(both: Layout, first: int) -> Call:
    """Return the launch that factors a tile: the first of the matrix, or the window before it."""
    groups = TILE // _WIDTH
    launch = load(WINDOWED_TILE, DTYPE, _LANES * groups, rows=WINDOW_ROWS // _LANES, groups=groups)
    width = widest(both.m)
    offset = _of_inverses(first, width)
    arguments = (
        *((_WINDOW, TILE) if first else (both.address(0, 0), both.pitch)),
        _LOWER + offset,
        _UPPER + offset,
        width,
        _moves_of(first),
        _INFO,
        first,
        min(WINDOW_ROWS, both.m - first),
    )
    return Call(launch, (1, 1), arguments)


def _next_window(both: Layout, first: int) -> Call:
    """Return the launch that computes the window after a tile."""
    launch = load(
        NEXT_WINDOW, DTYPE, _THREADS_OF_WINDOW, rows=WINDOW_ROWS, across=_COLUMNS_OF_WINDOW
    )
    width = widest(both.m)
    offset = _of_inverses(first, width)
    arguments = (
        both.address(0, 0),
        both.pitch,
        _LOWER + offset,
        _UPPER + offset,
        width,
        _moves_of(first),
        _WINDOW,
        first,
        min(WINDOW_ROWS, both.m - first - TILE),
    )
    return Call(launch, (TILE // _COLUMNS_OF_WINDOW, 1), arguments)


def _apply(
    both: Layout, panel: range, first: int, multiply: Callable[..., Call]
) -> tuple[list[Call], list[Call]]:
    """Return the launches that move rows and compute L, and those that apply the tile."""
    size, of_factors, end = both.m, second(both.m), first + TILE
    stop = _ahead(panel, size).stop
    below, across = size - end, stop - end

    def place(row: int, column: int) -> Place:
        return both.address(row, column), both.pitch, 0

    width = widest(both.m)
    offset = _of_inverses(first, width)
    lower, upper = (_LOWER + offset, width, 0), (_UPPER + offset, width, 0)
    of_l, of_u = place(end, of_factors + first), place(first, of_factors + end)
    moved = range(panel.start, of_factors + first)
    before = [_move(both, first, moved, range(stop, of_factors + panel.start))]
    others = []
    if below:
        before.append(multiply(place(end, first), upper, of_l, (below, TILE, TILE)))
    if below and across:
        others.append(multiply(lower, place(first, end), of_u, (TILE, across, TILE)))
        shape = below, across, TILE
        others.append(multiply(of_l, of_u, place(end, end), shape, subtract=True))
    return before, others


def _joins(
    both: Layout, blocks: range, half: int, *, upper: bool, multiply: Callable[..., Call]
) -> list[Call]:
    """Return the launches that join inverses of blocks on the diagonal, by pairs.

    The inverse of ((A, 0), (L, B)) is ((A^-1, 0), (-B^-1 L A^-1, B^-1)), and that of
    ((A, U), (0, B)) is ((A^-1, -A^-1 U B^-1), (0, B^-1)).

    Parameters
    ----------
    both : Layout
    blocks : range
        The rows of the pairs.
    half : int
        The rows of each of two blocks.
    upper : bool
        Whether these are inverses of U, and not of L.
    multiply : callable
        `block_product`.
    """
    first, count = blocks.start, len(blocks) // (2 * half)
    of_factors, width = second(both.m), widest(both.m)
    row, column = (0, half) if upper else (half, 0)
    stride = 2 * half * (width + 1)
    start = (_UPPER if upper else _LOWER) + _of_inverses(first, width)

    def inverse(row: int, column: int) -> Place:
        return start + DTYPE.itemsize * (row * width + column), width, stride

    between = (_SCRATCH if half < PANEL and not upper else _SCRATCH_LATER), half, half * half
    of_factor = (
        both.address(first + row, of_factors + first + column),
        both.pitch,
        2 * half * (both.pitch + 1),
    )
    near, far = inverse(0, 0), inverse(half, half)
    product = functools.partial(multiply, extents=(half,) * 3, batches=count)
    target = inverse(row, column)  # zeros
    if upper:
        return [product(near, of_factor, between), product(between, far, target, subtract=True)]
    return [product(of_factor, near, between), product(far, between, target, subtract=True)]
