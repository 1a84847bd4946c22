"""Flexible GMRES: a cycle of fixed length, which never waits for the device.

The system is preconditioned from the right, so that what is minimised is the residual itself, and
the preconditioner may be computed in a lower precision. With an LU factorisation in float32 as the
preconditioner, the method is backward stable in float64 (M. Arioli and I. S. Duff, "Using FGMRES to
obtain backward stability in mixed precision", 2009).

Vectors of several right-hand sides stand beside each other as rows: (batches, k, n).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cupygemm._request.arrays import Array
from cupygemm._solvers.common.matrices import copied
from cupygemm._solvers.qr import qr
from cupygemm._solvers.triangles.substitution import substitute

Operator = Callable[[Array], Array]


def correction(multiply: Operator, precondition: Operator, r: Array, steps: int) -> Array:
    """Return an approximate solution of ``A d = r`` by some steps of flexible GMRES.

    Parameters
    ----------
    multiply, precondition : callable
        What multiplies vectors (batches, k, n) by A, and by an approximate inverse of A.
    r : cupy.ndarray
        (batches, k, n).
    steps : int
        The vectors that the solution is composed of.
    """
    import cupy

    batches, k, n = r.shape
    basis = cupy.zeros((batches, k, steps + 1, n), r.dtype)
    directions = cupy.empty((batches, k, steps, n), r.dtype)
    # Columns of the Hessenberg matrix, and the right-hand side of its least-squares problem.
    small = cupy.zeros((batches * k, steps + 1, steps + 1), r.dtype)
    columns = small.reshape(batches, k, steps + 1, steps + 1)
    basis[:, :, 0], columns[..., 0, steps] = _normalized(r)
    for j in range(steps):
        direction = precondition(basis[:, :, j])
        directions[:, :, j] = direction
        w = multiply(direction)
        done = basis[:, :, : j + 1]
        for _ in range(2):  # the second pass makes the basis orthogonal to working precision
            along = (done.conj() * w[:, :, None]).sum(axis=3)
            w = w - (along[..., None] * done).sum(axis=2)
            columns[..., : j + 1, j] += along
        basis[:, :, j + 1], columns[..., j + 1, j] = _normalized(w)
    weights = _least_squares(small, steps).reshape(batches, k, steps, 1)
    return (weights * directions).sum(axis=2)


def _normalized(w: Array) -> tuple[Array, Array]:
    """Return vectors of norm one, or zero, and the norms."""
    import cupy

    is_complex = w.dtype.kind == "c"
    norm = cupy.sqrt((w.real**2 + w.imag**2 if is_complex else w**2).sum(axis=-1))
    return _divided()(w, norm[..., None]), norm


@functools.cache
def _divided() -> Any:
    import cupy

    operation = "y = norm > 0 ? w * (R(1) / norm) : T(0)"
    return cupy.ElementwiseKernel("T w, R norm", "T y", operation, "cupygemm_divided_by_norm")


def _least_squares(small: Array, steps: int) -> Array:
    """Return the weights (count, steps) from Hessenberg matrices beside a right-hand side."""
    import cupy

    factors = qr.factor(copied(small, small.dtype)).qr
    r = copied(factors.view[:, :steps, :steps], small.dtype)
    right = copied(factors.view[:, :steps, steps:], small.dtype)
    # A vector that repeats earlier ones has a zero here, and its weight does not matter.
    diagonal = cupy.arange(steps)
    on = r.array[:, diagonal, diagonal]
    r.array[:, diagonal, diagonal] = cupy.where(on == 0, 1, on)
    substitute(r, right, lower=False)
    return right.view[:, :, 0]
