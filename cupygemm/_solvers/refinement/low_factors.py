"""Factors in a low precision of scaled matrices, by which refinement preconditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.matrices import Matrices, copied, empty
from cupygemm._solvers.common.products import ROUNDINGS, Rounding, adds_in_place
from cupygemm._solvers.common.recorded import repeatable
from cupygemm._solvers.common.scaling import inverse_powers_of_two, largest_parts, scale_into
from cupygemm._solvers.lu import lu
from cupygemm._solvers.lu.swaps import permutation
from cupygemm._solvers.refinement import butterflies, windowed_lu
from cupygemm._solvers.triangles import cholesky
from cupygemm._solvers.triangles.substitution import substitute

_UNITS = {
    "float32": 2.0**-24,
    "tf32x3": 2.0**-24,
    "tf32": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "int8": 2.0**-24,
}
"""Unit roundoffs of the precisions; of products by residues, what is left of the operands."""


class Low:
    """Factors in a low precision of scaled matrices, R A C, with powers of two in R and C.

    Vectors are rows: (batches, k, n).

    Attributes
    ----------
    rows, columns : cupy.ndarray
        (batches, 1, n): the diagonals of R and C.
    info : cupy.ndarray
        (batches,), int32, as of the factorisation.
    """

    info: Array

    def __init__(self, rows: Array, columns: Array, rounding: Rounding) -> None:
        self._rounding = rounding
        self.rows, self.columns = rows[:, None], columns[:, None]

    def scaled(self, a: Array) -> Matrices:
        """Return the scaled matrices in the low precision."""
        batches, m, n = a.shape
        scaled = empty(batches, m, n, self._dtype(a))
        scale_into(scaled.view, a, self.rows.swapaxes(1, 2), self.columns)
        return scaled

    def solve(self, b: Array) -> Array:
        """Return an approximate solution."""
        return self.columns * self.precondition(self.rows * b)

    def precondition(self, v: Array) -> Array:
        """Return an approximate solution of the scaled system."""
        scale = inverse_powers_of_two(largest_parts(v, 2)[:, :, None])
        x = copied((v * scale).swapaxes(1, 2), self._dtype(v))
        self.substitute(x)
        return x.view.swapaxes(1, 2).astype(v.dtype) / scale

    def substitute(self, x: Matrices) -> None:
        """Solve with the factors in place."""
        raise NotImplementedError

    def _dtype(self, a: Array) -> np.dtype[Any]:
        """Return the type of the factors."""
        single = "F" if a.dtype.kind == "c" else "f"
        return np.dtype(a.dtype.char if self._rounding.by_residues else single)


def _equilibrated(a: Array) -> tuple[Array, Array]:
    """Return factors of rows and of columns that bring their largest elements near one."""
    rows = inverse_powers_of_two(largest_parts(a, 2))
    return rows, inverse_powers_of_two(largest_parts(a, 1, rows[:, :, None]))


class LowLU(Low):
    """LU factors of matrices whose rows and columns are scaled to largest elements near one."""

    def __init__(self, a: Array, precision: str) -> None:
        rows, columns = _equilibrated(a)
        rounding = ROUNDINGS[precision]
        super().__init__(rows, columns, rounding)
        found = lu.factor(self.scaled(a), rounding=rounding)
        self._lu, self.info = found.lu, found.info
        self._rows = permutation(found.pivots)[:, :, None]

    def substitute(self, x: Matrices) -> None:
        import cupy

        x.array[...] = cupy.take_along_axis(x.array, self._rows, axis=1)
        substitute(self._lu, x, lower=True, unit=True)
        substitute(self._lu, x, lower=False)


class LowWindowedLU(Low):
    """LU factors of a scaled matrix whose rows and columns are mixed, with pivots from windows."""

    def __init__(self, a: Array, precision: str) -> None:
        rows, columns = _equilibrated(a)
        rounding = ROUNDINGS[precision]
        super().__init__(rows, columns, rounding)
        self._memory: list[Any] = []  # of the factors

        def prepare() -> Matrices:
            return windowed_lu.workspace(windowed_lu.padded(a.shape[-1]))

        def fill(both: Matrices) -> None:
            butterflies.transform(a[0], rows[0], columns[0], both)

        def work(both: Matrices) -> windowed_lu.WindowedFactors:
            return windowed_lu.factor(both, rounding)

        key = ("windowed_lu", a.shape, a.dtype, rounding)
        # Where cuBLAS is faster, its calls are not recorded.
        pays = adds_in_place(np.dtype("f"), rounding)
        self.factors = repeatable(
            key, prepare, fill, work, lambda x: x, pays=pays, kept=self._memory
        )
        self.info = self.factors.info

    def precondition(self, v: Array) -> Array:
        import cupy

        scale = inverse_powers_of_two(largest_parts(v[0], 1))
        mixed = cupy.empty((len(self.factors.order), len(scale)), "f")
        butterflies.left(v[0], scale, mixed)
        x = mixed[self.factors.order]
        self.factors.solve(x)
        solution = cupy.empty(v.shape, v.dtype)
        butterflies.right(x, scale, solution[0])
        return solution


class LowCholesky(Low):
    """Cholesky factors of matrices that are scaled to diagonals near one.

    The diagonal grows by some units of roundoff, so that rounding does not make matrices
    indefinite. (N. Higham and S. Pranesh, "Exploiting lower precision arithmetic in solving
    symmetric positive definite linear systems and least squares problems", 2021.)
    """

    def __init__(self, a: Array, precision: str) -> None:
        import cupy

        diagonal = cupy.arange(a.shape[-1])
        scale = inverse_powers_of_two(cupy.sqrt(cupy.abs(a[:, diagonal, diagonal].real)))
        rounding = ROUNDINGS[precision]
        super().__init__(scale, scale, rounding)
        self._factor = self.scaled(a)
        self._factor.array[:, diagonal, diagonal] *= 1 + 2 * _UNITS[precision]
        self.info = cholesky.factor(self._factor, rounding)

    def substitute(self, x: Matrices) -> None:
        cholesky.substitute_both(self._factor, x)


def factored(a: Array, precision: str, *, positive: bool) -> Low:
    """Return the factors of matrices that are scaled; see `refinement.refine`."""
    if positive:
        return LowCholesky(a, precision)
    if _takes_windows(a, precision):
        return LowWindowedLU(a, precision)
    return LowLU(a, precision)


def _takes_windows(a: Array, precision: str) -> bool:
    """Tell whether a matrix is factored with pivots from windows."""
    batches, n, _ = a.shape
    is_real = a.dtype.kind != "c" and not ROUNDINGS[precision].by_residues
    return batches == 1 and n >= blocks.LIMITS.windowed and is_real
