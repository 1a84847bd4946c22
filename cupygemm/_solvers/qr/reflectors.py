"""`Reflector`: reflections in compact WY form, Q = I - V T V^H.

They are applied by three products::

    W = V^H C | W = T W, or T^H W for the inverse | C -= V W

Wide products of float32 use tf32 terms if the device adds such products in place. From 16 terms on,
they are as accurate as sums in float32, except for numbers near the smallest or the largest, which
do not matter in a scaled matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.matrices import Matrices, adjoint, empty, zeros
from cupygemm._solvers.common.products import (
    EXACT,
    ROUNDINGS,
    Rounding,
    adds_in_place,
    store_negated_product,
    subtract_product,
)

_TERMS = ROUNDINGS["tf32x3"]


@dataclass(frozen=True, eq=False)
class Reflector:
    """The reflections of some columns, Q = I - V T V^H on the rows from their first index on.

    Attributes
    ----------
    columns : range
        Of the matrix.
    v : Matrices
        With ones on the diagonal and zeros above.
    t : Matrices
        Square, upper triangular.
    """

    columns: range
    v: Matrices
    t: Matrices

    @classmethod
    def of(cls, columns: range, a: Matrices) -> Reflector:
        """Return a reflector without reflections, for columns of a matrix."""
        m, n = a.m - columns.start, len(columns)
        v = empty(a.batches, m, n, a.dtype)
        v.array[:, :n].fill(0)  # the launches that compute the rows below store them
        return cls(columns, v, zeros(a.batches, n, n, a.dtype))

    def apply(self, c: Matrices, columns: range, *, inverse: bool, is_scaled: bool = True) -> None:
        """Multiply columns of C by Q or its inverse, in place.

        Parameters
        ----------
        c : Matrices
        columns : range
        inverse : bool
        is_scaled : bool
            Whether numbers near the smallest and the largest of the type do not matter in C.
        """
        self.apply_part(self.columns, c, columns, inverse=inverse, is_scaled=is_scaled)

    def apply_part(
        self,
        part: range,
        c: Matrices,
        columns: range,
        *,
        inverse: bool,
        is_scaled: bool = True,
    ) -> None:
        """Apply the reflections of some columns only; see `apply`."""
        if not columns or not c.array.size:
            return
        n, v, t = len(part), self.v_of(part), self.t_of(part, part)
        block = c.block(slice(part.start, c.m), slice(columns.start, columns.stop))
        # Minus V^H C, and then minus T times it: such products leave compute units to a panel.
        sums, factors = (_empty_block(c, n, len(columns)) for _ in range(2))
        rounding = _rounding(c, n, len(columns)) if is_scaled else EXACT
        store_negated_product(adjoint(v), block, sums, rounding)
        store_negated_product(adjoint(t) if inverse else t, sums, factors, rounding)
        subtract_product(v, factors, block, rounding)

    def apply_to_identity(self, c: Matrices, columns: range) -> None:
        """Multiply columns of C by Q, in place.

        They are columns of the identity, within `self.columns`: V^H C is a part of V^H.
        """
        own = self.columns
        factors = _empty_block(c, len(own), len(columns))
        rounding = _rounding(c, len(own), len(columns))
        rows = slice(columns.start - own.start, columns.stop - own.start)
        minus = -self.v.block(rows, slice(0, len(own)))
        store_negated_product(self.t_of(own, own), adjoint(minus), factors, rounding)
        block = c.block(slice(own.start, c.m), slice(columns.start, columns.stop))
        subtract_product(self.v_of(own), factors, block, rounding)

    def join(self, left: range, right: range) -> None:
        """Compute the block of T that joins the reflections of adjacent columns."""
        sums, factors = (_empty_block(self.v, len(left), len(right)) for _ in range(2))
        below = self.v_of(left, right.start)
        store_negated_product(adjoint(below), self.v_of(right), sums)
        store_negated_product(sums, self.t_of(right, right), factors)
        subtract_product(self.t_of(left, left), factors, self.t_of(left, right))

    def v_of(self, part: range, first: int | None = None) -> Array:
        """Return some columns of V, from row `first` of the matrix on; by default, all."""
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


def multiplies_in_place(dtype: np.dtype[Any]) -> bool:
    """Tell whether kernels of this library apply reflections, except for a few small products."""
    return adds_in_place(dtype) or (dtype.char == "f" and adds_in_place(dtype, _TERMS))


def _rounding(c: Matrices, reflections: int, columns: int) -> Rounding:
    """Return the rounding with which reflections are applied to some columns."""
    wide = min(columns, 4 * reflections) >= blocks.LIMITS.wide_float32
    real = c.dtype.char == "f" and c.batches == 1
    return _TERMS if wide and real and adds_in_place(c.dtype, _TERMS) else EXACT


def _empty_block(like: Matrices, rows: int, columns: int) -> Array:
    made = empty(like.batches, rows, columns, like.dtype)
    return made.block(slice(0, rows), slice(0, columns))
