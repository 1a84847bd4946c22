"""The epilogue of exact sums on the host, and a bound on the error of its float arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._epilogue.formula import Parts, Rounding, evaluate_with_error
from cupygemm._records.shapes import ProductShape
from cupygemm._request.epilogue import (
    ARRAYS,
    EpilogueOptions,
    as_result_shape,
    epilogue_arguments,
)

Array = NDArray[Any]


def reference_epilogue(
    sums: Array,
    errors: Array,
    shape: ProductShape,
    options: EpilogueOptions,
    *,
    bits: int,
    narrow: bool = False,
) -> tuple[Array, Array]:
    """Return the epilogue of the sums in their type, and a bound on the error of a computed one.

    Parameters
    ----------
    sums, errors : numpy.ndarray
        Exact sums, and bounds on the errors of computed ones.
    shape : ProductShape
    options : EpilogueOptions
        Options of `cupygemm.matmul`; arrays are NumPy's.
    bits : int
        Significand of the type in which the epilogue is computed.
    narrow : bool
        Whether results have at most 16 bits, so that fp32 activations may use shorter formulas.
    """
    parts = _parts(sums.dtype, shape, options)
    return evaluate_with_error(sums, errors, parts, Rounding(unit=2.0**-bits, narrow=narrow))


def _parts(dtype: np.dtype[Any], shape: ProductShape, options: EpilogueOptions) -> Parts:
    """Return the options as numbers and arrays of a type."""
    given = epilogue_arguments(**options, adopt=lambda function, name, array: np.asarray(array))
    if given is None:
        return Parts()
    arrays: dict[str, Array] = {}
    for name, array in zip(ARRAYS, given.arrays, strict=True):
        if array is None:
            continue
        target = as_result_shape(name, array.shape, shape)
        if target is None:
            raise ValueError(f"{name} has shape {array.shape}, which does not fit {shape.result}")
        arrays[name] = array.astype(dtype).reshape(target)
    return Parts(
        alpha=given.factors.alpha,
        beta=given.factors.beta,
        scale=given.factors.scale,
        clamp=given.clamp,
        activation=given.activation,
        arrays=arrays,
    )
