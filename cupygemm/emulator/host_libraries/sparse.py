"""The stand-in libhipsparse.so.4."""

from __future__ import annotations

from cupygemm.emulator.host_libraries.sparse_convert import Conversions
from cupygemm.emulator.host_libraries.sparse_generic import Generic
from cupygemm.emulator.host_libraries.sparse_products import Products
from cupygemm.emulator.host_libraries.sparse_solve import Solutions
from cupygemm.emulator.host_libraries.sparse_sums import Sums


class HipSparse(Conversions, Products, Sums, Solutions, Generic):
    """The functions of hipSPARSE that CuPy binds, except factorisations of blocks."""

    stem = "hipsparse"
    soname = "libhipsparse.so.4"
    statuses = {  # noqa: RUF012
        "not_initialized": 1,
        "alloc_failed": 2,
        "invalid_value": 3,
        "invalid_pointer": 3,
        "invalid_size": 3,
        "invalid_enum": 3,
        "execution_failed": 6,
        "internal_error": 7,
        "zero_pivot": 9,
        "not_supported": 10,
    }
