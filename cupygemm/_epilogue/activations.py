"""The activation functions: one row for each.

CuPy, NumPy and the error bound all evaluate the formula of a row. Only the device code, a struct of
the same name in ``kernels/common/activation.hpp``, repeats it. To add an
activation, see docs/developer/add_an_activation.rst.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, cast


class ArrayModule:
    """The functions that formulas use: those of CuPy or of NumPy, and `erfc`.

    Parameters
    ----------
    module : module
        CuPy or NumPy.
    erfc : callable
        The complementary error function, which both lack.
    """

    def __init__(self, module: ModuleType, erfc: Callable[..., Any]) -> None:
        self._module = module
        self.erfc = erfc

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return cast(Callable[..., Any], getattr(self._module, name))


@dataclass(frozen=True, kw_only=True)
class Activation:
    """One activation function.

    Attributes
    ----------
    name : str
        The value of ``activation=``, and the name of the struct in the device code.
    summary : str
        The function in one line, for the documentation.
    formula : callable
        ``formula(xp, x)`` returns the function of an array, in its dtype.
    slope : callable
        ``slope(xp, x, error)`` returns a bound on the derivative's magnitude within `error` of `x`.
    instructions : tuple of int
        Vector instructions for each element on CDNA: for results of at most 16 bits, and of 32
        bits. The cost model adds them up. An exponential or a reciprocal counts as four.
    is_exact : bool
        Whether the device evaluates the function without rounding.
    """

    name: str
    summary: str
    formula: Callable[[ArrayModule, Any], Any]
    slope: Callable[[ArrayModule, Any, Any], Any]
    instructions: tuple[int, int]
    is_exact: bool = False


def _relu(xp: ArrayModule, x: Any) -> Any:
    return xp.maximum(x, x.dtype.type(0))  # NaN stays NaN


def _gelu(xp: ArrayModule, x: Any) -> Any:
    # erfc of the negative argument: nothing cancels where the result is small.
    return _bounded(xp, x) * x.dtype.type(0.5) * xp.erfc(x * x.dtype.type(-(0.5**0.5)))


def _gelu_tanh(xp: ArrayModule, x: Any) -> Any:
    number = x.dtype.type
    inner = number((2 / math.pi) ** 0.5) * (x + number(0.044715) * x * x * x)
    return _bounded(xp, x) * _sigmoid(xp, inner * number(2))


def _silu(xp: ArrayModule, x: Any) -> Any:
    return _bounded(xp, x) * _sigmoid(xp, x)


def _sigmoid(xp: ArrayModule, x: Any) -> Any:
    one = x.dtype.type(1)
    small = xp.exp(-xp.abs(x))  # at most 1: it cannot overflow
    return xp.where(x >= 0, one, small) / (one + small)


def _bounded(xp: ArrayModule, x: Any) -> Any:
    """Return x, bounded from below, so that minus infinity times 0 is 0, not NaN."""
    return xp.maximum(x, x.dtype.type(-1e6))


def _constant(bound: float) -> Callable[[ArrayModule, Any, Any], Any]:
    """Return a slope function for a derivative with a constant bound."""
    return lambda xp, x, error: bound


_ROWS = (
    Activation(
        name="relu",
        summary="max(x, 0)",
        formula=_relu,
        slope=_constant(1.0),
        instructions=(2, 2),
        is_exact=True,
    ),
    Activation(
        name="gelu",
        summary="x times the normal distribution function of x, by the error function",
        formula=_gelu,
        slope=_constant(1.13),
        instructions=(18, 33),
    ),
    Activation(
        name="gelu_tanh",
        summary="the approximation of gelu by tanh",
        formula=_gelu_tanh,
        slope=_constant(1.13),
        instructions=(15, 24),
    ),
    Activation(
        name="silu",
        summary="x * sigmoid(x)",
        formula=_silu,
        slope=_constant(1.1),
        instructions=(12, 22),
    ),
    Activation(
        name="sigmoid",
        summary="1 / (1 + exp(-x))",
        formula=_sigmoid,
        slope=_constant(0.25),
        instructions=(11, 20),
    ),
)
ACTIVATIONS: Mapping[str, Activation] = MappingProxyType({row.name: row for row in _ROWS})
"""The activation functions by name."""
