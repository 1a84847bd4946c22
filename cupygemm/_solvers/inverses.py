"""`inv`, with NumPy's name and semantics."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.common import small
from cupygemm._solvers.common.augmented import augmented_shape
from cupygemm._solvers.common.errors import raise_singular
from cupygemm._solvers.common.reports import Wait, pending
from cupygemm._solvers.lu import lu
from cupygemm._solvers.lu.swaps import permutation
from cupygemm._solvers.operands import square_matrices
from cupygemm._solvers.triangles.substitution import substitute


@common_keywords
def inv(a: Any, *, stream: Any = None) -> Array:
    """Compute inverses of matrices, as `numpy.linalg.inv`.

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
        The inverses, (..., n, n), of the type of the matrices.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the last two extents differ, or a matrix is singular.
    TypeError
        If ``a`` is not an array on a device, or has another type.

    See Also
    --------
    solve : Solve a system; this is faster and more accurate than a product with an inverse.

    Notes
    -----
    The matrices are factored with partial pivoting. The call waits for the device once, to learn
    whether a matrix is singular. While a graph is recorded it neither waits nor raises. A single
    real matrix of 512 rows or more, and a stack of real matrices of more than 128, is inverted by a
    graph from the second call with its shape in a thread on, as by `solve`.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.inv(cp.asarray([[2.0, 2.0], [1.0, 2.0]]))
    array([[ 1. , -1. ],
           [-0.5,  1. ]])
    """
    import cupy

    a, dtype = square_matrices("inv", a)
    if not a.size:
        return cupy.empty(a.shape, dtype)
    if small.is_whole(a.shape[-1], dtype):
        result, failed = small.inverse(a, dtype)
        raise_singular("inv", failed)
        return result
    inverses, wait = _inverse(a, dtype)
    inverses = inverses.reshape(a.shape)
    raise_singular("inv", wait())
    return inverses


def _inverse(a: Array, dtype: np.dtype[Any]) -> tuple[Array, Wait]:
    """Return the inverses (batches, n, n), by a factorisation of [A I]."""
    import cupy

    n = a.shape[-1]
    _, first = augmented_shape(n, n, dtype)

    def work(found: lu.LuFactors) -> tuple[lu.LuFactors, Array]:
        substitute(found.lu, found.lu, lower=False, target=(0, first), extents=(n, n))
        # The columns now hold A^-1 P^-1.
        return found, permutation(found.pivots, inverse=True)[:, None]

    def use(found: tuple[lu.LuFactors, Array]) -> tuple[Array, Wait]:
        factors, places = found
        columns = factors.lu.array[:, :, first : first + n]
        return cupy.take_along_axis(columns, places, axis=2), pending(factors.info)

    identity = cupy.eye(n, dtype=dtype)
    found: tuple[Array, Wait] = lu.repeated("inv", a, identity, dtype, work, use, identity=True)
    return found
