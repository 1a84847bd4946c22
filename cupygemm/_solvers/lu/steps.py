"""The steps of an LU factorisation: its panels, and what is done between one and the next.

The columns that the next panel needs are updated first. Then the panel is factored on the side
stream, and the rest of the step is done beside it (ahead.py)::

    side stream      |                     | factor the next panel           |
    current stream   | swap and update its | swap, solve for U, multiply     | join, multiply what
                     | columns             | its first parts to later ones   | was left for all SMs

In a small matrix, all of a step is done before the next panel is factored.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import beside, reached, wait_for
from cupygemm._solvers.common.blocks import current_limits, is_ahead, lu_panel_blocks, outer_width
from cupygemm._solvers.common.matrices import Layout, Matrices
from cupygemm._solvers.common.panel_steps import Update, joined
from cupygemm._solvers.common.products import Rounding, subtract_product
from cupygemm._solvers.lu.delayed_updates import LuStep, divided, steps
from cupygemm._solvers.lu.panel import factor_panel
from cupygemm._solvers.lu.swaps import Moves, move, trace
from cupygemm._solvers.triangles.substitution import substitute


@dataclass(eq=False)
class Factorisation:
    """A factorisation in place.

    Attributes
    ----------
    a : Matrices
    pivots, info : cupy.ndarray
        As in `lu.LuFactors`.
    rounding : Rounding
        Of the operands of products.
    identity : int or None
        The first column of an identity to the right of the matrix, as in `lu.factor`.
    keeps_l : bool
        Whether L is wanted, as in `lu.factor`.
    """

    a: Matrices
    pivots: Array
    info: Array
    rounding: Rounding
    identity: int | None
    keeps_l: bool
    _moves: dict[range, Moves] = field(default_factory=dict)
    """Of parts of panels, until the streams are joined, since both read them."""
    _unapplied: range = range(0)
    """The columns of the last panel that are not applied yet to those of the next one."""

    def begin(self) -> None:
        """Factor the first panel."""
        self._unapplied = next(panels_of(self.a, self._k))
        self._factor(self._unapplied)

    def finish(self) -> None:
        """Do what follows the factorisation of the first panel."""
        panels = list(panels_of(self.a, self._k))
        all_steps = list(steps(panels, self.a.n, self._group()))
        for step, next_step in itertools.zip_longest(all_steps, all_steps[1:]):
            if self._changed(step.panel) == range(self.a.n):
                return
            own = self._within_identity(step)
            if own.following is None or not is_ahead(
                self.a, own.following.stop, blocks.LIMITS.ahead
            ):
                self._take_in_order(own)
            else:
                self._take_beside(own, own.following, next_step)

    def _take_in_order(self, step: LuStep) -> None:
        """Apply a panel, and then factor the next one."""
        self._move(_parts(step.panel), self._swapped(step), self._changed(step.panel))
        for update in joined(step.first, step.solved):
            self._solve(update)
        for update in joined(step.first, *step.updates):
            self._multiply(update)
        if step.following is not None:
            self._factor(step.following)

    def _take_beside(self, step: LuStep, following: range, next_step: LuStep | None) -> None:
        """Apply a panel to the next one's columns, and to the others while that is factored."""
        a = self.a
        is_whole = self._unapplied == step.panel
        first = step.first if is_whole else Update(self._unapplied, following)
        solved, others = step.solutions() if is_whole else (first, step.solved)
        swapped = range(step.first.panels.start, solved.columns.stop)
        self._move(_parts(step.panel) if is_whole else [self._unapplied], swapped, self._unapplied)
        self._solve(solved)
        self._multiply(first)
        columns = len(following) * (1 if a.dtype.char == "d" else 2)  # in the time of float64
        most_beside = self._most_beside(following, others)
        updates, after = divided(step.updates, a.m, most_beside, blocks.LIMITS.after)
        is_short = sum(x.operations(a.m) for x in step.updates) <= blocks.LIMITS.early * columns
        is_short &= not any(x.columns for x in after)  # which come before what is applied early
        early = self._early(following, next_step) if is_short else []
        ends: list[Any] = []
        factor_following = functools.partial(
            self._factor, following, [x.panels for x in early], ends, beside_long=not is_short
        )
        _, units = current_limits()
        with beside(factor_following, blocks.LIMITS.spared, units):
            self._move(_parts(step.panel), self._swapped(step), swapped)
            self._solve(others)
            for update in updates:
                self._multiply(update)
            for update, end in zip(early, ends, strict=True):
                wait_for(end)
                across = range(following.start, update.columns.stop)
                self._move([update.panels], across, range(update.panels.start, following.stop))
                self._update(update)
        for update in after:
            self._multiply(update)
        factored = early[-1].panels.stop if early else following.start
        self._unapplied = range(factored, following.stop)

    def _most_beside(self, panel: range, solved: Update) -> int:
        """Return the multiplications and additions that products do beside a panel.

        Parameters
        ----------
        panel : range
        solved : Update
            The solution for rows of U before these products.
        """
        limits, columns = blocks.LIMITS, len(panel)
        if self.a.dtype.char != "d":
            return limits.beside_lu_of_others * columns
        count = -(-columns // lu_panel_blocks(self.a, self.a.m - panel.start).width)
        most = limits.beside_lu_block * count + limits.beside_lu * columns
        return max(most - solved.operations_of_solution(), 0)

    @property
    def _k(self) -> int:
        """The number of pivots."""
        return int(self.pivots.shape[1])

    def _group(self) -> int:
        """Return the most wide panels for which an update may wait."""
        a = self.a
        if self.identity is not None or a.batches > 1 or a.n < blocks.LIMITS.grouped:
            return 1
        if a.dtype.char in "fd" and not self.rounding.by_residues:
            return blocks.LIMITS.group_of_reals
        return blocks.LIMITS.group

    def _changed(self, panel: range) -> range:
        """Return the columns to which a panel is applied while it is factored.

        With many right-hand sides, they may be updated by the panel before meanwhile, which reads
        the columns on the left.
        """
        few = self.identity is None and self.a.n - self._k <= blocks.LIMITS.few
        return range(self.a.n) if few and _is_tail(self.a, self._k, panel) else panel

    def _swapped(self, step: LuStep) -> range:
        """Return the columns whose rows a step swaps.

        Those of an identity have changed, and those of L are wanted or are read again.
        """
        end = self.a.n if self.identity is None else self.identity + step.panel.start
        return range(0 if self.keeps_l else step.read.start, end)

    def _within_identity(self, step: LuStep) -> LuStep:
        """Return a step without the columns of an identity that a panel does not change."""
        if self.identity is None:
            return step
        end = self.identity + step.panel.stop
        updates = tuple(each.up_to(end) for each in step.updates)
        return replace(step, solved=step.solved.up_to(end), updates=updates)

    def _early(self, panel: range, step: LuStep | None) -> list[Update]:
        """Return the updates of the next panel's columns by parts of a panel, before its end.

        Beside the factorisation of the rest, as soon as each is factored and the update before has
        ended. So only the last part remains to be applied between the panels.

        Parameters
        ----------
        panel : range
        step : LuStep or None
            What follows the factorisation of the panel.
        """
        if step is None or step.following is None or step.first.panels != panel:
            return []
        if not is_ahead(self.a, step.following.stop, blocks.LIMITS.ahead):
            return []
        if not _launches_pay(self.a):
            return []
        *parts, last = _parts(panel)
        parts.append(range(last.start, last.stop - blocks.LIMITS.part))
        return [Update(part, step.following) for part in parts if part]

    def _factor(
        self,
        panel: range,
        early: Sequence[range] = (),
        ends: list[Any] | None = None,
        *,
        beside_long: bool = False,
    ) -> None:
        """Factor a panel, and apply it to the columns that `_changed` tells.

        Parameters
        ----------
        panel : range
        early : sequence of range
            The first parts of the panel, which others read before its end. Rows of these are not
            swapped by later parts.
        ends : list, optional
            Receives an event after the factorisation of each of them.
        beside_long : bool
            Whether products beside the panel may take longer than it, so that it must not wait for
            their end.
        """
        if _is_tail(self.a, self._k, panel):
            changed = self._changed(panel)
            factor_panel(self.a, self.pivots, self.info, panel, columns=changed)
            return
        before: range | None = None
        for part in _parts(panel):
            if before is not None:
                self._move([before], part)
                self._update(Update(before, part))
            second = early[-1].stop if early and early[-1].stop in part[1:] else None
            end = self._factor_part(part, second, beside_long=beside_long)
            if ends is not None and part in early:
                self._traced(part)
                ends.append(reached())
            elif ends is not None and second is not None:
                ends.append(end)
            if before is not None and not early:
                self._move([part], before)
            before = part

    def _factor_part(self, part: range, second: int | None, *, beside_long: bool) -> Any:
        """Factor a part of a panel as `factor_panel` does, in halves if it has many blocks.

        Blocks of tall panels have few columns. On the few compute units beside a long product, the
        update of many columns by such a block takes longer than the next block.
        """
        half = len(part) // 2
        divides = beside_long and second is None and _launches_pay(self.a)
        if not divides or half < self._most_of_part(part):
            return factor_panel(
                self.a, self.pivots, self.info, part, second=second, holds_units=beside_long
            )
        left, right = part[:half], part[half:]
        self._factor_part(left, None, beside_long=beside_long)
        self._move([left], right)
        self._update(Update(left, right))
        self._factor_part(right, None, beside_long=beside_long)
        self._move([right], left)
        return None

    def _most_of_part(self, part: range) -> int:
        """Return the most columns of a part whose blocks each update all columns to their right."""
        return blocks.LIMITS.blocks_of_part * lu_panel_blocks(self.a, self.a.m - part.start).width

    def _traced(self, part: range) -> Moves:
        """Return the moves of rows that the pivots of a part of a panel ask for."""
        if part not in self._moves:
            self._moves[part] = trace(self.a, self.pivots, part.start, part.stop)
        return self._moves[part]

    def _move(self, parts: Sequence[range], columns: range, gap: range = range(0)) -> None:
        """Swap rows in some columns, but not in those of a gap, by the pivots of parts."""
        for moves in [self._traced(part) for part in parts]:
            move(self.a, moves, columns, gap) if gap else move(self.a, moves, columns)

    def _update(self, update: Update) -> None:
        """Solve for a panel's rows of U in some columns, and subtract its product from the rest."""
        self._solve(update)
        self._multiply(update)

    def _solve(self, update: Update) -> None:
        """Solve for the rows of U of an update."""
        first, at = update.panels.start, update.columns.start
        substitute(
            self.a,
            self.a,
            lower=True,
            unit=True,
            at=(first, first),
            target=(first, at),
            extents=(len(update.panels), len(update.columns)),
        )

    def _multiply(self, update: Update) -> None:
        """Subtract the product of an update, whose rows of U are solved for."""
        a, (panels, columns) = self.a, update
        if columns and panels.stop < a.m:
            rows, across = slice(panels.stop, a.m), slice(columns.start, columns.stop)
            of_panels = slice(panels.start, panels.stop)
            left, right = a.block(rows, of_panels), a.block(of_panels, across)
            subtract_product(left, right, a.block(rows, across), self.rounding)


def panels_of(a: Matrices | Layout, k: int) -> Iterator[range]:
    """Yield the columns of each panel of a factorisation of the first `k` columns."""
    outer = outer_width(k, lu_panel_blocks(a, max(a.m, 1)).width)
    first = 0
    while first < k:
        is_wide = outer == blocks.LIMITS.outer and a.n - first >= blocks.LIMITS.wide
        end = min(first + outer * (1 + is_wide), k)
        panel = range(first, k if _is_tail(a, k, range(first, k)) else end)
        yield panel
        first = panel.stop


def _is_tail(a: Matrices | Layout, k: int, panel: range) -> bool:
    """Tell whether each block of a panel updates all columns to its right, up to the last."""
    extents = a.m - panel.start, k - panel.start
    return a.batches == 1 and panel.stop == k and max(extents) <= most_of_tail(a.n - k)


def most_of_tail(right_hand_sides: int) -> int:
    """Return the most columns of the last panel, given the number of right-hand sides."""
    limits = blocks.LIMITS
    return limits.tail if right_hand_sides <= limits.few else limits.tail_before_others


def _parts(panel: range) -> list[range]:
    """Return the outer panels of which a panel consists."""
    return [panel[i : i + blocks.LIMITS.outer] for i in range(0, len(panel), blocks.LIMITS.outer)]


def _launches_pay(a: Matrices) -> bool:
    """Tell whether additional launches take less time than they save beside a product."""
    return blocks.has_tile_kernels(a.dtype)
