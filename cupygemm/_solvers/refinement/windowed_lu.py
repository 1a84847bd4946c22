"""LU factorisation with pivots from a window of rows, for refinement.

A pivot is the largest element of its column among the next 160 rows or fewer, and not among all.
So a tile of 128 columns is factored by one workgroup, in one launch, while a panel of which every
row is a candidate waits for a cluster of workgroups at each column. The tiles below and on the
right of it follow by products with the inverses of its triangles::

    tile of a panel:   factor | move rows | L = A U^-1 below | U = L^-1 A on the right | A -= L U
    after the panel:   move rows of the others | U = L^-1 A on the right | A -= L U

On random matrices, elements grow by no more than with pivots from all rows: what matters is that
the last columns of a tile have a choice, too. In others, the leading blocks may be singular, so
rows and columns are mixed first (butterflies.py). The factors precondition a refinement in the
operands' type, which notices where they are bad.

The next panel is factored beside the update of the others (ahead.py). L and U, but for the tiles on
the diagonal, are stored beside the matrix, and products read no element that others write. The
launches of a panel are prepared once for matrices of one size (launch_rows.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call
from cupygemm._backends.launch_rows import LaunchRows, PlacedRows, region
from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import beside
from cupygemm._solvers.common.kernels import WINDOWED_TILE, load
from cupygemm._solvers.common.matrices import Layout, Matrices, empty
from cupygemm._solvers.common.products import (
    EXACT,
    ROUNDINGS,
    Rounding,
    store_product,
    subtract_product,
)
from cupygemm._solvers.common.updates import Place, block_product
from cupygemm._solvers.lu.swaps import planned_move

TILE = 128
PANEL = 512
_WINDOW_ROWS = 160
_LANES, _WIDTH = 32, 8
_MOVES_BYTES = 8 * 512  # of a tile
_LARGEST_INVERSE = 1024
_BOTH, _LOWER, _UPPER, _MOVES, _INFO, _SCRATCH = map(region, range(1, 7))
_DTYPE = np.dtype("f")


@dataclass(frozen=True, eq=False)
class WindowedFactors:
    """The factors of a matrix, P A = L U, of float32.

    Attributes
    ----------
    factors : cupy.ndarray
        (size, size), a view: L below the blocks on the diagonal, and U on their right.
    lower, upper : cupy.ndarray
        (size / width, width, width): the inverses of the blocks of L and of U on the diagonal.
    order : cupy.ndarray
        (size,), int64: P A is ``A[order]``.
    info : cupy.ndarray
        (1,), int32: one more than the first column without a pivot, or zero.
    """

    factors: Array
    lower: Array
    upper: Array
    order: Array
    info: Array

    def solve(self, x: Array) -> None:
        """Solve ``L U X = P B`` in place.

        Parameters
        ----------
        x : cupy.ndarray
            (size, k): P B, and then X.
        """
        count, width, _ = self.lower.shape
        spans = [slice(i * width, (i + 1) * width) for i in range(count)]
        for inverse, span in zip(self.lower, spans, strict=True):
            x[span] = matmul(inverse, x[span])
            if span.stop < len(x):
                x[span.stop :] -= matmul(self.factors[span.stop :, span], x[span])
        for inverse, span in zip(self.upper[::-1], spans[::-1], strict=True):
            if span.stop < len(x):
                x[span] -= matmul(self.factors[span, span.stop :], x[span.stop :])
            x[span] = matmul(inverse, x[span])


def padded(n: int) -> int:
    """Return the rows of the matrix that is factored for one of `n` rows."""
    return -(-n // PANEL) * PANEL


def workspace(size: int) -> Matrices:
    """Return memory for a matrix, in the first columns, and for its factors.

    Parameters
    ----------
    size : int
        The rows of the matrix, a multiple of `PANEL`.
    """
    # A row: the matrix | the number of the row, up to a multiple of 128 bytes | L and U
    return empty(1, size, _second(size) + size, _DTYPE)


def _second(size: int) -> int:
    return size + _LANES


def factor(both: Matrices, rounding: Rounding) -> WindowedFactors:
    """Factor a matrix, which is overwritten.

    Parameters
    ----------
    both : Matrices
        From `workspace`, with the matrix in its first columns.
    rounding : Rounding
        Of the operands of the products that update the matrix behind a panel.
    """
    import cupy

    size = both.m
    second = _second(size)
    both.array[0, :, size] = cupy.arange(size)  # float32 is exact below 2**24
    info = cupy.zeros(1, "int32")
    lower, upper = (cupy.zeros((size // PANEL, PANEL, PANEL), _DTYPE) for _ in range(2))
    moves = cupy.empty(size // TILE * _MOVES_BYTES, "uint8")
    scratch = cupy.empty((PANEL // 2, PANEL // 2), _DTYPE)
    starts = [each.data.ptr for each in (lower, upper, moves, info, scratch)]
    exact = rounding == EXACT
    panels = [_Panel(both, starts, range(i, i + PANEL), exact) for i in range(0, size, PANEL)]
    units = blocks.LIMITS.spared if rounding.dtype is None else blocks.LIMITS.spared_by_halves
    panels[0].factor()
    for number, panel in enumerate(panels):
        following = range(panel.columns.stop, min(panel.columns.stop + PANEL, size))
        panel.move_next()
        if not following:
            panel.move_others()
            break
        start = second + panel.columns.start
        of_l = both.block(slice(panel.columns.stop, size), slice(start, start + PANEL))
        if rounding.dtype is not None:
            of_l = of_l.astype(rounding.dtype)
        update = functools.partial(_update, both, lower[number], of_l, rounding, number)
        update(following)
        others = range(following.stop, size)
        if len(others) >= blocks.LIMITS.ahead:
            with beside(panels[number + 1].factor, units):
                panel.move_others()
                update(others)
        else:
            panel.move_others()
            update(others)
            panels[number + 1].factor()
    factors = both.array[0, :, second : second + size]
    _join_upper(factors, upper)
    lower, upper = _wider(factors, lower, upper)
    order = both.array[0, :, size].astype("int64")
    return WindowedFactors(factors, lower, upper, order, info)


def _update(
    both: Matrices, inverse: Array, of_l: Array, rounding: Rounding, number: int, columns: range
) -> None:
    """Solve for a panel's rows of U in some columns, and subtract its product from the rest."""
    if not columns:
        return
    second, start = _second(both.m), number * PANEL
    panel, below = slice(start, start + PANEL), slice(start + PANEL, both.m)
    of_a = slice(columns.start, columns.stop)
    of_u = both.block(panel, slice(second + columns.start, second + columns.stop))
    store_product(inverse, both.block(panel, of_a), of_u, _fine(rounding))
    subtract_product(of_l, of_u, both.block(below, of_a), rounding)


def _fine(rounding: Rounding) -> Rounding:
    """Return how to multiply by the inverses of blocks: as in float32, or nearly."""
    return EXACT if rounding == EXACT else ROUNDINGS["tf32x3"]


class _Panel:
    """The launches that factor a panel, and move rows of the other columns.

    Parameters
    ----------
    both : Matrices
    starts : sequence of int
        The addresses of regions from `_LOWER` on.
    columns : range
    exact : bool
        Whether products multiply as in float32.
    """

    def __init__(self, both: Matrices, starts: Sequence[int], columns: range, exact: bool) -> None:
        start = both.address(0, 0)
        prepared = _prepared(both.layout(_BOTH), columns, exact, current_device())
        self.columns = columns
        self._prepared = prepared
        self._launches: PlacedRows = prepared.launches.at(start, *starts)

    def factor(self) -> None:
        """Factor the panel, whose own columns alone change."""
        self._launches.enqueue_in_order(self._prepared.factor)

    def move_next(self) -> None:
        """Move the rows of the next panel."""
        self._launches.enqueue_in_order(self._prepared.next)

    def move_others(self) -> None:
        """Move the rows of the columns behind the next panel, and of L."""
        self._launches.enqueue_in_order(self._prepared.others)


class _Prepared(NamedTuple):
    """The launches of a panel: those that factor it, and those that move rows of other columns."""

    launches: LaunchRows
    factor: range
    next: range
    others: range


@functools.lru_cache(maxsize=512)
def _prepared(both: Layout, panel: range, exact: bool, index: int) -> _Prepared:
    size, second = both.m, _second(both.m)
    tiles = range(panel.start, panel.stop, TILE)
    multiply = functools.partial(block_product, _DTYPE, exact=exact)
    factor = [call for first in tiles for call in _factor_tile(both, panel, first, multiply)]
    factor += _join_lower(both, panel, multiply)
    end = min(panel.stop + PANEL, size)
    of_next, of_others = range(panel.stop, end), range(end, second + panel.start)
    following = [_move(both, first, of_next) for first in tiles if of_next]
    others = [_move(both, first, of_others) for first in tiles]
    first, last = len(factor), len(factor) + len(following)
    launches = LaunchRows(factor + following + others)
    rows = range(last + len(others))
    return _Prepared(launches, rows[:first], rows[first:last], rows[last:])


def _move(both: Layout, first: int, columns: range, *gap: range) -> Call:
    """Return the launch that moves rows of some columns as the tile at `first` says."""
    return planned_move(both, _moves_of(first), range(first, first + TILE), columns, *gap)


def _moves_of(first: int) -> int:
    """Return the address of the moves of the tile at `first`."""
    return _MOVES + first // TILE * _MOVES_BYTES


def _factor_tile(
    both: Layout, panel: range, first: int, multiply: Callable[..., Call]
) -> list[Call]:
    """Return the launches that factor a tile, and apply it within its panel."""
    size, second, end = both.m, _second(both.m), first + TILE
    below, across = size - end, panel.stop - end
    number, inside = divmod(first, PANEL)
    offset = 4 * (number * PANEL * PANEL + inside * PANEL + inside)
    groups = TILE // _WIDTH
    launch = load(
        WINDOWED_TILE, _DTYPE, _LANES * groups, rows=_WINDOW_ROWS // _LANES, groups=groups
    )
    arguments = (
        both.address(first, first),
        both.pitch,
        _LOWER + offset,
        _UPPER + offset,
        PANEL,
        _moves_of(first),
        _INFO,
        first,
        min(_WINDOW_ROWS, size - first),
    )
    moved = range(panel.start, second + first)
    calls = [
        Call(launch, (1, 1), arguments),
        _move(both, first, moved, range(panel.stop, second + panel.start)),
    ]

    def place(row: int, column: int) -> Place:
        return both.address(row, column), both.pitch, 0

    lower, upper = (_LOWER + offset, PANEL, 0), (_UPPER + offset, PANEL, 0)
    if below:
        of_l = place(end, second + first)
        calls.append(multiply(place(end, first), upper, of_l, (below, TILE, TILE)))
        if across:
            of_u = place(first, second + end)
            calls.append(multiply(lower, place(first, end), of_u, (TILE, across, TILE)))
            shape = below, across, TILE
            calls.append(multiply(of_l, of_u, place(end, end), shape, subtract=True))
    return calls


def _join_lower(both: Layout, panel: range, multiply: Callable[..., Call]) -> list[Call]:
    """Return the launches that join the inverses of a panel's tiles of L to one of the panel.

    The inverse of ((A, 0), (L, B)) is ((A^-1, 0), (-B^-1 L A^-1, B^-1)).
    """
    second = _second(both.m)
    start = _LOWER + 4 * panel.start * PANEL
    calls = []
    for half in (TILE, 2 * TILE):
        step, batches = 2 * half, PANEL // (2 * half)
        of_l = both.address(panel.start + half, second + panel.start)
        stride = step * (PANEL + 1)
        first = start, PANEL, stride
        last = start + 4 * half * (PANEL + 1), PANEL, stride
        target = start + 4 * half * PANEL, PANEL, stride
        between = _SCRATCH, half, half * half
        between_blocks = functools.partial(multiply, extents=(half,) * 3, batches=batches)
        calls.append(between_blocks((of_l, both.pitch, step * (both.pitch + 1)), first, between))
        calls.append(between_blocks(last, between, target, subtract=True))  # from zeros
    return calls


def _join_upper(factors: Array, upper: Array) -> None:
    """Join the inverses of tiles of U, in place, to those of the panels."""
    import cupy

    for half in (TILE, 2 * TILE):
        for first in range(0, PANEL, 2 * half):
            near, far = slice(first, first + half), slice(first + half, first + 2 * half)
            between = _on_diagonal(factors, PANEL)[:, near, far]
            product = matmul(matmul(upper[:, near, near], between), upper[:, far, far])
            cupy.negative(product, upper[:, near, far])


def _wider(factors: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Join inverses of blocks on the diagonal to those of larger ones, as far as pairs exist."""
    import cupy

    while lower.shape[0] % 2 == 0 and lower.shape[1] < _LARGEST_INVERSE:
        count, half, _ = lower.shape
        near, far = slice(0, half), slice(half, 2 * half)
        blocks_of_both = _on_diagonal(factors, 2 * half)
        joined = []
        for inverses, target, left, right in (
            (lower, (far, near), slice(1, None, 2), slice(0, None, 2)),
            (upper, (near, far), slice(0, None, 2), slice(1, None, 2)),
        ):
            wider = cupy.zeros((count // 2, 2 * half, 2 * half), _DTYPE)
            wider[:, near, near], wider[:, far, far] = inverses[0::2], inverses[1::2]
            product = matmul(
                matmul(inverses[left], blocks_of_both[:, target[0], target[1]]), inverses[right]
            )
            cupy.negative(product, wider[:, target[0], target[1]])
            joined.append(wider)
        lower, upper = joined
    return lower, upper


def _on_diagonal(a: Array, width: int) -> Array:
    """Return a view of the blocks on the diagonal, (rows / width, width, width)."""
    from cupy.lib.stride_tricks import as_strided

    row, column = a.strides
    return as_strided(a, (a.shape[0] // width, width, width), (width * (row + column), row, column))
