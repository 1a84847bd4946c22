"""Linear algebra with the names and signatures of `numpy.linalg`, `scipy.linalg` and the array API.

`matmul`, `tensordot` and `vecdot` compute the same as the functions of `cupygemm`, with fewer
options. `outer` accepts vectors only, as in the array API. `matrix_power` and `multi_dot` multiply
more than two matrices.

`cholesky`, `solve`, `inv`, `det`, `slogdet`, `qr`, `lstsq` and `pinv` are NumPy's; `lu_factor`,
`lu_solve`, `cho_factor`, `cho_solve` and `solve_triangular` are SciPy's. They factor matrices by
blocks: kernels of this library factor narrow panels, and its products update the trailing matrix.

The types that these functions factor are float32, float64, complex64 and complex128. As in NumPy
and SciPy, NumPy's functions convert integers and bools to float64; SciPy's convert float16 and
integers of at most 16 bits to float32, and wider integers to float64.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from cupygemm._products import gufuncs, products
from cupygemm._products.chains import multi_dot
from cupygemm._products.matmul import matmul as _matmul
from cupygemm._request.arrays import Array, as_arrays
from cupygemm._request.keywords import common_keywords
from cupygemm._solvers.determinants import det, slogdet
from cupygemm._solvers.factors import (
    cho_factor,
    cho_solve,
    lu_factor,
    lu_solve,
    solve_triangular,
)
from cupygemm._solvers.inverses import inv
from cupygemm._solvers.orthogonal import lstsq, pinv, qr
from cupygemm._solvers.powers import matrix_power
from cupygemm._solvers.refinement.refine import SolveInfo
from cupygemm._solvers.systems import cholesky, solve

__all__ = [
    "SolveInfo",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "inv",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_power",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "tensordot",
    "vecdot",
]


@common_keywords
def matmul(x1: Any, x2: Any, /, *, stream: Any = None) -> Array:
    """Matrix product, as `numpy.linalg.matmul`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Operands, (..., m, k) and (..., k, n). Leading axes broadcast.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The product, (..., m, n).

    Raises
    ------
    ValueError
        If the shapes do not match.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    See Also
    --------
    cupygemm.matmul : The same product with more options.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.matmul(cp.ones((2, 3)), cp.ones((3, 2)))
    array([[3., 3.],
           [3., 3.]])
    """
    return _matmul(x1, x2)


def matrix_transpose(x: Any, /) -> Array:
    """Transpose the last two axes of an array, as `numpy.linalg.matrix_transpose`.

    Parameters
    ----------
    x : cupy.ndarray
        Matrices, (..., m, n).

    Returns
    -------
    cupy.ndarray
        A view, (..., n, m). The functions of this library multiply it without copying it.

    Raises
    ------
    ValueError
        If ``x`` has fewer than two axes.
    TypeError
        If ``x`` is not an array on a device.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.matrix_transpose(cp.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    (x,) = as_arrays("matrix_transpose", x=x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: x has shape {x.shape}; it needs two axes or more")
    return x.swapaxes(-1, -2)


@common_keywords
def outer(x1: Any, x2: Any, /, *, stream: Any = None) -> Array:
    """Outer product of two vectors, as `numpy.linalg.outer`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Vectors, (m,) and (n,).
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The product, (m, n).

    Raises
    ------
    ValueError
        If an operand does not have exactly one axis.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    See Also
    --------
    cupygemm.outer : Flattens operands of several axes.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.outer(cp.asarray([1.0, 2.0]), cp.asarray([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    x1, x2 = as_arrays("outer", x1=x1, x2=x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(
            f"outer: x1 has shape {x1.shape} and x2 has shape {x2.shape}; both must have one axis; "
            "cupygemm.outer flattens its operands"
        )
    return products.outer(x1, x2)


@common_keywords
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2, stream: Any = None) -> Array:
    """Tensor contraction over given axes of two arrays, as `numpy.linalg.tensordot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Operands.
    axes : int or (int or sequence of int, int or sequence of int)
        The number N of axes, to contract the last N axes of ``x1`` with the first N axes of ``x2``;
        or the contracted axes of ``x1`` and those of ``x2``.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The contraction, with the remaining axes of ``x1`` followed by those of ``x2``.

    Raises
    ------
    ValueError
        If extents differ, an axis is out of range or given twice, or the numbers of axes differ.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    See Also
    --------
    cupygemm.tensordot : The same function, with ``a`` and ``b`` for ``x1`` and ``x2``.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.tensordot(cp.ones((2, 3, 4)), cp.ones((3, 4, 5))).shape
    (2, 5)
    """
    return products.tensordot(x1, x2, axes=axes)


@common_keywords
def vecdot(x1: Any, x2: Any, /, *, axis: SupportsIndex = -1, stream: Any = None) -> Array:
    """Compute dot products of vectors, the first conjugated, as `numpy.linalg.vecdot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Vectors along `axis`. The other axes broadcast.
    axis : int
        The axis of the vectors.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The dot products, with the axes of the operands except `axis`.

    Raises
    ------
    ValueError
        If the shapes do not match or the axis is out of range.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    See Also
    --------
    cupygemm.vecdot : The same product with more options.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.linalg.vecdot(cp.ones((2, 3)), cp.asarray([1.0, 2.0, 3.0]))
    array([6., 6.])
    """
    return gufuncs.vecdot(x1, x2, axis=axis)
