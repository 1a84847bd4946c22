"""Products by cuBLASLt with any of the algorithms that its heuristics offer.

`cublas` and torch use the first algorithm. Here, all algorithms that
``cublasLtMatmulAlgoGetHeuristic`` returns can be run, to find the fastest.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._backends.cublaslt import library as lt

WORKSPACE_BYTES = 64 << 20
MOST_ALGORITHMS = 64


@functools.cache
def _workspace() -> Any:
    import cupy as cp

    return cp.empty(WORKSPACE_BYTES, np.uint8)


class LtProduct:
    """x @ w for C-ordered x (m, k) and out (m, n), and a w (k, n) in C or in F order.

    cuBLASLt counts matrices by columns, so it computes the transpose of the result from w and x.
    With `tf32`, operands of fp32 are rounded to tf32.
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: np.dtype[Any],
        *,
        w_transposed: bool,
        tf32: bool = False,
    ) -> None:
        wide = dtype.name in ("float64", "complex128")
        narrow = lt.COMPUTE_TF32 if tf32 else lt.COMPUTE_32F
        scale = dtype if wide or dtype.kind == "c" else np.dtype(np.float32)
        self._product = lt.LtProduct(
            lt.Matrices(dtype.name, *((k, n, k) if w_transposed else (n, k, n))),
            lt.Matrices(dtype.name, k, m, k),
            lt.Matrices(dtype.name, n, m, n),
            operations=(lt.OP_T if w_transposed else lt.OP_N, lt.OP_N),
            compute=lt.COMPUTE_64F if wide else narrow,
            scale=scale,
            alignments=(256, 256, 256),
        )

    def algorithms(self, most: int = MOST_ALGORITHMS) -> list[lt.HeuristicResult]:
        """Return the algorithms that the heuristics offer, the preferred one first."""
        return self._product.algorithms(most, workspace_bytes=WORKSPACE_BYTES)

    def launch(self, algorithm: lt.HeuristicResult) -> lt.Launch:
        """Return a callable that enqueues the product by an algorithm."""
        return self._product.launch(algorithm.algorithm)

    def run(self, launch: lt.Launch, x: Any, w: Any, out: Any) -> None:
        """Enqueue the product in CuPy's current stream."""
        from cupy.cuda import get_current_stream

        stream = get_current_stream().ptr
        workspace = _workspace().data.ptr
        launch(w.data.ptr, x.data.ptr, out.data.ptr, workspace, WORKSPACE_BYTES, stream)
