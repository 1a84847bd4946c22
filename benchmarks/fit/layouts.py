"""Convert a product of the design to the layout for which backends choose kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.fit.samples import Product
from cupygemm._request.layout import Layout, MatrixStack, make_layout

DTYPES: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "tf32x3": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
}


def layout_of(product: Product) -> Layout:
    """Return the layout of a product whose arrays are whole allocations of CuPy."""
    *batch, m, n, k = product.shape
    dtype = DTYPES[product.operands]
    precision: Any = product.operands if product.operands.startswith("tf32") else "ieee"
    x1 = _stack(m, k, batch, dtype, product.layout[0])
    x2 = _stack(k, n, batch, dtype, product.layout[1])
    out = _stack(m, n, batch, DTYPES[product.result], "N")
    return make_layout(x1, x2, out, tuple(batch), precision=precision)


def _stack(
    rows: int, columns: int, batch: list[int], dtype: np.dtype[Any], letter: str
) -> MatrixStack:
    """Return matrices in C order, or transposed views of them."""
    row_stride, column_stride = (columns, 1) if letter == "N" else (1, rows)
    strides, step = [], rows * columns
    for extent in reversed(batch):
        strides.append(step)
        step *= extent
    return MatrixStack(
        rows=rows,
        columns=columns,
        row_stride=row_stride,
        column_stride=column_stride,
        batch_strides=tuple(reversed(strides)),
        dtype=dtype,
        address=0,
    )
