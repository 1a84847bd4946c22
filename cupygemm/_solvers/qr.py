"""QR factorisation by blocks of Householder reflections in compact WY form.

The reflections of an outer panel are Q = I - V T V^H. Its blocks are factored one after the other,
and each is applied to the rest of the panel by products; T grows by products, too. Then the panel
is applied to the rest of the matrix::

    W = V^H C | W = T^H W | C -= V W

(C. Bischof and C. Van Loan, "The WY representation for products of Householder matrices", 1987;
R. Schreiber and C. Van Loan, "A storage-efficient WY representation", 1989.)
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks
from cupygemm._solvers.blocks import current_limits, outer_width, panel_blocks
from cupygemm._solvers.kernels import QR_PANEL, load
from cupygemm._solvers.matrices import Matrices, adjoint, empty, zeros
from cupygemm._solvers.products import subtract_product
from cupygemm._solvers.teams import Workspace

_OUTER = 128


@dataclass(frozen=True, eq=False)
class QrFactors:
    """The factors of matrices, A = Q R.

    Attributes
    ----------
    qr : Matrices
        R, and below its diagonal the reflections.
    tau : cupy.ndarray
        (batches, k)
    v : Matrices
        The reflections as they are multiplied: with ones on the diagonal and zeros above.
    panels : tuple of (int, int, cupy.ndarray)
        The first column of each outer panel, the column behind it, and its T.
    """

    qr: Matrices
    tau: Array
    v: Matrices
    panels: tuple[tuple[int, int, Array], ...]


def factor(a: Matrices) -> QrFactors:
    """Factor matrices in place."""
    import cupy

    k = min(a.m, a.n)
    tau = cupy.empty((a.batches, k), a.dtype)
    v = zeros(a.batches, a.m, k, a.dtype)
    max_cluster, units = current_limits()
    shape = panel_blocks(max(a.m, 1), a.dtype, max_cluster)
    workspace = Workspace(shape, a.dtype, k, units, batches=a.batches)
    outer = min(outer_width(k, shape.width), max(_OUTER, shape.width), blocks.LIMITS.outer)
    panels = []
    for first in range(0, k, outer):
        end = min(first + outer, k)
        t = _factor_panel(a, v, tau, first, end, workspace)
        panels.append((first, end, t))
        if end < a.n:
            rows = slice(first, a.m)
            reflect(
                v.block(rows, slice(first, end)),
                t,
                a.block(rows, slice(end, a.n)),
                inverse=True,
            )
    return QrFactors(a, tau, v, tuple(panels))


def reflect(v: Array, t: Array, c: Array, *, inverse: bool) -> None:
    """Apply a block reflector to matrices in place: Q = I - V T V^H, or its inverse."""
    if c.size == 0:
        return
    factors = matmul(adjoint(t) if inverse else t, matmul(adjoint(v), c))
    subtract_product(v, factors, c)


def apply_q(factors: QrFactors, c: Matrices, *, inverse: bool) -> None:
    """Replace C by Q C, or by Q^H C, for the square Q."""
    panels = factors.panels if inverse else reversed(factors.panels)
    m = factors.v.m
    for first, end, t in panels:
        rows = slice(first, m)
        reflect(
            factors.v.block(rows, slice(first, end)),
            t,
            c.block(rows, slice(0, c.n)),
            inverse=inverse,
        )


def make_q(factors: QrFactors, columns: int) -> Matrices:
    """Return the first columns of Q."""
    import cupy

    m = factors.v.m
    q = empty(factors.v.batches, m, columns, factors.v.dtype)
    q.array[:, :, :columns] = cupy.eye(m, columns, dtype=q.dtype)
    for first, end, t in reversed(factors.panels):
        rows = slice(first, m)  # above, and in the columns before, Q is still the identity
        reflect(
            factors.v.block(rows, slice(first, end)),
            t,
            q.block(rows, slice(first, columns)),
            inverse=False,
        )
    return q


def _factor_panel(
    a: Matrices, v: Matrices, tau: Array, first: int, end: int, workspace: Workspace
) -> Array:
    """Factor an outer panel, block by block, and return its T. Only its own columns change."""
    max_cluster, _ = current_limits()
    shape = panel_blocks(a.m - first, a.dtype, max_cluster)
    workspace.reshape(shape)
    t = zeros(a.batches, end - first, end - first, a.dtype)
    rows = slice(first, a.m)  # of all blocks, so that their products have few different shapes
    for column in range(first, end, shape.width):
        behind = min(column + shape.width, end)
        _factor_block(a, v, tau, t, column, behind, first, workspace)
        own = slice(column - first, behind - first)
        of_block = v.block(rows, slice(column, behind))
        if column > first:
            before = slice(0, column - first)
            products = matmul(adjoint(v.block(rows, slice(first, column))), of_block)
            later = matmul(products, t.block(own, own))
            t.block(before, own)[...] = -matmul(t.block(before, before), later)
        if behind < end:
            reflect(
                of_block,
                t.block(own, own),
                a.block(rows, slice(behind, end)),
                inverse=True,
            )
    return t.block(slice(0, end - first), slice(0, end - first))


def _factor_block(
    a: Matrices,
    v: Matrices,
    tau: Array,
    t: Matrices,
    column: int,
    behind: int,
    first: int,
    workspace: Workspace,
) -> None:
    shape = workspace.shape
    launch = load(
        QR_PANEL, a.dtype, shape.threads, width=shape.width, rows=shape.rows, team=shape.team
    )
    flags, records = workspace.next_block()
    at = column - first
    launch(
        (shape.team, workspace.teams),
        a.address(column, column),
        a.pitch,
        a.stride,
        v.address(column, column),
        v.pitch,
        v.stride,
        tau.data.ptr + column * a.dtype.itemsize,
        tau.shape[1],
        t.address(at, at),
        t.pitch,
        t.stride,
        flags,
        records,
        a.m - column,
        behind - column,
        a.batches,
        workspace.teams,
    )
