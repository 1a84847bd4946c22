"""What NVIDIA's and AMD's BLAS libraries have in common, for the backends that call them."""

from __future__ import annotations

from cupygemm._request.request import Request

MOST_ROWS = (1 << 31) - 1
"""cuBLAS and rocBLAS take extents as 32-bit integers; cuBLASLt offers no algorithm beyond them."""


def too_large(request: Request) -> str:
    """Return which extent of a product BLAS cannot take, or the empty string."""
    shape = request.shape
    for name, extent in (("m", shape.m), ("n", shape.n), ("k", shape.k)):
        if extent > MOST_ROWS:
            return f"{name} = {extent} is more than 2**31 - 1, the most that BLAS takes"
    return ""
