"""Float modes: the rounding, subnormals, output modifier and clamp of a float result.

MODE holds a rounding and a subnormal setting for f32, and another pair for f64 and f16. HIP kernels
run with the defaults (nearest even, subnormals kept), for which NumPy's own arithmetic is correct.
`apply_in_mode` handles every other setting; it switches the rounding mode of the host thread while
the operation runs.
Source: AMD's CDNA3 instruction-set guide, sections on MODE and on input and output modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.vector import functions
from cupygemm.emulator.units.vector.functions import NEAREST, Array

Finish = Callable[[Array, int], Array]

DEFAULT = 0xF0
SINGLE, DOUBLE = 0x33, 0xCC  # bits of MODE that affect f32, and those that affect f64 and f16
DX10_CLAMP, FP16_OVFL = 1 << 8, 1 << 23
KEEP_INPUTS, KEEP_RESULTS = 1, 2
OUTPUT_SCALE = (1.0, 2.0, 4.0, 0.5)  # by the output modifier
_SMALLEST_NORMAL = {"f32": 2.0**-126, "f16": 2.0**-14, "f64": 2.0**-1022, "bf16": 2.0**-126}


def relevant_bits(kinds: Sequence[str]) -> int:
    """Return the bits of MODE that an operation with operands of these kinds depends on."""
    return (SINGLE if "f32" in kinds else 0) | (DOUBLE if {"f16", "f64"} & set(kinds) else 0)


def rounding_of(mode: int, kind: str) -> int:
    """Return the rounding that MODE sets for results of `kind`."""
    return mode >> (2 if kind in ("f16", "f64") else 0) & 3


def _subnormals_of(mode: int, kind: str) -> int:
    """Return MODE's subnormal setting for `kind`, a sum of `KEEP_INPUTS` and `KEEP_RESULTS`."""
    return mode >> (6 if kind in ("f16", "f64") else 4) & 3


def flush(values: Array, kind: str) -> Array:
    """Replace subnormals by zeros of the same sign."""
    tiny = np.abs(values) < values.dtype.type(_SMALLEST_NORMAL[kind])
    return np.where(tiny, np.copysign(values.dtype.type(0), values), values)


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """Set the rounding of the thread: 0 nearest even, 1 up, 2 down, 3 towards zero."""
    if mode == NEAREST:
        yield
        return
    set_rounding = functions.function("set_rounding")
    set_rounding(mode)
    try:
        yield
    finally:
        set_rounding(NEAREST)


def apply_in_mode(
    function: Callable[..., Any],
    kinds: Sequence[str],
    result: str,
    arguments: list[Array],
    mode: int,
) -> Any:
    """Apply `function` with a MODE other than the default.

    Parameters
    ----------
    function : callable
    kinds : sequence of str
        The kind of each argument.
    result : str
        The kind of the result, or of the first one.
    arguments : list of ndarray
    mode : int
    """
    arguments = [
        flush(value, kind)
        if kind in _SMALLEST_NORMAL and not _subnormals_of(mode, kind) & KEEP_INPUTS
        else value
        for kind, value in zip(kinds, arguments, strict=True)
    ]
    with rounding(rounding_of(mode, result)):
        value = function(*arguments)
    if result in ("f32", "f64") and not _subnormals_of(mode, result) & KEEP_RESULTS:
        if isinstance(value, tuple):
            return flush(value[0], result), *value[1:]
        return flush(value, result)
    return value


def finisher(inst: Instruction, kind: str) -> Finish | None:
    """Return a function that finishes a float result before it is stored, or None.

    It applies the output modifier and the clamp, and rounds an f16 result from the float32 in which
    it was computed. The function takes the result and MODE, and returns bits for f16.
    """
    omod, clamp = inst.fields.get("omod", 0), inst.fields.get("clmp", 0)
    if inst.encoding == "VOP3P":
        omod = 0
    scale = OUTPUT_SCALE[omod]
    half = kind == "f16"
    if not omod and not clamp:
        return _finish_half if half else None

    def finish(value: Array, mode: int) -> Array:
        # The guide: the output modifier is ignored if subnormal results are kept.
        if omod and not _subnormals_of(mode, kind) & KEEP_RESULTS:
            value = value * value.dtype.type(scale)
        if clamp:
            value = clamp_unit(value, mode)
        return _finish_half(value, mode) if half else value

    return finish


def clamp_unit(value: Array, mode: int) -> Array:
    """Clamp to [0, 1]. NaN becomes 0 if DX10_CLAMP is set in MODE."""
    zero, one = value.dtype.type(0), value.dtype.type(1)
    clamped: Array = np.where(value > zero, np.minimum(value, one), zero)
    if mode & DX10_CLAMP:
        return clamped
    return np.where(np.isnan(value), value, clamped)


def _finish_half(value: Array, mode: int) -> Array:
    if mode & (DOUBLE | FP16_OVFL) == DEFAULT & DOUBLE:
        return functions.float_to_half(value)
    half = functions.float_to_half(value, rounding_of(mode, "f16"))
    if mode & FP16_OVFL:  # an overflow becomes the largest number; a true Inf stays
        overflown = (half & np.uint16(0x7FFF) == 0x7C00) & np.isfinite(value)
        half = np.where(overflown, half - np.uint16(1), half)
    if _subnormals_of(mode, "f16") & KEEP_RESULTS:
        return half
    return np.where(half & np.uint16(0x7C00), half, half & np.uint16(0x8000))
