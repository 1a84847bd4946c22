"""Cholesky factorisation by blocks, of the lower triangle.

::

    blocks of an outer panel:   factor and solve below | update within the panel | factor ...
    after the panel:            C -= L L^H, the blocks of rows up to the diagonal

Nothing waits for the host; the first column that is not positive stays on the device.
"""

from __future__ import annotations

from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks
from cupygemm._solvers.blocks import outer_width
from cupygemm._solvers.kernels import CHOLESKY_FINISH, CHOLESKY_PANEL, load
from cupygemm._solvers.matrices import Matrices, adjoint
from cupygemm._solvers.products import EXACT, Rounding, subtract_product
from cupygemm._solvers.substitution import substitute
from cupygemm._solvers.updates import update_panel

_THREADS = 256
_FINISH_THREADS = 128
_TRAILING_ROWS = 1024
"""The rows of the blocks in which the lower triangle is updated."""


def factor(a: Matrices, rounding: Rounding = EXACT) -> Array:
    """Replace Hermitian matrices by their lower Cholesky factors.

    Parameters
    ----------
    a : Matrices
        Square. Only the lower triangles are read.
    rounding : Rounding
        Of the operands of the products that update the matrix behind a panel.

    Returns
    -------
    cupy.ndarray
        (batches,), int32: one more than the first column at which the matrix is not positive
        definite, or zero.
    """
    import cupy

    n = a.n
    info = cupy.zeros(a.batches, "int32")
    width = min(blocks.LIMITS.width, 16 if a.dtype.itemsize == 16 else 32)
    num_blocks = -(-n // width)
    diagonal = cupy.empty((a.batches, num_blocks, width, width), a.dtype)
    outer = outer_width(n, width)
    for first in range(0, n, outer):
        end = min(first + outer, n)
        for column in range(first, end, width):
            behind = min(column + width, end)
            _factor_block(a, diagonal, info, column, behind - column)
            if behind < end:
                update_panel(
                    a,
                    left=(behind, column),
                    right=(behind, column),
                    target=(behind, behind),
                    extents=(n - behind, end - behind, behind - column),
                    hermitian=True,
                )
        _update(a, first, end, rounding)
    launch = load(CHOLESKY_FINISH, a.dtype, _FINISH_THREADS, width=width)
    launch(
        (n, a.batches),
        a.address(0, 0),
        a.pitch,
        a.stride,
        diagonal.data.ptr,
        num_blocks * width * width,
        n,
        0,
    )
    return info


def _update(a: Matrices, first: int, end: int, rounding: Rounding) -> None:
    """Subtract the product of an outer panel from the lower triangle behind it."""
    if end == a.n:
        return
    within = slice(first, end)
    right = adjoint(a.block(slice(end, a.n), within))
    rows = max(_TRAILING_ROWS, end - first)
    for top in range(end, a.n, rows):
        bottom = min(top + rows, a.n)
        subtract_product(
            a.block(slice(top, bottom), within),
            right[..., : bottom - end],
            a.block(slice(top, bottom), slice(end, bottom)),
            rounding,
        )


def _factor_block(a: Matrices, diagonal: Array, info: Array, first: int, width: int) -> None:
    size = diagonal.shape[-1]
    launch = load(CHOLESKY_PANEL, a.dtype, _THREADS, width=size)
    below = a.n - first - width
    launch(
        (max(-(-below // _THREADS), 1), a.batches),
        a.address(first, first),
        a.pitch,
        a.stride,
        diagonal.data.ptr + (first // size) * size * size * a.dtype.itemsize,
        diagonal.shape[1] * size * size,
        info.data.ptr,
        a.n - first,
        width,
        first,
        0,
    )


def substitute_both(factors: Matrices, x: Matrices) -> None:
    """Solve ``L L^H X = B`` in place."""
    n = factors.m
    substitute(factors, (0, 0), n, x, (0, 0), x.n, lower=True)
    substitute(factors, (0, 0), n, x, (0, 0), x.n, lower=True, transposed=True, conjugate=True)
