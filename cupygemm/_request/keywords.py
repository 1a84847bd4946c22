"""Handling common to all functions: ``stream``, refused keywords of NumPy, and error messages.

The stream is made the current one on the device of the arrays for the whole call. Copies of
operands, results from CuPy's pool and arrays of other libraries are then ordered on it, as products
are. Without a stream, the device of the arrays is made the current one if there are several.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from cupygemm._request.arrays import DLPACK_GPU, dlpack_device
from cupygemm._request.containers import multiplier

Function = TypeVar("Function", bound=Callable[..., Any])
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "axes": "move the axes of the operands, with cupy.moveaxis, which copies nothing",
        "axis": "name the axes of each array with axes=",
        "keepdims": "add the axis to the result: result[..., None]",
        "order": "its order is chosen so that nothing is copied; pass an out of that order",
        "sig": "choose the type of the result with dtype=",
        "signature": "choose the type of the result with dtype=",
        "subok": "the result is a cupy.ndarray in any case; leave it out",
        "where": "select from the result, or from the operands, with cupy.where",
    }
)
"""NumPy's keywords that a function may lack, and what to do instead."""
_OPERANDS = frozenset({"a", "b", "x", "w"})
"""The names of operands in functions that do not call them x1 and x2, as `matmul` does."""


def common_keywords(function: Function) -> Function:
    """Decorate a function to accept ``stream``, which its body does not see, and refuse `REFUSED`.

    Errors that `matmul` raises in its body then name the function and its operands.
    """
    name = function.__name__
    parameters = inspect.signature(function).parameters
    refused = frozenset(REFUSED.keys() - parameters.keys())
    operands = [parameter for parameter in parameters if parameter in _OPERANDS]

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            if keywords:
                if not refused.isdisjoint(keywords):
                    refuse(name, refused, keywords)
                stream = keywords.pop("stream", None)
                if stream is not None:
                    with on_stream(name, stream, (*args, *keywords.values())):
                        return function(*args, **keywords)
            if "cupy" in sys.modules and _device_count() > 1:  # the arrays may be on another device
                with _on_device((*args, *keywords.values())):
                    return function(*args, **keywords)
            return function(*args, **keywords)
        except (TypeError, ValueError) as err:
            _rename(err, name, operands)
            raise

    return call  # type: ignore[return-value]


def _rename(err: Exception, function: str, operands: Sequence[str]) -> None:
    """Replace `matmul` and its operands in an error by the user's function and its operands."""
    text = err.args[0] if err.args else None
    if not isinstance(text, str) or not text.startswith(("matmul: ", "matmul() ")):
        return
    text = function + text.removeprefix("matmul")
    if operands:
        text = re.sub(r"\bx1\b", operands[0], text)
        text = re.sub(r"\bx2\b", operands[-1], text)
    err.args = (text, *err.args[1:])


def refuse(function: str, refused: Iterable[str], keywords: Iterable[str]) -> None:
    """Raise TypeError for the first refused keyword of a call, if any."""
    for name in keywords:
        if name in refused:
            remedy = "axes" if name == "axis" and "axes" in refused else name
            raise TypeError(f"{function} takes no {name}: {REFUSED[remedy]}")


@contextlib.contextmanager
def on_stream(function: str, stream: Any, arguments: Iterable[Any]) -> Iterator[None]:
    """Make a stream the current one while a function works on its arguments; None has no effect.

    Raises
    ------
    TypeError
        The argument is not a stream.
    ValueError
        The stream belongs to another device than the arrays.
    """
    if stream is None:
        yield
        return
    arguments = tuple(arguments)
    if multiplier(*arguments) is not None:
        raise TypeError(
            f"{function} of chunked arrays takes no stream: each chunk is computed on the current "
            "stream of the thread that computes it"
        )
    stream = _as_stream(function, stream)
    from cupy.cuda import Device

    index = _device_of(arguments)
    if index is None:
        index = Device().id
    if stream.device_id not in (index, -1):  # -1: the default stream, or one of another library
        raise ValueError(
            f"{function}: the stream is on device {stream.device_id}, the arrays are on device "
            f"{index}; pass a stream that was made there: with cupy.cuda.Device({index})"
        )
    with Device(index), stream:
        yield


@functools.cache
def _device_count() -> int:
    from cupy.cuda.runtime import getDeviceCount

    return int(getDeviceCount())


def _on_device(arguments: Iterable[Any]) -> Any:
    """Return a context in which the device of the arrays is the current one."""
    from cupy.cuda import Device
    from cupy.cuda.runtime import getDevice

    index = _device_of(arguments)
    return contextlib.nullcontext() if index in (None, getDevice()) else Device(index)


def _as_stream(function: str, stream: Any) -> Any:
    """Return a CuPy stream for a stream, which may be another library's."""
    if hasattr(stream, "ptr") and hasattr(stream, "__enter__"):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        from cupy.cuda import Stream

        return Stream.from_external(stream)
    raise TypeError(
        f"{function}: stream is {stream!r}; pass a cupy.cuda.Stream, or the stream object of "
        "another library that has __cuda_stream__, as torch.cuda.Stream does"
    )


def _device_of(arguments: Iterable[Any]) -> int | None:
    """Return the device of the first array among arguments and the sequences in them."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            index = _device_of(argument)
        else:
            place = dlpack_device(argument)
            index = place[1] if place is not None and place[0] in DLPACK_GPU else None
        if index is not None:
            return index
    return None
