"""The order of a QR factorisation's updates, most of which apply two panels together.

One product for two panels takes less time than two products: its tiles are loaded and stored half
as often. So panels are processed in pairs. The first of a pair is applied only to the next pair's
columns. The columns to the right of these wait for both panels, and are updated in two parts, each
while a panel is factored::

    side stream     | factor panel 1    | factor panel 2         | factor panel 3         | ...
    current stream  | 0: update 2, 3    | 1: update 3            | 0-1: update the others |
                    |                   | 0-1: update half of    | 2: update 4, 5         | ...
                    |                   | columns right of 3     |                        |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cupygemm._solvers.common.panel_steps import TILE, Step, Update


def steps(panels: Sequence[range], n: int, least: int) -> Iterator[Step]:
    """Yield the steps of a factorisation.

    Parameters
    ----------
    panels : sequence of range
        The columns of each panel, in order.
    n : int
        The columns of the matrix.
    least : int
        The fewest columns to the right of the next pair that wait for both panels of a pair.
    """
    waits = False  # whether columns wait for the current pair
    left: tuple[Update, ...] = ()  # the update that waits for the last panel
    for number, panel in enumerate(panels):
        following = panels[number + 1] if number + 1 < len(panels) else None
        first = Update(panel, range(0) if following is None else following)
        start = panel.stop if following is None else following.stop
        next_pair = panels[number // 2 * 2 + 2 : number // 2 * 2 + 4]
        if number % 2 == 0:
            waits = len(next_pair) == 2 and n - next_pair[1].stop >= least
        end = next_pair[1].stop if waits else n
        own = Update(panel, range(start, end))
        if waits and number % 2:
            pair, middle = range(panels[number - 1].start, panel.stop), _middle(range(end, n))
            yield Step(panel, following, first, (own, Update(pair, range(end, middle))))
            left = (Update(pair, range(middle, n)),)
        else:
            yield Step(panel, following, first, (*left, own))
            left = ()


def _middle(columns: range) -> int:
    """Return the column that divides columns into two parts of whole tiles."""
    return min(columns.start + -(-len(columns) // (2 * TILE)) * TILE, columns.stop)
