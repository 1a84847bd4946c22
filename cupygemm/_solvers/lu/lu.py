"""LU factorisation with partial pivoting, by blocks.

An outer panel of a few hundred columns is factored block by block, and then the rest of the matrix
is swapped, solved with and updated in three steps::

    blocks of the panel:   factor | factor, beside the update within the panel | ... (panel.py)
    after the panel:       swap all other columns | solve for its rows of U | C -= L U (steps.py)

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
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks, small
from cupygemm._solvers.common.matrices import Matrices, empty
from cupygemm._solvers.common.products import Rounding, adds_in_place, usual
from cupygemm._solvers.common.recorded import is_host_bound, repeatable
from cupygemm._solvers.lu.steps import Factorisation

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
        The columns to factor. Those behind them are right-hand sides, which become L^-1 P times
        themselves.
    rounding : Rounding, optional
        Of the operands of the products that update the matrix behind a panel; that of `usual` if it
        is not given.
    identity : int, optional
        The first column of an identity behind the matrix, which becomes L^-1, without the
        permutation. Only its columns up to those of a panel's rows take part.
    keeps_l : bool
        Whether L is wanted. Otherwise, rows of L are not swapped any more once all updates have
        read them.
    """
    import cupy

    rounding = usual(a.dtype) if rounding is None else rounding
    k = min(a.m, a.n if columns is None else columns)
    pivots = cupy.empty((a.batches, k), "int32")
    info = cupy.zeros(a.batches, "int32")
    if a.m == a.n == k and small.is_whole(k, a.dtype):
        small.factor_lu(a, pivots, info)
        return LuFactors(a, pivots, info)
    Factorisation(a, pivots, info, rounding, identity, keeps_l).run()
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
    limits = blocks.LIMITS
    is_small = is_host_bound(shape, limits.most_recorded_of_lu, limits.whole + 1)
    pays = is_small and adds_in_place(dtype, usual(dtype))
    prepare = functools.partial(empty, *shape, dtype)
    return repeatable(("lu", key, shape, dtype), prepare, fill, work, use, pays=pays)
