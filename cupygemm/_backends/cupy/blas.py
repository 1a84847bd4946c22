"""Subtract products from a matrix in place by cuBLAS, which `cupy.matmul` cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np

_FUNCTIONS = {"f": "s", "d": "d", "F": "c", "D": "z"}


def subtract_product(a: Any, b: Any, c: Any) -> None:
    """Subtract ``a @ b`` from `c`, in place, by cuBLAS.

    Parameters
    ----------
    a, b, c : cupy.ndarray
        Matrices, or stacks with one leading axis. One of the last two axes is contiguous; in `c`,
        the last axis.
    """
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    letter = _FUNCTIONS[c.dtype.char]
    minus, one = np.array(-1, c.dtype), np.array(1, c.dtype)
    m, n = c.shape[-2:]
    # cuBLAS's matrices are column-major: it computes the transpose.
    op_b, ldb = _operand(b)
    op_a, lda = _operand(a)
    places = [(b, ldb), (a, lda), (c, max(c.strides[-2] // c.itemsize, n))]
    shape = (get_cublas_handle(), op_b, op_a, n, m, a.shape[-1], minus.ctypes.data)
    if c.ndim == 2:
        (b, ldb), (a, lda), (_, ldc) = places
        function = getattr(cublas, f"{letter}gemm")
        function(*shape, b.data.ptr, ldb, a.data.ptr, lda, one.ctypes.data, c.data.ptr, ldc)
        return
    batched = [(x.data.ptr, ld, x.strides[0] // x.itemsize) for x, ld in places]
    function = getattr(cublas, f"{letter}gemmStridedBatched")
    function(*shape, *batched[0], *batched[1], one.ctypes.data, *batched[2], c.shape[0])


def _operand(x: Any) -> tuple[int, int]:
    """Return cuBLAS's operation and leading dimension for an operand."""
    from cupy_backends.cuda.libs import cublas

    rows, columns = x.shape[-2:]
    if x.strides[-1] == x.itemsize or columns == 1:
        return cublas.CUBLAS_OP_N, max(x.strides[-2] // x.itemsize, columns)
    return cublas.CUBLAS_OP_T, max(x.strides[-1] // x.itemsize, rows)
