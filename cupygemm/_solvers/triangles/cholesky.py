"""Cholesky factorisation by blocks, of the lower triangle.

::

    blocks of an outer panel:   factor and solve below | update within the panel | factor ...
    after the panel:            C -= L L^H, the blocks of rows up to the diagonal

In a large matrix, the next panel's columns are updated first. The panel is then factored while the
other trailing columns are updated (ahead.py).

In a stack of matrices, the blocks have up to 64 columns. One workgroup factors a block on a
diagonal, as a small matrix (small.py), and others solve for the rows below.

The host never waits; the info, the first column whose pivot is not positive, stays on the device.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks, small, tiles
from cupygemm._solvers.common.ahead import beside
from cupygemm._solvers.common.blocks import has_tile_kernels, is_ahead, outer_panels, outer_width
from cupygemm._solvers.common.errors import fetch
from cupygemm._solvers.common.kernels import CHOLESKY_FINISH, CHOLESKY_PANEL, load
from cupygemm._solvers.common.matrices import Matrices, adjoint, copied, empty
from cupygemm._solvers.common.products import EXACT, Rounding, subtract_product
from cupygemm._solvers.common.reports import reported
from cupygemm._solvers.common.updates import panel_update
from cupygemm._solvers.triangles.substitution import substitute, substitute_below

_THREADS = 64
_FINISH_THREADS = 128
_TRAILING_ROWS = 1024
"""The rows of the blocks in which the lower triangle is updated."""


def factored(a: Array, dtype: np.dtype[Any]) -> tuple[Matrices, Array]:
    """Return the lower Cholesky factors of Hermitian matrices, and their info as of `factor`.

    Parameters
    ----------
    a : cupy.ndarray
        (..., n, n), not empty. Only the lower triangles are read.
    dtype : numpy.dtype
        The type to factor in.
    """
    import cupy

    stack = a.reshape(-1, *a.shape[-2:])
    if _reads_tiles(a, dtype):
        factors = empty(len(stack), a.shape[-1], a.shape[-1], dtype)
        info = cupy.zeros(len(stack), "int32")
        tiles.factor(factors, stack, info=info.data.ptr)
        return factors, info
    factors = copied(stack, dtype)
    return factors, factor(factors)


def reported_factors(a: Array, dtype: np.dtype[Any]) -> tuple[Array, small.Info]:
    """Return lower Cholesky factors (..., n, n), and the result of `reported`.

    The operands are those of `factored`.
    """
    n = a.shape[-1]
    if small.is_whole(n, dtype):
        return small.factor_cholesky(a, dtype)
    if not _reads_tiles(a, dtype):
        factors, info = factored(a, dtype)
        return factors.view.reshape(a.shape), fetch(info)
    stack = a.reshape(-1, n, n)
    factors = empty(len(stack), n, n, dtype)
    failed = reported(len(stack), lambda info: tiles.factor(factors, stack, info=info))
    return factors.view.reshape(a.shape), failed


def _reads_tiles(a: Array, dtype: np.dtype[Any]) -> bool:
    """Tell whether one launch factors tiles of matrices that it reads in place."""
    return a.dtype == dtype and has_tile_kernels(dtype) and not small.is_whole(a.shape[-1], dtype)


def factor(a: Matrices, rounding: Rounding = EXACT) -> Array:
    """Replace Hermitian matrices by their lower Cholesky factors.

    Parameters
    ----------
    a : Matrices
        Square. Only the lower triangles are read.
    rounding : Rounding
        Of the operands of the products that update the trailing matrix.

    Returns
    -------
    cupy.ndarray
        (batches,), int32: one more than the first column at which the matrix is not positive
        definite, or zero.
    """
    import cupy

    n = a.n
    info = cupy.zeros(a.batches, "int32")
    if rounding == EXACT and not small.is_whole(n, a.dtype) and tiles.factors_tiles(a):
        tiles.factor(a, info=info.data.ptr)
        return info
    if small.is_whole(n, a.dtype):
        small.factor_cholesky_in_place(a, info)
        return info
    size = min(small.most_rows(a.dtype), blocks.LIMITS.substituted)
    if rounding == EXACT and a.batches > 1 and size > 0:
        _factor_stack(a, info, size)
        return info
    width = min(blocks.LIMITS.width, 16 if a.dtype.itemsize == 16 else 32)
    num_blocks = -(-n // width)
    diagonal = cupy.empty((a.batches, num_blocks, width, width), a.dtype)
    outer = outer_width(n, width)
    factor_next = functools.partial(_factor_panel, a, diagonal, info, width)
    panels = outer_panels(n, outer)
    factor_next(panels[0])
    for panel, following in pairwise(panels):
        if is_ahead(a, following.stop, blocks.LIMITS.ahead):
            _update(a, panel, following, rounding)
            with beside(functools.partial(factor_next, following), blocks.LIMITS.spared):
                _update(a, panel, range(following.stop, n), rounding)
        else:
            _update(a, panel, range(panel.stop, n), rounding)
            factor_next(following)
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


def _factor_stack(a: Matrices, info: Array, size: int) -> None:
    """Factor a stack of matrices, each block on the diagonal by one workgroup."""
    n = a.n
    for first in range(0, n, size):
        stop = min(first + size, n)
        small.factor_cholesky_block(a, first, stop - first, info)
        if stop < n:
            a.block(slice(first, stop), slice(stop, n))[...] = 0
            substitute_below(a, first, size)
            _update(a, range(first, stop), range(stop, n), EXACT)


def _factor_panel(a: Matrices, diagonal: Array, info: Array, width: int, panel: range) -> None:
    """Factor an outer panel, block by block. Only its own columns change."""
    n, end = a.n, panel.stop
    for column in range(panel.start, end, width):
        next_column = min(column + width, end)
        _factor_block(a, diagonal, info, column, next_column - column)
        if next_column < end:
            panel_update(
                a,
                left=(next_column, column),
                right=(next_column, column),
                target=(next_column, next_column),
                extents=(n - next_column, end - next_column, next_column - column),
                hermitian=True,
            ).enqueue()


def _update(a: Matrices, panel: range, columns: range, rounding: Rounding) -> None:
    """Subtract the product of an outer panel from the lower triangle of trailing columns."""
    within, left = slice(panel.start, panel.stop), columns.start
    right = adjoint(a.block(slice(left, columns.stop), within))
    # Columns of one panel take one product; its elements above the diagonal are never read.
    rows = max(_TRAILING_ROWS, len(panel)) if columns.stop == a.n else a.n
    for top in range(left, a.n, rows):
        bottom = min(top + rows, a.n)
        across = min(bottom, columns.stop)
        subtract_product(
            a.block(slice(top, bottom), within),
            right[..., : across - left],
            a.block(slice(top, bottom), slice(left, across)),
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


def substitute_both(factors: Matrices, x: Matrices, *, lower: bool = True) -> None:
    """Solve ``L L^H X = B``, or ``U^H U X = B`` with upper factors, in place."""
    for transposed in (not lower, lower):
        substitute(factors, x, lower=lower, transposed=transposed, conjugate=transposed)
