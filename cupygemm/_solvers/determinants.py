"""`det` and `slogdet`, with NumPy's names and semantics.

Two launches compute the determinants of small matrices: one factors them, and one multiplies the
diagonals (``kernels/common/solvers/determinant.hpp``). The host does not wait.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.common import small
from cupygemm._solvers.common.errors import unchecked
from cupygemm._solvers.common.kernels import DETERMINANT, load
from cupygemm._solvers.common.matrices import Matrices, copied
from cupygemm._solvers.lu import lu
from cupygemm._solvers.operands import real_dtype, square_matrices

_THREADS, _LANES = 128, 32
"""The threads of a workgroup, and those that multiply the diagonal of one matrix."""


class SlogdetResult(NamedTuple):
    """The sign and the logarithm of the absolute value of determinants.

    Attributes
    ----------
    sign : cupy.ndarray
        Numbers of absolute value 1, (...); 0 for singular matrices.
    logabsdet : cupy.ndarray
        The natural logarithms of the absolute values, (...), real; minus infinity for singular
        matrices.
    """

    sign: Array
    logabsdet: Array


@common_keywords
def det(a: Any, *, stream: Any = None) -> Array:
    """Compute determinants of matrices, as `numpy.linalg.det`.

    Parameters
    ----------
    a : cupy.ndarray
        Square matrices, (..., n, n), of float32, float64, complex64 or complex128. Integers and
        bools are converted to float64.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The determinants, (...), of the type of the matrices; a 0-d array for one matrix. Zero for
        matrices that are exactly singular.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ.
    TypeError
        If ``a`` is not an array on a device, or has another type.

    See Also
    --------
    slogdet : The logarithm, which neither overflows nor underflows.

    Notes
    -----
    A determinant is the product of the diagonal of U in an LU factorisation with partial pivoting,
    with the sign of the row exchanges. The call does not wait for the device.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.det(cp.asarray([[4.0, 1.0], [1.0, 3.0]]))
    array(11.)
    """
    determinants, _ = _determinants("det", a, logarithms=False)
    return determinants


@common_keywords
def slogdet(a: Any, *, stream: Any = None) -> SlogdetResult:
    """Compute signs and logarithms of determinants, as `numpy.linalg.slogdet`.

    Parameters
    ----------
    a : cupy.ndarray
        Square matrices, (..., n, n), of float32, float64, complex64 or complex128. Integers and
        bools are converted to float64.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    SlogdetResult
        The named tuple (``sign``, ``logabsdet``).

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ.
    TypeError
        If ``a`` is not an array on a device, or has another type.

    See Also
    --------
    det : The determinants themselves.

    Notes
    -----
    The determinants are ``sign * exp(logabsdet)``, computed as by `det`. The call does not wait for
    the device.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> sign, logabsdet = cupygemm.linalg.slogdet(cp.asarray([[0.0, 2.0], [0.5, 1.0]]))
    >>> sign, logabsdet
    (array(-1.), array(0.))
    """
    return SlogdetResult(*_determinants("slogdet", a, logarithms=True))


def _determinants(function: str, a: Any, *, logarithms: bool) -> tuple[Array, Array]:
    """Return the determinants or their signs, and the logarithms if these are wanted."""
    import cupy

    a, dtype = square_matrices(function, a)
    n, stack = a.shape[-1], a.shape[:-2]
    batches = math.prod(stack)
    if n == 0 or batches == 0:
        return cupy.ones(stack, dtype), cupy.zeros(stack, real_dtype(dtype))
    factors, pivots = _factors(a.reshape(batches, n, n), dtype)
    found, logs = of_factors(factors, pivots, logarithms=logarithms)
    return found.reshape(stack), logs.reshape(stack) if logarithms else logs


def of_factors(u: Matrices, pivots: Array, *, logarithms: bool) -> tuple[Array, Array]:
    """Return the determinants of factored matrices.

    Parameters
    ----------
    u : Matrices
        Of which only the diagonals are read.
    pivots : cupy.ndarray
        (batches, n), int32: row i was swapped with row ``pivots[i]``.
    logarithms : bool
        Whether signs and the logarithms of magnitudes are wanted.

    Returns
    -------
    found : cupy.ndarray
        The determinants, or their signs.
    logs : cupy.ndarray
        The logarithms, or an empty array.
    """
    import cupy

    found = cupy.empty(u.batches, u.dtype)
    logs = cupy.empty(u.batches if logarithms else 0, real_dtype(u.dtype))
    launch = load(DETERMINANT, u.dtype, _THREADS, logarithms=logarithms)
    launch(
        (-(-u.batches // (_THREADS // _LANES)), 1),
        u.address(0, 0),
        u.pitch + 1,
        u.stride,
        pivots.data.ptr,
        found.data.ptr,
        logs.data.ptr if logarithms else 0,
        u.n,
        u.batches,
    )
    return found, logs


def _factors(a: Array, dtype: np.dtype[Any]) -> tuple[Matrices, Array]:
    """Return U of each matrix, with any numbers below it, and the pivots."""
    n = a.shape[-1]
    if small.is_whole(n, dtype):
        with unchecked():  # a singular matrix has a determinant
            factors, pivots, _ = small.lu(a, dtype)
        return Matrices(factors, n), pivots
    found = lu.factor(copied(a, dtype), keeps_l=False)
    return found.lu, found.pivots
