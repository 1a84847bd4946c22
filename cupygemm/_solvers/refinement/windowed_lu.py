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

Only the windows follow one another: the next one is computed from a tile before anything else, and
factored beside what applies the tile (windowed_panels.py) and beside the update of other columns::

    chain    | tile 0 | window | tile 1 | window | tile 2 | window | tile 3 | window | tile 4 ...
    applies                    | tile 0          | tile 1          | tile 2          | tile 3
    current                                                                          | the panel

L and U, but for the tiles on the diagonal, are stored beside the matrix, and products read no
element that others write. The launches of a panel are prepared once for matrices of one size
(launch_rows.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import Streams, forked, sparing
from cupygemm._solvers.common.matrices import Matrices, empty
from cupygemm._solvers.common.products import (
    EXACT,
    ROUNDINGS,
    Rounding,
    store_product,
    subtract_product,
)
from cupygemm._solvers.refinement.windowed_panels import (
    DTYPE,
    MOVES_BYTES,
    PANEL,
    TILE,
    WINDOW_ROWS,
    Panel,
    following,
    second,
    widest,
)

_SPARED_BY_NEXT = 4
"""The compute units that products leave to a tile while the next ones wait for them."""


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
    return empty(1, size, second(size) + size, DTYPE)


def factor(both: Matrices, rounding: Rounding) -> WindowedFactors:
    """Factor a matrix, which is overwritten.

    Parameters
    ----------
    both : Matrices
        From `workspace`, with the matrix in its first columns.
    rounding : Rounding
        Of the operands of the products that update the trailing matrix.
    """
    import cupy

    size = both.m
    both.array[0, :, size] = cupy.arange(size)  # float32 is exact below 2**24
    info = cupy.zeros(1, "int32")
    width = widest(size)
    lower, upper = (cupy.zeros((size // width, width, width), DTYPE) for _ in range(2))
    moves = cupy.empty(size // TILE * MOVES_BYTES, "uint8")
    window = cupy.empty((WINDOW_ROWS, TILE), DTYPE)
    scratch = [cupy.empty((rows, rows), DTYPE) for rows in (PANEL // 2, PANEL)]
    starts = [each.data.ptr for each in (lower, upper, moves, info, window, *scratch)]
    exact = rounding == EXACT
    panels = [Panel(both, starts, range(i, i + PANEL), exact) for i in range(0, size, PANEL)]
    with forked() as streams:
        streams.fork()
        _factor_panels(both, panels, lower, rounding, streams)
    factors = both.array[0, :, second(size) :]
    order = both.array[0, :, size].astype("int64")
    return WindowedFactors(factors, lower, upper, order, info)


def _factor_panels(
    both: Matrices, panels: list[Panel], lower: Array, rounding: Rounding, streams: Streams
) -> None:
    """Factor the panels, each beside what the one before updates.

    Another stream joins the inverses of blocks on the diagonal, which only solutions need.
    """
    size, current = both.m, streams.current
    applies = streams.another()
    joins = streams.another(applies)
    units = blocks.LIMITS.spared if rounding.dtype is None else blocks.LIMITS.spared_by_halves
    ends = panels[0].factor(streams, applies)
    for panel in panels:
        streams.join(ends.planned)
        panel.move_next(current)
        streams.join(ends.lower)
        columns, next_columns = panel.columns, following(panel.columns, size)
        start = second(size) + columns.start
        of_l = both.block(slice(columns.stop, size), slice(start, start + PANEL))
        if rounding.dtype is not None:
            of_l = of_l.astype(rounding.dtype)
        streams.join(ends.applied)
        number, first = divmod(columns.start, lower.shape[1])
        inverse = lower[number, first : first + PANEL, first : first + PANEL]
        update = functools.partial(_update, both, inverse, of_l, rounding, columns)
        with sparing(_SPARED_BY_NEXT):
            update(next_columns)
        if columns.stop < size:
            updated = streams.recorded(current)
            ends = panels[columns.stop // PANEL].factor(streams, applies, updated)
        panel.move_others(current)
        streams.order(streams.recorded(current), joins)
        panel.join(joins)
        with sparing(units):
            update(range(next_columns.stop, size))
    streams.join(streams.recorded(joins))


def _update(
    both: Matrices, inverse: Array, of_l: Array, rounding: Rounding, panel: range, columns: range
) -> None:
    """Solve for a panel's rows of U in some columns, and subtract its product from the rest."""
    if not columns:
        return
    of_factors = second(both.m)
    rows, below = slice(panel.start, panel.stop), slice(panel.stop, both.m)
    of_a = slice(columns.start, columns.stop)
    of_u = both.block(rows, slice(of_factors + columns.start, of_factors + columns.stop))
    store_product(inverse, both.block(rows, of_a), of_u, _fine(rounding))
    subtract_product(of_l, of_u, both.block(below, of_a), rounding)


def _fine(rounding: Rounding) -> Rounding:
    """Return how to multiply by the inverses of blocks: as in float32, or nearly."""
    return EXACT if rounding == EXACT else ROUNDINGS["tf32x3"]
