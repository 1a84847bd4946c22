"""The operands of a system whose matrix is already factored."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array, type_of
from cupygemm._solvers.common.errors import fetch, finite_flag
from cupygemm._solvers.common.matrices import Matrices, copied, readable
from cupygemm._solvers.operands import factored_dtype


def transposition(function: str, trans: Any) -> int:
    """Return 0, 1 or 2 for SciPy's ``trans``."""
    known = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    try:
        return known[trans]
    except (KeyError, TypeError):
        raise ValueError(
            f"{function}: trans is {trans!r}; it must be 0, 1, 2, 'N', 'T' or 'C'"
        ) from None


def factors_of(function: str, name: str, given: Any, maker: str) -> tuple[Any, Any]:
    """Return the two parts of SciPy's argument for the result of a factorisation."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        many = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        raise TypeError(
            f"{function}: {name} is {type_of(given)}{many}; pass the pair that {maker} returns"
        )
    return given[0], given[1]


def right_hand_sides(
    function: str, a: Array, b: Array
) -> tuple[np.dtype[Any], Matrices, tuple[int, ...], bool]:
    """Return the common type, a copy of ``b``, its shape, and whether it is a vector."""
    import cupy

    dtype = factored_dtype(function, a, b, narrow=True)
    columns, stack = columns_of(function, a, b)
    shape = (*stack, *columns.shape[-2:])
    return dtype, copied(cupy.broadcast_to(columns, shape), dtype), shape, b.ndim == 1


def columns_of(function: str, a: Array, b: Array) -> tuple[Array, tuple[int, ...]]:
    """Return ``b`` as matrices (..., n, k), and the leading extents of the solution.

    Raises
    ------
    ValueError
        The matrices ``a``, (..., n, n), and ``b`` do not match.
    """
    columns = b[:, None] if b.ndim == 1 else b
    stack: tuple[int, ...] = a.shape[:-2]
    try:
        if b.ndim and columns.shape[-2] == a.shape[-1]:
            if stack != columns.shape[:-2]:
                stack = np.broadcast_shapes(stack, columns.shape[:-2])
            return columns, stack
    except ValueError:
        pass
    raise ValueError(
        f"{function}: the matrix has shape {a.shape} and b has shape {b.shape}; b must have "
        f"{a.shape[-1]} rows, and the leading axes must broadcast"
    )


def stacked(a: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Matrices:
    """Return a read-only matrix for all right-hand sides, or one for each."""
    import cupy

    n = a.shape[-1]
    single = math.prod(a.shape[:-2]) == 1
    return readable(
        a.reshape(1, n, n) if single else cupy.broadcast_to(a, (*shape[:-2], n, n)), dtype
    )


def stacked_pivots(pivots: Array, batches: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return pivots, (batches, n), int32, and whether one of them is not a row, (1,), int32.

    Such a pivot is replaced by its own row, which swaps nothing, because the kernels that swap rows
    do not check pivots.
    """
    import cupy

    n = pivots.shape[-1]
    if batches > 1:
        pivots = cupy.broadcast_to(pivots, (*shape[:-2], n))
    rows, no_row = cupy.empty(pivots.shape, "int32"), cupy.zeros(1, "int32")
    if pivots.dtype != rows.dtype:
        pivots = pivots.astype("int64")
    _checked_rows()(pivots, n, rows, no_row)
    return rows.reshape(batches, n), no_row


@functools.cache
def _checked_rows() -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        "T pivot, int64 n",
        "int32 row, raw int32 no_row",
        """
        const bool known = 0 <= pivot && pivot < n;
        row = known ? pivot : i % n;
        if (!known)
            no_row[0] = 1;
        """,
        "cupygemm_checked_rows",
    )


def check_numbers(b: Array, no_row: Array | None = None, *, check_finite: bool) -> None:
    """Raise ValueError for a NaN or an infinity in the right-hand sides, or for a wrong pivot.

    Parameters
    ----------
    b : cupy.ndarray
    no_row : cupy.ndarray, optional
        From `stacked_pivots`.
    check_finite : bool
        Whether to check at all, which waits for the device.
    """
    if check_finite:
        flag = finite_flag(b)
        if fetch(flag[:0] if no_row is None else no_row, flag).any():
            raise ValueError(
                "lu_solve: piv has a pivot that is no row of the matrix; pass piv as lu_factor "
                "returns it, with numbers from 0"
            )


def solution(x: Matrices, shape: tuple[int, ...], *, vector: bool) -> Array:
    """Return the solution as an array of a shape in C order, without a vector's last axis."""
    result = x.dense.reshape(shape)
    return result[..., 0] if vector else result
