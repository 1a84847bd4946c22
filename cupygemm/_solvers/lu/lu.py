"""LU factorisation with partial pivoting, by blocks.

An outer panel of a few hundred columns is factored block by block, and then the rest of the matrix
is swapped, solved with and updated in three steps::

    blocks of the panel:   factor | factor, beside the update within the panel | ... (panel.py)
    after the panel:       swap all other columns | solve for its rows of U | C -= L U (steps.py)

In a large matrix, the columns of the next panel are updated first, and it is factored beside the
update of the others (ahead.py); if that ends first, the panel's first parts are then applied to the
columns of the panel after it. In a very large one, two panels are factored as one, so that one
update of the trailing matrix multiplies twice as many columns, which takes less time. From 12288
columns on, updates of columns far to the right also wait for several panels (delayed_updates.py).
The last columns are one panel, whose blocks update all columns to their right.

Nothing waits for the host; the pivots and the first column without a pivot stay on the device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks, small
from cupygemm._solvers.common.augmented import augment, augmented_shape, store_columns
from cupygemm._solvers.common.matrices import Layout, Matrices, empty
from cupygemm._solvers.common.products import Rounding, adds_in_place, usual
from cupygemm._solvers.common.recorded import Beginning, is_host_bound, repeatable
from cupygemm._solvers.lu.steps import Factorisation, most_of_tail, panels_of

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
    keeps_l: bool = True,
) -> LuFactors:
    """Factor matrices in place.

    Parameters
    ----------
    a : Matrices
    columns : int, optional
        The columns to factor. Further columns are right-hand sides B, which become L^-1 P B.
    rounding : Rounding, optional
        Of the operands of the products that update the trailing matrix; by default that of `usual`.
    identity : int, optional
        The first column of an identity to the right of the matrix, which becomes L^-1, without the
        permutation. Only its columns up to those of a panel's rows take part.
    keeps_l : bool
        Whether L is wanted. Otherwise, rows of L are not swapped any more once all updates have
        read them.
    """
    rounding = usual(a.dtype) if rounding is None else rounding
    k = min(a.m, a.n if columns is None else columns)
    started = _started(a, k, rounding, identity, keeps_l=keeps_l)
    if a.m == a.n == k and small.is_whole(k, a.dtype):
        small.factor_lu(a, started.pivots, started.info)
        return LuFactors(a, started.pivots, started.info)
    started.begin()
    return _finished(started)


def _finished(started: Factorisation) -> LuFactors:
    """Return the factors of matrices whose first panel is factored."""
    started.finish()
    return LuFactors(started.a, started.pivots, started.info)


def repeated(
    key: Hashable,
    a: Array,
    b: Array,
    dtype: np.dtype[Any],
    work: Callable[[LuFactors], Result],
    use: Callable[[Result], Any],
    *,
    identity: bool = False,
) -> Any:
    """Factor matrices beside right-hand sides, which a graph may do if it is repeated.

    The first panel of a matrix is factored beside the storing of its other columns (recorded.py).

    Parameters
    ----------
    key : hashable
        Of the work, but for what the next arguments say.
    a, b : cupy.ndarray
        (..., n, n), and (..., n, k) or (n, k).
    dtype : numpy.dtype
        Of the system.
    work : callable
        Takes the factors, and does what follows.
    use : callable
        Makes what is returned of the result of `work`, in memory of its own.
    identity : bool
        Whether `b` is an identity.

    Returns
    -------
    object
        ``use(work(factors))``.
    """
    n, k = b.shape[-2:]
    plan = _plan(math.prod(a.shape[:-2]), n, k, dtype, current_device(), blocks.LIMITS)
    panel, first = plan.first_panel, plan.first_right_side if identity else None

    def store_first(system: Matrices) -> None:
        store_columns(system, a, panel)

    def store(system: Matrices) -> None:
        augment(system, a, b, panel.stop)

    def begun(system: Matrices) -> Factorisation:
        started = _started(system, n, usual(dtype), first, keeps_l=False)
        started.begin()
        return started

    def finished(started: Factorisation) -> Result:
        return work(_finished(started))

    return repeatable(
        ("lu", key, identity, plan.shape, dtype),
        functools.partial(empty, *plan.shape, dtype),
        store,
        finished if panel else lambda system: finished(begun(system)),
        use,
        pays=plan.pays,
        beginning=Beginning(store_first, begun) if panel else None,
    )


class _Plan(NamedTuple):
    """How systems of one shape are factored if that is repeated.

    Attributes
    ----------
    shape : tuple of int
        Matrices, rows and columns, with the right-hand sides.
    first_right_side : int
        The column of the first one.
    pays : bool
        Whether a graph takes less time.
    first_panel : range
        The columns of the first panel, if it is factored beside the storing of the others.
    """

    shape: tuple[int, int, int]
    first_right_side: int
    pays: bool
    first_panel: range


@functools.lru_cache(maxsize=1024)
def _plan(
    batches: int, n: int, k: int, dtype: np.dtype[Any], index: int, limits: blocks.Limits
) -> _Plan:
    """Return the plan for the current device."""
    columns, first = augmented_shape(n, k, dtype)
    shape = batches, n, columns
    is_small = is_host_bound(shape, limits.most_recorded_of_lu, limits.whole + 1)
    pays = is_small and adds_in_place(dtype, usual(dtype))
    is_long = batches == 1 and n * n * dtype.itemsize >= limits.begun_early
    is_divided = is_long and n > most_of_tail(columns - n)  # else, the first panel is the only one
    panel = next(panels_of(Layout(*shape, columns, dtype, 0), n)) if is_divided else range(0)
    return _Plan(shape, first, pays, panel)


def _started(
    a: Matrices, k: int, rounding: Rounding, identity: int | None, *, keeps_l: bool
) -> Factorisation:
    """Return a factorisation of the first `k` columns, of which nothing is done yet."""
    import cupy

    pivots = cupy.empty((a.batches, k), "int32")
    info = cupy.zeros(a.batches, "int32")
    return Factorisation(a, pivots, info, rounding, identity, keeps_l)
