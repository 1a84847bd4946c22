"""Singular values, for `pinv` and `lstsq`: QR, then one-sided Jacobi rotations of R's rows.

With A = Q R and a unitary J for which the rows of J^H R are orthogonal, the norms of those rows are
the singular values, and A = (Q J) diag(s) V^H. Jacobi rotations converge in some six to ten sweeps.
(J. Demmel and K. Veselic, "Jacobi's method is more accurate than QR", 1992)
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array
from cupygemm._solvers.common.errors import is_capturing
from cupygemm._solvers.common.kernels import JACOBI, load
from cupygemm._solvers.common.matrices import Matrices, adjoint, copied
from cupygemm._solvers.common.scaling import power_of_two_scale
from cupygemm._solvers.qr import qr

_THREADS = 256
_MOST_SWEEPS = 30
_CAPTURED_SWEEPS = 12
_ALONE = 128
"""Matrices of up to this number of rows have one workgroup, which runs all sweeps in one launch."""


@dataclass(frozen=True, eq=False)
class SingularValues:
    """A = Q J diag(s) V^H, of matrices with at least as many rows as columns.

    Attributes
    ----------
    factors : QrFactors
        Of Q.
    j : cupy.ndarray
        (batches, n, n): J^H.
    s : cupy.ndarray
        (batches, n), in descending order, of the matrices before scaling.
    vh : cupy.ndarray
        (batches, n, n). Rows that belong to zero singular values are zero.
    """

    factors: qr.QrFactors
    j: Array
    s: Array
    vh: Array


def decompose(a: Array) -> SingularValues:
    """Decompose a stack of matrices, (batches, m, n) with m >= n, of a supported type."""
    import cupy

    n = a.shape[-1]
    scale = power_of_two_scale(a)
    factors = qr.factor(copied(a * scale, a.dtype))
    rows = copied(cupy.triu(factors.qr.view[:, :n]), a.dtype)
    j = copied(cupy.broadcast_to(cupy.eye(n, dtype=a.dtype), rows.view.shape), a.dtype)
    _rotate(rows, j)
    squares = (rows.view * rows.view.conj()).real.sum(axis=2)
    norms = cupy.sqrt(squares)
    order = cupy.argsort(-norms, axis=1)
    s = cupy.take_along_axis(norms, order, axis=1)
    vh = cupy.take_along_axis(rows.view, order[:, :, None], axis=1)
    divisors = cupy.where(s > 0, s, 1)[:, :, None]
    return SingularValues(
        factors,
        cupy.take_along_axis(j.view, order[:, :, None], axis=1),
        s / scale[:, :, 0],
        vh / divisors,
    )


def solve_least_squares(values: SingularValues, b: Matrices, smallest: Array) -> Array:
    """Return V diag(1 / s) J^H Q^H B, without singular values of at most `smallest`.

    Parameters
    ----------
    values : SingularValues
    b : Matrices
        Overwritten by Q^H B.
    smallest : cupy.ndarray
        (batches, 1).
    """
    import cupy

    n = values.s.shape[1]
    qr.apply_q(values.factors, b, inverse=True)
    used = values.s > smallest
    inverse = cupy.where(used, 1 / cupy.where(used, values.s, 1), 0)
    inner = matmul(values.j, b.array[:, :n, : b.n])
    return matmul(adjoint(values.vh), inner * inverse[:, :, None])


def _rotate(rows: Matrices, j: Matrices) -> None:
    """Make the rows of matrices orthogonal, and apply the rotations to `j` as well."""
    import cupy

    n = rows.m
    if n < 2:
        return
    launch = load(JACOBI, rows.dtype, _THREADS)
    pairs = (n + 1) // 2

    def run(groups: int, rotations: Array, turn: int, sweeps: int) -> None:
        launch(
            (groups, rows.batches),
            rows.address(0, 0),
            j.address(0, 0),
            rows.pitch,
            j.pitch,
            rows.stride,
            j.stride,
            rotations.data.ptr,
            n,
            rows.n,
            turn,
            sweeps,
        )

    if n <= _ALONE:
        run(1, rows.array, -1, _MOST_SWEEPS)
        return
    capturing = is_capturing()
    groups = -(-pairs // (_THREADS // 32))
    rotations = cupy.empty((rows.batches, pairs), "uint32")
    for _ in range(_CAPTURED_SWEEPS if capturing else _MOST_SWEEPS):
        rotations.fill(0)
        for turn in range(2 * pairs - 1):
            run(groups, rotations, turn, 0)
        if not capturing and not bool(rotations.any()):
            return
