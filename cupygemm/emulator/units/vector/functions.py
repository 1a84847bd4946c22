"""NumPy-like functions that call the C loops of native/valu.c.

Fused multiply-add, minimum, maximum and median take float32 or float64 arrays of shape (waves, 64),
(waves, 1) or (1, 1) and return (waves, 64). Conversions to and from half precision take any shape.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.waves.state import LANES

Array = NDArray[Any]
NEAREST, UP, DOWN, TO_ZERO = range(4)  # codes of the rounding modes in MODE
_SUFFIX = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_PER_WAVE, _CONSTANT = 1, 2  # layouts; 0 is one value per lane
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_ssize_t
_TERNARY = (_POINTER, _POINTER, _POINTER, _POINTER, ctypes.c_uint, _SIZE)
_BINARY = (_POINTER, _POINTER, _POINTER, ctypes.c_uint, _SIZE)
_SIGNATURES = {
    "set_rounding": (ctypes.c_int,),
    "half_to_float": (_POINTER, _POINTER, _SIZE),
    "float_to_half": (_POINTER, _POINTER, _SIZE, ctypes.c_int),
    **dict.fromkeys(("exp2", "log2", "sine", "cosine"), (_POINTER, _POINTER, _SIZE)),
    "fma": _TERNARY,
    "perm": _TERNARY,
    "div_fmas": (*_TERNARY, _POINTER),
    "med3": (*_TERNARY, ctypes.c_int),
    "min": (*_BINARY, ctypes.c_int),
    "max": (*_BINARY, ctypes.c_int),
}
_from_buffer: Any = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


@functools.cache
def function(name: str) -> Any:
    """Return ``valu_<name>`` of the native library with its signature."""
    from cupygemm.emulator.native import library

    result = getattr(library(), f"valu_{name}")
    stem = name if name in _SIGNATURES else name.rpartition("_")[0]
    result.argtypes, result.restype = _SIGNATURES[stem], None
    return result


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c, rounded once in the rounding mode of the thread."""
    return _call(f"fma_{_SUFFIX[a.dtype]}", (a, b, c))


def fma_half(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c of f16 values as float32 that rounds correctly to f16 in any direction."""
    return _call("fma_half", (a, b, c))


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Return a*b + c, scaled back where `scaled` is True: the last step of a division."""
    waves = max(a.shape[0], b.shape[0], c.shape[0], scaled.shape[0])
    scaled = np.ascontiguousarray(np.broadcast_to(scaled, (waves, LANES)))
    return _call(f"div_fmas_{_SUFFIX[a.dtype]}", (a, b, c), _address(scaled), waves=waves)


def minimum(a: Array, b: Array, ieee: bool = True) -> Array:
    """Return the smaller value; -0 is below +0, and a number is preferred to a quiet NaN."""
    return _call(f"min_{_SUFFIX[a.dtype]}", (a, b), int(ieee))


def maximum(a: Array, b: Array, ieee: bool = True) -> Array:
    """Return the larger value, with the rules of `minimum`."""
    return _call(f"max_{_SUFFIX[a.dtype]}", (a, b), int(ieee))


def median(a: Array, b: Array, c: Array, ieee: bool = True) -> Array:
    """Return the median of float32 values, or the minimum if one of them is NaN."""
    return _call("med3_f32", (a, b, c), int(ieee))


def half_to_float(half: Array) -> Array:
    """Convert the bits of half-precision values, uint16 of any shape, to float32."""
    half = np.ascontiguousarray(half)
    out = np.empty(half.shape, np.float32)
    function("half_to_float")(_address(out), _address(half), half.size)
    return out


def float_to_half(values: Array, rounding: int = NEAREST) -> Array:
    """Round float32 values of any shape to half precision and return the bits as uint16."""
    values = np.ascontiguousarray(values)
    out = np.empty(values.shape, np.uint16)
    function("float_to_half")(_address(out), _address(values), values.size, rounding)
    return out


def curve(name: str) -> Callable[[Array], Array]:
    """Return ``exp2``, ``log2``, ``sine`` or ``cosine`` of float64 values of any shape.

    The argument of the last two is in turns.
    """

    def apply(values: Array) -> Array:
        values = np.ascontiguousarray(values)
        out = np.empty(values.shape, np.float64)
        function(name)(_address(out), _address(values), values.size)
        return out

    return apply


def permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Return v_perm_b32 of uint32 arrays: four selected bytes of {a, b}."""
    return _call("perm_b32", (a, b, selector))


def _call(name: str, arguments: tuple[Array, ...], *extra: int, waves: int = 1) -> Array:
    layout, rows = 0, 0
    for position, argument in enumerate(arguments):
        count, lanes = argument.shape
        waves = max(waves, count)
        if lanes == 1:
            layout |= (_CONSTANT if count == 1 else _PER_WAVE) << 2 * position
        else:
            rows = count
    if rows == 1 < waves:  # the result of an operation on constants
        arguments = tuple(
            np.repeat(argument, waves, axis=0) if argument.shape[1] > 1 else argument
            for argument in arguments
        )
    elif rows and rows != waves:
        raise ValueError(
            f"{name}: the shapes {[argument.shape for argument in arguments]} do not match"
        )
    out = np.empty((waves, LANES), arguments[0].dtype)
    # The rows of a group of evenly spaced waves are strided views.
    arguments = tuple(np.ascontiguousarray(argument) for argument in arguments)
    pointers = [_address(argument) for argument in arguments]
    function(name)(_address(out), *pointers, layout, waves, *extra)
    return out


def _address(array: Array) -> int:
    """Return the address of a contiguous array; `ctypes.data` takes four times as long."""
    try:
        return _address_of(_from_buffer(array))
    except (TypeError, BufferError):  # read-only, or not contiguous
        if not array.flags.c_contiguous:
            raise
        return int(array.ctypes.data)
