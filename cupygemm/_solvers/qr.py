"""QR factorisation by blocks of Householder reflections in compact WY form.

The reflections of an outer panel are Q = I - V T V^H. Its blocks are factored one after the other,
and each is applied to the rest of the panel by products; T grows by products, too. Then the panel
is applied to the rest of the matrix::

    W = V^H C | W = T^H W | C -= V W

A wide panel has two halves. The first is applied to the second by such products, too. The T of the
panel is [T1, -T1 V1^H V2 T2; 0, T2].

(C. Bischof and C. Van Loan, "The WY representation for products of Householder matrices", 1987;
R. Schreiber and C. Van Loan, "A storage-efficient WY representation", 1989.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import zip_longest

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks
from cupygemm._solvers.ahead import beside
from cupygemm._solvers.blocks import (
    current_limits,
    is_ahead,
    outer_panels,
    outer_width,
    panel_blocks,
)
from cupygemm._solvers.kernels import REFLECTOR, load
from cupygemm._solvers.matrices import Matrices, adjoint, empty, zeros
from cupygemm._solvers.products import subtract_product
from cupygemm._solvers.qr_blocks import factor_blocks
from cupygemm._solvers.teams import Workspace


@dataclass(frozen=True, eq=False)
class Reflector:
    """The reflections of an outer panel, Q = I - V T V^H on the rows from its first column on.

    Attributes
    ----------
    columns : range
        Of the panel.
    v : Matrices
        With ones on the diagonal and zeros above.
    t : Matrices
        Square, upper triangular.
    """

    columns: range
    v: Matrices
    t: Matrices

    def apply(self, c: Matrices, columns: range, *, inverse: bool) -> None:
        """Replace columns of C by Q, or its inverse, times them."""
        if not columns or not c.array.size:
            return
        self.apply_part(self.columns, c, columns, inverse=inverse)

    def apply_part(self, part: range, c: Matrices, columns: range, *, inverse: bool) -> None:
        """Apply the reflections of some columns of the panel only; see `apply`."""
        n, v, t = len(part), self.v_of(part), self.t_of(part, part)
        block = c.block(slice(part.start, c.m), slice(columns.start, columns.stop))
        # In place, so that nothing is copied: minus V^H C, and T times its opposite.
        sums, factors = (zeros(c.batches, n, len(columns), c.dtype) for _ in range(2))
        whole = slice(0, n), slice(0, len(columns))
        subtract_product(adjoint(v), block, sums.block(*whole))
        subtract_product(adjoint(t) if inverse else t, sums.block(*whole), factors.block(*whole))
        subtract_product(v, factors.block(*whole), block)

    def v_of(self, part: range, first: int | None = None) -> Array:
        """Return some columns of V, from row `first` of the matrix on, or their first."""
        start = self.columns.start
        rows = slice((part.start if first is None else first) - start, self.v.m)
        return self.v.block(rows, slice(part.start - start, part.stop - start))

    def t_of(self, rows: range, columns: range) -> Array:
        """Return a block of T."""
        start = self.columns.start
        return self.t.block(
            slice(rows.start - start, rows.stop - start),
            slice(columns.start - start, columns.stop - start),
        )


@dataclass(frozen=True, eq=False)
class QrFactors:
    """The factors of matrices, A = Q R.

    Attributes
    ----------
    qr : Matrices
        R, and below its diagonal the reflections.
    tau : cupy.ndarray
        (batches, k)
    panels : tuple of Reflector
        The outer panels.
    """

    qr: Matrices
    tau: Array
    panels: tuple[Reflector, ...]


def factor(a: Matrices) -> QrFactors:
    """Factor matrices in place."""
    import cupy

    k = min(a.m, a.n)
    tau = cupy.empty((a.batches, k), a.dtype)
    max_cluster, units = current_limits()
    shape = panel_blocks(max(a.m, 1), a.dtype, max_cluster)
    workspace = Workspace(shape, k, units, batches=a.batches)
    outer = outer_width(k, shape.width)
    panels = [
        Reflector(
            panel,
            zeros(a.batches, a.m - panel.start, len(panel), a.dtype),
            zeros(a.batches, len(panel), len(panel), a.dtype),
        )
        for panel in outer_panels(k, outer)
    ]
    factor_next = functools.partial(_factor_panel, a, tau, workspace)
    factor_next(panels[0])
    for panel, following in zip_longest(panels, panels[1:]):
        end = panel.columns.stop
        if following is None or not is_ahead(a, following.columns.stop, blocks.LIMITS.ahead_of_qr):
            panel.apply(a, range(end, a.n), inverse=True)
            if following is not None:
                factor_next(following)
            continue
        panel.apply(a, following.columns, inverse=True)
        with beside(functools.partial(factor_next, following), blocks.LIMITS.spared, units):
            panel.apply(a, range(following.columns.stop, a.n), inverse=True)
    return QrFactors(a, tau, tuple(panels))


def apply_q(factors: QrFactors, c: Matrices, *, inverse: bool) -> None:
    """Replace C by Q C, or by Q^H C, for the square Q."""
    for panel in factors.panels if inverse else reversed(factors.panels):
        panel.apply(c, range(c.n), inverse=inverse)


def make_q(factors: QrFactors, columns: int) -> Matrices:
    """Return the first columns of Q."""
    import cupy

    a = factors.qr
    q = empty(a.batches, a.m, columns, a.dtype)
    q.array[:, :, :columns] = cupy.eye(a.m, columns, dtype=q.dtype)
    for panel in reversed(factors.panels):
        # Above, and in the columns before, Q is still the identity.
        panel.apply(q, range(panel.columns.start, columns), inverse=False)
    return q


def _factor_panel(a: Matrices, tau: Array, workspace: Workspace, panel: Reflector) -> None:
    """Factor an outer panel, half by half. Only its own columns change."""
    first, end = panel.columns.start, panel.columns.stop
    middle = min(first + max(blocks.LIMITS.half, workspace.shape.width), end)
    left, right = range(first, middle), range(middle, end)
    _factor_half(a, tau, workspace, panel, left)
    if right:
        panel.apply_part(left, a, right, inverse=True)
        _factor_half(a, tau, workspace, panel, right)
        _join(panel, left, right)


def _join(panel: Reflector, left: range, right: range) -> None:
    """Compute the block of T that joins the reflections of two halves."""
    sums, factors = (
        zeros(panel.v.batches, len(left), len(right), panel.v.dtype).block(
            slice(0, len(left)), slice(0, len(right))
        )
        for _ in range(2)
    )
    below = panel.v_of(left, right.start)
    subtract_product(adjoint(below), panel.v_of(right), sums)
    subtract_product(sums, panel.t_of(right, right), factors)
    subtract_product(panel.t_of(left, left), factors, panel.t_of(left, right))


def _factor_half(
    a: Matrices, tau: Array, workspace: Workspace, panel: Reflector, half: range
) -> None:
    """Factor half of an outer panel, block by block, and compute its T."""
    start = panel.columns.start
    width = factor_blocks(a, tau, panel.v, panel.t, start, half, workspace)
    if len(half) > width:
        _complete(panel, half, width)


def _complete(panel: Reflector, half: range, width: int) -> None:
    """Compute the T of half a panel from those of its blocks."""
    v, t, n = panel.v, panel.t, len(half)
    of_half, at = panel.v_of(half), half.start - panel.columns.start
    products = matmul(adjoint(of_half), of_half)
    load(REFLECTOR, v.dtype, 256, width=width, most=blocks.power_of_two(-(-n // width)))(
        (v.batches, 1),
        products.data.ptr,
        n,
        n * n,
        t.address(at, at),
        t.pitch,
        t.stride,
        n,
        0,
    )
