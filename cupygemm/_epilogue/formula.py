"""The formula of an epilogue, and the error that float arithmetic adds to it, stage by stage.

The formula is ::

    clamp(scale_out * activation(alpha * scale_a * scale_b * sums + beta * c + bias))

Each stage states how it is computed, with CuPy's or NumPy's functions, and a bound on the error of
its result. Results and error bounds evaluate the same stages in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cupygemm._epilogue.activations import ACTIVATIONS, ArrayModule

SCALES = ("scale_a", "scale_b")
"""The options that multiply the sums."""
ACTIVATION_UNITS = 8
"""Units of roundoff that an activation's arithmetic adds, of its result and its argument."""
NARROW_ACTIVATION = 2.0**-13
"""Relative error of fp32 activations where at most 16 bits of the result are kept."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of an epilogue, ready to be applied.

    Attributes
    ----------
    alpha, beta, scale : number
    clamp : tuple of float or None
    activation : str or None
    arrays : mapping of str to array
        The options that are arrays, in the type of the sums, with as many axes as the result.
    """

    alpha: Any = 1
    beta: Any = 1
    scale: Any = 1
    clamp: tuple[float, float] | None = None
    activation: str | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How precisely an epilogue is computed.

    Attributes
    ----------
    unit : float
        The unit roundoff of the type in which it is computed.
    narrow : bool
        Whether results have at most 16 bits, so that fp32 activations may use shorter formulas.
    """

    unit: float
    narrow: bool = False


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of the formula.

    Attributes
    ----------
    applies : callable
        ``applies(parts)`` returns whether the epilogue has this stage.
    value : callable
        ``value(xp, x, parts)`` returns the array after the stage.
    error : callable
        ``error(x, after, error, parts, rounding)`` returns a bound on the error after the stage,
        from the array before and after it and the bound before it.
    """

    applies: Callable[[Parts], bool]
    value: Callable[[ArrayModule, Any, Parts], Any]
    error: Callable[[Any, Any, Any, Parts, Rounding], Any]


def evaluate(xp: ArrayModule, sums: Any, parts: Parts) -> Any:
    """Return the epilogue of an array of sums, in its dtype."""
    x = sums
    for stage in STAGES:
        if stage.applies(parts):
            x = stage.value(xp, x, parts)
    return x


def evaluate_with_error(
    sums: Any, errors: Any, parts: Parts, rounding: Rounding
) -> tuple[Any, Any]:
    """Return the epilogue of NumPy sums, and a bound on the error of a computed one."""
    x, error = sums, errors
    for stage in STAGES:
        if stage.applies(parts):
            after = stage.value(NUMPY, x, parts)
            error = stage.error(x, after, error, parts, rounding)
            x = after
    return x, error


def cupy_module() -> ArrayModule:
    """Return CuPy's functions."""
    import cupy
    from cupyx.scipy.special import erfc

    return ArrayModule(cupy, erfc)


NUMPY = ArrayModule(np, np.vectorize(math.erfc, otypes=[np.float64]))
"""NumPy's functions."""


def _factors(x: Any, parts: Parts) -> list[Any]:
    """Return the factors of the sums; the number comes first."""
    number = [] if parts.alpha == 1 else [x.dtype.type(parts.alpha)]
    return number + [parts.arrays[name] for name in SCALES if name in parts.arrays]


def _scale_sums(_xp: ArrayModule, x: Any, parts: Parts) -> Any:
    for factor in _factors(x, parts):
        x = x * factor
    return x


def _scale_sums_error(x: Any, after: Any, error: Any, parts: Parts, rounding: Rounding) -> Any:
    for factor in _factors(x, parts):
        error = error * np.abs(factor)
    return error + 3 * rounding.unit * np.abs(after)


def _added_c(x: Any, parts: Parts) -> Any:
    return x.dtype.type(parts.beta) * parts.arrays["c"]


def _add_c_error(x: Any, after: Any, error: Any, parts: Parts, rounding: Rounding) -> Any:
    return error + 2 * rounding.unit * (np.abs(_added_c(x, parts)) + np.abs(after))


def _add_bias_error(x: Any, after: Any, error: Any, parts: Parts, rounding: Rounding) -> Any:
    return error + rounding.unit * (np.abs(parts.arrays["bias"]) + np.abs(after))


def _activate(xp: ArrayModule, x: Any, parts: Parts) -> Any:
    return ACTIVATIONS[str(parts.activation)].formula(xp, x)


def _activate_error(x: Any, after: Any, error: Any, parts: Parts, rounding: Rounding) -> Any:
    activation = ACTIVATIONS[str(parts.activation)]
    error = error * activation.slope(NUMPY, x, error)
    if activation.is_exact:
        return error
    error = error + ACTIVATION_UNITS * rounding.unit * (np.abs(after) + np.abs(x))
    if rounding.narrow and rounding.unit == 2.0**-24:
        error = error + NARROW_ACTIVATION * np.abs(after)
    return error


def _scale_result(_xp: ArrayModule, x: Any, parts: Parts) -> Any:
    if parts.scale != 1:
        x = x * x.dtype.type(parts.scale)
    return x * parts.arrays["scale_out"] if "scale_out" in parts.arrays else x


def _scale_result_error(x: Any, after: Any, error: Any, parts: Parts, rounding: Rounding) -> Any:
    factor = np.abs(x.dtype.type(parts.scale) * parts.arrays.get("scale_out", x.dtype.type(1)))
    return error * factor + 2 * rounding.unit * np.abs(after)


def _clamp(xp: ArrayModule, x: Any, parts: Parts) -> Any:
    low, high = parts.clamp or (-math.inf, math.inf)
    return xp.minimum(xp.maximum(x, x.dtype.type(low)), x.dtype.type(high))  # NaN stays NaN


STAGES: tuple[Stage, ...] = (
    Stage(
        applies=lambda parts: parts.alpha != 1 or any(name in parts.arrays for name in SCALES),
        value=_scale_sums,
        error=_scale_sums_error,
    ),
    Stage(
        applies=lambda parts: "c" in parts.arrays,
        value=lambda xp, x, parts: x + _added_c(x, parts),
        error=_add_c_error,
    ),
    Stage(
        applies=lambda parts: "bias" in parts.arrays,
        value=lambda xp, x, parts: x + parts.arrays["bias"],
        error=_add_bias_error,
    ),
    Stage(
        applies=lambda parts: parts.activation is not None,
        value=_activate,
        error=_activate_error,
    ),
    Stage(
        applies=lambda parts: parts.scale != 1 or "scale_out" in parts.arrays,
        value=_scale_result,
        error=_scale_result_error,
    ),
    Stage(
        applies=lambda parts: parts.clamp is not None,
        value=_clamp,
        error=lambda x, after, error, parts, rounding: error,
    ),
)
"""The stages of the formula, in order."""
