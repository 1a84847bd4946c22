"""Products by the names of `numpy.linalg` and of the array API's ``linalg`` extension.

`matmul`, `tensordot` and `vecdot` are those of the package; `outer` takes vectors only, as the
array API has it.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from cupygemm._products import gufuncs, products
from cupygemm._products.chains import matrix_power, multi_dot
from cupygemm._products.matmul import matmul as _matmul
from cupygemm._request.arrays import Array, as_arrays
from cupygemm._request.keywords import common_keywords

__all__ = [
    "matmul",
    "matrix_power",
    "matrix_transpose",
    "multi_dot",
    "outer",
    "tensordot",
    "vecdot",
]


@common_keywords
def matmul(x1: Any, x2: Any, /, *, stream: Any = None) -> Array:
    """Matrix product, as `numpy.linalg.matmul`; see `cupygemm.matmul`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Operands, (..., m, k) and (..., k, n).
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        The product, (..., m, n).
    """
    return _matmul(x1, x2)


def matrix_transpose(x: Any, /) -> Array:
    """View of stacked matrices with rows and columns exchanged, as `numpy.linalg.matrix_transpose`.

    Parameters
    ----------
    x : cupy.ndarray
        Matrices, (..., m, n).

    Returns
    -------
    cupy.ndarray
        A view, (..., n, m), which the functions here multiply where it lies.

    Raises
    ------
    ValueError
        There is only one axis, or none.
    TypeError
        ``x`` is no array of a device.
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
        Of shape (m, n).

    Raises
    ------
    ValueError
        An operand has not exactly one axis.
    TypeError
        An argument is no array of a device, or the types have no product.
    """
    x1, x2 = as_arrays("outer", x1=x1, x2=x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(
            f"outer: x1 has shape {x1.shape} and x2 {x2.shape}; both must have one axis: "
            "cupygemm.outer flattens them"
        )
    return products.outer(x1, x2)


@common_keywords
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2, stream: Any = None) -> Array:
    """Sum of products over chosen axes, as `numpy.linalg.tensordot`; see `cupygemm.tensordot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
    axes : int or (int or sequence of int, int or sequence of int)
        The contracted axes.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        With the other axes of ``x1``, then the other axes of ``x2``.
    """
    return products.tensordot(x1, x2, axes=axes)


@common_keywords
def vecdot(x1: Any, x2: Any, /, *, axis: SupportsIndex = -1, stream: Any = None) -> Array:
    """Dot products of vectors, the first conjugated, as `numpy.linalg.vecdot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        The other axes broadcast.
    axis : int
        The axis of the vectors.
    stream : cupy.cuda.Stream, optional
        As for `cupygemm.matmul`.

    Returns
    -------
    cupy.ndarray
        Without that axis.
    """
    return gufuncs.vecdot(x1, x2, axis=axis)
