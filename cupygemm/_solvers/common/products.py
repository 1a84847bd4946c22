"""Products that update a block of a matrix in place.

The operands are often other blocks of the same matrix. The memory from their first to their last
element overlaps that of the result, so `cupygemm.matmul` would compute into a copy; but they share
no element, and the product may be stored in place.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from cupygemm._backends.cupy import blas
from cupygemm._backends.device import device
from cupygemm._plan.keys import array_key
from cupygemm._plan.plan import Plan, make_plan, plan_of
from cupygemm._plan.table import PLANS
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import Precision, moduli_of
from cupygemm._request.arrays import Array
from cupygemm._request.call import check_call
from cupygemm._request.epilogue import EpilogueArguments, Factors
from cupygemm._request.options import CallOptions
from cupygemm._solvers.common.ahead import spared
from cupygemm._solvers.common.blocks import has_tile_kernels
from cupygemm._solvers.common.errors import is_capturing
from cupygemm._solvers.common.updates import block_product


@dataclass(frozen=True)
class Rounding:
    """The types in which a matrix is factored and the operands of products are multiplied.

    Attributes
    ----------
    dtype : numpy.dtype or None
        The 16-bit type that operands are converted to; None keeps them. Sums are of float32.
    precision : {"ieee", "tf32", "tf32x3", "int8x8", ...}
        As for `cupygemm.matmul`.
    """

    dtype: np.dtype[Any] | None = None
    precision: Precision = "ieee"

    @property
    def by_residues(self) -> bool:
        """Return whether products are computed by residues, in the type of the matrix."""
        return moduli_of(self.precision) > 0


_calls_libraries: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "calls_libraries", default=True
)
_FACTORS = Factors(alpha=-1.0, beta=1.0, scale=1.0, scales_sums=True)
_NEGATED = EpilogueArguments(_FACTORS._replace(beta=0.0), None, None, (None,) * 5)
EXACT = Rounding()
_LEAST_TERMS, _MOST_TERMS = 16, 512
"""With fewer along k, tf32 terms are less exact than float32; with more, the kernel's sums are."""
ROUNDINGS: Mapping[str, Rounding] = MappingProxyType(
    {
        "float32": EXACT,
        "tf32x3": Rounding(precision="tf32x3"),
        "tf32": Rounding(precision="tf32"),
        "bfloat16": Rounding(np.dtype(ml_dtypes.bfloat16)),
        "float16": Rounding(np.dtype(np.float16)),
        "int8": Rounding(precision="int8x8"),
    }
)
"""The precisions in which a matrix may be factored, by name."""


@contextlib.contextmanager
def as_if_recorded() -> Iterator[None]:
    """Multiply as if a graph were recorded, so that results have the same bits in either case."""
    token = _calls_libraries.set(False)
    try:
        yield
    finally:
        _calls_libraries.reset(token)


def usual(dtype: np.dtype[Any]) -> Rounding:
    """Return the default rounding of factorisations in a type on the current device.

    Products are computed in the type, except that float32 numbers are sums of two tf32 terms if
    that is faster: the error is below 2^-19 of a product.
    """
    nearly = dtype.char == "f" and has_tile_kernels(dtype)
    return ROUNDINGS["tf32x3"] if nearly else EXACT


def subtract_product(a: Array, b: Array, c: Array, rounding: Rounding = EXACT) -> None:
    """Subtract ``a @ b`` from `c`, in place. The operands share no element with `c`."""
    if not c.size or not a.shape[-1]:
        return
    if rounding.dtype is not None:
        a, b = (each.astype(rounding.dtype, copy=False) for each in (a, b))
    if rounding.by_residues or adds_in_place(c.dtype, rounding):
        _multiply_by_kernel(a, b, c, rounding, _minus_product(c))
    elif rounding == EXACT and _calls_blas(c):
        blas.subtract_product(a, b, c)
    else:
        c -= matmul(a, b, dtype=c.dtype, precision=rounding.precision)


def store_negated_product(a: Array, b: Array, c: Array, rounding: Rounding = EXACT) -> None:
    """Store ``-(a @ b)`` in `c`, by the kernels of `subtract_product`. They share no element."""
    if adds_in_place(c.dtype, rounding):
        _multiply_by_kernel(a, b, c, rounding, _NEGATED)
    elif _calls_blas(c):
        c.fill(0)
        subtract_product(a, b, c, rounding)
    else:
        import cupy

        cupy.negative(matmul(a, b, dtype=c.dtype, precision=rounding.precision), out=c)


def store_product(a: Array, b: Array, c: Array, rounding: Rounding = EXACT) -> None:
    """Store ``a @ b`` in `c`. The operands share no element with `c`."""
    if rounding.dtype is not None:
        a, b = a.astype(rounding.dtype), b.astype(rounding.dtype)
    if adds_in_place(c.dtype, rounding):
        _multiply_by_kernel(a, b, c, rounding, None)
    else:
        c[...] = matmul(a, b, dtype=c.dtype, precision=rounding.precision)


def _multiply_by_kernel(
    a: Array, b: Array, c: Array, rounding: Rounding, arguments: EpilogueArguments | None
) -> None:
    units = spared()
    adds = arguments is not None
    beta = arguments.factors.beta if arguments is not None else None
    key = ("product", beta, rounding, units, *array_key(a), *array_key(b), *array_key(c))
    plan: Plan | None = PLANS.get(key)
    if plan is None:
        given = CallOptions(precision=rounding.precision, epilogue=arguments)
        call = check_call(a, b, c, given=given)
        request = replace(call.request, aliased=False)
        on = device(call.device_index).sparing(units)
        if _suits_small_kernel(a, b, c, rounding, beta) and not on.kernels.supports(request):
            run = functools.partial(_multiply_small, subtract=adds)
            plan = plan_of(run, request, on, {}, call.arguments)
        else:
            plan = make_plan(request, on, {}, call.arguments)
        PLANS.keep(key, plan)
    plan.run(a, b, c, arguments) if adds else plan.run(a, b, c)


def _suits_small_kernel(
    a: Array, b: Array, c: Array, rounding: Rounding, beta: complex | None
) -> bool:
    """Tell whether the kernel that multiplies tf32 terms inside panels can compute a product.

    If kernels for large products are not worthwhile, it takes less time than cuBLAS's product and
    its addition to C.
    """
    if rounding != ROUNDINGS["tf32x3"] or beta == 0 or not has_tile_kernels(c.dtype):
        return False
    aligned = all(x.data.ptr % 16 == 0 and x.strides[0] % 16 == 0 for x in (a, b))
    adjacent = all(
        x.ndim == 2 and x.dtype == c.dtype and x.strides[-1] == x.itemsize for x in (a, b, c)
    )
    return aligned and adjacent and _LEAST_TERMS <= a.shape[-1] <= _MOST_TERMS


def _multiply_small(
    a: Array, b: Array, c: Array, arguments: EpilogueArguments | None = None, *, subtract: bool
) -> Array:
    """Subtract a product from C by the kernel for products inside panels, or store it there."""
    left, right, target = ((x.data.ptr, x.strides[0] // x.itemsize, 0) for x in (a, b, c))
    extents = (*c.shape, a.shape[-1])
    block_product(c.dtype, left, right, target, extents, subtract=subtract, exact=False).enqueue()
    return c


def _minus_product(c: Array) -> EpilogueArguments:
    """Return the epilogue ``alpha=-1, beta=1, c=c``, without checks, which take longer."""
    return EpilogueArguments(_FACTORS, None, None, (None, None, c, None, None))


def adds_in_place(dtype: np.dtype[Any], rounding: Rounding = EXACT) -> bool:
    """Tell whether kernels of this library multiply a type on the current device, and add to C."""
    from cupy.cuda.runtime import getDevice

    return _kernels_add(getDevice(), dtype, rounding)


@functools.cache
def _kernels_add(index: int, dtype: np.dtype[Any], rounding: Rounding) -> bool:
    import cupy

    # cuBLAS multiplies some types if the matrices are small.
    c = cupy.empty((2048, 2048), dtype)
    a = c if rounding.dtype is None else cupy.empty(c.shape, rounding.dtype)
    given = CallOptions(precision=rounding.precision, epilogue=_minus_product(c))
    request = replace(check_call(a, a, c, given=given).request, aliased=False)
    return bool(device(index).kernels.supports(request))


def _calls_blas(c: Array) -> bool:
    """Tell whether cuBLAS can subtract from `c`. CuPy does not record its calls in a graph."""
    from cupy.cuda import runtime

    if (
        runtime.is_hip
        or not _calls_libraries.get()
        or c.strides[-1] != c.itemsize
        or min(c.shape) < 2
    ):
        return False
    return not is_capturing()
