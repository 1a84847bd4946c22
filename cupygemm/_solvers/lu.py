"""LU factorisation with partial pivoting, by blocks.

An outer panel of a few hundred columns is factored block by block, and then the rest of the matrix
is swapped, solved with and updated in three steps::

    blocks of the panel:   factor | factor, beside the update within the panel | ... (lu_blocks.py)
    after the panel:       swap all other columns | solve for its rows of U | C -= L U

In a large matrix, the columns of the next panel are updated first, and it is factored beside the
update of the others (ahead.py). In a very large one, two panels are factored as one, so that the
update behind them multiplies twice as many columns at once, which takes less time. From 12288
columns on, updates of columns far behind also wait for several panels (delayed_updates.py). The
last columns are one panel, whose blocks update all columns behind them.

Nothing waits for the host; the pivots and the first column without a pivot stay on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks, small
from cupygemm._solvers.ahead import beside
from cupygemm._solvers.blocks import current_limits, is_ahead, lu_panel_blocks, outer_width
from cupygemm._solvers.delayed_updates import Update, divided, joined, steps
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
    known: dict[int, Moves] = {}  # until the streams are joined, since both read them
    factor_next = functools.partial(
        _factor_panels, a, pivots, info, known, few=few, rounding=rounding
    )
    panels = _panels(a, k, outer_width(k, lu_panel_blocks(a, max(a.m, 1)).width))
    delays = identity is None and a.batches == 1 and a.n >= blocks.LIMITS.grouped
    most = _group(a, rounding) if delays else 1
    _, units = current_limits()
    factor_next(panels[0])
    for step in steps(panels, a.n, most):
        moved, following = a.n, step.following
        changed = _changed(a, step.panel, k, few=few)
        if changed == range(a.n):
            break
        moves = _traced(a, pivots, step.panel, known)
        updates = step.updates
        if identity is not None:
            moved, behind = identity + step.panel.start, identity + step.panel.stop
            updates = tuple(Update(x.panels, range(x.columns.start, behind)) for x in updates)
        if following is None or not is_ahead(a, following.stop, blocks.LIMITS.ahead):
            _move(a, moves, range(moved), changed)
            for update in joined(step.first, *updates):
                _update(a, *update, rounding)
            if following is not None:
                factor_next(following)
            continue
        swapped = range(step.first.panels.start, following.stop)
        _move(a, moves, swapped, step.panel)
        _update(a, *step.first, rounding)
        operations = _operations_beside(a, following)
        updates, after = divided(updates, a.m, operations, blocks.LIMITS.after)
        with beside(functools.partial(factor_next, following), blocks.LIMITS.spared, units):
            _move(a, moves, range(moved), swapped)
            for update in updates:
                _update(a, *update, rounding)
        for update in after:
            _update(a, *update, rounding)
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


def _operations_beside(a: Matrices, panel: range) -> int:
    """Return what products multiply and add while a panel is factored beside them."""
    rate = 1 if a.dtype.char == "d" else 2
    return rate * blocks.LIMITS.beside_lu * len(panel)


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


def _traced(a: Matrices, pivots: Array, panel: range, known: dict[int, Moves]) -> list[Moves]:
    """Return the moves of a panel's parts, by their first columns among those that are known."""
    for part in _parts(panel):
        if part.start not in known:
            known[part.start] = trace(a, pivots, part.start, part.stop)
    return [known[part.start] for part in _parts(panel)]


def _move(a: Matrices, moves: list[Moves], columns: range, gap: range = range(0)) -> None:
    for each in moves:
        move(a, each, columns, gap) if gap else move(a, each, columns)


def _factor_panels(
    a: Matrices,
    pivots: Array,
    info: Array,
    known: dict[int, Moves],
    panel: range,
    *,
    few: bool,
    rounding: Rounding,
) -> None:
    """Factor a panel, and apply it to the columns that `_changed` tells."""
    k = pivots.shape[1]
    if _is_tail(a, panel, k):
        factor_panel(a, pivots, info, panel, columns=_changed(a, panel, k, few=few))
        return
    first, *second = _parts(panel)
    factor_panel(a, pivots, info, first)
    for part in second:
        _move(a, _traced(a, pivots, first, known), part)
        _update(a, first, part, rounding)
        factor_panel(a, pivots, info, part)
        _move(a, _traced(a, pivots, part, known), first)


def _update(a: Matrices, panel: range, columns: range, rounding: Rounding) -> None:
    """Solve for a panel's rows of U in some columns, and subtract its product from the rest."""
    if not columns:
        return
    first, end, width = panel.start, panel.stop, len(panel)
    at = columns.start
    substitute(a, (first, first), width, a, (first, at), len(columns), lower=True, unit=True)
    if end < a.m:
        rows, across = slice(end, a.m), slice(at, columns.stop)
        of_panel = slice(first, end)
        subtract_product(
            a.block(rows, of_panel), a.block(of_panel, across), a.block(rows, across), rounding
        )
