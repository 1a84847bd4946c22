"""Products with factors and an addend, under the names of BLAS and of neural networks.

Each function is one call of `cupygemm.matmul` on views. `gemm` and `syrk` add BLAS's transposition
arguments, and `linear` flattens leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._products.contraction import View
from cupygemm._products.matmul import matmul
from cupygemm._products.pairs import viewed
from cupygemm._products.triangle import symmetric_product
from cupygemm._records.formats import parse_dtype
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.epilogue import epilogue_arguments, number
from cupygemm._request.keywords import common_keywords

Transposition = bool | Literal["N", "T", "C", "n", "t", "c"]


@common_keywords
def gemm(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex = 0,
    c: Any = None,
    trans_a: Transposition = False,
    trans_b: Transposition = False,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> Array:
    """General matrix product ``alpha * op(a) @ op(b) + beta * c``, like BLAS's GEMM.

    Parameters
    ----------
    alpha : number
        Factor of the product.
    a, b : cupy.ndarray
        Matrices, or stacks of matrices whose leading axes broadcast.
    beta : number
        Factor of `c`. With 0, `c` is not read.
    c : cupy.ndarray, optional
        Array to add; its shape broadcasts to the result's.
    trans_a, trans_b : bool or {"N", "T", "C"}
        Whether to transpose the operand (True or ``"T"``), or to conjugate it as well (``"C"``).
    out : cupy.ndarray, optional
        Array for the result. Pass `c` to update it in place, as BLAS does.
    dtype : dtype, optional
        Type of the result, as for `matmul`.
    **options
        Other options of `matmul`, such as ``activation`` or ``stream``.

    Returns
    -------
    cupy.ndarray
        The result; ``out`` if it was given.

    Raises
    ------
    ValueError
        If shapes do not match, `beta` is not 0 without a `c`, or an operand has fewer than two
        axes.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Examples
    --------
    Add a product to a matrix in place:

    >>> import cupygemm, cupy as cp
    >>> a, c = cp.ones((3, 2), "float32"), cp.ones((2, 2), "float32")
    >>> result = cupygemm.gemm(2, a, a, 1, c, trans_a=True, out=c)
    >>> c
    array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    adds = _adds("gemm", beta, c)
    a = _transposed("trans_a", _matrices("gemm", "a", a), trans_a)
    b = _transposed("trans_b", _matrices("gemm", "b", b), trans_b)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"gemm: the inner extents differ: op(a) has shape {a.shape} with trans_a={trans_a!r}, "
            f"op(b) has shape {b.shape} with trans_b={trans_b!r}"
        )
    if adds:
        options |= {"beta": beta, "c": c}
    return matmul(a, b, out, dtype=dtype, alpha=alpha, **options)


@common_keywords
def syrk(
    alpha: complex,
    a: Any,
    beta: complex = 0,
    c: Any = None,
    trans: bool | Literal["N", "T"] = False,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    stream: Any = None,
) -> Array:
    """Symmetric product ``alpha * a @ a.T + beta * c``, like BLAS's SYRK.

    Parameters
    ----------
    alpha : number
        Factor of the product.
    a : cupy.ndarray
        A matrix, or a stack of matrices.
    beta : number
        Factor of `c`. With 0, `c` is not read.
    c : cupy.ndarray, optional
        Array to add; its shape broadcasts to the result's.
    trans : bool or {"N", "T"}
        Whether to compute ``a.T @ a`` instead.
    out : cupy.ndarray, optional
        Array for the result. Pass `c` to update it in place.
    dtype : dtype, optional
        Type of the result, as for `matmul`.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The result, with both triangles; ``out`` if it was given.

    Raises
    ------
    ValueError
        If `beta` is not 0 without a `c`, the shape of `c` does not match, or `a` has fewer than two
        axes.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Notes
    -----
    If a kernel of this library supports the type and a model predicts that it takes less time, only
    the blocks of one triangle are multiplied, in one launch, and then mirrored. Otherwise both
    triangles are multiplied. Complex matrices are not conjugated.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> cupygemm.syrk(1, a)
    array([[ 5., 11.],
           [11., 25.]])
    """
    a = _matrices("syrk", "a", a)
    transposed = _letter("syrk", "trans", trans, ("N", "T")) == "T"
    adds = _adds("syrk", beta, c)
    if a.ndim == 2:
        target = None if out is None else as_array("syrk", "out", out)
        result = symmetric_product(
            a.T if transposed else a,
            target,
            parse_dtype(dtype),
            epilogue_arguments(alpha=alpha, beta=beta if adds else None, c=c if adds else None),
        )
        if result is not None:
            return result if out is None else out
    return gemm(alpha, a, a, beta, c, transposed, not transposed, out=out, dtype=dtype)


@common_keywords
def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    activation: str | None = None,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> Array:
    """Linear layer of a neural network, ``activation(x @ w.T + bias)``, rounded once.

    Parameters
    ----------
    x : cupy.ndarray
        Inputs, (..., k).
    w : cupy.ndarray
        Weights, (n, k), as in ``torch.nn.Linear``.
    bias : cupy.ndarray, optional
        Array to add to each row, (n,).
    activation : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid"}, optional
        Function to apply to the sum.
    out : cupy.ndarray, optional
        Array for the result.
    dtype : dtype, optional
        Type of the result, as for `matmul`.
    **options
        Other options of `matmul`. Their shapes refer to the result, (..., n), and to ``x``: scales
        of its rows, for example, are (..., 1).

    Returns
    -------
    cupy.ndarray
        Outputs, (..., n); ``out`` if it was given.

    Raises
    ------
    ValueError
        If the shapes do not match.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Notes
    -----
    The leading axes of ``x`` become the rows of one matrix if its strides allow, else a batch.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> x, w = cp.ones((2, 3), "float16"), cp.ones((4, 3), "float16")
    >>> bias = cp.asarray([0, 1, -3, -6], "float16")
    >>> cupygemm.linear(x, w, bias, "relu")
    array([[3., 4., 0., 0.],
           [3., 4., 0., 0.]], dtype=float16)
    """
    x, w = as_array("linear", "x", x), as_array("linear", "w", w)
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ValueError(
            f"linear: x has shape {x.shape} and w has shape {w.shape}; they must be (..., k) and "
            "(n, k)"
        )
    if bias is not None:
        options["bias"] = bias
    if activation is not None:
        options["activation"] = activation
    target = None if out is None else as_array("linear", "out", out)
    shape = (*x.shape[:-1], w.shape[0])
    if target is not None and target.shape != shape:
        raise ValueError(f"linear: out has shape {target.shape}, but the result has shape {shape}")
    rows = _rows(x)
    merged = None if rows is None else _with_rows(options, x.shape[:-1])
    product = None if target is None else _rows(target)
    if merged is not None and (target is None or product is not None):
        result = matmul(rows, w.T, product, dtype=dtype, **merged)
        return result.reshape(shape) if out is None else out
    result = matmul(x, w.T, target, dtype=dtype, **options)
    return result if out is None else out


def _adds(function: str, beta: complex, c: Any) -> bool:
    """Tell whether ``beta * c`` is added; raise ValueError if there is no `c` to add."""
    adds = number("beta", beta) != 0
    if adds and c is None:
        raise ValueError(f"{function}: beta is {beta}, but c is missing; pass c, or beta=0")
    return adds


def _matrices(function: str, name: str, x: Any) -> Array:
    x = as_array(function, name, x)
    if x.ndim < 2:
        raise ValueError(f"{function}: {name} has shape {x.shape}; it needs two axes or more")
    return x


def _letter(
    function: str, keyword: str, how: Any, known: Sequence[Literal["N", "T", "C"]]
) -> Literal["N", "T", "C"]:
    """Return the letter that BLAS's argument stands for, which must be a supported one."""
    for letter in known:
        if isinstance(how, str) and how.upper() == letter:
            return letter
    if isinstance(how, (bool, np.bool_, int, np.integer)) and how in (0, 1):
        return "T" if how else "N"
    letters = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
    raise ValueError(f"{function}: {keyword} is {how!r}; it must be True, False, {letters}")


def _transposed(keyword: str, x: Array, how: Transposition) -> Array:
    """Return a matrix transposed as BLAS's argument specifies."""
    letter = _letter("gemm", keyword, how, ("N", "T", "C"))
    if letter == "N":
        return x
    transposed = x.swapaxes(-1, -2)
    return transposed.conj() if letter == "C" and x.dtype.kind == "c" else transposed


def _with_rows(options: dict[str, Any], leading: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the options with the leading axes of arrays merged; None if they differ or are copied.

    Arrays that are the same for all rows stay as they are.
    """
    merged = dict(options)
    for name in ("scale_a", "scale_b", "c", "bias"):
        ndim = getattr(options.get(name), "ndim", 0)
        if ndim > 1 or (ndim == 1 and name == "scale_a" and len(leading) > 1):
            array = as_array("linear", name, options[name])
            merged[name] = _rows(array) if array.shape[:-1] == leading else None
            if merged[name] is None:
                return None
    return merged


def _rows(x: Array) -> Array | None:
    """Return a view of an array with its leading axes merged into one; None if it needs a copy."""
    if x.ndim <= 2:
        return x
    if not x.size:
        return None
    shape, strides = x.shape, x.strides
    axes = [axis for axis in range(x.ndim - 1) if shape[axis] > 1] or [x.ndim - 2]
    for outer, inner in pairwise(axes):  # strides of length-1 axes are ignored
        if strides[outer] != strides[inner] * shape[inner]:
            return None
    return viewed(x, View((x.size // shape[-1], shape[-1]), (strides[axes[-1]], strides[-1])))
