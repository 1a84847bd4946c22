"""The part of cuBLASLt's C API that products need, through ctypes.

CuPy has loaded the library. The constants are those of ``cublasLt.h`` and ``library_types.h``
(cuBLAS documentation, "Using the cuBLASLt API"). Its matrices are column-major.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

TYPES = {"bfloat16": 14, "float16": 2, "float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
"""``cudaDataType`` by the name of a NumPy type."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32 = 68, 70, 77  # cublasComputeType_t
OP_N, OP_T = 0, 1  # cublasOperation_t
_DESC_TRANSA, _DESC_TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
_LAYOUT_BATCH_COUNT, _LAYOUT_BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_PREF_MAX_WORKSPACE_BYTES, _PREF_MIN_ALIGNMENT_A = 1, 5  # cublasLtMatmulPreferenceAttributes_t
_MAJORS = (13, 12, 11)


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Return cuBLASLt, as CuPy or torch have loaded it.

    Raises
    ------
    OSError
        It is not installed.
    """
    failures = []
    for major in _MAJORS:
        try:
            found = ctypes.CDLL(f"libcublasLt.so.{major}")
        except OSError as err:
            failures.append(str(err))
            continue
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        found.cublasLtMatmul.argtypes = (*(pointer,) * 14, size, pointer)
        return found
    raise OSError(f"cuBLASLt was not found: {'; '.join(failures)}")


def check(status: int, what: str) -> None:
    """Raise RuntimeError unless a call has succeeded."""
    if status:
        raise RuntimeError(f"{what}: cuBLASLt status {status}")


@functools.cache
def handle(device: int) -> ctypes.c_void_p:
    """Return this process's handle for a device, which must be the current one."""
    made = ctypes.c_void_p()
    check(library().cublasLtCreate(ctypes.byref(made)), "cublasLtCreate")
    return made


def _destroy_with(owner: Any, destroy: Callable[..., Any], pointer: ctypes.c_void_p) -> None:
    """Destroy the object at a pointer with its owner, unless the interpreter ends first.

    At exit, modules are already being torn down, and the process frees the memory anyway.
    """
    weakref.finalize(owner, destroy, pointer).atexit = False


class Matrices:
    """A matrix, or a stack of them, as cuBLASLt describes it.

    Parameters
    ----------
    dtype : str
        The name of a NumPy type.
    rows, columns : int
    pitch : int
        Elements from one column to the next.
    count, stride : int
        The number of matrices, and the elements from one to the next.
    """

    def __init__(
        self, dtype: str, rows: int, columns: int, pitch: int, *, count: int = 1, stride: int = 0
    ) -> None:
        self.layout, self.type = ctypes.c_void_p(), TYPES[dtype]
        extents = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(pitch))
        created = library().cublasLtMatrixLayoutCreate(
            ctypes.byref(self.layout), self.type, *extents
        )
        check(created, "cublasLtMatrixLayoutCreate")
        _destroy_with(self, library().cublasLtMatrixLayoutDestroy, self.layout)
        if count > 1:
            self._set(_LAYOUT_BATCH_COUNT, ctypes.c_int32(count))
            self._set(_LAYOUT_BATCH_STRIDE, ctypes.c_int64(stride))

    def _set(self, attribute: int, value: Any) -> None:
        status = library().cublasLtMatrixLayoutSetAttribute(
            self.layout, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )
        check(status, "cublasLtMatrixLayoutSetAttribute")


class LtProduct:
    """D = op(A) op(B), for column-major matrices.

    Parameters
    ----------
    a, b, d : Matrices
    operations : tuple of int
        `OP_N` or `OP_T`, of A and of B.
    compute : int
        The type of sums, a ``cublasComputeType_t``.
    scale : numpy.dtype
        The type of alpha and beta.
    alignments : sequence of int
        Powers of two that divide the addresses of A, B and D, bytes.
    device : int
        CuPy's number of the current device.
    """

    def __init__(
        self,
        a: Matrices,
        b: Matrices,
        d: Matrices,
        *,
        operations: tuple[int, int],
        compute: int,
        scale: Any,
        alignments: Sequence[int] = (16, 16, 16),
        device: int = 0,
    ) -> None:
        import numpy as np

        lib = library()
        self.matrices = (a, b, d)
        self.compute, self.scale = compute, TYPES[scale.name]
        self.handle = handle(device)
        self._alignments = tuple(alignments)
        self.description = ctypes.c_void_p()
        created = lib.cublasLtMatmulDescCreate(
            ctypes.byref(self.description), compute, TYPES[scale.name]
        )
        check(created, "cublasLtMatmulDescCreate")
        _destroy_with(self, lib.cublasLtMatmulDescDestroy, self.description)
        for attribute, value in zip((_DESC_TRANSA, _DESC_TRANSB), operations, strict=True):
            given = ctypes.c_int32(value)
            status = lib.cublasLtMatmulDescSetAttribute(
                self.description, attribute, ctypes.byref(given), ctypes.c_size_t(4)
            )
            check(status, "cublasLtMatmulDescSetAttribute")
        self.one, self.zero = np.ones(1, scale), np.zeros(1, scale)

    def algorithms(self, most: int, *, workspace_bytes: int) -> list[HeuristicResult]:
        """Return the algorithms that the heuristics offer, the preferred one first."""
        lib, preference = library(), ctypes.c_void_p()
        check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "preference")
        try:
            first, second, result = self._alignments
            settings: list[tuple[int, Any]] = [
                (_PREF_MAX_WORKSPACE_BYTES, ctypes.c_size_t(workspace_bytes))
            ]
            settings += [
                (_PREF_MIN_ALIGNMENT_A + number, ctypes.c_uint32(value))
                for number, value in enumerate((first, second, result, result))  # of C and of D
            ]
            for attribute, value in settings:
                status = lib.cublasLtMatmulPreferenceSetAttribute(
                    preference,
                    attribute,
                    ctypes.byref(value),
                    ctypes.c_size_t(ctypes.sizeof(value)),
                )
                check(status, "cublasLtMatmulPreferenceSetAttribute")
            found, count = (HeuristicResult * most)(), ctypes.c_int(0)
            status = lib.cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.description,
                *self.layouts,
                preference,
                most,
                found,
                ctypes.byref(count),
            )
        finally:
            lib.cublasLtMatmulPreferenceDestroy(preference)
        check(status, "cublasLtMatmulAlgoGetHeuristic")
        return [each for each in found[: count.value] if each.state == 0]

    @property
    def types(self) -> tuple[int, ...]:
        """Return the types of A, B, C and D, each a ``cudaDataType``."""
        a, b, d = self.matrices
        return a.type, b.type, d.type, d.type

    def check(self, result: HeuristicResult) -> int:
        """Set the workspace that an algorithm needs; return a status, 0 if it can compute this."""
        return int(
            library().cublasLtMatmulAlgoCheck(
                self.handle,
                self.description,
                *self.layouts,
                ctypes.byref(result.algorithm),
                ctypes.byref(result),
            )
        )

    @property
    def layouts(self) -> tuple[ctypes.c_void_p, ...]:
        """Return the layouts of A, B, C and D."""
        a, b, d = self.matrices
        return a.layout, b.layout, d.layout, d.layout

    def launch(self, algorithm: Algorithm) -> Launch:
        """Return a function that enqueues the product by an algorithm."""
        return Launch(self, algorithm)


class Launch:
    """Enqueues a product: ``launch(a, b, d, workspace, workspace_bytes, stream)``, by addresses."""

    __slots__ = ("_algorithm", "_kept", "_matmul", "_one", "_product", "_zero")

    def __init__(self, product: LtProduct, algorithm: Algorithm) -> None:
        self._kept = product, algorithm
        self._matmul = library().cublasLtMatmul
        self._algorithm = ctypes.addressof(algorithm)
        self._one, self._zero = product.one.ctypes.data, product.zero.ctypes.data
        values = [each.value for each in product.layouts]
        self._product = (product.handle.value, product.description.value, *values)

    def __call__(self, a: int, b: int, d: int, workspace: int, size: int, stream: int) -> None:
        handle, description, of_a, of_b, of_c, of_d = self._product
        status = self._matmul(
            handle,
            description,
            self._one,
            a,
            of_a,
            b,
            of_b,
            self._zero,
            d,
            of_c,
            d,
            of_d,
            self._algorithm,
            workspace,
            size,
            stream,
        )
        if status:
            check(status, "cublasLtMatmul")
