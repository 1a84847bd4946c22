"""NumPy-like functions over the C loops of native/valu.c: fused multiply-add, minimum, maximum.

Arguments are float32 or float64 arrays of shape (waves, 64), (waves, 1) or (1, 1); results (waves,
64).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from cupygemm.emulator.state import LANES
from cupygemm.emulator.units.operands import Array

_SUFFIX = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


@functools.cache
def _function(name: str) -> Any:
    from cupygemm.emulator.native import library

    function = getattr(library(), f"valu_{name}")
    pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
    function.restype = None
    if name.startswith("div_fmas"):
        function.argtypes = [pointer] * 4 + [ctypes.c_uint, size, pointer]
    elif name.startswith("fma"):
        function.argtypes = [pointer] * 4 + [ctypes.c_uint, size]
    else:
        function.argtypes = [pointer] * 3 + [ctypes.c_uint, size, ctypes.c_int]
    return function


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c, rounded once, in the rounding mode of the thread."""
    return _call(f"fma_{_SUFFIX[a.dtype]}", (a, b, c))


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Return a*b + c, scaled back where bool `scaled` is set: the last step of division."""
    waves = max(a.shape[0], b.shape[0], c.shape[0], scaled.shape[0])
    scaled = np.ascontiguousarray(np.broadcast_to(scaled, (waves, LANES)))
    return _call(f"div_fmas_{_SUFFIX[a.dtype]}", (a, b, c), scaled.ctypes.data, waves=waves)


def minimum(a: Array, b: Array, ieee: bool) -> Array:
    """Return the smaller, -0 below +0, a number before NaN; see valu.c for signalling ones."""
    return _call(f"min_{_SUFFIX[a.dtype]}", (a, b), int(ieee))


def maximum(a: Array, b: Array, ieee: bool) -> Array:
    """Return the larger, as `minimum`."""
    return _call(f"max_{_SUFFIX[a.dtype]}", (a, b), int(ieee))


def _call(name: str, arguments: tuple[Array, ...], *extra: int, waves: int = 1) -> Array:
    layout = 0
    for i, argument in enumerate(arguments):
        count, lanes = argument.shape
        if not argument.flags.c_contiguous:
            raise ValueError(f"argument {i} of {name} is not contiguous")
        waves = max(waves, count)
        if lanes == 1:
            layout |= (2 if count == 1 else 1) << 2 * i
    for i, argument in enumerate(arguments):
        if argument.shape[0] == 1 < waves and argument.shape[1] != 1:
            raise ValueError(f"argument {i} of {name} covers one wave of {waves}")
    out = np.empty((waves, LANES), arguments[0].dtype)
    pointers = [argument.ctypes.data for argument in arguments]
    _function(name)(out.ctypes.data, *pointers, layout, waves, *extra)
    return out
