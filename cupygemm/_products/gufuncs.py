"""Products over stacks of vectors and matrices, with the semantics of NumPy's gufuncs."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._plan.table import PLANS, Key
from cupygemm._products.pairs import check_new_result, contract, ndarray_type
from cupygemm._products.products import conjugated
from cupygemm._records.formats import parse_dtype
from cupygemm._request.arrays import Array, as_arrays, single_out
from cupygemm._request.axes import result_order
from cupygemm._request.keywords import common_keywords
from cupygemm._request.promotion import product_types
from cupygemm._request.signatures import Axes, Labelled, Signature, frozen, labelled

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
    """Compute dot products of vectors, the first conjugated, as `numpy.vecdot`.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Vectors along the last axis, (..., k). The other axes broadcast.
    out : cupy.ndarray, optional
        Array for the result.
    axis : int, optional
        The axis of the vectors in both operands.
    axes : sequence of int or tuple of int, optional
        The axis of the vectors in each operand.
    keepdims : bool
        Whether to keep the axis in the result, with extent 1.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The dot products, (...); ``out`` if it was given.

    Raises
    ------
    ValueError
        If the shapes do not match or an axis is out of range.
    TypeError
        If an argument is not an array on a device, or a conversion is not allowed.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> x = cp.arange(6, dtype="float32").reshape(2, 3)
    >>> cupygemm.vecdot(x, x)
    array([ 5., 50.], dtype=float32)
    >>> cupygemm.vecdot(x, x, axis=0)
    array([ 9., 17., 29.], dtype=float32)
    """
    if not isinstance(keepdims, (bool, np.bool_)):
        raise TypeError(f"vecdot: keepdims is {keepdims!r}; it must be True or False")
    if axis is not None:
        if axes is not None:
            raise TypeError("vecdot: axis and axes are both given; pass one of them")
        axes = [(axis,), (axis,), (axis,) if keepdims else ()]
    return _apply(
        VECDOT,
        x1,
        x2,
        out,
        axes=axes,
        dtype=dtype,
        casting=casting,
        order=order,
        keepdims=keepdims,
    )


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
        Vectors, (..., k). The leading axes of the operands broadcast.
    out : cupy.ndarray, optional
        Array for the result.
    axes : sequence of int or tuple of int, optional
        The core axes of each operand and of the result, e.g. ``[(-2, -1), -1, -1]``.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        Vectors, (..., m); ``out`` if it was given.

    Raises
    ------
    ValueError
        If the shapes do not match or an axis is out of range.
    TypeError
        If an argument is not an array on a device, or a conversion is not allowed.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> matrices = cp.ones((4, 2, 3), "float32")
    >>> cupygemm.matvec(matrices, cp.ones(3, "float32")).shape
    (4, 2)
    """
    return _apply(MATVEC, x1, x2, out, axes=axes, dtype=dtype, casting=casting, order=order)


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
    """Multiply conjugated vectors and matrices, as `numpy.vecmat`.

    Parameters
    ----------
    x1 : cupy.ndarray
        Vectors, (..., k).
    x2 : cupy.ndarray
        Matrices, (..., k, n). The leading axes of the operands broadcast.
    out : cupy.ndarray, optional
        Array for the result.
    axes : sequence of int or tuple of int, optional
        The core axes of each operand and of the result, e.g. ``[-1, (-2, -1), -1]``.
    dtype, casting, order, stream
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        Vectors, (..., n); ``out`` if it was given.

    Raises
    ------
    ValueError
        If the shapes do not match or an axis is out of range.
    TypeError
        If an argument is not an array on a device, or a conversion is not allowed.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> matrices = cp.ones((4, 2, 3), "float32")
    >>> cupygemm.vecmat(cp.ones(2, "float32"), matrices).shape
    (4, 3)
    """
    return _apply(VECMAT, x1, x2, out, axes=axes, dtype=dtype, casting=casting, order=order)


def _apply(
    signature: Signature,
    x1: Any,
    x2: Any,
    out: Any,
    *,
    axes: Axes,
    dtype: DTypeLike | None,
    casting: str,
    order: str | None,
    keepdims: bool = False,
) -> Array:
    """Compute the product that a signature describes."""
    name = signature.name
    out = single_out(name, out)
    x1, x2, target = as_arrays(name, x1=x1, x2=x2, out=out)
    wanted = parse_dtype(dtype)
    shapes = (x1.shape, x2.shape, None if target is None else target.shape)
    try:
        call = _labelled(signature, shapes, axes, keepdims)
    except ValueError:  # as in NumPy, a conversion that is not allowed comes before
        product_types(
            x1.dtype,
            x2.dtype,
            out=None if target is None else target.dtype,
            dtype=wanted,
            casting=casting,
        )
        raise
    contiguous = result_order(name, order, (x1, x2))
    if target is None and contiguous is not None:
        types = product_types(x1.dtype, x2.dtype, dtype=wanted, casting=casting)
        check_new_result(types.result)
        shape = tuple(call.shape[axis] for axis in call.core_last)
        storage = ndarray_type()(shape, types.result, order=contiguous)
        out = target = storage.transpose(np.argsort(call.core_last).tolist())
    if keepdims and target is not None:
        target = target.squeeze(call.kept)
    result = contract(
        conjugated(x1) if signature.conjugates else x1,
        x2,
        target,
        labels1=call.x1,
        labels2=call.x2,
        labels_out=call.out,
        dtype=wanted,
        casting=casting,
    )
    if out is not None:
        return out
    return result.reshape(call.shape) if keepdims else result


def _labelled(
    signature: Signature,
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None],
    axes: Axes,
    keepdims: bool,
) -> Labelled:
    """Return the labels of a call's arrays, from the table of plans if the call was made before.

    The shapes are those of the operands, and of ``out`` if it was given.
    """
    axes = frozen(axes)
    key: Key = (signature.name, shapes, axes, keepdims)
    call: Labelled | None = PLANS.get(key)
    if call is None:
        shape1, shape2, shape_out = shapes
        call = labelled(
            signature,
            shape1=shape1,
            shape2=shape2,
            shape_out=shape_out,
            axes=axes,
            keepdims=keepdims,
        )
        PLANS.keep(key, call)
    return call
