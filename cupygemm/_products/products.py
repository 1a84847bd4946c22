"""NumPy's products of two arrays, which differ in the axes that they contract and keep."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np

from cupygemm._products.matmul import matmul
from cupygemm._products.pairs import contract
from cupygemm._request.arrays import Array, as_array, as_arrays, is_scalar
from cupygemm._request.containers import multiplier
from cupygemm._request.keywords import common_keywords
from cupygemm._request.signatures import normalized_axis


@common_keywords
def dot(a: Any, b: Any, out: Any = None, *, stream: Any = None) -> Array:
    """Dot product of two arrays, as `numpy.dot`.

    Parameters
    ----------
    a, b : cupy.ndarray or number
        The last axis of ``a`` is contracted with the second-to-last axis of ``b``, or with its only
        one. A number or a 0-d array multiplies the other operand.
    out : cupy.ndarray, optional
        Array for the result, of the result's shape and type. It may have any strides.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The product, of shape ``a.shape[:-1] + b.shape[:-2] + b.shape[-1:]``; ``out`` if it was
        given.

    Raises
    ------
    ValueError
        If the extents differ, or ``out`` does not have the shape and type of the result.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    See Also
    --------
    matmul : Product of stacks of matrices, pair by pair.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.arange(6, dtype="float32").reshape(2, 3)
    >>> cupygemm.dot(a, cp.ones(3, "float32"))
    array([ 3., 12.], dtype=float32)
    """
    if is_scalar(a) or is_scalar(b):
        return _scaled("dot", a, b, out)
    a, b, target = as_arrays("dot", a=a, b=b, out=out)
    axes_b = max(b.ndim - 2, 0)
    if a.ndim and b.ndim and a.shape[-1] != b.shape[axes_b]:
        raise ValueError(
            f"dot: the inner extents differ: a of shape {a.shape} has {a.shape[-1]} (its last "
            f"axis), b of shape {b.shape} has {b.shape[axes_b]} "
            f"(its {'only' if b.ndim == 1 else 'second-to-last'} axis)"
        )
    if target is not None:
        _require_exact(target, "dot", _dot_shape(a, b), np.result_type(a.dtype, b.dtype))
    if 0 < a.ndim <= 2 and 0 < b.ndim <= 2:
        result = matmul(a, b, target)
    else:
        contracted, kept_a, kept_b = _labels(a, b)
        result = contract(
            a,
            b,
            target,
            labels1=(*kept_a, *contracted),
            labels2=(*kept_b[:axes_b], *contracted, *kept_b[axes_b:]),
            labels_out=(*kept_a, *kept_b),
        )
    return result if out is None else out


@common_keywords
def vdot(a: Any, b: Any, /, *, stream: Any = None) -> Array:
    """Dot product of two vectors, the first conjugated, as `numpy.vdot`.

    Parameters
    ----------
    a, b : cupy.ndarray
        Arrays of equal size, flattened in C order.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The dot product, 0-d.

    Raises
    ------
    ValueError
        If the sizes differ.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.vdot(cp.asarray([1j, 2]), cp.asarray([1j, 3]))
    array(7.+0.j)
    """
    a, b = as_arrays("vdot", a=a, b=b)
    if a.size != b.size:
        raise ValueError(
            f"vdot: the sizes differ: a of shape {a.shape} has {a.size} elements, "
            f"b of shape {b.shape} has {b.size}"
        )
    if a.shape != b.shape:
        a, b = a.ravel(), b.ravel()
    labels = tuple(range(a.ndim))
    return contract(conjugated(a), b, labels1=labels, labels2=labels, labels_out=())


@common_keywords
def inner(a: Any, b: Any, /, *, stream: Any = None) -> Array:
    """Inner product over the last axes of two arrays, as `numpy.inner`.

    Parameters
    ----------
    a, b : cupy.ndarray or number
        Operands whose last axes have equal extents. A number or a 0-d array multiplies the other
        operand.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The product, of shape ``a.shape[:-1] + b.shape[:-1]``.

    Raises
    ------
    ValueError
        If the extents differ.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.arange(6, dtype="float32").reshape(2, 3)
    >>> cupygemm.inner(a, a)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    if is_scalar(a) or is_scalar(b):
        return _scaled("inner", a, b, None)
    a, b = as_arrays("inner", a=a, b=b)
    if a.ndim and b.ndim and a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"inner: the last extents differ: a has shape {a.shape}, b has shape {b.shape}"
        )
    contracted, kept_a, kept_b = _labels(a, b)
    return contract(
        a,
        b,
        labels1=(*kept_a, *contracted),
        labels2=(*kept_b, *contracted),
        labels_out=(*kept_a, *kept_b),
    )


@common_keywords
def outer(a: Any, b: Any, out: Any = None, *, stream: Any = None) -> Array:
    """Outer product of two vectors, as `numpy.outer`.

    Parameters
    ----------
    a, b : cupy.ndarray
        Vectors. Arrays of several axes are flattened in C order.
    out : cupy.ndarray, optional
        Array for the result, of shape ``(a.size, b.size)``.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The product, of shape ``(a.size, b.size)``; ``out`` if it was given.

    Raises
    ------
    ValueError
        If ``out`` has another shape.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> cupygemm.outer(cp.asarray([1.0, 2.0]), cp.asarray([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    a, b, target = as_arrays("outer", a=a, b=b, out=out)
    if a.ndim != 1:
        a = a.ravel()
    if b.ndim != 1:
        b = b.ravel()
    if target is not None and target.shape != (a.size, b.size):
        raise ValueError(
            f"outer: out has shape {target.shape}, but the result has shape {(a.size, b.size)}"
        )
    result = contract(a, b, target, labels1=("i",), labels2=("j",), labels_out=("i", "j"))
    return result if out is None else out


@common_keywords
def tensordot(a: Any, b: Any, axes: Any = 2, *, stream: Any = None) -> Array:
    """Tensor contraction over given axes of two arrays, as `numpy.tensordot`.

    Parameters
    ----------
    a, b : cupy.ndarray
        Operands.
    axes : int or (int or sequence of int, int or sequence of int)
        The number N of axes, to contract the last N axes of ``a`` with the first N axes of ``b``,
        none if it is negative; or the contracted axes of ``a`` and those of ``b``.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The contraction, with the remaining axes of ``a`` followed by those of ``b``.

    Raises
    ------
    ValueError
        If extents differ, an axis is out of range or given twice, or the numbers of axes differ.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Notes
    -----
    Nothing is copied if the contracted axes are nested in memory in the same way in both operands.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.ones((2, 3, 4), "float32")
    >>> cupygemm.tensordot(a, a, axes=([1, 2], [1, 2]))
    array([[12., 12.],
           [12., 12.]], dtype=float32)
    """
    chunked = multiplier(a, b)
    if chunked is not None:
        return chunked.tensordot(a, b, axes)
    a, b = as_arrays("tensordot", a=a, b=b)
    labels_a, labels_b, kept = tensordot_labels(axes, a.shape, b.shape)
    return contract(a, b, labels1=tuple(labels_a), labels2=tuple(labels_b), labels_out=tuple(kept))


def _labels(a: Array, b: Array) -> tuple[tuple[str, ...], range, range]:
    """Return the label that two arrays contract, none if one is 0-d, and those that each keeps."""
    contracted = ("k",) if a.ndim and b.ndim else ()
    kept = a.ndim - len(contracted)
    return contracted, range(kept), range(kept, kept + b.ndim - len(contracted))


def conjugated(array: Array) -> Array:
    """Return the complex conjugate of an array; the array itself if it is real."""
    return array.conj() if array.dtype.kind == "c" else array


def _scaled(function: str, a: Any, b: Any, out: Any) -> Array:
    """Return the product with a number, which is converted to a 0-d array, as in NumPy."""
    import cupy

    a, b = (
        np.asarray(x)[()] if is_scalar(x) else as_array(function, name, x)
        for name, x in (("a", a), ("b", b))
    )
    if not (isinstance(a, cupy.ndarray) or isinstance(b, cupy.ndarray)):
        raise TypeError(
            f"{function}: both operands are numbers; pass a CuPy array, or use numpy.{function}"
        )
    if out is None:
        return cupy.multiply(a, b)
    target = as_array(function, "out", out)
    shape = a.shape or b.shape
    _require_exact(target, function, shape, np.result_type(a.dtype, b.dtype))
    cupy.multiply(a, b, target)
    return out


def _dot_shape(a: Array, b: Array) -> tuple[int, ...]:
    if not (a.ndim and b.ndim):
        return tuple(a.shape or b.shape)
    return (*a.shape[:-1], *b.shape[:-2], *(b.shape[-1:] if b.ndim > 1 else ()))


def _require_exact(out: Array, function: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ValueError unless `out` has the shape and type of the result, as in `numpy.dot`."""
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"{function}: out is {out.dtype} of shape {out.shape}; "
            f"the result is {dtype} of shape {shape}"
        )


def tensordot_labels(
    axes: Any, shape_a: tuple[int, ...], shape_b: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """Return the labels of the axes of both operands of `tensordot`, and those of the result.

    Raises
    ------
    ValueError
        As for `tensordot`.
    TypeError
        The argument ``axes`` is neither a number nor a pair.
    """
    axes_a, axes_b = _tensordot_axes(axes, len(shape_a), len(shape_b))
    labels_a = list(range(len(shape_a)))
    labels_b = list(range(len(shape_a), len(shape_a) + len(shape_b)))
    kept_a = [label for axis, label in enumerate(labels_a) if axis not in axes_a]
    kept_b = [label for axis, label in enumerate(labels_b) if axis not in axes_b]
    for x, y in zip(axes_a, axes_b, strict=True):
        if shape_a[x] != shape_b[y]:
            raise ValueError(
                f"tensordot: the extents differ: axis {x} of a, shape {shape_a}, "
                f"and axis {y} of b, shape {shape_b}"
            )
        labels_b[y] = labels_a[x]
    return labels_a, labels_b, [*kept_a, *kept_b]


def _tensordot_axes(axes: Any, ndim_a: int, ndim_b: int) -> tuple[list[int], list[int]]:
    """Return the contracted axes of both operands as non-negative numbers."""
    if isinstance(axes, SupportsIndex):
        count = operator.index(axes)
        if count > min(ndim_a, ndim_b):  # NumPy's exception is an IndexError
            raise np.exceptions.AxisError(
                f"tensordot: axes = {count}, but a has {ndim_a} axes and b has {ndim_b}"
            )
        count = max(count, 0)  # as in NumPy
        return list(range(ndim_a - count, ndim_a)), list(range(count))
    pair = "it must be a number of axes, or a pair: axes of a and axes of b"
    try:
        first, second = axes
    except TypeError:
        raise TypeError(f"tensordot: axes = {axes!r}; {pair}") from None
    except ValueError:
        raise ValueError(f"tensordot: axes = {axes!r}; {pair}") from None
    found = []
    for name, given, ndim in (("a", first, ndim_a), ("b", second, ndim_b)):
        try:
            listed = list(given)
        except TypeError:  # a single axis
            listed = [given]
        found.append([normalized_axis("tensordot", name, axis, ndim) for axis in listed])
        if len(set(found[-1])) < len(found[-1]):
            raise ValueError(f"tensordot: axes gives an axis of {name} twice: {given}")
    if len(found[0]) != len(found[1]):
        raise ValueError(
            f"tensordot: axes gives {len(found[0])} axes of a and {len(found[1])} of b; give as "
            "many of each"
        )
    return found[0], found[1]
