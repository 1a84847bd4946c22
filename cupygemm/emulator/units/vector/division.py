"""The operations from which compilers build division, and the bits of 2/pi for trigonometry.

A correctly rounded x / y takes four steps. v_div_scale scales both operands to where a reciprocal
and its refinement neither overflow nor lose digits. v_rcp and a few v_fma compute the quotient.
v_div_fmas is the last refinement and undoes the scaling. v_div_fixup handles Inf, NaN, zero and
results out of range.

The implementation follows AMD's pseudocode, except in four places where the pseudocode, taken
literally, divides wrongly:

- In v_div_scale_f32, "1/S1 is subnormal" refers to f32.
- If 1/S1 and S2/S1 are both subnormal, the denominator is scaled down; scaling it up overflows.
- v_div_fmas undoes the scaling of v_div_scale by the full 2**64 or 2**128. The exponent of the
  approximate quotient tells the direction.
- v_div_fixup returns Inf for a quotient that became NaN because an intermediate result overflowed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.units.lanewise import Function, Op
from cupygemm.emulator.units.vector import functions
from cupygemm.emulator.units.vector.functions import Array

_F32, _F64 = np.float32, np.float64


def _exponent(values: Array) -> Array:
    """Return the biased exponent field as int32."""
    if values.dtype == _F32:
        return (values.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int32)
    if values.dtype == _F64:
        return (values.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int32)
    raise TypeError(f"{values.dtype} values: expected float32 or float64")


def _div_scale(*, near_max: int, step: int, tiny: int, min_exponent: int) -> Function:
    """Return v_div_scale: the scaled operand s0 (s1 or s2), and whether to scale back later.

    Parameters
    ----------
    near_max : int
        Difference of the exponents from which an intermediate result may overflow.
    step : int
        Operands are scaled by 2**step or 2**-step.
    tiny : int
        Biased exponent up to which the remainder of a numerator would be subnormal.
    min_exponent : int
        Exponent of the smallest normal number, 2**min_exponent.
    """

    def div_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
        up, down = np.ldexp(s0, step), np.ldexp(s0, -step)
        is_denominator, is_numerator = s0 == s1, s0 == s2
        mantissa1, exponent1 = np.frexp(np.abs(s1))
        mantissa2, exponent2 = np.frexp(np.abs(s2))
        zero = (s1 == 0) | (s2 == 0)
        near = _exponent(s2) - _exponent(s1) >= near_max
        subnormal = _exponent(s1) == 0
        # |s1| > 1 / smallest normal and |s2 / s1| < smallest normal, with mantissas in [1/2, 1).
        small_reciprocal = exponent1 - (mantissa1 == 0.5) > -min_exponent
        difference = exponent2 - exponent1 - (mantissa2 < mantissa1)
        small_quotient = (difference < min_exponent) & np.isfinite(s1) & np.isfinite(s2)
        both = small_reciprocal & small_quotient
        nan = np.full((1, 1), np.nan, s0.dtype)
        cases = (  # condition, result, whether to scale back; the first that holds counts
            (zero, nan, False),
            (near, np.where(is_denominator, up, s0), True),
            (subnormal, up, False),
            (both, np.where(is_denominator, down, s0), True),
            (small_reciprocal, down, False),
            (small_quotient, np.where(is_numerator, up, s0), True),
            (_exponent(s2) <= tiny, up, False),
        )
        shape = np.broadcast_shapes(s0.shape, s1.shape, s2.shape)
        conditions = [np.broadcast_to(condition, shape) for condition, _, _ in cases]
        value = np.select(conditions, [result for _, result, _ in cases], s0).astype(s0.dtype)
        scaled = np.select(conditions, [back for _, _, back in cases], False)
        return value, scaled

    return div_scale


def _div_fixup(*, underflow: int | None) -> Function:
    """Return v_div_fixup, which corrects the quotient s0 of s2 by s1 in special cases.

    `underflow` is the difference of the exponents below which every quotient rounds to zero.
    """

    def div_fixup(s0: Array, s1: Array, s2: Array) -> Array:
        dtype = s0.dtype.type
        sign = np.signbit(s1) ^ np.signbit(s2)
        result = np.where(np.isnan(s0), dtype(np.inf), np.abs(s0))
        if underflow is not None:
            result = np.where(_exponent(s2) - _exponent(s1) < underflow, dtype(0), result)
        infinite1, infinite2 = np.isinf(s1), np.isinf(s2)
        result = np.where(infinite1 | (s2 == 0), dtype(0), result)
        result = np.where((s1 == 0) | infinite2, dtype(np.inf), result)
        result = np.where(sign, -result, result)
        invalid = (s1 == 0) & (s2 == 0) | infinite1 & infinite2
        result = np.where(invalid, dtype(-np.nan), result)
        result = np.where(np.isnan(s1), s1 + s1, result)  # the sum quiets NaN
        return np.where(np.isnan(s2), s2 + s2, result)

    return div_fixup


# -- 2/pi, for reducing large arguments ------------------------------------------------------------

_PREOP_BITS = 1201


@functools.cache
def two_over_pi() -> int:
    """Return the first 1201 fraction bits of 2/pi as an integer."""
    guard = 64
    one = 1 << _PREOP_BITS + guard

    def arctan_inverse(n: int) -> int:
        term = total = one // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))  # Machin
    return (2 * one * one // pi) >> guard


@functools.cache
def _preop_segment(shift: int) -> float:
    """Return the 53 bits of 2/pi that follow the first `shift` fraction bits, as an integer."""
    position = _PREOP_BITS - 53 - shift
    bits = two_over_pi() >> position if position >= 0 else two_over_pi() << -position
    return float(bits & (1 << 53) - 1)


def _trig_preop(a: Array, segment: Array) -> Array:
    a, segment = np.broadcast_arrays(a, segment)
    exponent = _exponent(np.ascontiguousarray(a))
    shift = (segment & np.uint32(31)).astype(np.int32) * 53 + np.maximum(exponent - 1077, 0)
    values, where = np.unique(shift, return_inverse=True)
    bits = np.array([_preop_segment(int(value)) for value in values])[where].reshape(shift.shape)
    result: Array = np.ldexp(bits, -53 - shift + np.where(exponent >= 1968, 128, 0))
    return result


_HALF_FIXUP: Callable[..., Any] = _div_fixup(underflow=None)

OPS: dict[str, Op] = {
    "v_div_scale_f32": Op(_div_scale(near_max=96, step=64, tiny=23, min_exponent=-126)),
    "v_div_scale_f64": Op(_div_scale(near_max=768, step=128, tiny=53, min_exponent=-1022)),
    "v_div_fmas_f32": Op(functions.div_fmas),
    "v_div_fmas_f64": Op(functions.div_fmas),
    "v_div_fixup_f32": Op(_div_fixup(underflow=-150)),
    "v_div_fixup_f64": Op(_div_fixup(underflow=-1075)),
    "v_div_fixup_f16": Op(_HALF_FIXUP, keep_high=True),
    "v_div_fixup_legacy_f16": Op(_HALF_FIXUP),
    "v_trig_preop_f64": Op(_trig_preop, "f64 u32", exact=True),
}
