"""Products with factors and an addend, by the names of BLAS and of neural networks.

Each is one call of `cupygemm.matmul` with its options, on views; what is added here is BLAS's way
to say which operand is transposed, the flattening of the leading axes of `linear`, and scales for
blocks of 8-bit floats, which `scaled_matmul` applies block by block along k.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._products.block_scaled import Scales, block_scaled_matmul
from cupygemm._products.contraction import View
from cupygemm._products.matmul import matmul
from cupygemm._products.microscaled import microscaled_matmul
from cupygemm._products.pairs import viewed
from cupygemm._products.triangle import symmetric_product
from cupygemm._records.dtypes import FLOAT8_NAMES
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.epilogue import epilogue_arguments
from cupygemm._request.keywords import common_keywords
from cupygemm._request.microscaling import element_format, is_factors

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
    """General matrix product ``alpha * op(a) @ op(b) + beta * c``, as BLAS's GEMM.

    Parameters
    ----------
    alpha : number
        Factor of the product.
    a, b : cupy.ndarray
        Matrices, or stacks of them, whose leading axes broadcast.
    beta : number
        Factor of `c`; with 0, `c` is not read.
    c : cupy.ndarray, optional
        What is added; its shape broadcasts to the result's.
    trans_a, trans_b : bool or {"N", "T", "C"}
        Whether the operand is transposed (True, ``"T"``), or conjugated as well (``"C"``).
    out : cupy.ndarray, optional
        Where to put the result; `c` itself updates it in place, as BLAS does.
    dtype : dtype, optional
        Type of the result, see `matmul`.
    **options
        As for `matmul`, such as ``activation`` or ``stream``.

    Returns
    -------
    cupy.ndarray
        The result; ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, `beta` is not 0 and there is no `c`, or an operand has one axis.
    TypeError
        An argument is no array of a device, or the types have no product.
    """
    if beta != 0 and c is None:
        raise ValueError(f"gemm: beta is {beta} and there is no c; pass c, or beta=0")
    a = _transposed("trans_a", _matrices("gemm", "a", a), trans_a)
    b = _transposed("trans_b", _matrices("gemm", "b", b), trans_b)
    if beta != 0:
        options |= {"beta": beta, "c": c}
    return matmul(a, b, out, dtype=dtype, alpha=alpha, **options)


@common_keywords
def syrk(
    alpha: complex,
    a: Any,
    beta: complex = 0,
    c: Any = None,
    trans: bool = False,
    *,
    out: Any = None,
    dtype: DTypeLike | None = None,
    stream: Any = None,
) -> Array:
    """Symmetric product ``alpha * a @ a.T + beta * c``, as BLAS's SYRK.

    Parameters
    ----------
    alpha : number
        Factor of the product.
    a : cupy.ndarray
        A matrix, or a stack of them.
    beta : number
        Factor of `c`; with 0, `c` is not read.
    c : cupy.ndarray, optional
        What is added.
    trans : bool
        The product is ``a.T @ a``.
    out : cupy.ndarray, optional
        Where to put the result; `c` itself updates it in place.
    dtype : dtype, optional
        Type of the result, see `matmul`.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The result, both triangles; ``out`` if it was given.

    Raises
    ------
    ValueError
        `beta` is not 0 and there is no `c`, its shape does not fit, or `a` has one axis.
    TypeError
        An argument is no array of a device, or the types have no product.

    Notes
    -----
    Of large matrices only the blocks up to the diagonal are multiplied, in one launch, and then
    mirrored, where a model says that this takes less time: of floats on AMD GPUs and the emulated
    ones, and of types that have a kernel of this library on Hopper GPUs. Elsewhere both triangles
    are. Complex matrices are not conjugated.
    """
    a = _matrices("syrk", "a", a)
    if beta != 0 and c is None:
        raise ValueError(f"syrk: beta is {beta} and there is no c; pass c, or beta=0")
    if a.ndim == 2:
        target = None if out is None else as_array("syrk", "out", out)
        result = symmetric_product(
            a.T if trans else a,
            target,
            None if dtype is None else np.dtype(dtype),
            epilogue_arguments(alpha=alpha, beta=beta or None, c=c if beta else None),
        )
        if result is not None:
            return result if out is None else out
    return gemm(alpha, a, a, beta, c, trans, not trans, out=out, dtype=dtype)


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
    """Layer of a neural network, ``activation(x @ w.T + bias)``, rounded once.

    Parameters
    ----------
    x : cupy.ndarray
        Inputs, (..., k).
    w : cupy.ndarray
        Weights, (n, k), in the order of ``torch.nn.Linear``.
    bias : cupy.ndarray, optional
        Shape (n,).
    activation : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid"}, optional
        Applied last.
    out : cupy.ndarray, optional
        Where to put the result.
    dtype : dtype, optional
        Type of the result, see `matmul`.
    **options
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        Outputs, (..., n); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit.
    TypeError
        An argument is no array of a device, or the types have no product.

    Notes
    -----
    Leading axes of ``x`` are rows of one matrix where its strides allow, and a batch elsewhere.
    """
    x, w = as_array("linear", "x", x), as_array("linear", "w", w)
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ValueError(
            f"linear: x has shape {x.shape} and w {w.shape}; they must be (..., k) and (n, k)"
        )
    if bias is not None:
        options["bias"] = bias
    if activation is not None:
        options["activation"] = activation
    target = None if out is None else as_array("linear", "out", out)
    shape = (*x.shape[:-1], w.shape[0])
    if target is not None and target.shape != shape:
        raise ValueError(f"linear: out has shape {target.shape}, the result {shape}")
    rows = _rows(x)
    if options.get("c") is None and rows is not None:  # c's leading axes would be flattened, too
        product = None if target is None else _rows(target)
        if target is None or product is not None:
            result = matmul(rows, w.T, product, dtype=dtype, **options)
            return result.reshape(shape) if out is None else out
    result = matmul(x, w.T, target, dtype=dtype, **options)
    return result if out is None else out


@common_keywords
def scaled_matmul(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    *,
    block: int | None = None,
    out: Any = None,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> Array:
    """Product of two quantised matrices, ``(scale_a * a) @ (scale_b * b)``, summed in float32.

    Parameters
    ----------
    a, b : cupy.ndarray
        Matrices, (m, k) and (k, n): 8-bit floats, with ``format_a`` and ``format_b`` as for
        `matmul`, or any other type. With exponents as scales (OCP Microscaling) uint8 arrays of
        ``"e4m3fn"``, ``"e5m2"``, ``"e2m3"`` or ``"e3m2"``, one to a byte, or of ``"e2m1"``, two to
        a byte along k, the lower half first: (m, k / 2) and (k / 2, n). The two may differ.
    scale_a, scale_b : number or cupy.ndarray
        One scale, a number or of one element; or one for each row of ``a``, (m,) or (m, 1), and
        for each column of ``b``, (n,) or (1, n); or one for each block: with ``g(x) = ceil(x /
        block)``, (m, g(k)) or (g(m), g(k)) for ``a``, and (g(k), n) or (g(k), g(n)) for ``b``.
        Arrays of uint8 are exponents (e8m0), ``2.0 ** (s - 127)``, and NaN for 255: (m, g(k)) and
        (g(k), n), for blocks of 32 along k.
    block : int, optional
        Extent of a block: 128, or 32 for exponents, if it is not given.
    out : cupy.ndarray, optional
        Where to put the result.
    dtype : dtype, optional
        Type of the result, see `matmul`.
    **options
        As for `matmul`, such as ``format_a``, ``bias`` or ``activation``.

    Returns
    -------
    cupy.ndarray
        The product, (m, n); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit.
    TypeError
        An argument is no array of a device, or the device lacks the format.

    Notes
    -----
    Scales for a whole row or column take one launch. Scales that change along k take one for
    8-bit floats on Hopper GPUs, if `block` is a multiple of 128: sums of 128 along k are scaled as
    they are added in float32. Else they take one launch for each block of k, each of which adds to
    the float32 sums of those before; the last one applies the other options and rounds.

    Exponents take one launch on gfx950, whose instruction multiplies by them, and a small one for
    each operand that puts them in its order. There 6-bit floats, and 4-bit ones beside others,
    become e4m3fn first, which holds the same numbers; elsewhere all are decoded to bfloat16.
    """
    name = "scaled_matmul"
    a, b = as_array(name, "a", a), as_array(name, "b", b)
    formats_of_blocks = {element_format(options.get(key)) for key in ("format_a", "format_b")}
    if a.ndim == b.ndim == 2 and is_factors(scale_a) | is_factors(scale_b) | bool(
        formats_of_blocks - {None, *FLOAT8_NAMES}
    ):
        return microscaled_matmul(a, b, scale_a, scale_b, block, out, dtype, options)
    block = 128 if block is None else block
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{name}: a has shape {a.shape} and b {b.shape}; they must be (m, k) and (k, n)"
        )
    (m, k), n = a.shape, b.shape[1]
    steps = -(-k // block)
    rows = _blocks(name, "scale_a", scale_a, (m, steps), block)
    columns = _blocks(name, "scale_b", scale_b, (n, steps), block, transposed=True)
    if (rows is None and columns is None) or steps <= 1:
        scales = [
            s if table is None else table.of_block(0, count)
            for s, table, count in ((scale_a, rows, m), (scale_b, columns, n))
        ]
        return matmul(a, b, out, dtype=dtype, scale_a=scales[0], scale_b=scales[1], **options)
    if {"alpha", "beta", "c"} & options.keys():
        raise ValueError(f"{name}: alpha, beta and c do not go with scales for blocks of k")
    formats: dict[str, Any] = {
        key: options[key] for key in ("format_a", "format_b") if key in options
    }
    whole = {"scale_a": scale_a} if rows is None else {}
    whole |= {"scale_b": scale_b} if columns is None else {}
    product = block_scaled_matmul(
        a, b, out, rows=rows, columns=columns, block=block, dtype=dtype, options=options | whole
    )
    if product is not None:
        return product
    sums: Any = None
    for step in range(steps):
        part = slice(step * block, min((step + 1) * block, k))
        last = step == steps - 1
        given: dict[str, Any] = options.copy() if last else formats.copy()
        if step:
            given |= {"c": sums, "beta": 1}
        sums = matmul(
            a[:, part],
            b[part],
            out if last else sums,
            dtype=dtype if last else np.float32,
            scale_a=scale_a if rows is None else rows.of_block(step, m),
            scale_b=scale_b if columns is None else columns.of_block(step, n),
            **given,
        )
    return sums


def _matrices(function: str, name: str, x: Any) -> Array:
    x = as_array(function, name, x)
    if x.ndim < 2:
        raise ValueError(f"{function}: {name} has shape {x.shape}; it needs two axes or more")
    return x


def _transposed(keyword: str, x: Array, how: Transposition) -> Array:
    """Return a matrix as BLAS's character says."""
    letter = how.upper() if isinstance(how, str) else "T" if how else "N"
    if letter not in ("N", "T", "C"):
        raise ValueError(f"gemm: {keyword} = {how!r}; it takes True, False, 'N', 'T' or 'C'")
    if letter == "N":
        return x
    turned = x.swapaxes(-1, -2)
    return turned.conj() if letter == "C" and x.dtype.kind == "c" else turned


def _rows(x: Array) -> Array | None:
    """Return an array's leading axes as one, if that is a view."""
    if x.ndim <= 2:
        return x
    if not x.size:
        return None
    shape, strides = x.shape, x.strides
    axes = [axis for axis in range(x.ndim - 1) if shape[axis] > 1] or [x.ndim - 2]
    for outer, inner in pairwise(axes):  # of an axis of one element, the stride means nothing
        if strides[outer] != strides[inner] * shape[inner]:
            return None
    return viewed(x, View((x.size // shape[-1], shape[-1]), (strides[axes[-1]], strides[-1])))


def _blocks(
    function: str,
    name: str,
    scale: Any,
    extents: tuple[int, int],
    block: int,
    *,
    transposed: bool = False,
) -> Scales | None:
    """Return the scales of each row (column) for each block of k; None where k does not matter."""
    if not hasattr(scale, "shape") or len(scale.shape) < 2:
        return None
    scale = as_array(function, name, scale)
    table = scale.T if transposed else scale
    count, steps = extents
    groups = -(-count // block)
    if table.size == 1 or (table.shape == (count, 1) and steps != 1):
        return None
    if table.shape == (count, steps):
        return Scales(table, 1)
    if table.shape == (groups, steps):
        return Scales(table, block)
    whole, parts = ((steps, count), (steps, groups)) if transposed else (
        (count, steps), (groups, steps))  # fmt: skip
    raise ValueError(
        f"{function}: {name} has shape {scale.shape}; for blocks of {block} it must be "
        f"{whole} or {parts}"
    )
