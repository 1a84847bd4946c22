"""The order of an LU factorisation's updates, some of which wait for several panels.

An update by several panels at once takes less time than an update by each of them. The panels of a
group update the columns of their group one by one. The columns behind it are updated by the whole
group, in as many pieces as the next group has panels, each beside the factorisation of a panel::

    side stream     | factor panel 3     | factor panel 4     | factor panel 5     | ...
    current stream  | 0-2: solve 4 to 11 | 3: solve 5         |                    | ...
                    | 0-2: update 4, 5   | 3: update 5        | (nothing here)     | ...
                    | 0-2: update 6, 7   | 0-2: update 8, 9   | 0-2: update 10, 11 | ...

An update is the solution for the panels' rows of U and a product. All rows of U are solved for at
once, since a triangular system with few columns takes nearly as long as one with many.

Products beside a panel leave compute units to it, which are idle if the panel ends first. So the
last columns of an update that takes longer than the panel wait for its end, and then have all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

_TILE = 128
"""Columns of products are divided at multiples of this."""


class Update(NamedTuple):
    """An update of columns by panels that are factored.

    Attributes
    ----------
    panels : range
        The columns of the panels.
    columns : range
        The columns that are updated.
    """

    panels: range
    columns: range

    def operations(self, rows: int) -> int:
        """Return the multiplications and additions of the product, in a matrix of some rows."""
        return self.operations_of_column(rows) * len(self.columns)

    def operations_of_column(self, rows: int) -> int:
        """Return those of a column."""
        return 2 * len(self.panels) * (rows - self.panels.start)

    def up_to(self, end: int) -> Update:
        """Return the update of the columns up to another one."""
        return Update(self.panels, range(self.columns.start, end))


@dataclass(frozen=True)
class Step:
    """What follows the factorisation of a panel.

    Attributes
    ----------
    panel : range
        The columns of the panel.
    following : range or None
        Those of the next panel.
    first : Update
        What the next panel needs.
    solved : Update
        The rows of U, and their columns, that can be solved for beside the factorisation of the
        next panel.
    updates : tuple of Update
        The products that can be computed beside it, by what has been solved for.
    read : range
        The columns of the panels that are applied in this step or a later one, up to its own.
    """

    panel: range
    following: range | None
    first: Update
    solved: Update
    updates: tuple[Update, ...]
    read: range


def steps(panels: Sequence[range], n: int, most: int) -> Iterator[Step]:
    """Yield the steps of a factorisation.

    Parameters
    ----------
    panels : sequence of range
        The columns of each panel, in their order.
    n : int
        The columns of the matrix.
    most : int
        The most panels of a group. The panels of a group have the same width, and so has the next
        one, of which some are left for the last columns.
    """
    groups = _groups(panels, most)
    delayed: list[Update] = []
    for group, after in zip_longest(groups, groups[1:]):
        whole = range(group[0].start, group[-1].stop)
        for panel, following in pairwise(group):
            within = Update(panel, range(following.stop, whole.stop))
            piece = [delayed.pop(0)] if delayed else []
            first, updates = Update(panel, following), (within, *piece)
            oldest = piece[0].panels if piece else whole
            read = range(oldest.start, panel.stop)
            yield Step(panel, following, first, within, updates, read)
        if after is None:
            empty, rest = (Update(whole, range(whole.stop, end)) for end in (whole.stop, n))
            yield Step(group[-1], None, empty, rest, (rest,), whole)
            return
        following, end = after[0], after[-1].stop
        now, *delayed = (Update(whole, piece) for piece in _pieces(range(end, n), len(after)))
        updates = joined(Update(whole, range(following.stop, end)), now)
        solved = Update(whole, range(following.stop, n))
        yield Step(group[-1], following, Update(whole, following), solved, updates, whole)


def joined(first: Update, *others: Update) -> tuple[Update, ...]:
    """Return updates, with those of adjacent columns by the same panels as one."""
    found = [first]
    for other in others:
        last = found[-1]
        if not last.columns:
            found[-1] = other
        elif other.panels == last.panels and other.columns.start == last.columns.stop:
            found[-1] = Update(last.panels, range(last.columns.start, other.columns.stop))
        elif other.columns:
            found.append(other)
    return tuple(found)


def divided(
    updates: Sequence[Update], rows: int, operations: int, least: int
) -> tuple[tuple[Update, ...], tuple[Update, ...]]:
    """Return the updates beside a panel, and those that wait for its end.

    Parameters
    ----------
    updates : sequence of Update
    rows : int
        The rows of the matrix.
    operations : int
        The multiplications and additions that products do beside the panel.
    least : int
        The fewest columns of an update that wait.
    """
    beside, after = [], []
    for update in updates:
        panels, columns = update
        each = update.operations_of_column(rows)
        count = operations // each
        count = len(columns) if len(columns) - count < least else count // _TILE * _TILE
        operations = max(operations - count * each, 0)
        beside.append(Update(panels, columns[:count]))
        after.append(Update(panels, columns[count:]))
    return tuple(beside), tuple(after)


def _groups(panels: Sequence[range], most: int) -> list[list[range]]:
    """Return groups of panels as wide as the first one; the last panels are groups of their own."""
    count = sum(len(panel) == len(panels[0]) for panel in panels)
    wide = max(count - most, 0) if most > 1 else 0
    ends = [*range(0, wide, most), *range(wide, len(panels))]
    return [list(panels[i:j]) for i, j in zip(ends, [*ends[1:], len(panels)], strict=True)]


def _pieces(columns: range, count: int) -> list[range]:
    """Divide columns into pieces of nearly one length, which begin at multiples of a tile."""
    size = max(-(-len(columns) // count // _TILE) * _TILE, _TILE)
    starts = [min(columns.start + i * size, columns.stop) for i in range(count)]
    return [range(i, j) for i, j in zip(starts, [*starts[1:], columns.stop], strict=True)]
