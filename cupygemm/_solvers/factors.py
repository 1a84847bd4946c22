"""SciPy's factorisations and the solutions with them: `lu_factor`, `cho_factor` and so on."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from cupygemm._request.arrays import Array, as_array, as_arrays
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.common import small
from cupygemm._solvers.common.errors import fetch, finite_flag, first_failed, raise_not_definite
from cupygemm._solvers.common.matrices import adjoint, copied
from cupygemm._solvers.lu import lu as _lu
from cupygemm._solvers.lu.swaps import permute
from cupygemm._solvers.operands import (
    factored_dtype,
    require_matrices,
    require_square,
    square_matrices,
)
from cupygemm._solvers.right_hand_sides import (
    check_numbers,
    factors_of,
    right_hand_sides,
    solution,
    stacked,
    stacked_pivots,
    transposition,
)
from cupygemm._solvers.triangles import cholesky as _cholesky
from cupygemm._solvers.triangles.substitution import substitute, zero_diagonal

Transposition = Literal[0, 1, 2, "N", "T", "C"]


@common_keywords
def lu_factor(
    a: Any, overwrite_a: bool = False, check_finite: bool = True, *, stream: Any = None
) -> tuple[Array, Array]:
    """Compute an LU factorisation with partial pivoting, as `scipy.linalg.lu_factor`.

    Parameters
    ----------
    a : cupy.ndarray
        Matrices, (..., m, n).
    overwrite_a : bool
        Accepted for SciPy's signature. The operand is never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    lu : cupy.ndarray
        U, and below its diagonal L without its ones, (..., m, n).
    piv : cupy.ndarray
        Pivots, int32, (..., min(m, n)): row i was swapped with row ``piv[i]``.

    Raises
    ------
    ValueError
        If ``a`` has a NaN or an infinity, and `check_finite` is true.
    numpy.linalg.LinAlgError
        If ``a`` has fewer than two axes.
    TypeError
        If ``a`` is not an array on a device, or its type cannot be factored.

    Warns
    -----
    RuntimeWarning
        If a pivot is zero.

    See Also
    --------
    lu_solve : Solve systems with the factors.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> lu, piv = cupygemm.linalg.lu_factor(cp.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> lu
    array([[2. , 2. ],
           [0.5, 1. ]])
    >>> piv
    array([1, 1], dtype=int32)
    """
    import cupy

    a = as_array("lu_factor", "a", a)
    require_matrices("lu_factor", "a", a)
    dtype = factored_dtype("lu_factor", a, narrow=True)
    pivots = (*a.shape[:-2], min(a.shape[-2:]))
    if not a.size:
        return cupy.empty(a.shape, dtype), cupy.empty(pivots, "int32")
    finite = finite_flag(a) if check_finite else None
    info: np.ndarray[Any, Any] | None
    if a.shape[-2] == a.shape[-1] and small.is_whole(a.shape[-1], dtype):
        lu, piv, info = small.lu(a, dtype, finite)
    else:
        found = _lu.factor(copied(a, dtype))
        lu, piv = found.lu.view.reshape(a.shape), found.pivots.reshape(pivots)
        info = fetch(found.info, finite)
    if (failed := first_failed(info)) is not None:
        warnings.warn(
            f"lu_factor: Diagonal number {failed[1]} is exactly zero. Singular matrix.",
            RuntimeWarning,
            stacklevel=3,
        )
    return lu, piv


@common_keywords
def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: Transposition = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    stream: Any = None,
) -> Array:
    """Solve a system with the factors of `lu_factor`, as `scipy.linalg.lu_solve`.

    Parameters
    ----------
    lu_and_piv : tuple of (cupy.ndarray, cupy.ndarray)
        The result of `lu_factor` for square matrices, (..., n, n) and (..., n).
    b : cupy.ndarray
        Right-hand sides: a vector (n,), or matrices (..., n, k). Leading axes broadcast.
    trans : {0, 1, 2}
        Whether to solve with the matrix, with its transpose (1) or its conjugate transpose (2).
    overwrite_b : bool
        Accepted for SciPy's signature. The operand is never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities in ``b``, and for a pivot that is not a
        row of the matrix. Otherwise, such a pivot swaps nothing.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The solution. For a singular matrix it has infinities or NaN.

    Raises
    ------
    ValueError
        If the shapes do not match, an option has none of its allowed values, or `check_finite` is
        true and ``b`` has a NaN or an infinity, or ``piv`` has a number that is not a row.
    TypeError
        If an argument is not an array on a device, or a type cannot be factored.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> factors = cupygemm.linalg.lu_factor(cp.asarray([[4.0, 1.0], [1.0, 3.0]]))
    >>> cupygemm.linalg.lu_solve(factors, cp.asarray([9.0, 5.0]))
    array([2., 1.])
    """
    lu, pivots = factors_of("lu_solve", "lu_and_piv", lu_and_piv, "lu_factor")
    lu, pivots, b = as_arrays("lu_solve", lu=lu, piv=pivots, b=b)
    require_square("lu_solve", "lu", lu)
    how = transposition("lu_solve", trans)
    dtype, x, shape, vector = right_hand_sides("lu_solve", lu, b)
    if pivots.shape != lu.shape[:-1]:
        raise ValueError(
            f"lu_solve: lu has shape {lu.shape} and piv has shape {pivots.shape}; piv must have "
            f"shape {lu.shape[:-1]}"
        )
    if x.view.size:
        factors = stacked(lu, dtype, shape)
        order, no_row = stacked_pivots(pivots, factors.batches, shape)
        if how == 0:
            permute(x, order, inverse=False)
            substitute(factors, x, lower=True, unit=True)
            substitute(factors, x, lower=False)
        else:
            substitute(factors, x, lower=False, transposed=True, conjugate=how == 2)
            substitute(factors, x, lower=True, unit=True, transposed=True, conjugate=how == 2)
            permute(x, order, inverse=True)
        check_numbers(b, no_row, check_finite=check_finite)
    return solution(x, shape, vector=vector)


@common_keywords
def cho_factor(
    a: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    stream: Any = None,
) -> tuple[Array, bool]:
    """Compute a Cholesky factorisation for `cho_solve`, as `scipy.linalg.cho_factor`.

    Parameters
    ----------
    a : cupy.ndarray
        Positive definite matrices, (..., n, n). Only one triangle is read.
    lower : bool
        Whether that is the lower triangle.
    overwrite_a : bool
        Accepted for SciPy's signature. The operand is never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    c : cupy.ndarray
        The factor, (..., n, n). The other triangle is zero here, and arbitrary in SciPy.
    lower : bool
        Which triangle holds the factor.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ, or a matrix is not positive definite.
    ValueError
        If ``a`` has a NaN or an infinity, and `check_finite` is true.
    TypeError
        If ``a`` is not an array on a device, or its type cannot be factored.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> c, lower = cupygemm.linalg.cho_factor(cp.asarray([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    >>> c
    array([[2., 0.],
           [1., 2.]])
    """
    a, dtype = square_matrices("cho_factor", a, narrow=True)
    if not a.size:
        return a.astype(dtype), bool(lower)
    factors, info = _cholesky.factored(a if lower else adjoint(a), dtype)
    raise_not_definite("cho_factor", fetch(info, finite_flag(a) if check_finite else None))
    result = factors.view.reshape(a.shape)
    return (result if lower else result.swapaxes(-1, -2).conj()), bool(lower)


@common_keywords
def cho_solve(
    c_and_lower: tuple[Any, bool],
    b: Any,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    stream: Any = None,
) -> Array:
    """Solve a system with the factor of `cho_factor`, as `scipy.linalg.cho_solve`.

    Parameters
    ----------
    c_and_lower : tuple of (cupy.ndarray, bool)
        The result of `cho_factor`.
    b : cupy.ndarray
        Right-hand sides: a vector (n,), or matrices (..., n, k). Leading axes broadcast.
    overwrite_b : bool
        Accepted for SciPy's signature. The operand is never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities in ``b``.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The solution.

    Raises
    ------
    ValueError
        If the shapes do not match, or ``b`` has a NaN or an infinity and `check_finite` is true.
    TypeError
        If an argument is not an array on a device, or a type cannot be factored.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> factor = cupygemm.linalg.cho_factor(cp.asarray([[4.0, 1.0], [1.0, 3.0]]))
    >>> cupygemm.linalg.cho_solve(factor, cp.asarray([9.0, 5.0]))
    array([2., 1.])
    """
    c, lower = factors_of("cho_solve", "c_and_lower", c_and_lower, "cho_factor")
    lower = bool(lower)
    c, b = as_arrays("cho_solve", c=c, b=b)
    require_square("cho_solve", "c", c)
    dtype, x, shape, vector = right_hand_sides("cho_solve", c, b)
    if x.view.size:
        _cholesky.substitute_both(stacked(c, dtype, shape), x, lower=lower)
        check_numbers(b, check_finite=check_finite)
    return solution(x, shape, vector=vector)


@common_keywords
def solve_triangular(
    a: Any,
    b: Any,
    trans: Transposition = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    stream: Any = None,
) -> Array:
    """Solve a triangular system, as `scipy.linalg.solve_triangular`.

    Parameters
    ----------
    a : cupy.ndarray
        Matrices, (..., n, n). Only one triangle is read.
    b : cupy.ndarray
        Right-hand sides: a vector (n,), or matrices (..., n, k). Leading axes broadcast.
    trans : {0, 1, 2, "N", "T", "C"}
        Whether to solve with the matrix, with its transpose or its conjugate transpose.
    lower : bool
        Whether the lower triangle is read.
    unit_diagonal : bool
        Whether the diagonal is taken to be ones and not read.
    overwrite_b : bool
        Accepted for SciPy's signature. The operand is never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The solution.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ, or the diagonal has a zero.
    ValueError
        If the shapes do not match, an option has none of its allowed values, or an operand has a
        NaN or an infinity and `check_finite` is true.
    TypeError
        If an argument is not an array on a device, or a type cannot be factored.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.asarray([[2.0, 0.0], [1.0, 1.0]])
    >>> cupygemm.linalg.solve_triangular(a, cp.asarray([4.0, 3.0]), lower=True)
    array([2., 1.])
    """
    import cupy

    a, b = as_arrays("solve_triangular", a=a, b=b)
    require_square("solve_triangular", "a", a)
    how = transposition("solve_triangular", trans)
    dtype, x, shape, vector = right_hand_sides("solve_triangular", a, b)
    if x.view.size:
        factors = stacked(a, dtype, shape)
        substitute(
            factors,
            x,
            lower=lower,
            unit=bool(unit_diagonal),
            transposed=how > 0,
            conjugate=how == 2,
        )
        if check_finite or not unit_diagonal:
            found = cupy.zeros(1, "int32") if unit_diagonal else zero_diagonal(factors)
            info = fetch(found, finite_flag(a, b) if check_finite else None)
            if (failed := first_failed(info)) is not None:
                raise np.linalg.LinAlgError(
                    f"singular matrix: resolution failed at diagonal {failed[1] - 1}"
                )
    return solution(x, shape, vector=vector)
