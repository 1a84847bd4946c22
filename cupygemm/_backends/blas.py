"""Limits that NVIDIA's and AMD's BLAS libraries have in common."""

from __future__ import annotations

from cupygemm._request.request import Request

MOST_ROWS = (1 << 31) - 1
"""Extents are 32-bit integers in cuBLAS and rocBLAS; cuBLASLt has no algorithms for larger ones."""


def too_large(request: Request) -> str:
    """Return the name of an extent that BLAS does not support, or the empty string."""
    shape = request.shape
    for name, extent in (("m", shape.m), ("n", shape.n), ("k", shape.k)):
        if extent > MOST_ROWS:
            return f"{name} = {extent} is more than 2**31 - 1, the most that BLAS takes"
    return ""
