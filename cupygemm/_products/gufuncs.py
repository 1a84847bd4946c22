"""Products over stacks of vectors and matrices, as NumPy's generalized ufuncs pose them."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._products.pairs import contract, ndarray_type
from cupygemm._products.products import conjugated
from cupygemm._request.arrays import Array, as_arrays, single_out
from cupygemm._request.axes import result_order
from cupygemm._request.keywords import common_keywords
from cupygemm._request.promotion import product_types
from cupygemm._request.signatures import Axes, Signature, frozen, labelled

VECDOT = Signature("vecdot", "k", "k", "", conjugates=True)
MATVEC = Signature("matvec", "mk", "k", "m")
VECMAT = Signature("vecmat", "k", "kn", "n", conjugates=True)


@common_keywords
def vecdot(
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    axis: SupportsIndex | None = None,
    axes: Axes = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    order: str | None = "K",
    stream: Any = None,
) -> Array:
    """Dot products of vectors, the first conjugated, as `numpy.vecdot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        The vectors lie along the last axis, (..., k); the other axes broadcast.
    out : cupy.ndarray, optional
        Where to put the result.
    axis : int, optional
        The axis of the vectors, in both operands.
    axes : sequence of int or tuple of int, optional
        The axis of the vectors in each operand.
    keepdims : bool
        Keep the axis, with extent 1.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        (...); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, or an axis is out of range.
    TypeError
        An argument is no array of a device, or a conversion is not allowed.
    """
    if not isinstance(keepdims, (bool, np.bool_)):
        raise TypeError(f"vecdot: keepdims is {keepdims!r}; it must be True or False")
    if axis is not None:
        if axes is not None:
            raise TypeError("vecdot: axis and axes are both given; pass one of them")
        axes = [(axis,), (axis,), (axis,) if keepdims else ()]
    return _apply(VECDOT, x1, x2, out, axes, dtype, casting, order, keepdims=keepdims)


@common_keywords
def matvec(
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    axes: Axes = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    order: str | None = "K",
    stream: Any = None,
) -> Array:
    """Multiply matrices and vectors, as `numpy.matvec`.

    Parameters
    ----------
    x1 : cupy.ndarray
        Matrices, (..., m, k).
    x2 : cupy.ndarray
        Vectors, (..., k). The other axes broadcast.
    out : cupy.ndarray, optional
        Where to put the result.
    axes : sequence of int or tuple of int, optional
        The core axes of each operand and of the result, e.g. ``[(-2, -1), -1, -1]``.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        (..., m); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, or an axis is out of range.
    TypeError
        An argument is no array of a device, or a conversion is not allowed.
    """
    return _apply(MATVEC, x1, x2, out, axes, dtype, casting, order)


@common_keywords
def vecmat(
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    axes: Axes = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    order: str | None = "K",
    stream: Any = None,
) -> Array:
    """Multiply vectors, conjugated, and matrices, as `numpy.vecmat`.

    Parameters
    ----------
    x1 : cupy.ndarray
        Vectors, (..., k).
    x2 : cupy.ndarray
        Matrices, (..., k, n). The other axes broadcast.
    out : cupy.ndarray, optional
        Where to put the result.
    axes : sequence of int or tuple of int, optional
        The core axes of each operand and of the result, e.g. ``[-1, (-2, -1), -1]``.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        (..., n); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, or an axis is out of range.
    TypeError
        An argument is no array of a device, or a conversion is not allowed.
    """
    return _apply(VECMAT, x1, x2, out, axes, dtype, casting, order)


def _apply(
    signature: Signature,
    x1: Any,
    x2: Any,
    out: Any,
    axes: Axes,
    dtype: DTypeLike | None,
    casting: str,
    order: str | None,
    *,
    keepdims: bool = False,
) -> Array:
    """Compute a product by its signature."""
    name = signature.name
    out = single_out(name, out)
    given = {} if out is None else {"out": out}
    x1, x2, *rest = as_arrays(name, x1=x1, x2=x2, **given)
    target = rest[0] if rest else None
    call = labelled(
        signature,
        x1.shape,
        x2.shape,
        None if target is None else target.shape,
        frozen(axes),
        keepdims,
    )
    wanted = None if dtype is None else np.dtype(dtype)
    contiguous = result_order(name, order, (x1, x2))
    if target is None and contiguous is not None:
        types = product_types(x1.dtype, x2.dtype, dtype=wanted, casting=casting)
        shape = tuple(call.shape[axis] for axis in call.core_last)
        storage = ndarray_type()(shape, types.result, order=contiguous)
        out = target = storage.transpose(np.argsort(call.core_last).tolist())
    if keepdims and target is not None:
        target = target.squeeze(call.kept)
    result = contract(
        conjugated(x1) if signature.conjugates else x1,
        call.x1,
        x2,
        call.x2,
        call.out,
        target,
        dtype=wanted,
        casting=casting,
    )
    if out is not None:
        return out
    return result.reshape(call.shape) if keepdims else result
