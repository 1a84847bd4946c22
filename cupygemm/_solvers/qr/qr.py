"""QR factorisation by blocks of Householder reflections in compact WY form.

The reflections of an outer panel are Q = I - V T V^H. Its blocks are factored one after the other,
and each is applied to the rest of the panel by products, which also extend T. Then one panel, or
two together (updates.py), are applied to the trailing matrix (reflectors.py).

A wide panel has two halves. The first is also applied to the second by such products. The T of the
panel is [T1, -T1 V1^H V2 T2; 0, T2].

(C. Bischof and C. Van Loan, "The WY representation for products of Householder matrices", 1987;
R. Schreiber and C. Van Loan, "A storage-efficient WY representation", 1989.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import beside
from cupygemm._solvers.common.blocks import (
    current_limits,
    is_ahead,
    outer_panels,
    outer_width,
    panel_blocks,
    wave_size,
)
from cupygemm._solvers.common.kernels import REFLECTOR, load
from cupygemm._solvers.common.matrices import Matrices, adjoint, empty
from cupygemm._solvers.common.panel_steps import Update, joined
from cupygemm._solvers.common.recorded import is_host_bound, repeatable
from cupygemm._solvers.common.teams import Workspace
from cupygemm._solvers.qr.blocks import factor_blocks
from cupygemm._solvers.qr.columns_of_q import ColumnsOfQ
from cupygemm._solvers.qr.halves import Halves
from cupygemm._solvers.qr.reflectors import Reflector, multiplies_in_place
from cupygemm._solvers.qr.updates import steps


@dataclass(frozen=True, eq=False)
class QrFactors:
    """The factors of matrices, A = Q R.

    Attributes
    ----------
    qr : Matrices
        R; elements below its diagonal are arbitrary.
    tau : cupy.ndarray
        (batches, k)
    reflectors : tuple of Reflector
        The reflectors of the outer panels, or of groups of them.
    """

    qr: Matrices
    tau: Array
    reflectors: tuple[Reflector, ...]

    def packed(self) -> Matrices:
        """Return R, with the reflections below its diagonal, in place of `qr`."""
        import cupy

        for reflector in self.reflectors:
            first, columns = reflector.columns.start, reflector.columns
            block = self.qr.array[:, first:, columns.start : columns.stop]
            v = reflector.v.view
            below = cupy.arange(v.shape[1])[:, None] > cupy.arange(v.shape[2])
            cupy.copyto(block, v, where=below)
        return self.qr


def factor(a: Matrices) -> QrFactors:
    """Factor matrices in place."""
    return _factor(a, None)


def factor_with_q(a: Matrices, columns: int) -> tuple[QrFactors, Matrices]:
    """Factor matrices in place, and also return the first columns of Q."""
    q = ColumnsOfQ(a, columns, blocks.LIMITS.strip)
    return _factor(a, q), q.finish()


def repeated(
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    columns: int,
    fill: Callable[[Matrices], object],
    use: Callable[..., Any],
) -> Any:
    """Factor matrices, by a graph if possible (recorded.py), and return the result of `use`.

    Parameters
    ----------
    shape : tuple of int
        Batches, rows and columns.
    dtype : numpy.dtype
    columns : int
        The columns of Q; 0 for none.
    fill : callable
        Stores the matrices.
    use : callable
        ``use((factors, q), copies=...)``, where q is None without columns. With `copies`, their
        memory is reused after it returns.
    """

    def work(a: Matrices) -> tuple[QrFactors, Matrices | None]:
        return factor_with_q(a, columns) if columns else (factor(a), None)

    pays = is_host_bound(shape, blocks.LIMITS.most_recorded) and multiplies_in_place(dtype)
    key, prepare = ("qr", shape, dtype, columns), functools.partial(empty, *shape, dtype)
    return repeatable(key, prepare, fill, work, functools.partial(use, copies=pays), pays=pays)


def _factor(a: Matrices, q: ColumnsOfQ | None) -> QrFactors:
    """Factor matrices in place, and form columns of Q while panels are factored."""
    import cupy

    k = min(a.m, a.n)
    tau = cupy.empty((a.batches, k), a.dtype)
    max_cluster, units = current_limits()
    shape = panel_blocks(max(a.m, 1), a.dtype, max_cluster, wave_size())
    panel = _Panel(a, tau, Workspace(shape, k, units, batches=a.batches), Halves(a, k))
    outer = outer_width(k, shape.width)
    panels = outer_panels(k, outer)
    # Few wide reflectors form Q in less time, but must be joined.
    limits = blocks.LIMITS
    reflected = limits.reflected_of_float64 if a.dtype.char == "d" else limits.reflected
    widest = min(reflected, blocks.power_of_two(k) // 8) if q else outer
    groups = outer_panels(k, max(widest // outer, 1) * outer)
    reflectors = [Reflector.of(groups[0], a)]

    def apply(update: Update) -> None:
        own = reflectors[update.panels.start // len(groups[0])]
        own.apply_part(update.panels, a, update.columns, inverse=True)

    panel.factor(reflectors[0], panels[0])
    # In float64, one product for two panels is no faster than two products (measured).
    in_pairs = a.dtype.char == "f" and a.batches == 1 and len(groups[0]) % (2 * outer) == 0
    for step in steps(panels, a.n, limits.paired if in_pairs else a.n):
        own, following = reflectors[-1], step.following
        if following is not None and following.start == own.columns.stop:
            reflectors.append(Reflector.of(groups[len(reflectors)], a))
        if following is None or not _is_beside(a, following.stop, q):
            for update in joined(step.first, *step.updates):
                apply(update)
            if following is not None:
                panel.factor(reflectors[-1], following)
            _join_group(own, step.panel, q)
            continue
        factor_next = functools.partial(panel.factor, reflectors[-1], following)
        apply(step.first)
        operations = sum(2 * update.operations(a.m) for update in step.updates)
        most = limits.beside_qr * len(following)
        formed = q if k >= limits.formed_beside else None
        planned = operations + (formed.pending if formed else 0)
        is_long = a.dtype.char == "d" and planned >= most
        spared = limits.spared_of_short_panel if is_long else limits.spared_of_qr
        with beside(factor_next, spared, units, leads=True):
            apply(step.updates[0])
            _join_group(own, step.panel, q)  # before two panels are applied together
            for update in step.updates[1:]:
                apply(update)
            if formed:
                formed.work(most - operations)
    return QrFactors(a, tau, tuple(reflectors))


def _is_beside(a: Matrices, trailing: int, q: ColumnsOfQ | None) -> bool:
    """Tell whether a panel is factored while trailing columns are updated or Q is formed."""
    is_large = min(a.m, a.n) >= blocks.LIMITS.formed_beside and a.batches == 1
    has_steps = q is not None and is_large and q.has_steps()
    return has_steps or is_ahead(a, trailing, blocks.LIMITS.ahead_of_qr)


def _join_group(reflector: Reflector, panel: range, q: ColumnsOfQ | None) -> None:
    """Join the reflections of a panel to those of the panels before it in its group."""
    before = range(reflector.columns.start, panel.start)
    if before:
        reflector.join(before, panel)
    if q is not None and panel.stop == reflector.columns.stop:
        q.add(reflector)


def apply_q(factors: QrFactors, c: Matrices, *, inverse: bool) -> None:
    """Replace C by Q C, or by Q^H C, for the square Q."""
    for reflector in factors.reflectors if inverse else reversed(factors.reflectors):
        reflector.apply(c, range(c.n), inverse=inverse, is_scaled=False)


@dataclass(frozen=True, eq=False)
class _Panel:
    """Factors outer panels, half by half. Only their own columns change."""

    a: Matrices
    tau: Array
    workspace: Workspace
    halves: Halves

    def factor(self, reflector: Reflector, columns: range) -> None:
        """Factor the panel of some columns; the reflector receives V and T."""
        first, end = columns.start, columns.stop
        middle = min(first + max(blocks.LIMITS.half, self.workspace.shape.width), end)
        left, right = range(first, middle), range(middle, end)
        self._factor_half(reflector, left)
        if right:
            reflector.apply_part(left, self.a, right, inverse=True)
            self._factor_half(reflector, right)
            reflector.join(left, right)

    def _factor_half(self, reflector: Reflector, half: range) -> None:
        """Factor half of a panel, block by block, and compute its T."""
        start, v, t = reflector.columns.start, reflector.v, reflector.t
        flag = self.halves.factor(reflector, half) if self.halves.suits(half) else 0
        width = factor_blocks(self.a, self.tau, v, t, start, half, self.workspace, flag)
        if len(half) > width:
            _complete(reflector, half, width, flag, self.tau)


def _complete(reflector: Reflector, half: range, width: int, flag: int, tau: Array) -> None:
    """Compute the T of half a panel, from the T of its blocks unless the flag is set."""
    v, t, n = reflector.v, reflector.t, len(half)
    of_half, at = reflector.v_of(half), half.start - reflector.columns.start
    products = matmul(adjoint(of_half), of_half)
    load(REFLECTOR, v.dtype, 256, width=width, most=blocks.power_of_two(-(-n // width)))(
        (v.batches, 1),
        products.data.ptr,
        n,
        n * n,
        t.address(at, at),
        t.pitch,
        t.stride,
        flag,
        tau.data.ptr + half.start * tau.itemsize,
        n,
        0,
    )
