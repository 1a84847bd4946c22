"""The epilogue of a product: the options of `matmul` that act on the sums before they are rounded.

``out = cast(clamp(scale_out * activation(alpha * scale_a * scale_b * sums + beta * c + bias)))``

`EpilogueArguments` holds the numbers and arrays of one call. `EpilogueRequest` holds what a plan
depends on: which options are present, and the layout of the arrays. Numbers are passed to kernels
by value, so that a different number needs no new plan. Arrays are passed by address, so that the
host does not wait for the device.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np

from cupygemm._epilogue.activations import ACTIVATIONS
from cupygemm._records.problem import SATURATION
from cupygemm._records.shapes import ProductShape, Shape
from cupygemm._request.arrays import as_array, type_of
from cupygemm._request.layout import Operand
from cupygemm._request.promotion import ProductTypes, check_byte_order, is_number

_EXACT = 1 << 53  # integers below it are exact in float64
ARRAYS = ("scale_a", "scale_b", "c", "bias", "scale_out")
"""The options that can be arrays, in the order in which they take effect."""
Adopt = Callable[[str, str, Any], Any]
"""Returns the array that an argument is; called as `as_array`."""


class EpilogueOptions(TypedDict, total=False):
    """The keywords of `cupygemm.matmul` from ``alpha`` to ``clamp``."""

    alpha: complex | None
    beta: complex | None
    c: Any
    bias: Any
    activation: str | None
    scale_a: Any
    scale_b: Any
    scale_out: Any
    clamp: tuple[float | None, float | None] | None


@dataclass(frozen=True)
class EpilogueRequest:
    """The epilogue that a call requests, without the values.

    Attributes
    ----------
    alpha, scale : bool
        Whether the sums, or the results of the activation, are multiplied by a number other than 1.
    scale_a, scale_b, c, bias, scale_out : Operand or None
        The arrays that are present.
    activation : str or None
    clamp : bool
    is_complex : bool
        Whether `alpha` or `beta` is a complex number.
    """

    alpha: bool = False
    scale: bool = False
    scale_a: Operand | None = None
    scale_b: Operand | None = None
    c: Operand | None = None
    bias: Operand | None = None
    scale_out: Operand | None = None
    activation: str | None = None
    clamp: bool = False
    is_complex: bool = False

    def arrays(self) -> Iterator[tuple[str, Operand]]:
        """Yield the arrays that are present, with their names."""
        for name in ARRAYS:
            operand = getattr(self, name)
            if operand is not None:
                yield name, operand

    @property
    def summary(self) -> str:
        """Return a human-readable list of the parts, in the order in which they take effect."""
        parts = ["alpha"] if self.alpha else []
        for name, operand in self.arrays():
            if name == "scale_out":
                continue
            parts.append(f"{'beta * ' if name == 'c' else ''}{name} {operand.shape}")
        if self.activation is not None:
            parts.append(self.activation)
        if self.scale or self.scale_out is not None:
            parts.append("scale_out")
        return ", ".join([*parts, "clamp"] if self.clamp else parts) or SATURATION


class Factors(NamedTuple):
    """The factors of a call that are numbers.

    Attributes
    ----------
    alpha : float or complex
        The factor of the sums, which includes ``scale_a`` and ``scale_b`` if these are numbers.
    beta : float or complex
        The factor of `c`.
    scale : float
        ``scale_out`` if it is a number, else 1.
    scales_sums : bool
        Whether one of the numbers in `alpha` is not 1, even if their product is 1.
    """

    alpha: complex
    beta: complex
    scale: float
    scales_sums: bool


class EpilogueArguments(NamedTuple):
    """The numbers and arrays of one call's epilogue.

    Attributes
    ----------
    factors : Factors
    clamp : tuple of float or None
    activation : str or None
    arrays : tuple of cupy.ndarray or None
        In the order of `ARRAYS`; None for an option that is absent or a number.
    """

    factors: Factors
    clamp: tuple[float, float] | None
    activation: str | None
    arrays: tuple[Any, ...]

    def array(self, name: str) -> Any:
        """Return the array of an option, or None."""
        return self.arrays[ARRAYS.index(name)]

    @property
    def request(self) -> EpilogueRequest:
        """Return the part that a plan depends on; `NO_EPILOGUE` if the options change no number."""
        alpha, beta, scale, scales_sums = self.factors
        operands = {
            name: Operand(array.shape, array.strides, array.dtype, array.data.ptr & 15)
            for name, array in zip(ARRAYS, self.arrays, strict=True)
            if array is not None
        }
        return EpilogueRequest(
            alpha=scales_sums,
            scale=scale != 1,
            activation=self.activation,
            clamp=self.clamp is not None,
            is_complex=alpha.imag != 0 or beta.imag != 0,
            **operands,
        )


NO_EPILOGUE = EpilogueRequest()
"""The request of options that change no number, such as ``alpha=1``. Integers saturate under it."""


def epilogue_arguments(
    *,
    alpha: Any = None,
    beta: Any = None,
    c: Any = None,
    bias: Any = None,
    activation: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_out: Any = None,
    clamp: Any = None,
    adopt: Adopt = as_array,
) -> EpilogueArguments | None:
    """Return the options of a call, or None if it has none; `adopt` converts its arrays.

    Raises
    ------
    TypeError
        An option has a value of the wrong kind.
    ValueError
        The options contradict each other, or `activation` is unknown.
    """
    given = (alpha, beta, c, bias, activation, scale_a, scale_b, scale_out, clamp)
    if all(option is None for option in given):
        return None
    factor = 1.0 if alpha is None else number("alpha", alpha)
    if c is None:
        if beta is not None and number("beta", beta) != 0:
            raise ValueError(f"matmul: beta = {beta!r} multiplies c, but c is missing; pass c")
        weight: complex = 0
    else:
        c = adopt("matmul", "c", c)
        weight = 1 if beta is None else number("beta", beta)
        if weight == 0:  # c is not read, as in BLAS, so a NaN in it has no effect
            c = None
    if bias is not None:
        bias = adopt("matmul", "bias", bias)
    if activation is not None and not (isinstance(activation, str) and activation in ACTIVATIONS):
        raise ValueError(
            f"matmul: activation must be one of {', '.join(map(repr, ACTIVATIONS))} "
            f"(got {activation!r})"
        )
    scales: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "scale_out": scale_out}
    values = {"scale_a": 1.0, "scale_b": 1.0, "scale_out": 1.0}
    for name, scale in scales.items():
        if _is_number(scale):
            values[name] = _real(name, scale)
            scales[name] = None
        elif scale is not None:
            scales[name] = adopt("matmul", name, scale)
    scales_sums = (factor, values["scale_a"], values["scale_b"]) != (1, 1, 1)
    factor = factor * values["scale_a"] * values["scale_b"]  # in float64, then rounded once
    return EpilogueArguments(
        factors=Factors(factor, weight, values["scale_out"], scales_sums),
        clamp=None if clamp is None else limits(clamp),
        activation=activation,
        arrays=(scales["scale_a"], scales["scale_b"], c, bias, scales["scale_out"]),
    )


def check_request(request: EpilogueRequest, shape: ProductShape, types: ProductTypes) -> None:
    """Raise an error if the shape or the type of an array does not match the product.

    Raises
    ------
    ValueError
        A shape does not broadcast to that of the values that the array scales or is added to.
    TypeError
        The types of the product do not allow the epilogue.
    """
    kind = types.operand.kind
    if kind == "b":
        raise TypeError(
            "matmul: the product of booleans is a logical one and takes no epilogue; convert "
            "the operands first, e.g. x1.astype('int8')"
        )
    if request.is_complex and kind != "c":
        raise TypeError(
            f"matmul: alpha or beta is complex, and this product is {types.operand}; ask for a "
            "complex one, e.g. dtype='complex64'"
        )
    for name, operand in request.arrays():
        check_byte_order(name, operand.dtype)
        takes_complex = kind == "c" and name in ("c", "bias")
        if not is_number(operand.dtype) or (operand.dtype.kind == "c" and not takes_complex):
            raise TypeError(
                f"matmul: {name} has dtype {operand.dtype}, which a product of {types.operand} "
                "cannot take"
            )
        if as_result_shape(name, operand.shape, shape) is None:
            target, what = _extents(name, shape)
            raise ValueError(
                f"matmul: {name} has shape {operand.shape}, which does not broadcast to {target}"
                f"{what}"
            )
    if kind == "c":
        real_only = {
            "activation": request.activation is not None,
            "clamp": request.clamp,
            "scale_a": request.scale_a is not None,
            "scale_b": request.scale_b is not None,
            "scale_out": request.scale or request.scale_out is not None,
        }
        given = [name for name, present in real_only.items() if present]
        if given:
            raise TypeError(
                f"matmul: {given[0]} is for real numbers, and this product is {types.operand}; "
                "alpha, beta, c and bias can be complex"
            )


def as_result_shape(name: str, given: Shape, shape: ProductShape) -> Shape | None:
    """Return the shape of an option with as many axes as the result, or None if it does not fit.

    A 1-D ``scale_a`` has one number for each row, so its axis becomes the second-to-last one.
    """
    whole, full = given, shape.result
    if name not in ("c", "bias"):
        target, _ = _extents(name, shape)
        if name == "scale_a" and len(given) == 1:
            whole = (*given, 1)
        whole = (1,) * (2 - len(whole)) + whole
        if whole[-2] not in (1, target[-2]) or whole[-1] not in (1, target[-1]):
            return None
        # Leave out the axes that the result of 1-D operands lacks.
        whole = whole[:-2] + (whole[-2],) * shape.row + (whole[-1],) * shape.column
    if len(whole) > len(full):
        return None
    whole = (1,) * (len(full) - len(whole)) + whole
    return whole if all(e in (1, f) for e, f in zip(whole, full, strict=True)) else None


def _extents(name: str, shape: ProductShape) -> tuple[Shape, str]:
    """Return the largest shape that an option may have, and its description for a message."""
    if name in ("c", "bias"):
        return shape.result, ", the result's shape"
    if name == "scale_a":
        rows = f"; pass a number, or one for each row, also as shape ({shape.m},)"
        return (*shape.batch, shape.m, 1), rows
    if name == "scale_b":
        return (*shape.batch, 1, shape.n), "; pass a number, or one for each column"
    return (1,) * (len(shape.batch) + 2), "; pass a single number"


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number | np.generic) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )


def number(name: str, value: Any) -> complex:
    """Return an option that must be a number, as a Python float or complex."""
    if type(value) is int and -_EXACT < value < _EXACT:
        return float(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic) and value.dtype.kind not in "cO" and is_number(value.dtype):
        return float(value)
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(_too_large(name, value)) from None
    if isinstance(value, numbers.Complex):
        found = complex(value)
        return found if found.imag != 0 else found.real
    hint = "; scale_a may be a 0-d array" if name == "alpha" and hasattr(value, "ndim") else ""
    raise TypeError(f"matmul: {name} is {type_of(value)}, not a number{hint}")


def _too_large(name: str, value: numbers.Real) -> str:
    """Return the message for a number that float64 cannot represent."""
    digits = int(math.log10(abs(math.trunc(value))))
    about = f"about {'-' if value < 0 else ''}1e{digits}"
    return (
        f"matmul: {name} is {about}, and float64 holds numbers up to 1.8e308; pass a smaller "
        "number, or math.inf"
    )


def _real(name: str, value: Any) -> float:
    found = number(name, value)
    if found.imag:
        raise TypeError(f"matmul: {name} = {value!r} is complex; only alpha and beta can be")
    return found.real


def limits(clamp: Any) -> tuple[float, float]:
    """Return the two limits of `clamp`; None means no limit on that side."""
    try:
        low, high = clamp
    except (TypeError, ValueError):
        raise ValueError(
            f"matmul: clamp must be (lowest, highest), either of them None (got {clamp!r})"
        ) from None
    low = -math.inf if low is None else _real("the lower limit of clamp", low)
    high = math.inf if high is None else _real("the upper limit of clamp", high)
    if not low <= high:
        raise ValueError(f"matmul: clamp = ({low}, {high}): the first must not exceed the second")
    return low, high
