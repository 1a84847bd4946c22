"""The epilogue in float64 on the host, and how far float32 arithmetic may lie from it.

The formula is that of `cupygemm.matmul`; the bound follows an error of the sums through each part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._epilogue.options import EpilogueOptions, as_result_shape
from cupygemm._records.shapes import ProductShape

Array = NDArray[Any]


# What an activation multiplies a small error by, at most.
_SLOPES = {"relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1, "sigmoid": 0.25}
# Of the arithmetic in an activation, in units of roundoff of its result and of its argument.
_ACTIVATION_ULPS = 8
# And of its result, where at most 16 bits of that are kept.
NARROW_ACTIVATION = 2.0**-13


def reference_epilogue(
    sums: Array,
    errors: Array,
    shape: ProductShape,
    options: EpilogueOptions,
    *,
    bits: int,
    narrow: bool = False,
) -> tuple[Array, Array]:
    """Return the epilogue of the sums in their type, and how far a computed one may lie from it.

    Parameters
    ----------
    sums, errors : numpy.ndarray
        Exact sums, and how far computed ones may lie from them.
    shape : ProductShape
    options : EpilogueOptions
        Arrays of NumPy.
    bits : int
        Significand of the type in which the epilogue is computed.
    narrow : bool
        At most 16 bits of a result are kept, so fp32 activations need not be exact to the last.
    """
    unit = 2.0**-bits
    wide = sums.dtype.type

    def value(name: str) -> Any:
        given = np.asarray(options.get(name))
        if given.ndim == 0:
            return wide(given)
        target = as_result_shape(name, given.shape, shape)
        if target is None:
            raise ValueError(f"{name} has shape {given.shape}, which does not fit {shape.result}")
        return given.astype(sums.dtype).reshape(target)

    x, error = sums, errors
    factor = wide(options.get("alpha", 1))
    for name in ("scale_a", "scale_b"):
        if options.get(name) is not None:
            factor = factor * value(name)
    x = x * factor
    error = error * np.abs(factor) + 3 * unit * np.abs(x)
    if options.get("c") is not None:
        beta = options.get("beta")
        added = value("c") * wide(1 if beta is None else beta)
        x = x + added
        error = error + 2 * unit * (np.abs(added) + np.abs(x))
    if options.get("bias") is not None:
        x = x + value("bias")
        error = error + unit * (np.abs(value("bias")) + np.abs(x))
    activation = options.get("activation")
    if activation is not None:
        activated = activate(x, activation)
        error = error * _SLOPES[activation]
        if activation != "relu":
            error = error + _ACTIVATION_ULPS * unit * (np.abs(activated) + np.abs(x))
            if narrow and bits == 24:
                error = error + NARROW_ACTIVATION * np.abs(activated)
        x = activated
    if options.get("scale_out") is not None:
        x = x * value("scale_out")
        error = error * np.abs(value("scale_out")) + 2 * unit * np.abs(x)
    clamp = options.get("clamp")
    if clamp is not None:
        low, high = clamp
        x = np.clip(x, -math.inf if low is None else low, math.inf if high is None else high)
    return x, error


def activate(x: Array, name: str) -> Array:
    """Return an activation of the values in their type.

    Raises
    ------
    ValueError
        It has no such name.
    """
    if name == "relu":
        return np.asarray(np.maximum(x, 0))
    if name == "gelu":
        erfc = np.vectorize(math.erfc, otypes=[np.float64])
        return np.asarray(_at_least(x) * 0.5 * erfc(x * -math.sqrt(0.5)))
    if name == "gelu_tanh":
        return _at_least(x) * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    if name == "silu":
        return _at_least(x) * _sigmoid(x)
    if name == "sigmoid":
        return _sigmoid(x)
    raise ValueError(f"there is no activation {name!r}")


def _at_least(x: Array) -> Array:
    """Keep the factor of what vanishes finite, so that the limit at minus infinity is 0."""
    return np.asarray(np.maximum(x, -1e6))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))
