"""The stand-in libhipblas.so.3."""

from __future__ import annotations

from cupygemm.emulator.host_libraries.blas_factors import Factors
from cupygemm.emulator.host_libraries.blas_matrices import Matrices
from cupygemm.emulator.host_libraries.blas_products import Products
from cupygemm.emulator.host_libraries.blas_vectors import MatrixVectors, Vectors


class HipBlas(Vectors, MatrixVectors, Products, Matrices, Factors):
    """The functions of hipBLAS that CuPy binds."""

    stem = "hipblas"
    soname = "libhipblas.so.3"
    statuses = {  # noqa: RUF012
        "not_initialized": 1,
        "alloc_failed": 2,
        "invalid_value": 3,
        "invalid_pointer": 3,
        "invalid_size": 3,
        "execution_failed": 5,
        "internal_error": 6,
        "not_supported": 7,
        "invalid_enum": 10,
    }
