"""Systems that are factored in a low precision and refined to that of their operands.

::

    scale | factor in low precision | x = U^-1 L^-1 b | error | GMRES, some steps | error | ...
                                                        host                        host

After each ``error`` the host decides how many steps come next: as many as the rate so far calls
for. If they stop helping, the matrix is factored in the precision of the operands. (E. Carson and
N. Higham, "Accelerating the solution of linear systems by iterative refinement in three
precisions", 2018; A. Haidar, S. Tomov, J. Dongarra and N. Higham, "Harnessing GPU tensor cores for
fast FP16 arithmetic to speed up mixed-precision iterative refinement solvers", 2018.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks, butterflies, cholesky, lu, windowed_lu
from cupygemm._solvers.errors import is_capturing
from cupygemm._solvers.gmres import correction
from cupygemm._solvers.matrices import Matrices, adjoint, copied, empty
from cupygemm._solvers.products import EXACT, ROUNDINGS, Rounding
from cupygemm._solvers.scaling import (
    inverse_powers_of_two,
    largest_parts,
    scale_into,
    scaled_row_sums,
)
from cupygemm._solvers.substitution import substitute
from cupygemm._solvers.swaps import permutation

Path = Literal["direct", "refined", "fallback"]
_MOST_ITERATIONS = 50
_LONGEST_CYCLE = 16
_UNITS = {
    "float32": 2.0**-24,
    "tf32x3": 2.0**-24,
    "tf32": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "int8": 2.0**-24,
}
"""Unit roundoffs of the precisions; of products by residues, what is left of the operands."""


@dataclass(frozen=True)
class SolveInfo:
    """How `cupygemm.linalg.solve` found a solution.

    Attributes
    ----------
    path : {"direct", "refined", "fallback"}
        ``"direct"``: one factorisation in the precision of the operands. ``"refined"``: one in the
        lower precision, and refinement. ``"fallback"``: refinement did not converge for some
        matrix, and all were factored in the precision of the operands.
    precision : str
        The precision of the factorisation that the solution comes from.
    iterations : int
        How often the low-precision factors were applied.
    waits : int
        How often the call waited for the device.
    backward_error : numpy.ndarray or None
        The largest normwise backward error of each matrix's solutions, (...), computed as
        ``norm(b - a x) / (norm(a) norm(x) + norm(b))`` in the maximum norm, of the system or of the
        system with scaled rows and columns, whichever is larger; None if the solution was not
        refined.
    """

    path: Path
    precision: str
    iterations: int
    waits: int
    backward_error: np.ndarray[Any, Any] | None = None


def refined_precision(precision: str | None, dtype: np.dtype[Any]) -> str | None:
    """Return the precision to factor in; None if it is that of the operands.

    Raises
    ------
    ValueError
        The precision is unknown, or complex matrices do not have it.
    """
    if precision is None:
        return None
    if precision not in ROUNDINGS:
        raise ValueError(
            f"solve: precision is {precision!r}; it must be None or one of {list(ROUNDINGS)}"
        )
    if ROUNDINGS[precision] == EXACT:
        return precision if dtype.char in "dD" else None
    if dtype.kind == "c":
        raise ValueError(
            f"solve: precision is {precision!r}, which has no complex products; use 'float32'"
        )
    return precision


def refine(
    a: Array,
    b: Array,
    precision: str,
    *,
    positive: bool,
    finite: Array | None,
) -> tuple[Array | None, SolveInfo]:
    """Return solutions that reach the backward error of their type; None if there are none.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, n, n), of the type to refine in. Of positive definite matrices, only the lower
        triangles are read.
    b : cupy.ndarray
        (batches, n, k), of the same type.
    precision : str
        A key of `ROUNDINGS`.
    positive : bool
        Whether the matrices are positive definite.
    finite : cupy.ndarray, optional
        From `finite_flag`.

    Raises
    ------
    ValueError
        A graph is recorded, or an operand has a NaN or an infinity.
    """
    if is_capturing():
        raise ValueError(
            "solve: refinement cannot be recorded in a graph, since the host decides when it ends; "
            "leave precision out"
        )
    a = mirrored(a) if positive else a
    low = _factored(a, precision, positive=positive)
    system = System(a, b, low)
    x = low.solve(system.b)
    r, errors = system.residual(x)
    found, singular = _fetch(errors, low.info, finite)
    epsilon = float(np.finfo(a.dtype).eps)
    goal, enough = 2 * epsilon, max(2.0, math.sqrt(a.shape[-1])) * epsilon
    iterations, waits, steps = 1, 1, 0
    error = rate = float(found.max())
    previous = math.inf
    while not singular and goal < error < math.inf and iterations < _MOST_ITERATIONS:
        stagnates = error > previous / 2
        if stagnates and (error <= enough or steps == _LONGEST_CYCLE):
            break
        needed = _LONGEST_CYCLE if stagnates else _steps(error, goal, rate)
        steps = min(needed, _MOST_ITERATIONS - iterations)
        x = x + low.columns * correction(system.multiply_scaled, low.precondition, r, steps)
        r, errors = system.residual(x)
        found, _ = _fetch(errors, low.info, None)
        iterations, waits, previous = iterations + steps, waits + 1, error
        error = float(found.max())
        rate = (error / previous) ** (1 / steps)
    accepted = not singular and bool((found <= enough).all())
    info = SolveInfo("refined" if accepted else "fallback", precision, iterations, waits, found)
    return (x.swapaxes(1, 2) if accepted else None), info


def _factored(a: Array, precision: str, *, positive: bool) -> Low:
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


def _steps(error: float, goal: float, rate: float) -> int:
    """Return the steps that reach the goal if each multiplies the error by a rate."""
    steps = math.log(goal / error) / math.log(min(max(rate, 1e-30), 0.5))
    return min(max(math.ceil(steps), 1), _LONGEST_CYCLE)


def _fetch(errors: Array, info: Array, finite: Array | None) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the errors on the host, and whether a factorisation failed; one transfer."""
    import cupy

    flags = [info] if finite is None else [info, finite]
    values = cupy.concatenate([each.astype("float64") for each in (errors, *flags)]).get()
    count = errors.size
    if finite is not None and values[-1] != 0:
        raise ValueError("array must not contain infs or NaNs; check_finite=False allows them")
    return values[:count], bool(values[count : 2 * count].any())


def mirrored(a: Array) -> Array:
    """Return Hermitian matrices from their lower triangles."""
    import cupy

    below = cupy.tril(a, -1)
    whole: Array = below + adjoint(below)
    diagonal = cupy.arange(a.shape[-1])
    whole[:, diagonal, diagonal] = a[:, diagonal, diagonal].real
    return whole


class Low:
    """Factors in a low precision of scaled matrices, R A C, with powers of two in R and C.

    Vectors are rows: (batches, k, n).

    Attributes
    ----------
    rows, columns : cupy.ndarray
        (batches, 1, n): the diagonals of R and C.
    norm : cupy.ndarray
        (batches, 1): the maximum norms of R A C.
    info : cupy.ndarray
        (batches,), int32, as of the factorisation.
    """

    info: Array

    def __init__(self, a: Array, rows: Array, columns: Array, rounding: Rounding) -> None:
        self._rounding = rounding
        self.rows, self.columns = rows[:, None], columns[:, None]
        self.norm = scaled_row_sums(a, rows[:, :, None], self.columns).max(axis=1)[:, None]

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


class System:
    """Systems in the precision of their operands. Vectors are rows: (batches, k, n).

    Parameters
    ----------
    a : cupy.ndarray
        (batches, n, n).
    b : cupy.ndarray
        (batches, n, k).
    low : Low
        What scales them.
    """

    def __init__(self, a: Array, b: Array, low: Low) -> None:
        import cupy

        self._a, self._low = a, low
        self.b = cupy.ascontiguousarray(b.swapaxes(1, 2))
        self._norm = scaled_row_sums(a).max(axis=1)[:, None]

    def _multiply(self, x: Array) -> Array:
        return matmul(self._a, x.swapaxes(1, 2)).swapaxes(1, 2)

    def multiply_scaled(self, x: Array) -> Array:
        """Return the products of the scaled matrices with vectors."""
        return self._low.rows * self._multiply(self._low.columns * x)

    def residual(self, x: Array) -> tuple[Array, Array]:
        """Return the scaled residual, and the largest normwise backward error of each matrix."""
        import cupy

        low = self._low
        r = self.b - self._multiply(x)
        scaled = low.rows * r
        error = _backward_error(r, self._norm, x, self.b)
        error_scaled = _backward_error(scaled, low.norm, x / low.columns, low.rows * self.b)
        return scaled, cupy.maximum(error, error_scaled)


def _backward_error(r: Array, norm: Array, x: Array, b: Array) -> Array:
    import cupy

    bound = norm * cupy.abs(x).max(axis=2) + cupy.abs(b).max(axis=2)
    return (cupy.abs(r).max(axis=2) / cupy.where(bound == 0, 1, bound)).max(axis=1)


def _equilibrated(a: Array) -> tuple[Array, Array]:
    """Return what rows and columns are multiplied by, for largest elements near one."""
    rows = inverse_powers_of_two(largest_parts(a, 2))
    return rows, inverse_powers_of_two(largest_parts(a, 1, rows[:, :, None]))


class LowLU(Low):
    """LU factors of matrices whose rows and columns are scaled to largest elements near one."""

    def __init__(self, a: Array, precision: str) -> None:
        rows, columns = _equilibrated(a)
        rounding = ROUNDINGS[precision]
        super().__init__(a, rows, columns, rounding)
        found = lu.factor(self.scaled(a), rounding=rounding)
        self._lu, self.info = found.lu, found.info
        self._rows = permutation(found.pivots)[:, :, None]

    def substitute(self, x: Matrices) -> None:
        import cupy

        n, k = x.m, x.n
        x.array[...] = cupy.take_along_axis(x.array, self._rows, axis=1)
        substitute(self._lu, (0, 0), n, x, (0, 0), k, lower=True, unit=True)
        substitute(self._lu, (0, 0), n, x, (0, 0), k, lower=False)


class LowWindowedLU(Low):
    """LU factors of a scaled matrix whose rows and columns are mixed, with pivots from windows."""

    def __init__(self, a: Array, precision: str) -> None:
        rows, columns = _equilibrated(a)
        rounding = ROUNDINGS[precision]
        super().__init__(a, rows, columns, rounding)
        both = windowed_lu.room(windowed_lu.padded(a.shape[-1]))
        butterflies.transform(a[0], rows[0], columns[0], both)
        self._factors = windowed_lu.factor(both, rounding)
        self.info = self._factors.info

    def precondition(self, v: Array) -> Array:
        import cupy

        scale = inverse_powers_of_two(largest_parts(v[0], 1))
        mixed = cupy.empty((len(self._factors.order), len(scale)), "f")
        butterflies.left(v[0], scale, mixed)
        x = mixed[self._factors.order]
        self._factors.solve(x)
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
        super().__init__(a, scale, scale, rounding)
        self._factor = self.scaled(a)
        self._factor.array[:, diagonal, diagonal] *= 1 + 2 * _UNITS[precision]
        self.info = cholesky.factor(self._factor, rounding)

    def substitute(self, x: Matrices) -> None:
        cholesky.substitute_both(self._factor, x)
