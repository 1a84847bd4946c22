"""Solutions of systems that low-precision factors precondition, and their backward errors."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers.common.errors import raise_not_finite
from cupygemm._solvers.common.scaling import scaled_row_sums
from cupygemm._solvers.refinement.gmres import correction
from cupygemm._solvers.refinement.low_factors import Low, LowWindowedLU
from cupygemm._solvers.refinement.one_vector import OneVector


class Solution(Protocol):
    """A first solution, and what improves it."""

    def improve(self, steps: int) -> None:
        """Add a correction by some steps of GMRES."""

    def fetch(self) -> tuple[np.ndarray[Any, Any], bool]:
        """Wait for the errors of the systems, and whether a factorisation failed."""

    def columns(self) -> Array:
        """Return the solutions, (batches, n, k)."""


def first_solution(a: Array, b: Array, low: Low, finite: Array | None) -> Solution:
    """Return a first solution.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, n, n).
    b : cupy.ndarray
        (batches, n, k), of its type.
    low : Low
    finite : cupy.ndarray, optional
        From `finite_flag`.
    """
    if isinstance(low, LowWindowedLU) and b.shape[2] == 1:
        return _OfOneVector(a, b, low, finite)
    return _OfStacks(a, b, low, finite)


class _OfStacks:
    """Solutions of stacks of systems with any right-hand sides."""

    def __init__(self, a: Array, b: Array, low: Low, finite: Array | None) -> None:
        self._system, self._low, self._finite = System(a, b, low), low, finite
        self._x = low.solve(self._system.b)
        self._r, self._errors = self._system.residual(self._x)

    def improve(self, steps: int) -> None:
        system, low = self._system, self._low
        more = correction(system.multiply_scaled, low.precondition, self._r, steps)
        self._x = self._x + low.columns * more
        self._r, self._errors = system.residual(self._x)

    def fetch(self) -> tuple[np.ndarray[Any, Any], bool]:
        import cupy

        flags = [self._low.info] if self._finite is None else [self._low.info, self._finite]
        values = cupy.concatenate([each.astype("float64") for each in (self._errors, *flags)]).get()
        count = self._errors.size
        if self._finite is not None:
            raise_not_finite(values[-1])
        return values[:count], bool(values[count : 2 * count].any())

    def columns(self) -> Array:
        return self._x.swapaxes(1, 2)


class _OfOneVector:
    """The solution of one system with one right-hand side."""

    def __init__(self, a: Array, b: Array, low: LowWindowedLU, finite: Array | None) -> None:
        import cupy

        a, vector = cupy.ascontiguousarray(a[0]), cupy.ascontiguousarray(b[0, :, 0])
        flags = [low.info] if finite is None else [low.info, finite]
        self._low = low  # it holds the memory of the factors
        self._vector = OneVector(a, vector, low.rows[0, 0], low.columns[0, 0], low.factors, flags)
        self._vector.begin()

    def improve(self, steps: int) -> None:
        self._vector.improve(steps)

    def fetch(self) -> tuple[np.ndarray[Any, Any], bool]:
        error, (info, *finite) = self._vector.fetch()
        if finite:
            raise_not_finite(finite[0])
        return np.array([error]), info != 0

    def columns(self) -> Array:
        return self._vector.x[None, :, None]


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
        scaled = scaled_row_sums(a, low.rows.swapaxes(1, 2), low.columns)
        self._norm_scaled = scaled.max(axis=1)[:, None]

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
        error_scaled = _backward_error(
            scaled, self._norm_scaled, x / low.columns, low.rows * self.b
        )
        return scaled, cupy.maximum(error, error_scaled)


def _backward_error(r: Array, norm: Array, x: Array, b: Array) -> Array:
    import cupy

    bound = norm * cupy.abs(x).max(axis=2) + cupy.abs(b).max(axis=2)
    return (cupy.abs(r).max(axis=2) / cupy.where(bound == 0, 1, bound)).max(axis=1)
