"""Validate a call's arguments and build its request.

The table of plans is keyed by shapes, strides and types. This module checks the rest, once for each
new plan: the kinds of the arguments, and whether ``out`` overlaps an operand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._records.formats import container, operand_dtype, parse_dtype
from cupygemm._request.arrays import as_array, may_overlap, one_device, single_out
from cupygemm._request.epilogue import ARRAYS, EpilogueArguments
from cupygemm._request.layout import Operand
from cupygemm._request.options import CallOptions, Options
from cupygemm._request.request import Request, make_request


@dataclass(frozen=True, kw_only=True)
class Call:
    """The validated arguments of a call.

    Attributes
    ----------
    x1, x2 : cupy.ndarray
    out : cupy.ndarray or None
    request : Request
        The requested product.
    arguments : EpilogueArguments or None
        The numbers and arrays of its epilogue; None if the request has no epilogue.
    device_index : int
        The device of all arrays.
    """

    x1: Any
    x2: Any
    out: Any
    request: Request
    arguments: EpilogueArguments | None
    device_index: int


def check_call(
    x1: Any,
    x2: Any,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    given: CallOptions,
) -> Call:
    """Validate the arguments of ``matmul(x1, x2, out, dtype=dtype, casting=casting, **given)``.

    Raises
    ------
    ValueError
        The shapes do not match, the arrays are on different devices, or an option does not have
        one of its allowed values.
    TypeError
        An argument is not an array on a device, or the types have no product.
    """
    x1, x2, out = adopted(x1, x2, single_out("matmul", out))
    arrays = {"x1": x1, "x2": x2} | ({} if out is None else {"out": out})
    arguments = given.epilogue
    if arguments is not None:
        named = zip(ARRAYS, arguments.arrays, strict=True)
        arrays |= {name: array for name, array in named if array is not None}
    one_device("matmul", arrays)
    wanted = parse_dtype(dtype)
    options = Options(
        dtype=wanted,
        casting=casting,
        precision=given.precision,
        epilogue=None if arguments is None else arguments.request,
        reproducible=given.reproducible,
    )
    request = make_request(
        _tagged("x1", x1, "format_a", given.format_a),
        _tagged("x2", x2, "format_b", given.format_b),
        None if out is None else _target(out, wanted),
        options=options,
        aliased=out is not None and _overlaps(out, x1, x2, arguments),
    )
    return Call(
        x1=x1,
        x2=x2,
        out=out,
        request=request.at_any_address(),
        arguments=None if request.epilogue is None else arguments,
        device_index=x1.data.device_id,
    )


def adopted(x1: Any, x2: Any, out: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as CuPy arrays of the same memory; see `as_array`."""
    x1, x2 = as_array("matmul", "x1", x1), as_array("matmul", "x2", x2)
    return x1, x2, out if out is None else as_array("matmul", "out", out)


def operand_of(array: Any) -> Operand:
    """Return the place of a CuPy array in memory."""
    return Operand(array.shape, array.strides, array.dtype, array.data.ptr)


def _overlaps(out: Any, x1: Any, x2: Any, arguments: EpilogueArguments | None) -> bool:
    """Whether writing ``out`` may change elements that are read later.

    The epilogue's `c` may be ``out`` itself, since each of its elements is read before it is
    overwritten.
    """
    if may_overlap(out, x1) or may_overlap(out, x2):
        return True
    if arguments is None:
        return False
    for name, array in zip(ARRAYS, arguments.arrays, strict=True):
        if array is None:
            continue
        if name == "c" and operand_of(array) == operand_of(out):
            continue
        if may_overlap(out, array):
            return True
    return False


def _tagged(name: str, array: Any, keyword: str, given: Any) -> Operand:
    """Return the place of an operand, with the dtype of its format keyword."""
    operand = operand_of(array)
    return replace(operand, dtype=operand_dtype(name, keyword, operand.dtype, given))


def _target(out: Any, dtype: Any) -> Operand:
    """Return the place of ``out``; bytes that will hold 8-bit floats get that dtype."""
    operand = operand_of(out)
    if dtype is None or container(dtype) != operand.dtype:
        return operand
    return replace(operand, dtype=dtype)
