"""LU factorisation with partial pivoting, by blocks.

An outer panel of a few hundred columns is factored block by block, and then the rest of the matrix
is swapped, solved with and updated in three steps::

    blocks of the panel:   factor | swap, solve, update within the panel | factor | ...
    after the panel:       swap all other columns | solve for its rows of U | C -= L U

Nothing waits for the host; the pivots and the first column without a pivot stay on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._request.arrays import Array
from cupygemm._solvers.blocks import Blocks, current_limits, outer_width, panel_blocks
from cupygemm._solvers.kernels import LU_PANEL, load
from cupygemm._solvers.matrices import Matrices
from cupygemm._solvers.products import EXACT, Rounding, subtract_product
from cupygemm._solvers.substitution import substitute
from cupygemm._solvers.swaps import swap, swap_around
from cupygemm._solvers.teams import Workspace
from cupygemm._solvers.updates import update_panel


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


def factor(a: Matrices, columns: int | None = None, rounding: Rounding = EXACT) -> LuFactors:
    """Factor matrices in place.

    Parameters
    ----------
    a : Matrices
    columns : int, optional
        The columns to factor. Those behind them are right-hand sides, which become L^-1 P times
        themselves.
    rounding : Rounding
        Of the operands of the products that update the matrix behind a panel.
    """
    import cupy

    k = min(a.m, a.n if columns is None else columns)
    pivots = cupy.empty((a.batches, k), "int32")
    info = cupy.zeros(a.batches, "int32")
    max_cluster, units = current_limits()
    shape = panel_blocks(max(a.m, 1), a.dtype, max_cluster)
    workspace = Workspace(shape, a.dtype, k, units, batches=a.batches)
    outer = outer_width(k, shape.width)
    for first in range(0, k, outer):
        end = min(first + outer, k)
        factor_panel(a, pivots, info, first, end, workspace)
        if end - first > workspace.shape.width:
            swap(a, pivots, first, end - first, first, end - first, leaf=workspace.shape.width)
        swap_around(a, pivots, first, end)
        if end < a.n:
            substitute(
                a, (first, first), end - first, a, (first, end), a.n - end, lower=True, unit=True
            )
        if end < a.m and end < a.n:
            rows, within = slice(end, a.m), slice(first, end)
            subtract_product(
                a.block(rows, within),
                a.block(within, slice(end, a.n)),
                a.block(rows, slice(end, a.n)),
                rounding,
            )
    return LuFactors(a, pivots, info)


def factor_panel(
    a: Matrices, pivots: Array, info: Array, first: int, end: int, workspace: Workspace
) -> None:
    """Factor an outer panel, block by block. Only its own columns change."""
    max_cluster, _ = current_limits()
    shape = panel_blocks(a.m - first, a.dtype, max_cluster)
    workspace.reshape(shape)
    for column in range(first, end, shape.width):
        behind = min(column + shape.width, end)
        _factor_block(a, pivots, info, column, behind - column, workspace)
        if behind == end:
            return
        swap(a, pivots, column, behind - column, behind, end - behind, solve=True)
        update_panel(
            a,
            left=(behind, column),
            right=(column, behind),
            target=(behind, behind),
            extents=(a.m - behind, end - behind, behind - column),
        )


def _factor_block(
    a: Matrices, pivots: Array, info: Array, first: int, width: int, workspace: Workspace
) -> None:
    shape: Blocks = workspace.shape
    launch = load(
        LU_PANEL,
        a.dtype,
        shape.threads,
        width=shape.width,
        rows=shape.rows,
        team=shape.team,
    )
    flags, records = workspace.next_block()
    launch(
        (shape.team, workspace.teams),
        a.address(first, first),
        a.pitch,
        a.stride,
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        info.data.ptr,
        flags,
        records,
        a.m - first,
        width,
        first,
        a.batches,
        workspace.teams,
        0,
    )
