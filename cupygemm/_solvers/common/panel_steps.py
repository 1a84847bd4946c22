"""`Step`: the work of a factorisation between two panels, and its products.

`lu.delayed_updates` and `qr.updates` define the order of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TILE = 128
"""Columns of products are divided at multiples of this."""


class Update(NamedTuple):
    """An update of columns by factored panels.

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
        """Return the multiplications and additions for one column."""
        return 2 * len(self.panels) * (rows - self.panels.start)

    def operations_of_solution(self) -> int:
        """Return those of a product that takes about as long as the solution for rows of U."""
        return 2 * len(self.panels) ** 2 * len(self.columns)

    def up_to(self, end: int) -> Update:
        """Return the update of the columns before a given one."""
        return Update(self.panels, range(self.columns.start, end))


@dataclass(frozen=True)
class Step:
    """The work after the factorisation of a panel.

    Attributes
    ----------
    panel : range
        The columns of the panel.
    following : range or None
        The columns of the next panel.
    first : Update
        The update that the next panel needs.
    updates : tuple of Update
        The updates that can run while the next panel is factored, in this order.
    """

    panel: range
    following: range | None
    first: Update
    updates: tuple[Update, ...]


def joined(first: Update, *others: Update) -> tuple[Update, ...]:
    """Return updates; those of adjacent columns by the same panels are merged."""
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
