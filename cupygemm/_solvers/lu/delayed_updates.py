"""The order of an LU factorisation's updates, some of which wait for several panels.

One update by several panels takes less time than an update by each of them. The panels of a group
update the columns of their group one by one. The columns to the right of the group are updated by
the whole group, in one piece for each panel of the next group, while that panel is factored::

    side stream     | factor panel 3     | factor panel 4     | factor panel 5     | ...
    current stream  | 0-2: solve 8 to 11 | 3: solve 5         |                    | ...
                    | 0-2: update 4, 5   | 3: update 5        | (nothing here)     | ...
                    | 0-2: update 6, 7   | 0-2: update 8, 9   | 0-2: update 10, 11 | ...

An update is the solution for the panels' rows of U and a product. A triangular system with few
columns takes nearly as long as one with many. So the rows of U that the first step after a group
needs are solved for at once, before the panel (here 3 to 7), and all others beside it.

The first panel is a group of its own, so that products run beside the second one.

Products beside a panel leave compute units to it, which are idle if the panel ends first. So the
last columns of an update that takes longer than the panel wait for its end, and then have all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from cupygemm._solvers.common.panel_steps import TILE, Step, Update, joined


@dataclass(frozen=True)
class LuStep(Step):
    """A step of an LU factorisation, whose updates follow the solution for rows of U.

    Attributes
    ----------
    solved : Update
        The rows of U, and their columns, that can be solved for beside the factorisation of the
        next panel. `updates` are the products by them.
    read : range
        The columns of the panels that are applied in this step or a later one, up to its own.
    """

    solved: Update
    read: range

    def solutions(self) -> tuple[Update, Update]:
        """Return the solutions before the factorisation of the next panel, and beside it.

        Those of the next panel's columns alone would leave most compute units idle, since tiles of
        a column wait for each other. So all columns that this step multiplies are solved for with
        them. Those of delayed updates follow beside the panel: products must not begin at the same
        time as the panel, which would find no compute units next to each other.
        """
        first, solved = self.first, self.solved
        own = [update.columns.stop for update in self.updates if update.panels == solved.panels]
        end, last = max(own, default=0), solved.columns.stop
        if end in (0, last):
            return first, solved
        together = Update(first.panels, range(first.columns.start, end))
        return together, Update(solved.panels, range(end, last))


def steps(panels: Sequence[range], n: int, most: int) -> Iterator[LuStep]:
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
            yield LuStep(panel, following, first, updates, within, read)
        if after is None:
            empty, rest = (Update(whole, range(whole.stop, end)) for end in (whole.stop, n))
            yield LuStep(group[-1], None, empty, (rest,), rest, whole)
            return
        following, end = after[0], after[-1].stop
        now, *delayed = (Update(whole, piece) for piece in _pieces(range(end, n), len(after)))
        updates = joined(Update(whole, range(following.stop, end)), now)
        solved = Update(whole, range(following.stop, n))
        first = Update(whole, following)
        yield LuStep(group[-1], following, first, updates, solved, whole)


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
        count = len(columns) if len(columns) - count < least else count // TILE * TILE
        operations = max(operations - count * each, 0)
        beside.append(Update(panels, columns[:count]))
        after.append(Update(panels, columns[count:]))
    return tuple(beside), tuple(after)


def _groups(panels: Sequence[range], most: int) -> list[list[range]]:
    """Return groups of panels as wide as the first one.

    The first panel and the last ones are groups of their own.
    """
    count = sum(len(panel) == len(panels[0]) for panel in panels)
    wide = max(count - most, 0) if most > 1 else 0
    starts = [*range(min(wide, 1)), *range(1, wide, most), *range(wide, len(panels))]
    return [list(panels[i:j]) for i, j in zip(starts, [*starts[1:], len(panels)], strict=True)]


def _pieces(columns: range, count: int) -> list[range]:
    """Divide columns into pieces of nearly one length, which begin at multiples of a tile."""
    size = max(-(-len(columns) // count // TILE) * TILE, TILE)
    starts = [min(columns.start + i * size, columns.stop) for i in range(count)]
    return [range(i, j) for i, j in zip(starts, [*starts[1:], columns.stop], strict=True)]
