"""`scaled_matmul`: products of quantised matrices with scales for whole operands or for blocks.

Scales that do not change along k are options of `cupygemm.matmul`. Scales for blocks of k go to a
kernel that applies them, if there is one; otherwise each block of k is one product, which adds to
the sums of the previous ones. Scales that are exponents go to `microscaled_matmul`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._products.block_scaled import Scales, block_scaled_matmul
from cupygemm._products.matmul import matmul
from cupygemm._products.microscaled import microscaled_matmul
from cupygemm._records.dtypes import FLOAT8_NAMES
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.keywords import common_keywords
from cupygemm._request.microscaling import element_format, is_factors
from cupygemm._request.options import require_positive

_NAME = "scaled_matmul"


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
        `matmul`, or any other type. If the scales are exponents (OCP Microscaling), uint8 arrays
        with one element per byte of ``"e4m3fn"``, ``"e5m2"``, ``"e2m3"`` or ``"e3m2"``, or with two
        elements per byte of ``"e2m1"`` along k, the first in the lower half: (m, k / 2) and
        (k / 2, n). The two formats may differ.
    scale_a, scale_b : number or cupy.ndarray
        A single scale, as a number or an array of one element; or one scale for each row of ``a``,
        (m,) or (m, 1), and for each column of ``b``, (n,) or (1, n); or one scale for each block.
        With ``g(x) = ceil(x / block)``, the shape of scales for blocks is (m, g(k)) or (g(m), g(k))
        for ``a``, and (g(k), n) or (g(k), g(n)) for ``b``. Arrays of uint8 are exponents (e8m0):
        ``2.0 ** (s - 127)``, and NaN for 255. Their shapes are (m, g(k)) and (g(k), n), for blocks
        of 32.
    block : int, optional
        Extent of a block. The default is 128, or 32 for exponents.
    out : cupy.ndarray, optional
        Array for the result.
    dtype : dtype, optional
        Type of the result, as for `matmul`.
    **options
        Other options of `matmul`, such as ``format_a``, ``bias`` or ``activation``.

    Returns
    -------
    cupy.ndarray
        The product, (m, n); ``out`` if it was given.

    Raises
    ------
    ValueError
        If the shapes do not match.
    TypeError
        If an argument is not an array on a device, or the device does not support the format.

    Notes
    -----
    Scales for whole rows or columns take one launch. Scales that change along k take one launch if
    the device has a kernel that applies them to partial sums in float32, and `block` is a multiple
    of the kernel's. Otherwise they take one launch for each block of k, which adds to the float32
    sums of the previous ones; the last launch applies the other options and rounds.

    Exponents take one launch if the matrix unit of the device multiplies by them, and a small
    launch for each operand that reorders its exponents. On such a device, 6-bit floats, and 4-bit
    floats if the other operand is not 4-bit, are first converted to e4m3fn, which represents the
    same numbers. On other devices, all operands are decoded to bfloat16. The table of types in the
    documentation lists what each device supports.

    Examples
    --------
    Scales for blocks of 2 elements along k, for each row and for each column:

    >>> import cupygemm, cupy as cp
    >>> a, b = cp.ones((2, 4), "float16"), cp.ones((4, 3), "float16")
    >>> scale_a = cp.asarray([[1, 10], [2, 20]], "float32")
    >>> scale_b = cp.ones((2, 3), "float32")
    >>> cupygemm.scaled_matmul(a, b, scale_a, scale_b, block=2, dtype="float32")
    array([[22., 22., 22.],
           [44., 44., 44.]], dtype=float32)
    """
    a, b = as_array(_NAME, "a", a), as_array(_NAME, "b", b)
    formats = {element_format(options.get(key)) for key in ("format_a", "format_b")}
    takes_exponents = bool(formats - {None, *FLOAT8_NAMES})
    if a.ndim == b.ndim == 2 and (is_factors(scale_a) or is_factors(scale_b) or takes_exponents):
        return microscaled_matmul(
            a, b, scale_a, scale_b, block=block, out=out, dtype=dtype, options=options
        )
    block = 128 if block is None else block
    require_positive(_NAME, "block", block)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{_NAME}: a has shape {a.shape} and b has shape {b.shape}; they must be (m, k) and "
            "(k, n)"
        )
    (m, k), n = a.shape, b.shape[1]
    steps = -(-k // block)
    rows = _blocks("scale_a", scale_a, count=m, steps=steps, block=block)
    columns = _blocks("scale_b", scale_b, count=n, steps=steps, block=block, transposed=True)
    if (rows is None and columns is None) or steps <= 1:
        scales = [
            s if table is None else table.of_block(0, count)
            for s, table, count in ((scale_a, rows, m), (scale_b, columns, n))
        ]
        return matmul(a, b, out, dtype=dtype, scale_a=scales[0], scale_b=scales[1], **options)
    if any(options.get(name) is not None for name in ("alpha", "beta", "c")):
        raise ValueError(
            f"{_NAME}: alpha, beta and c cannot be combined with scales for blocks of k; apply "
            "them to the result"
        )
    whole = {"scale_a": scale_a} if rows is None else {}
    whole |= {"scale_b": scale_b} if columns is None else {}
    product = block_scaled_matmul(
        a, b, out, rows=rows, columns=columns, block=block, dtype=dtype, options=options | whole
    )
    if product is not None:
        return product
    return _multiplied_by_blocks(
        a,
        b,
        out,
        steps=[slice(start, min(start + block, k)) for start in range(0, k, block)],
        scale_a=scale_a if rows is None else rows,
        scale_b=scale_b if columns is None else columns,
        dtype=dtype,
        options=options,
    )


def _multiplied_by_blocks(
    a: Array,
    b: Array,
    out: Any,
    *,
    steps: list[slice],
    scale_a: Any,
    scale_b: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array:
    """Multiply one block of k at a time; the last product applies the options and rounds."""
    formats: dict[str, Any] = {
        key: options[key] for key in ("format_a", "format_b") if key in options
    }
    rows, columns = a.shape[0], b.shape[1]
    sums: Any = None
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        given: dict[str, Any] = options.copy() if last else formats.copy()
        if index:
            given |= {"c": sums, "beta": 1}
        sums = matmul(
            a[:, step],
            b[step],
            out if last else sums,
            dtype=dtype if last else np.float32,
            scale_a=scale_a.of_block(index, rows) if isinstance(scale_a, Scales) else scale_a,
            scale_b=scale_b.of_block(index, columns) if isinstance(scale_b, Scales) else scale_b,
            **given,
        )
    return sums


def _blocks(
    name: str, scale: Any, *, count: int, steps: int, block: int, transposed: bool = False
) -> Scales | None:
    """Return the scales of `count` rows (columns) for blocks of k; None if k does not matter.

    `steps` is the number of blocks of k. Scales of columns are ``transposed``.
    """
    if not hasattr(scale, "shape") or len(scale.shape) < 2:
        return None
    scale = as_array(_NAME, name, scale)
    table = scale.T if transposed else scale
    groups = -(-count // block)
    if table.size == 1 or (table.shape == (count, 1) and steps != 1):
        return None
    if table.shape == (count, steps):
        return Scales(table, shared=1)
    if table.shape == (groups, steps):
        return Scales(table, shared=block)
    allowed = [(count, steps), (groups, steps)]
    if transposed:
        allowed = [shape[::-1] for shape in allowed]
    raise ValueError(
        f"{_NAME}: {name} has shape {scale.shape}; for blocks of {block} it must be "
        f"{allowed[0]} or {allowed[1]}"
    )
