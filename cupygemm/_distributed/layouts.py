"""Layouts: the block of a matrix that each rank has.

A layout is a grid of ranks over the rows and the columns of a matrix, in row-major order: rank r of
a grid (p, q) has block (r // q, r % q). ``"rows"`` is the grid (size, 1), ``"columns"`` is (1,
size). The extents of blocks differ by at most one, larger ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cupygemm._distributed.steps import Rows, balanced, bounds_of

Layout = str | tuple[int, int]
Range = Rows


class Region(NamedTuple):
    """A block of a matrix: its ranges of rows and of columns."""

    rows: Range
    columns: Range

    @property
    def shape(self) -> tuple[int, int]:
        """Return the extents."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        rows, columns = self.shape
        return rows * columns

    def within(self, other: Region) -> tuple[slice, slice]:
        """Return the slices of this region in an array that holds another region."""
        (row, row_end), (column, column_end) = self
        (first_row, _), (first_column, _) = other
        return (
            slice(row - first_row, row_end - first_row),
            slice(column - first_column, column_end - first_column),
        )

    def intersection(self, other: Region) -> Region:
        """Return the intersection of two regions, which may be empty."""
        return Region(_shared(self.rows, other.rows), _shared(self.columns, other.columns))


def _shared(first: Range, second: Range) -> Range:
    start = max(first[0], second[0])
    return start, max(start, min(first[1], second[1]))


@dataclass(frozen=True)
class Grid:
    """A grid of ranks.

    Attributes
    ----------
    rows, columns : int
        Its extents.
    """

    rows: int
    columns: int

    def regions(self, shape: tuple[int, int]) -> list[Region]:
        """Return the region of each rank in a matrix of this shape."""
        rows = bounds_of(balanced(shape[0], self.rows))
        columns = bounds_of(balanced(shape[1], self.columns))
        return [Region(r, c) for r in rows for c in columns]


def parse_layout(name: str, layout: Layout, size: int) -> Grid:
    """Return the grid of a layout.

    Raises
    ------
    ValueError
        The layout is unknown, or does not have a block for each rank.
    """
    known = {"rows": (size, 1), "columns": (1, size)}
    extents = known.get(layout) if isinstance(layout, str) else tuple(layout)
    if extents is None or len(extents) != 2:
        raise ValueError(
            f"matmul: {name} is {layout!r}; a layout is 'rows', 'columns', or the extents of a "
            f"grid of ranks, (rows, columns)"
        )
    if extents[0] * extents[1] != size or min(extents) < 1:
        raise ValueError(f"matmul: {name} is {layout!r}, and the group has {size} ranks")
    return Grid(*extents)


def extents_of(
    name: str, grid: Grid, shapes: Sequence[Sequence[int]]
) -> tuple[tuple[int, int], list[Region]]:
    """Return the shape of a matrix and the regions of the ranks from the shapes of their blocks.

    Raises
    ------
    ValueError
        A block does not have the shape that the layout implies.
    """
    m = sum(int(shapes[row * grid.columns][0]) for row in range(grid.rows))
    n = sum(int(shapes[column][1]) for column in range(grid.columns))
    regions = grid.regions((m, n))
    for rank, (shape, region) in enumerate(zip(shapes, regions, strict=True)):
        if tuple(shape) != region.shape:
            raise ValueError(
                f"matmul: rank {rank} has a block of {name} of shape {tuple(shape)}; in a matrix "
                f"of shape {(m, n)} on a grid of {grid.rows} x {grid.columns} ranks it is "
                f"{region.shape}"
            )
    return (m, n), regions
