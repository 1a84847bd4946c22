"""`cholesky` and `solve`, with NumPy's names and semantics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array, as_arrays
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.common import small
from cupygemm._solvers.common.augmented import augmented_shape
from cupygemm._solvers.common.errors import (
    fetch,
    finite_flag,
    is_capturing,
    raise_not_definite,
    raise_singular,
)
from cupygemm._solvers.common.matrices import adjoint, copied, readable
from cupygemm._solvers.common.reports import Wait, nothing, pending
from cupygemm._solvers.lu import lu as _lu
from cupygemm._solvers.operands import factored_dtype, require_square, square_matrices
from cupygemm._solvers.refinement.refine import SolveInfo, refine, refined_precision
from cupygemm._solvers.right_hand_sides import columns_of
from cupygemm._solvers.structure import ASSUMPTIONS, Structure, structured
from cupygemm._solvers.triangles import cholesky as _cholesky
from cupygemm._solvers.triangles.substitution import substitute, zero_diagonal


@common_keywords
def cholesky(a: Any, /, *, upper: bool = False, stream: Any = None) -> Array:
    """Compute the Cholesky factor of positive definite matrices, as `numpy.linalg.cholesky`.

    Parameters
    ----------
    a : cupy.ndarray
        Hermitian (or real symmetric) matrices, (..., n, n). Only one triangle is read.
    upper : bool
        Whether to read the upper triangle and return U with ``a = U^H U``; otherwise the lower one,
        and L with ``a = L L^H``.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The factor, (..., n, n), with zeros in the other triangle.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ, or a matrix is not positive definite.
    TypeError
        If ``a`` is not an array on a device, or its type cannot be factored.

    Notes
    -----
    The call waits for the device once, to learn whether a matrix is not positive definite. While a
    graph is recorded it does not wait and does not raise; the factor then has NaN.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.cholesky(cp.asarray([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    a, dtype = square_matrices("cholesky", a)
    if not a.size:
        return a.astype(dtype)
    factors, failed = _cholesky.reported_factors(adjoint(a) if upper else a, dtype)
    raise_not_definite("cholesky", failed)
    return factors.swapaxes(-1, -2).conj() if upper else factors


@common_keywords
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
    assume_a: str | None = None,
    transposed: bool = False,
    *,
    precision: str | None = None,
    full_output: bool = False,
    stream: Any = None,
) -> Any:
    """Solve ``a @ x = b``, as `numpy.linalg.solve`, with the options of `scipy.linalg.solve`.

    Parameters
    ----------
    a : cupy.ndarray
        Square matrices, (..., n, n).
    b : cupy.ndarray
        Right-hand sides: a vector (n,), or matrices (..., n, k). Leading axes broadcast.
    lower : bool
        Which triangle of ``a`` is read if, by `assume_a`, the other follows from it.
    overwrite_a, overwrite_b : bool
        Accepted for SciPy's signature. The operands are never overwritten.
    check_finite : bool
        Whether to raise ValueError for NaN and infinities; NumPy does not.
    assume_a : str, optional
        The structure of ``a``, by SciPy's names: ``"pos"`` for a positive definite matrix, which
        takes half the operations; ``"sym"``, ``"her"``, ``"upper triangular"``,
        ``"lower triangular"``, ``"diagonal"``, ``"tridiagonal"``, ``"banded"``. By default none.
    transposed : bool
        Whether to solve ``a.T @ x = b``.
    precision : {"float32", "tf32x3", "tf32", "bfloat16", "float16", "int8"}, optional
        A lower precision to factor ``a`` in, by default its own type. The solution is then refined
        until its backward error is that of the operands' type. ``"float32"`` factors float64 in
        float32, and ``"tf32x3"`` does so with products of that precision of `cupygemm.matmul`.
        ``"tf32"``, ``"bfloat16"`` and ``"float16"`` also round the operands of the products that
        update the matrix, with sums in float32. ``"int8"`` keeps the matrix in its own type and
        multiplies with ``precision="int8x8"``. All but ``"float32"`` are for real matrices.
    full_output : bool
        Whether to also return how the solution was found.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    x : cupy.ndarray
        The solution, of the shape of ``b`` after broadcasting.
    info : SolveInfo
        If `full_output` is true: the path taken (``"direct"``, ``"refined"`` or ``"fallback"``),
        the number of iterations, and the backward error that was reached.

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``a`` is not square, or is singular, or is not positive definite as assumed.
    ValueError
        If the shapes do not match, an option has none of its allowed values, or a graph is recorded
        with a `precision`.
    TypeError
        If an argument is not an array on a device, or a type cannot be factored.

    Notes
    -----
    The matrix is factored with partial pivoting, and the right-hand sides take part in the
    factorisation as further columns. The call waits for the device once, to learn whether a matrix
    is singular. While a graph is recorded it neither waits nor raises. A single real matrix of 512
    rows or more, and a stack of real matrices of more than 128, is solved by a graph from the
    second call with its shape in a thread on, which takes the host hardly any time.

    With a `precision`, the call waits once after the first solution and once after each cycle of
    GMRES, of up to 16 iterations. Well-conditioned matrices take one or two cycles. After 50
    iterations, or a long cycle that does not halve the error, the matrix is factored again in its
    own type. The goal is a normwise backward error of twice machine precision; up to sqrt(n) times
    machine precision is accepted.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.solve(cp.asarray([[4.0, 1.0], [1.0, 3.0]]), cp.asarray([9.0, 5.0]))
    array([2., 1.])
    """
    import cupy

    a, b = as_arrays("solve", a=a, b=b)
    require_square("solve", "a", a)
    if assume_a is not None and assume_a not in ASSUMPTIONS:
        raise ValueError(f"solve: assume_a is {assume_a!r}; it must be one of {list(ASSUMPTIONS)}")
    dtype = factored_dtype("solve", a, b)
    columns, stack = columns_of("solve", a, b)
    lower_precision = refined_precision(precision, dtype)
    finite = finite_flag(a, b) if check_finite else None
    structure = structured(a, assume_a, lower=lower, transposed=transposed)
    n, k = columns.shape[-2:]
    if flat := a.ndim == 2 and bool(stack):  # one matrix: all right-hand sides are its columns
        columns = cupy.moveaxis(columns, -2, 0).reshape(n, -1)
    info = None
    if lower_precision is None or structure.kind == "triangular" or not a.size or not b.size:
        x, wait = _solve(structure, columns, dtype, finite=finite)
    else:
        x, wait, info = _refined(structure, columns, dtype, finite, lower_precision)
    if flat:
        x = cupy.moveaxis(x.reshape(n, *stack, k), 0, -2)
    x = x[..., 0] if b.ndim == 1 else x
    raise_singular("solve", wait())
    if not full_output:
        return x
    return x, info or SolveInfo("direct", dtype.name, 0, int(not is_capturing()))


def _refined(
    structure: Structure, b: Array, dtype: np.dtype[Any], finite: Array | None, precision: str
) -> tuple[Array, Wait, SolveInfo]:
    """Return the solution by factors of a lower precision, or that of `_solve`, and its info."""
    import cupy

    n, k = b.shape[-2:]
    stack = np.broadcast_shapes(structure.a.shape[:-2], b.shape[:-2])
    x, info = refine(
        cupy.broadcast_to(structure.a, (*stack, n, n)).reshape(-1, n, n).astype(dtype, copy=False),
        cupy.broadcast_to(b, (*stack, n, k)).reshape(-1, n, k).astype(dtype, copy=False),
        precision,
        positive=structure.kind == "positive",
        finite=finite,
    )
    assert info.backward_error is not None
    info = replace(info, backward_error=info.backward_error.reshape(stack))
    if x is not None:
        return cupy.ascontiguousarray(x.reshape(*stack, n, k)), nothing, info
    x, wait = _solve(structure, b, dtype)
    return x, wait, replace(info, precision=dtype.name, waits=info.waits + 1)


def _solve(
    structure: Structure, b: Array, dtype: np.dtype[Any], *, finite: Array | None = None
) -> tuple[Array, Wait]:
    """Return the solution for right-hand sides (..., n, k), and a function that waits for errors.

    The function returns the argument of `raise_singular`.
    """
    import cupy

    a, n = structure.a, structure.a.shape[-1]
    stack, k = a.shape[:-2], b.shape[-1]
    if stack != b.shape[:-2]:
        stack = np.broadcast_shapes(stack, b.shape[:-2])
        b = cupy.broadcast_to(b, (*stack, n, k))
        a = cupy.broadcast_to(a, (*stack, n, n))
    shape = b.shape
    if not b.size:
        if k == 0 and a.size and structure.kind == "general":  # NumPy factors A in this case, too
            raise_singular("solve", fetch(_lu.factor(copied(a, dtype)).info, finite))
        return cupy.empty(shape, dtype), nothing
    if structure.kind == "triangular":
        t, x = readable(a, dtype), copied(b, dtype)
        substitute(t, x, lower=structure.lower)
        raise_singular("solve", fetch(zero_diagonal(t), finite))
        return x.dense.reshape(shape), nothing
    if structure.kind == "positive":
        factors, info = _cholesky.factored(a, dtype)
        x = copied(b, dtype)
        _cholesky.substitute_both(factors, x)
        raise_not_definite("solve", fetch(info, finite))
        return x.dense.reshape(shape), nothing
    if small.is_small(n, k, dtype):
        result, failed = small.solve(a, b, dtype, finite)
        raise_singular("solve", failed)
        return result, nothing
    columns, first = augmented_shape(n, k, dtype)

    def work(found: _lu.LuFactors) -> _lu.LuFactors:
        substitute(found.lu, found.lu, lower=False, target=(0, first), extents=(n, k))
        return found

    def use(found: _lu.LuFactors) -> tuple[Array, Wait]:
        x = found.lu.array[:, :, first:columns].copy().reshape(shape)
        if finite is None:
            return x, pending(found.info)
        raise_singular("solve", fetch(found.info, finite))
        return x, nothing

    found: tuple[Array, Wait] = _lu.repeated("solve", a, b, dtype, work, use)
    return found
