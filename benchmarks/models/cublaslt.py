"""Products by cuBLASLt with any of the algorithms that its heuristics offer, through its C API.

`cublas` and torch take the first algorithm. Here, all that ``cublasLtMatmulAlgoGetHeuristic``
returns can be run, so that the fastest can be found. The constants are those of the CUDA toolkit's
``cublasLt.h`` and ``library_types.h`` (cuBLAS documentation, "Using the cuBLASLt API").
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from typing import Any

import numpy as np

TYPES = {"bfloat16": 14, "float16": 2, "float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
"""``cudaDataType`` by the name of a NumPy type."""
_COMPUTE_32F, _COMPUTE_64F = 68, 70  # cublasComputeType_t
_DESC_TRANSA, _DESC_TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
_PREF_MAX_WORKSPACE_BYTES = 1  # cublasLtMatmulPreferenceAttributes_t
_OP_N, _OP_T = 0, 1
WORKSPACE_BYTES = 64 << 20
MOST_ALGORITHMS = 64


class HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Return cuBLASLt, as torch or CuPy have loaded it.

    Raises
    ------
    OSError
        It is not installed.
    """
    for major in (13, 12):
        try:
            return ctypes.CDLL(f"libcublasLt.so.{major}")
        except OSError as err:
            failure = err
    raise OSError(f"cuBLASLt was not found: {failure}")


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what}: cuBLASLt status {status}")


@functools.cache
def handle() -> ctypes.c_void_p:
    """Return this process's handle."""
    made = ctypes.c_void_p()
    _check(library().cublasLtCreate(ctypes.byref(made)), "cublasLtCreate")
    return made


@functools.cache
def _workspace() -> Any:
    import cupy as cp

    return cp.empty(WORKSPACE_BYTES, np.uint8)


class Matrix:
    """A column-major matrix as cuBLASLt describes it."""

    def __init__(self, dtype: np.dtype[Any], rows: int, columns: int, pitch: int) -> None:
        self.layout = ctypes.c_void_p()
        status = library().cublasLtMatrixLayoutCreate(
            ctypes.byref(self.layout),
            TYPES[dtype.name],
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(pitch),
        )
        _check(status, "cublasLtMatrixLayoutCreate")


class LtProduct:
    """x @ w for C-ordered x (m, k) and out (m, n), and a w (k, n) in C or in F order.

    cuBLASLt counts matrices by columns, so it computes the transpose of the result from w and x.
    """

    def __init__(self, m: int, n: int, k: int, dtype: np.dtype[Any], *, w_turned: bool) -> None:
        lib = library()
        wide = dtype.name in ("float64", "complex128")
        compute, scale = _COMPUTE_64F if wide else _COMPUTE_32F, "float32"
        if wide or dtype.kind == "c":
            scale = dtype.name
        self._description = ctypes.c_void_p()
        created = lib.cublasLtMatmulDescCreate(
            ctypes.byref(self._description), compute, TYPES[scale]
        )
        _check(created, "cublasLtMatmulDescCreate")
        for attribute, value in ((_DESC_TRANSA, _OP_T if w_turned else _OP_N), (_DESC_TRANSB, 0)):
            given = ctypes.c_int32(value)
            status = lib.cublasLtMatmulDescSetAttribute(
                self._description, attribute, ctypes.byref(given), ctypes.c_size_t(4)
            )
            _check(status, "cublasLtMatmulDescSetAttribute")
        w_shape = (k, n, k) if w_turned else (n, k, n)
        self._matrices = [Matrix(dtype, *w_shape), Matrix(dtype, k, m, k), Matrix(dtype, n, m, n)]
        scalar = np.dtype(scale)
        self._one, self._zero = np.ones(1, scalar), np.zeros(1, scalar)

    def algorithms(self, most: int = MOST_ALGORITHMS) -> list[HeuristicResult]:
        """Return the algorithms that the heuristics offer, the one that they prefer first."""
        lib, preference = library(), ctypes.c_void_p()
        _check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "preference")
        limit = ctypes.c_size_t(WORKSPACE_BYTES)
        status = lib.cublasLtMatmulPreferenceSetAttribute(
            preference, _PREF_MAX_WORKSPACE_BYTES, ctypes.byref(limit), ctypes.c_size_t(8)
        )
        _check(status, "cublasLtMatmulPreferenceSetAttribute")
        results, count = (HeuristicResult * most)(), ctypes.c_int(0)
        w, x, out = (matrix.layout for matrix in self._matrices)
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            handle(),
            self._description,
            w,
            x,
            out,
            out,
            preference,
            most,
            results,
            ctypes.byref(count),
        )
        lib.cublasLtMatmulPreferenceDestroy(preference)
        _check(status, "cublasLtMatmulAlgoGetHeuristic")
        return [each for each in results[: count.value] if each.state == 0]

    def run(self, algorithm: HeuristicResult, x: Any, w: Any, out: Any) -> None:
        """Enqueue the product in CuPy's current stream."""
        from cupy.cuda import get_current_stream

        place = ctypes.c_void_p
        of_w, of_x, of_out = (matrix.layout for matrix in self._matrices)
        status = library().cublasLtMatmul(
            handle(),
            self._description,
            place(self._one.ctypes.data),
            place(w.data.ptr),
            of_w,
            place(x.data.ptr),
            of_x,
            place(self._zero.ctypes.data),
            place(out.data.ptr),
            of_out,
            place(out.data.ptr),
            of_out,
            ctypes.byref(algorithm),
            place(_workspace().data.ptr),
            ctypes.c_size_t(WORKSPACE_BYTES),
            place(get_current_stream().ptr),
        )
        _check(status, "cublasLtMatmul")
