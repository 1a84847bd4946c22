"""The types that the CDNA kernels support, and the placement of a request's arrays."""

from __future__ import annotations

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.check import PRODUCTS
from cupygemm._backends.cdna.select import select
from cupygemm._backends.product_table import why_types_unsupported
from cupygemm._backends.protocol import SUPPORTED, Support
from cupygemm._records.dtypes import FLOAT8_NAMES, DType
from cupygemm._records.formats import PRECISIONS, Precision
from cupygemm._request.placement import Placement, place
from cupygemm._request.request import Request


def formats_of(arch: Arch) -> tuple[DType, ...]:
    """Return the 8-bit floats that an architecture multiplies."""
    return tuple(name for name in FLOAT8_NAMES if name in arch.mfma_cycles)


def precisions_of(arch: Arch) -> frozenset[Precision]:
    """Return the precisions below float32's in which an architecture multiplies float32."""
    return frozenset(name for name in PRECISIONS if name in arch.mfma_cycles)


def precision_of(request: Request, arch: Arch) -> Precision:
    """Return the precision in which float32 is multiplied: the requested one, or a higher one."""
    return request.precision if request.precision in precisions_of(arch) else "ieee"


def place_request(request: Request, arch: Arch) -> Placement:
    """Return the placement of a request's arrays for the kernel."""
    return place(request, precision=precision_of(request, arch))


def supports_types(request: Request, arch: Arch) -> Support:
    """Tell whether the kernels support the types of a request."""
    precision = precision_of(request, arch)
    return Support(why_types_unsupported(request, PRODUCTS, formats_of(arch), precision))


def supports(request: Request, arch: Arch) -> Support:
    """Tell whether the kernels support the types, and a configuration the extents and strides."""
    support = supports_types(request, arch)
    if not support:
        return support
    problem = place_request(request, arch).layout.problem
    try:
        select(problem, arch, reproducible=request.reproducible)
    except ValueError as err:  # a limit, such as rows that are gigabytes apart
        return Support(str(err))
    return SUPPORTED
