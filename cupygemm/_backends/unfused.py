"""Apply an epilogue by CuPy's functions, for a product whose kernel does not apply it.

The sums come from `cupy.matmul`, or from a kernel that stores them in the type of its accumulator.
The stages of the formula are applied to them, and the result is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._backends.protocol import Runner
from cupygemm._epilogue.activations import ArrayModule
from cupygemm._epilogue.float8 import rounded_to_float8
from cupygemm._epilogue.formula import Parts, cupy_module, evaluate
from cupygemm._records.dtypes import FLOAT8_DTYPES
from cupygemm._records.formats import as_stored, container
from cupygemm._request.copies import in_type
from cupygemm._request.epilogue import ARRAYS, EpilogueArguments, as_result_shape
from cupygemm._request.promotion import F32, F64
from cupygemm._request.request import Request


def applied(request: Request, sums: Runner) -> Runner:
    """Return the runner of a request, given one that returns the sums in a new array."""

    def run(x1: Any, x2: Any, out: Any, arguments: EpilogueArguments) -> Any:
        product = sums(x1, x2, None)
        result = evaluated(cupy_module(), product, request, arguments)
        result = rounded(result, request.types.stored)
        result = result.reshape(request.shape.result)
        result = result.astype(container(request.types.result), copy=False)
        if out is None:
            return result
        as_stored(out)[...] = result
        return out

    return run


def evaluated(xp: ArrayModule, sums: Any, request: Request, arguments: EpilogueArguments) -> Any:
    """Return the sums after the epilogue, in the type in which it is computed.

    Array arguments belong to `xp`, as the sums do.
    """
    computed, shape = request.types.computed, request.shape
    arrays = {}
    for name, array in zip(ARRAYS, arguments.arrays, strict=True):
        if array is not None:
            whole = as_result_shape(name, array.shape, shape)
            arrays[name] = in_type(array, computed).reshape(whole)
    alpha, beta, scale, _ = arguments.factors
    parts = Parts(
        alpha=alpha,
        beta=beta,
        scale=scale,
        clamp=arguments.clamp,
        activation=arguments.activation,
        arrays=arrays,
    )
    x = in_type(sums.reshape(shape.result), computed)
    return evaluate(xp, x, parts)


def rounded(x: Any, dtype: np.dtype[Any]) -> Any:
    """Convert an array; conversions to integers round to nearest and saturate, and NaN gives 0."""
    import cupy

    if dtype in FLOAT8_DTYPES:
        return rounded_to_float8(x.astype(F32, copy=False), dtype)
    if dtype.kind not in "iu" or x.dtype.kind != "f":
        if dtype.itemsize == 2 and x.dtype == F64:
            x = x.astype(F32)
        return x.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    wide = cupy.rint(x.astype(F64))
    wide = cupy.where(cupy.isnan(wide), 0.0, wide)
    highest = np.nextafter(float(limits.max), 0) if limits.bits == 64 else float(limits.max)
    return cupy.clip(wide, float(limits.min), highest).astype(dtype)
