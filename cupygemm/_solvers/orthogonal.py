"""`qr`, `lstsq` and `pinv`, with NumPy's names and semantics."""

from __future__ import annotations

import math
import numbers
from typing import Any, Literal, NamedTuple

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array, as_array, as_arrays
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.common.errors import is_capturing
from cupygemm._solvers.common.matrices import Matrices, adjoint, copied, zeros
from cupygemm._solvers.common.scaling import power_of_two_scale, scaled_upper
from cupygemm._solvers.operands import factored_dtype, real_dtype, require_matrices
from cupygemm._solvers.qr import qr as _qr
from cupygemm._solvers.qr.singular_values import decompose, solve_least_squares

_ABSENT: Any = object()
_NUMPYS_RCOND = 1e-15
_MODES = ("reduced", "complete", "r", "raw")


class QRResult(NamedTuple):
    """The factors of a QR factorisation.

    Attributes
    ----------
    Q : cupy.ndarray
        Orthonormal columns.
    R : cupy.ndarray
        Upper triangular.
    """

    Q: Array
    R: Array


@common_keywords
def qr(
    a: Any, mode: Literal["reduced", "complete", "r", "raw"] = "reduced", *, stream: Any = None
) -> Any:
    """Compute a QR factorisation, as `numpy.linalg.qr`.

    Parameters
    ----------
    a : cupy.ndarray
        Matrices, (..., m, n). Let k be min(m, n).
    mode : {"reduced", "complete", "r", "raw"}
        ``"reduced"`` returns Q of k columns and R of k rows, ``"complete"`` a square Q and R of m
        rows, ``"r"`` R alone, of k rows. ``"raw"`` returns the reflections in LAPACK's form.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    Q : cupy.ndarray
        Orthonormal columns, (..., m, k) or (..., m, m).
    R : cupy.ndarray
        Upper triangular, (..., k, n) or (..., m, n).
    (h, tau) : tuple of cupy.ndarray
        With ``"raw"``: the transpose of the matrix that holds R and the reflections, (..., n, m),
        and their factors, (..., k).

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``a`` has fewer than two axes.
    ValueError
        If `mode` has none of its values.
    TypeError
        If ``a`` is not an array on a device, or its type cannot be factored.

    Notes
    -----
    Reflections and the signs of R's diagonal are LAPACK's. The call does not wait for the device.
    A single real matrix of 512 columns or more is factored by a graph from the second call of its
    shape in a thread on, which takes the host hardly any time.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> q, r = cupygemm.linalg.qr(cp.asarray([[3.0, 5.0], [4.0, 0.0]]))
    >>> r
    array([[-5., -3.],
           [ 0., -4.]])
    """
    import cupy

    a = as_array("qr", "a", a)
    if mode not in _MODES:
        raise ValueError(f"qr: mode is {mode!r}; it must be one of {list(_MODES)}")
    require_matrices("qr", "a", a)
    dtype = factored_dtype("qr", a)
    m, n = a.shape[-2:]
    k, stack = min(m, n), a.shape[:-2]
    batches = math.prod(stack)
    if not a.size:
        return _empty(stack, m, n, dtype, mode)
    columns = m if mode == "complete" else k
    matrices = a.reshape(batches, m, n).astype(dtype, copy=False)
    scale = power_of_two_scale(matrices)

    def result(found: tuple[_qr.QrFactors, Matrices | None], *, copies: bool) -> Any:
        factors, q = found
        packed = factors.qr.view
        if mode == "raw":
            upper = cupy.arange(m)[:, None] <= cupy.arange(n)
            packed = factors.packed().view
            packed = cupy.where(upper, packed / scale, packed).reshape(a.shape)
            tau = factors.tau.copy() if copies else factors.tau
            return packed.swapaxes(-1, -2), tau.reshape(*stack, k)
        r = scaled_upper(packed[:, :columns], scale).reshape(*stack, columns, n)
        if q is None:
            return r
        of_q = cupy.array(q.view, order="C") if copies else cupy.ascontiguousarray(q.view)
        return QRResult(of_q.reshape(*stack, m, columns), r)

    return _qr.repeated(
        (batches, m, n),
        dtype,
        0 if mode in ("r", "raw") else columns,
        lambda scaled: cupy.multiply(matrices, scale, out=scaled.view),
        result,
    )


def _empty(stack: tuple[int, ...], m: int, n: int, dtype: np.dtype[Any], mode: str) -> Any:
    """Return the factors of matrices without elements."""
    import cupy

    k = min(m, n)
    if mode == "raw":
        return cupy.empty((*stack, n, m), dtype), cupy.empty((*stack, k), dtype)
    columns = m if mode == "complete" else k
    r = cupy.zeros((*stack, columns, n), dtype)
    if mode == "r":
        return r
    q = cupy.broadcast_to(cupy.eye(m, columns, dtype=dtype), (*stack, m, columns)).copy()
    return QRResult(q, r)


@common_keywords
def lstsq(
    a: Any, b: Any, rcond: Any = None, *, stream: Any = None
) -> tuple[Array, Array, int | Array, Array]:
    """Compute a least-squares solution of ``a @ x = b``, as `numpy.linalg.lstsq`.

    Parameters
    ----------
    a : cupy.ndarray
        The matrix, (m, n), of any rank.
    b : cupy.ndarray
        Right-hand sides, (m,) or (m, k).
    rcond : float, optional
        Singular values of at most `rcond` times the largest are treated as zero. By default the
        type's machine precision times the larger of m and n; if negative, LAPACK's machine
        precision, which is the unit roundoff, half of NumPy's ``eps``.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    x : cupy.ndarray
        The solution of least norm among all that minimise the residual, (n,) or (n, k).
    residuals : cupy.ndarray
        The squared norms of the residuals, (1,) or (k,); empty unless m > n and the rank is n.
    rank : int
        The number of singular values that are not treated as zero. While a graph is recorded, it is
        a 0-d array on the device.
    s : cupy.ndarray
        The singular values in descending order, (min(m, n),).

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``a`` does not have two axes, ``b`` not one or two, or the numbers of rows differ.
    TypeError
        If an argument is not an array on a device, or a type cannot be factored.

    Notes
    -----
    The call waits for the device once, to learn the rank. While a graph is recorded it does not
    wait; the residuals then have the shape for rank n, whatever the rank.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.asarray([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> x, residuals, rank, s = cupygemm.linalg.lstsq(a, cp.asarray([1.0, 3.0, 5.0]))
    >>> x
    array([1., 2.])
    """
    import cupy

    a, b = as_arrays("lstsq", a=a, b=b)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise np.linalg.LinAlgError(
            f"lstsq: a has shape {a.shape} and b has shape {b.shape}; they must be (m, n) and (m,) "
            "or (m, k)"
        )
    dtype = factored_dtype("lstsq", a, b)
    if not (
        rcond is None or isinstance(rcond, numbers.Real) or getattr(rcond, "shape", None) == ()
    ):
        raise TypeError(f"lstsq: rcond is {rcond!r}; it must be a real number or None")
    real = real_dtype(dtype)
    (m, n), vector = a.shape, b.ndim == 1
    columns = b[:, None] if vector else b
    count = columns.shape[1]
    if not count:  # the rank and the singular values do not depend on right-hand sides
        columns = cupy.zeros((m, 1), dtype)
    a, columns = a.astype(dtype, copy=False), columns.astype(dtype, copy=False)
    if a.size:
        epsilon = float(np.finfo(dtype).eps)
        relative = epsilon * max(m, n) if rcond is None else epsilon / 2 if rcond < 0 else rcond
        found = _least_squares(a[None], columns[None], relative)
        x, s, used = found.x[0], found.s[0], (found.s > found.smallest).sum()
    else:
        x, s = cupy.zeros((n, columns.shape[1]), dtype), cupy.zeros(min(m, n), real)
        used = cupy.zeros((), int)
    recorded = is_capturing()
    rank = used if recorded else int(used)
    if m > n and (recorded or rank == n):
        residual = columns - matmul(a, x)
        squares = (residual.real**2 + residual.imag**2).sum(axis=0)[:count]
    else:
        squares = cupy.empty(0, real)
    solution = cupy.ascontiguousarray(x[:, 0] if vector else x[:, :count])
    return solution, squares.astype(real, copy=False), rank, s


class _LeastSquares(NamedTuple):
    """Least-squares solutions of least norm.

    Attributes
    ----------
    x : cupy.ndarray
        (batches, n, k).
    s : cupy.ndarray
        The singular values of the matrices, (batches, min(m, n)).
    smallest : cupy.ndarray
        The largest value that is treated as zero, (batches, 1).
    """

    x: Array
    s: Array
    smallest: Array


def _least_squares(a: Array, b: Array, relative: Any) -> _LeastSquares:
    """Solve A X = B for A, (batches, m, n), and B, (batches, m, k), of one type.

    Singular values of at most `relative`, a number or (batches, 1), times the largest are treated
    as zero.
    """
    import cupy

    if a.shape[1] >= a.shape[2]:
        values = decompose(a)
        smallest = values.s[:, :1] * relative
        x = solve_least_squares(values, copied(b, b.dtype), smallest)
        return _LeastSquares(x, values.s, smallest)
    values = decompose(adjoint(a))  # the pseudo-inverse of A is Q J diag(1 / s) V^H
    smallest = values.s[:, :1] * relative
    used = values.s > smallest
    inverse = cupy.where(used, 1 / cupy.where(used, values.s, 1), 0)
    inner = matmul(values.vh, b) * inverse[:, :, None]
    x = apply_reduced_q(values.factors, matmul(adjoint(values.j), inner))
    return _LeastSquares(x, values.s, smallest)


def apply_reduced_q(factors: Any, c: Array) -> Array:
    """Return Q C, with as many of the first columns of Q as C has rows."""
    batches, k, columns = c.shape
    if k == factors.qr.m:
        padded = copied(c, c.dtype)
    else:
        padded = zeros(batches, factors.qr.m, columns, c.dtype)
        padded.view[:, :k] = c
    _qr.apply_q(factors, padded, inverse=False)
    return padded.dense


@common_keywords
def pinv(
    a: Any,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    rtol: Any = _ABSENT,
    stream: Any = None,
) -> Array:
    """Compute Moore-Penrose pseudo-inverses, as `numpy.linalg.pinv`.

    Parameters
    ----------
    a : cupy.ndarray
        Matrices, (..., m, n), of any rank.
    rcond : float or cupy.ndarray, optional
        Singular values of at most `rcond` times the largest are treated as zero; numbers (...). By
        default 1e-15, as in NumPy.
    hermitian : bool
        Accepted for NumPy's signature. The method is the same for Hermitian matrices.
    rtol : float or cupy.ndarray, optional
        The same as `rcond`, by the name of the array API. None means machine precision times the
        larger of m and n.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The pseudo-inverses, (..., n, m).

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``a`` has fewer than two axes.
    ValueError
        If both `rcond` and `rtol` are given.
    TypeError
        If ``a`` is not an array on a device, or its type cannot be factored.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.pinv(cp.asarray([[1.0, 1.0], [1.0, 1.0]]))
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    import cupy

    a = as_array("pinv", "a", a)
    require_matrices("pinv", "a", a)
    dtype = factored_dtype("pinv", a)
    m, n = a.shape[-2:]
    if not a.size:
        # In NumPy, the pseudo-inverse of empty matrices keeps their type, even for integers.
        return cupy.empty((*a.shape[:-2], n, m), dtype if m and n else a.dtype)
    stack = a.shape[:-2]
    batches = math.prod(stack)
    matrices = a.reshape(batches, m, n).astype(dtype, copy=False)
    relative = _cutoff(rcond, rtol, max(m, n), dtype)
    if hasattr(relative, "shape"):
        try:
            relative = cupy.broadcast_to(cupy.asarray(relative), stack).reshape(batches, 1)
        except ValueError as err:
            raise ValueError(
                f"pinv: rcond or rtol has shape {relative.shape}, which does not broadcast to "
                f"{stack}, the leading axes of a; pass a number for each matrix"
            ) from err
    elif not isinstance(relative, numbers.Real):
        raise TypeError(
            f"pinv: rcond or rtol is {relative!r}; it must be a real number or an array"
        )
    identity = cupy.broadcast_to(cupy.eye(m, dtype=dtype), (batches, m, m))
    result = _least_squares(matrices, identity, relative).x
    return cupy.ascontiguousarray(result.reshape(*stack, n, m))


def _cutoff(rcond: Any, rtol: Any, extent: int, dtype: np.dtype[Any]) -> Any:
    if rcond is not None and rtol is not _ABSENT:
        raise ValueError("pinv: rcond and rtol are both given; pass one of them")
    if rcond is not None:
        return rcond
    if rtol is _ABSENT:
        return _NUMPYS_RCOND
    return float(np.finfo(dtype).eps) * extent if rtol is None else rtol
