"""Find tiles of a wrong product whose contents belong elsewhere in it.

A patch around a wrong element is searched in the reference. If it occurs at another place, it is
grown to the largest rectangle that matches the reference at the same displacement. This finds tiles
of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MOST_TILES = 24
_MOST_SEEDS = 96  # wrong elements that are looked up
_PATCHES = (8, 4)  # extents; a patch is aligned to its extent, as tiles are
_LEAST_PATCH = 8  # elements; smaller patches occur elsewhere by chance
_MOST_PLACES = 4  # a patch that occurs more often has no identifiable origin


@dataclass(frozen=True)
class Tile:
    """A rectangle whose elements belong elsewhere.

    Attributes
    ----------
    row, column : int
        Its first row and column.
    rows, columns : int
        Its extents.
    from_row, from_column : int
        The first row and column of the place where its elements belong.
    """

    row: int
    column: int
    rows: int
    columns: int
    from_row: int
    from_column: int


class _Comparison:
    """Compares a product with its reference at a displacement.

    Parameters
    ----------
    actual, reference, bound : array (rows, columns)
        `bound` is the error that each element of the reference allows.
    period : int
        Rows of one matrix of the batch; a tile does not extend over several.
    """

    def __init__(self, actual: Array, reference: Array, bound: Array, period: int) -> None:
        self.actual, self.reference = actual, reference
        self.bound = np.nan_to_num(bound, nan=0.0, posinf=0.0)
        self.period = period

    def same(self, here: tuple[slice, slice], there: tuple[slice, slice]) -> Array:
        """Return a mask of the elements here that equal the reference there."""
        actual, reference = self.actual[here], self.reference[there]
        return self._close(actual, reference, self.bound[there])

    @staticmethod
    def _close(actual: Array, reference: Array, bound: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            close = (np.abs(actual - reference) <= bound) | (actual == reference)
        return np.asarray(close | (np.isnan(actual) & np.isnan(reference)))

    def places(self, row: int, column: int, rows: int, columns: int) -> Array:
        """Return the places in the reference, int (n, 2), where the patch at a place occurs."""
        height, width = self.reference.shape
        patch = self.actual[row : row + rows, column : column + columns]
        varied = patch.size >= _LEAST_PATCH and np.unique(patch).size >= 4
        if not varied or not np.isfinite(patch).all():
            return np.zeros((0, 2), np.intp)
        first = self._close(
            patch[0, 0],
            self.reference[: height - rows + 1, : width - columns + 1],
            self.bound[: height - rows + 1, : width - columns + 1],
        )
        found = np.argwhere(first)
        for i, j in np.ndindex(patch.shape):
            at = found[:, 0] + i, found[:, 1] + j
            found = found[self._close(patch[i, j], self.reference[at], self.bound[at])]
        return found[found[:, 0] % self.period + rows <= self.period]

    def grow(self, tile: Tile) -> Tile:
        """Return the largest rectangle around a tile that matches at the tile's displacement."""
        height, width = self.reference.shape
        down, right = tile.from_row - tile.row, tile.from_column - tile.column
        period = self.period
        top, bottom = tile.row, tile.row + tile.rows
        left, end = tile.column, tile.column + tile.columns
        lowest = max(tile.row // period * period, tile.from_row // period * period - down)
        highest = min(
            (tile.row // period + 1) * period, (tile.from_row // period + 1) * period - down
        )
        lowest, highest = max(lowest, 0, -down), min(highest, height, height - down)
        leftmost, rightmost = max(0, -right), min(width, width - right)

        def whole(row: int, last: int, column: int, stop: int) -> bool:
            here = slice(row, last), slice(column, stop)
            there = slice(row + down, last + down), slice(column + right, stop + right)
            return bool(self.same(here, there).all())

        grown = True
        while grown:
            grown = False
            if bottom < highest and whole(bottom, bottom + 1, left, end):
                bottom, grown = bottom + 1, True
            if end < rightmost and whole(top, bottom, end, end + 1):
                end, grown = end + 1, True
            if top > lowest and whole(top - 1, top, left, end):
                top, grown = top - 1, True
            if left > leftmost and whole(top, bottom, left - 1, left):
                left, grown = left - 1, True
        return Tile(top, left, bottom - top, end - left, top + down, left + right)


def find_tiles(
    actual: Array, reference: Array, wrong: Array, bound: Array, period: int
) -> list[Tile]:
    """Return tiles whose contents belong elsewhere, in the order of their places.

    Parameters
    ----------
    actual, reference, wrong, bound : array (rows, columns)
        The matrices of a batch are stacked along the rows.
    period : int
        Rows of one matrix.

    Returns
    -------
    list of Tile
        They do not overlap; at most `_MOST_TILES`.
    """
    comparison = _Comparison(actual, reference, bound, period)
    left = wrong.copy()
    tiles: list[Tile] = []
    for _ in range(_MOST_SEEDS):
        remaining = np.flatnonzero(left)
        if not remaining.size or len(tiles) == _MOST_TILES:
            break
        row, column = divmod(int(remaining[0]), wrong.shape[1])
        tile = _tile_at(comparison, row, column)
        if tile is None:  # the neighbours are most likely wrong for the same reason
            size = _PATCHES[0]
            left[row // size * size : row // size * size + size, column : column + size] = False
            continue
        here = np.s_[tile.row : tile.row + tile.rows, tile.column : tile.column + tile.columns]
        left[here] = False
        tiles.append(tile)
    return sorted(tiles, key=lambda tile: (tile.row, tile.column))


def _tile_at(comparison: _Comparison, row: int, column: int) -> Tile | None:
    """Return the largest tile around an element whose contents belong elsewhere, or None."""
    height, width = comparison.reference.shape
    for size in _PATCHES:
        rows, columns = min(size, comparison.period), min(size, width)
        top = min(row // rows * rows, height - rows)
        start = min(column // columns * columns, width - columns)
        if top // comparison.period != (top + rows - 1) // comparison.period:
            top = top // comparison.period * comparison.period
        places = comparison.places(top, start, rows, columns)
        if 0 < len(places) <= _MOST_PLACES:
            found = [
                comparison.grow(Tile(top, start, rows, columns, int(r), int(c)))
                for r, c in places
                if (r, c) != (top, start)
            ]
            if found:
                return max(found, key=lambda tile: tile.rows * tile.columns)
    return None
