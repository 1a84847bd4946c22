"""The types that the Hopper kernels support, and the placement of a request's arrays."""

from __future__ import annotations

from cupygemm._backends.hopper.config import FLOAT8, PRODUCTS
from cupygemm._backends.product_table import why_types_unsupported
from cupygemm._backends.protocol import Support
from cupygemm._records.formats import PRECISIONS, Precision
from cupygemm._request.placement import Placement, place
from cupygemm._request.promotion import F32
from cupygemm._request.request import Request

KNOWN_PRECISIONS: frozenset[Precision] = frozenset(name for name in PRECISIONS if name in PRODUCTS)
"""The precisions below float32's in which the tensor cores multiply float32."""
_EXACT_FLOAT32 = (
    "tensor cores do not multiply float32 exactly; precision='tf32x3' is nearly exact, and "
    "precision='tf32' rounds the operands"
)


def precision_of(request: Request) -> Precision:
    """Return the precision in which float32 is multiplied: the requested one, or a higher one."""
    return request.precision if request.precision in KNOWN_PRECISIONS else "ieee"


def place_request(request: Request) -> Placement:
    """Return the placement of a request's arrays; rows that TMA cannot read are copied later."""
    return place(request, precision=precision_of(request), row_bytes=1)


def supports_types(request: Request) -> Support:
    """Tell whether the kernels support the types of a request."""
    precision = precision_of(request)
    if request.types.operand == F32 and precision == "ieee":
        return Support(_EXACT_FLOAT32)
    return Support(why_types_unsupported(request, PRODUCTS, FLOAT8, precision))
