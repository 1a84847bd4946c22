"""`matrix_power`, with NumPy's name and semantics."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.inverses import inv


@common_keywords
def matrix_power(a: Any, n: SupportsIndex, *, stream: Any = None) -> Array:
    """Square matrices to an integer power, as `numpy.linalg.matrix_power`.

    Parameters
    ----------
    a : cupy.ndarray
        Matrices, (..., m, m).
    n : int
        The exponent. 0 gives the identity; a negative exponent gives a power of the inverse.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The power, of the shape of ``a``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrices are not square, or ``n`` is negative and a matrix is singular.
    TypeError
        If ``a`` is not an array on a device, or ``n`` is not an integer.

    Notes
    -----
    The power is computed by repeated squaring, in at most ``2 * log2(n)`` products.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.matrix_power(cp.asarray([[1.0, 1.0], [1.0, 0.0]]), 5)
    array([[8., 5.],
           [5., 3.]])
    """
    import cupy

    a = as_array("matrix_power", "a", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError(
            f"matrix_power: a has shape {a.shape}; the matrices must be square"
        )
    try:
        power = operator.index(n)
    except TypeError as err:
        raise TypeError(f"matrix_power: n is {n!r}; it must be an integer") from err
    if power == 0:
        identity = cupy.empty_like(a)
        identity[...] = cupy.eye(a.shape[-1], dtype=a.dtype)
        return identity
    if power < 0:
        a, power = inv(a), -power
    if power == 1:
        return a.copy()
    if power == 3:
        return matmul(matmul(a, a), a)  # NumPy's order, for the same rounding and NaN
    result, square = None, a
    while True:
        if power & 1:
            result = square if result is None else matmul(result, square)
        power >>= 1
        if not power:
            return result
        square = matmul(square, square)
