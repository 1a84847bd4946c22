"""The epilogue of a product whose kernel does not have it: CuPy's functions, on the sums.

It is the formula of `matmul` word for word, one array operation for each part, on sums that have
not been rounded: those of `cupy.matmul`, or of a kernel in its accumulator's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm._epilogue.float8 import rounded_to_float8
from cupygemm._epilogue.options import EpilogueArguments, as_result_shape
from cupygemm._records.formats import FLOAT8_DTYPES, as_stored, container
from cupygemm._request.promotion import F32, F64
from cupygemm._request.request import Posed


def applied(posed: Posed, sums: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes a call from its sums; ``sums(x1, x2, None)`` returns a new array."""

    def run(x1: Any, x2: Any, out: Any, arguments: EpilogueArguments) -> Any:
        product = sums(x1, x2, None)
        result = rounded(epilogue(product, posed, arguments), posed.types.stored)
        result = result.reshape(posed.shape.result)
        result = result.astype(container(posed.types.result), copy=False)
        if out is None:
            return result
        as_stored(out)[...] = result
        return out

    return run


def epilogue(sums: Any, posed: Posed, arguments: EpilogueArguments) -> Any:
    """Return the sums after the epilogue, in the type that it is computed in."""
    import cupy

    computed = posed.types.computed
    number = computed.type

    def array(name: str) -> Any:
        """Return an option with as many axes as the result."""
        given = getattr(arguments, name)
        shape = as_result_shape(name, given.shape, posed.shape)
        return given.astype(computed, copy=False).reshape(shape)

    x = sums.reshape(posed.shape.result).astype(computed, copy=False)
    if arguments.alpha != 1:
        x = x * number(arguments.alpha)
    for name in ("scale_a", "scale_b"):
        if getattr(arguments, name) is not None:
            x = x * array(name)
    if arguments.c is not None:
        x = x + number(arguments.beta) * array("c")
    if arguments.bias is not None:
        x = x + array("bias")
    if arguments.activation is not None:
        x = _ACTIVATIONS[arguments.activation](x, number)
    if arguments.scale != 1:
        x = x * number(arguments.scale)
    if arguments.scale_out is not None:
        x = x * array("scale_out")
    if arguments.clamp is not None:
        low, high = arguments.clamp
        x = cupy.minimum(cupy.maximum(x, number(low)), number(high))  # which leave NaN alone
    return x


def rounded(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return the array in a type; integers to nearest, saturated, and 0 for NaN."""
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


def _gelu(x: Any, number: Callable[[float], Any]) -> Any:
    from cupyx.scipy.special import erfc

    # Of the negative argument, so that nothing cancels where the result is small.
    return _at_least(x, number) * number(0.5) * erfc(x * number(-(0.5**0.5)))


def _gelu_tanh(x: Any, number: Callable[[float], Any]) -> Any:
    inner = number((2 / np.pi) ** 0.5) * (x + number(0.044715) * x * x * x)
    return _at_least(x, number) * _sigmoid(inner * number(2), number)


def _silu(x: Any, number: Callable[[float], Any]) -> Any:
    return _at_least(x, number) * _sigmoid(x, number)


def _at_least(x: Any, number: Callable[[float], Any]) -> Any:
    """Keep the factor of what vanishes finite, so that the limit at minus infinity is 0."""
    import cupy

    return cupy.maximum(x, number(-1e6))


def _sigmoid(x: Any, number: Callable[[float], Any]) -> Any:
    import cupy

    small = cupy.exp(-cupy.abs(x))  # at most 1: it cannot overflow
    return cupy.where(x >= 0, number(1), small) / (number(1) + small)


def _relu(x: Any, number: Callable[[float], Any]) -> Any:
    import cupy

    return cupy.maximum(x, number(0))  # NaN stays NaN


_ACTIVATIONS: dict[str, Callable[[Any, Callable[[float], Any]], Any]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "sigmoid": _sigmoid,
}
