"""LU factorisation with partial pivoting, by blocks.

An outer panel of a few hundred columns is factored block by block, and then the rest of the matrix
is swapped, solved with and updated in three steps::

    blocks of the panel:   factor | factor, beside the update within the panel | ... (lu_blocks.py)
    after the panel:       swap all other columns | solve for its rows of U | C -= L U

In a large matrix, the columns of the next panel are updated first, and it is factored beside the
update of the others (ahead.py); if that ends first, the panel's first parts are then applied to the
columns of the panel after it. In a very large one, two panels are factored as one, so that the
update behind them multiplies twice as many columns at once, which takes less time. From 12288
columns on, updates of columns far behind also wait for several panels (delayed_updates.py). The
last columns are one panel, whose blocks update all columns behind them.

Nothing waits for the host; the pivots and the first column without a pivot stay on the device.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks, small
from cupygemm._solvers.ahead import beside, reached, wait_for
from cupygemm._solvers.blocks import current_limits, is_ahead, lu_panel_blocks, outer_width
from cupygemm._solvers.delayed_updates import Step, Update, divided, joined, steps
from cupygemm._solvers.lu_blocks import factor_panel
from cupygemm._solvers.matrices import Matrices, empty
from cupygemm._solvers.products import (
    Rounding,
    adds_in_place,
    subtract_product,
    usual,
)
from cupygemm._solvers.recorded import is_host_bound, repeatable
from cupygemm._solvers.substitution import substitute
from cupygemm._solvers.swaps import Moves, move, trace

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class LuFactors:
    """The factors of matrices, P A = L U.

    Attributes
    ----------
    lu : Matrices
        U, and L below its diagonal.
    pivots : cupy.ndarray
        (batches, k), int32: row i was swapped with row ``pivots[i]``.
    info : cupy.ndarray
        (batches,), int32: one more than the first column whose pivot is zero, or zero.
    """

    lu: Matrices
    pivots: Array
    info: Array


def factor(
    a: Matrices,
    columns: int | None = None,
    rounding: Rounding | None = None,
    *,
    identity: int | None = None,
) -> LuFactors:
    """Factor matrices in place.

    Parameters
    ----------
    a : Matrices
    columns : int, optional
        The columns to factor. Those behind them are right-hand sides, which become L^-1 P times
        themselves.
    rounding : Rounding, optional
        Of the operands of the products that update the matrix behind a panel; that of `usual` if it
        is not given.
    identity : int, optional
        The first column of an identity behind the matrix, which becomes L^-1, without the
        permutation. Only its columns up to those of a panel's rows take part.
    """
    import cupy

    rounding = usual(a.dtype) if rounding is None else rounding
    k = min(a.m, a.n if columns is None else columns)
    pivots = cupy.empty((a.batches, k), "int32")
    info = cupy.zeros(a.batches, "int32")
    if a.m == a.n == k and small.is_whole(k, a.dtype):
        small.factor_lu(a, pivots, info)
        return LuFactors(a, pivots, info)
    few = identity is None and a.n - k <= blocks.LIMITS.few
    known: dict[range, Moves] = {}  # until the streams are joined, since both read them
    factor_next = functools.partial(
        _factor_panels, a, pivots, info, known, few=few, rounding=rounding
    )
    panels = _panels(a, k, outer_width(k, lu_panel_blocks(a, max(a.m, 1)).width))
    delays = identity is None and a.batches == 1 and a.n >= blocks.LIMITS.grouped
    most = _group(a, rounding) if delays else 1
    _, units = current_limits()
    factor_next(panels[0])
    last = panels[0]  # what is not applied yet to the columns of the next panel
    all_steps = list(steps(panels, a.n, most))
    for step, next_step in itertools.zip_longest(all_steps, all_steps[1:]):
        moved, following = a.n, step.following
        changed = _changed(a, step.panel, k, few=few)
        if changed == range(a.n):
            break
        solved, updates = step.solved, step.updates
        if identity is not None:
            moved, behind = identity + step.panel.start, identity + step.panel.stop
            solved, *updates = (x.up_to(behind) for x in (solved, *updates))
        if following is None or not is_ahead(a, following.stop, blocks.LIMITS.ahead):
            _move(a, _traced(a, pivots, _parts(step.panel), known), range(moved), changed)
            for update in joined(step.first, solved):
                _solve(a, update)
            for update in joined(step.first, *updates):
                _multiply(a, update, rounding)
            if following is not None:
                factor_next(following)
            continue
        swapped = range(step.first.panels.start, following.stop)
        is_whole = last == step.panel
        of_last = _traced(a, pivots, _parts(last) if is_whole else [last], known)
        _move(a, of_last, swapped, last)
        _update(a, step.first if is_whole else Update(last, following), rounding)
        columns = len(following) * (1 if a.dtype.char == "d" else 2)  # in the time of float64
        is_short = sum(x.operations(a.m) for x in updates) <= blocks.LIMITS.early * columns
        early = _early(a, following, next_step) if is_short else []
        most_beside = blocks.LIMITS.beside_lu * columns
        updates, after = divided(updates, a.m, most_beside, blocks.LIMITS.after)
        ends: list[Any] = []
        factor_following = functools.partial(
            factor_next, following, [x.panels for x in early], ends
        )
        with beside(factor_following, blocks.LIMITS.spared, units):
            moves = _traced(a, pivots, _parts(step.panel), known)
            _move(a, moves, range(moved), swapped)
            _solve(a, solved)
            for update in updates:
                _multiply(a, update, rounding)
            for update, end in zip(early, ends, strict=True):
                wait_for(end)
                across = range(following.start, update.columns.stop)
                gap = range(update.panels.start, following.stop)
                _move(a, _traced(a, pivots, [update.panels], known), across, gap)
                _update(a, update, rounding)
        for update in after:
            _multiply(a, update, rounding)
        last = range(early[-1].panels.stop if early else following.start, following.stop)
    return LuFactors(a, pivots, info)


def repeated(
    key: Hashable,
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    fill: Callable[[Matrices], object],
    work: Callable[[Matrices], Result],
    use: Callable[[Result], Any],
) -> Any:
    """Return ``use(work(system))``, which a graph may compute if it is repeated (recorded.py).

    Parameters
    ----------
    key : hashable
        Of the work, but for what the next arguments say.
    shape : tuple of int
        Matrices, and their rows and columns, those of right-hand sides among them.
    dtype : numpy.dtype
    fill : callable
        Stores the system.
    work : callable
        Factors it, and what follows.
    use : callable
        Makes what is returned of the result, in memory of its own.
    """
    is_small = is_host_bound(shape, blocks.LIMITS.most_recorded_of_lu)
    pays = is_small and adds_in_place(dtype, usual(dtype))
    prepare = functools.partial(empty, *shape, dtype)
    return repeatable(("lu", key, shape, dtype), prepare, fill, work, use, pays=pays)


def _panels(a: Matrices, k: int, outer: int) -> list[range]:
    """Return the columns that are factored before the others are updated."""
    panels: list[range] = []
    first = 0
    while first < k:
        if _is_tail(a, range(first, k), k):
            return [*panels, range(first, k)]
        is_wide = outer == blocks.LIMITS.outer and a.n - first >= blocks.LIMITS.wide
        panels.append(range(first, min(first + outer * (1 + is_wide), k)))
        first = panels[-1].stop
    return panels


def _group(a: Matrices, rounding: Rounding) -> int:
    """Return the most wide panels for which an update may wait."""
    if a.dtype.char in "fd" and not rounding.by_residues:
        return blocks.LIMITS.group_of_reals
    return blocks.LIMITS.group


def _is_tail(a: Matrices, panel: range, k: int) -> bool:
    """Tell whether each block of a panel updates all columns behind it, up to `k`."""
    extents = a.m - panel.start, k - panel.start
    return a.batches == 1 and panel.stop == k and max(extents) <= blocks.LIMITS.tail


def _changed(a: Matrices, panel: range, k: int, *, few: bool) -> range:
    """Return the columns to which a panel is applied while it is factored.

    With many right-hand sides, they may be updated by the panel before meanwhile, which reads the
    columns on the left.
    """
    return range(a.n) if few and _is_tail(a, panel, k) else panel


def _parts(panel: range) -> list[range]:
    """Return the outer panels of which a panel consists."""
    return [panel[i : i + blocks.LIMITS.outer] for i in range(0, len(panel), blocks.LIMITS.outer)]


def _early(a: Matrices, panel: range, step: Step | None) -> list[Update]:
    """Return the updates of the next panel's columns by parts of a panel, before its end.

    Beside the factorisation of the rest, as soon as each is factored and the update before has
    ended. So only the last part remains to be applied between the panels.

    Parameters
    ----------
    a : Matrices
    panel : range
    step : Step or None
        What follows the factorisation of the panel.
    """
    if step is None or step.following is None or step.first.panels != panel:
        return []
    if not is_ahead(a, step.following.stop, blocks.LIMITS.ahead) or not _pays_early(a):
        return []
    *parts, last = _parts(panel)
    parts.append(range(last.start, last.stop - blocks.LIMITS.part))
    return [Update(part, step.following) for part in parts if part]


def _pays_early(a: Matrices) -> bool:
    """Tell whether the additional launches are shorter than what they move beside a panel."""
    return blocks.has_tile_kernels(a.dtype)


def _traced(
    a: Matrices, pivots: Array, parts: list[range], known: dict[range, Moves]
) -> list[Moves]:
    """Return the moves of parts of panels, those that are known already among them."""
    for part in parts:
        if part not in known:
            known[part] = trace(a, pivots, part.start, part.stop)
    return [known[part] for part in parts]


def _move(a: Matrices, moves: list[Moves], columns: range, gap: range = range(0)) -> None:
    for each in moves:
        move(a, each, columns, gap) if gap else move(a, each, columns)


def _factor_panels(
    a: Matrices,
    pivots: Array,
    info: Array,
    known: dict[range, Moves],
    panel: range,
    early: Sequence[range] = (),
    ends: list[Any] | None = None,
    *,
    few: bool,
    rounding: Rounding,
) -> None:
    """Factor a panel, and apply it to the columns that `_changed` tells.

    Parameters
    ----------
    a, pivots, info, known, panel, few, rounding
        As in `factor`.
    early : sequence of range
        The first parts of the panel, which others read before its end. Rows of these are not
        swapped by later parts.
    ends : list, optional
        Gets the event behind the factorisation of each of them.
    """
    k = pivots.shape[1]
    if _is_tail(a, panel, k):
        factor_panel(a, pivots, info, panel, columns=_changed(a, panel, k, few=few))
        return
    before: range | None = None
    for part in _parts(panel):
        if before is not None:
            _move(a, _traced(a, pivots, [before], known), part)
            _update(a, Update(before, part), rounding)
        second = early[-1].stop if early and early[-1].stop in part[1:] else None
        end = factor_panel(a, pivots, info, part, second=second)
        if ends is not None and part in early:
            _traced(a, pivots, [part], known)
            ends.append(reached())
        elif ends is not None and second is not None:
            ends.append(end)
        if before is not None and not early:
            _move(a, _traced(a, pivots, [part], known), before)
        before = part


def _update(a: Matrices, update: Update, rounding: Rounding) -> None:
    """Solve for a panel's rows of U in some columns, and subtract its product from the rest."""
    _solve(a, update)
    _multiply(a, update, rounding)


def _solve(a: Matrices, update: Update) -> None:
    """Solve for the rows of U of an update."""
    first, at = update.panels.start, update.columns.start
    count = len(update.columns)
    substitute(a, (first, first), len(update.panels), a, (first, at), count, lower=True, unit=True)


def _multiply(a: Matrices, update: Update, rounding: Rounding) -> None:
    """Subtract the product of an update, whose rows of U are solved for."""
    panels, columns = update
    if columns and panels.stop < a.m:
        rows, across = slice(panels.stop, a.m), slice(columns.start, columns.stop)
        of_panels = slice(panels.start, panels.stop)
        subtract_product(
            a.block(rows, of_panels), a.block(of_panels, across), a.block(rows, across), rounding
        )
