"""Floating-point operations of the vector ALU: arithmetic, rounding, minima, transcendentals.

f16 operations receive and return float32 values. float32 has more than twice the digits of f16, so
an addition or multiplication that is rounded first to float32 and then to f16 is correctly rounded.
Transcendental functions are computed in float64 and rounded, which is within the hardware's error
of one unit in the last place. As on the hardware, the f32 ones treat subnormals as zero, which is
why LLVM scales their operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.float_mode import flush
from cupygemm.emulator.units.lanewise import Function, Op
from cupygemm.emulator.units.vector import functions
from cupygemm.emulator.units.vector.functions import Array

_F32, _F64, _I32, _I64, _U32 = np.float32, np.float64, np.int32, np.int64, np.uint32


def _of_first_nan(function: Callable[[Array, Array], Array]) -> Function:
    """Return a function that gives the first of two NaNs, made quiet.

    NumPy gives either, depending on the shapes of its operands.
    """

    def of_first_nan(a: Array, b: Array) -> Array:
        value = function(a, b)
        return np.where(np.isnan(a), a + a, value) if np.isnan(value).any() else value

    return of_first_nan


add, multiply = _of_first_nan(np.add), _of_first_nan(np.multiply)
_subtract = _of_first_nan(np.subtract)


def _subtract_reversed(a: Array, b: Array) -> Array:
    difference: Array = _subtract(b, a)
    return difference


def _multiply_legacy(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (b == 0), _F32(0), multiply(a, b))


def _mad_half(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c with the product rounded to f16."""
    result: Array = add(_round_to_half(multiply(a, b)), c)
    return result


def _round_to_half(a: Array) -> Array:
    return functions.half_to_float(functions.float_to_half(a))


def _mad_flushed(a: Array, b: Array, c: Array) -> Array:
    """Return CDNA2's unfused f32 multiply-add, which always treats subnormals as zero."""
    a, b, c = (flush(value, "f32") for value in (a, b, c))
    return flush(add(flush(multiply(a, b), "f32"), c), "f32")


def _mad_legacy(a: Array, b: Array, c: Array) -> Array:
    a, b = flush(a, "f32"), flush(b, "f32")
    zero = (a == 0) | (b == 0)  # even if the other factor is Inf or NaN
    return _mad_flushed(np.where(zero, _F32(0), a), np.where(zero, _F32(0), b), c)


def _literal_factor(function: Function) -> Callable[[Instruction, Target], Function]:
    """Return a function that makes a * literal + b for an instruction."""

    def make(inst: Instruction, target: Target) -> Function:
        literal = np.array([[inst.fields["literal"]]], _U32).view(_F32)
        return lambda a, b: function(a, literal, b)

    return make


def _literal_addend(function: Function) -> Callable[[Instruction, Target], Function]:
    """Return a function that makes a * b + literal for an instruction."""

    def make(inst: Instruction, target: Target) -> Function:
        literal = np.array([[inst.fields["literal"]]], _U32).view(_F32)
        return lambda a, b: function(a, b, literal)

    return make


def _half_literal(inst: Instruction, target: Target, *, multiplies: bool) -> Function:
    bits = np.array([[inst.fields["literal"] & 0xFFFF]], np.uint16)
    literal = functions.half_to_float(bits)
    if multiplies:
        return lambda a, b: _mad_half(a, literal, b)
    return lambda a, b: _mad_half(a, b, literal)


# -- minima and maxima -----------------------------------------------------------------------------
# IEEE mode (MODE bit 9) is assumed to be on, as in every kernel that HIP compiles. It affects only
# signalling NaNs, which the compiler quiets before it emits a minimum.


_minimum, _maximum = functions.minimum, functions.maximum


def _min3(a: Array, b: Array, c: Array) -> Array:
    return _minimum(_minimum(a, b), c)


def _max3(a: Array, b: Array, c: Array) -> Array:
    return _maximum(_maximum(a, b), c)


def _propagating(pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a minimum or maximum of IEEE 754-2019, which is NaN if an operand is."""

    def propagating(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | np.isnan(b), add(a, b), pick(a, b))

    return propagating


_minimum_2019, _maximum_2019 = _propagating(_minimum), _propagating(_maximum)


# -- rounding to integers, exponents ---------------------------------------------------------------


def _fract(a: Array) -> Array:
    """Return x - floor(x), kept below 1 even if the difference rounds to 1."""
    below_one = np.nextafter(a.dtype.type(1), a.dtype.type(0))
    result: Array = np.minimum(a - np.floor(a), below_one)
    return result


def _fract_half(a: Array) -> Array:
    return np.minimum(_round_to_half(a - np.floor(a)), _F32(0.99951171875))


def _frexp_mantissa(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(a)[0], a + a)  # the sum quiets NaN


def _frexp_exponent(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(a)[1], _I32(0)).astype(_I32)


def _ldexp(a: Array, exponent: Array) -> Array:
    return np.ldexp(a, exponent)


def _ldexp_half(a: Array, exponent: Array) -> Array:
    return np.ldexp(a, exponent.astype(_I32))


# -- transcendentals -------------------------------------------------------------------------------


def _in_double(function: Callable[[Any], Any]) -> Function:
    """Return an f32 function computed in float64, with subnormal arguments and results flushed."""

    def rounded(a: Array) -> Array:
        result = function(flush(a, "f32").astype(_F64)).astype(_F32)
        return flush(result, "f32")

    return rounded


def _half_in_double(function: Callable[[Any], Any]) -> Function:
    return lambda a: function(a.astype(_F64)).astype(_F32)


def _reciprocal(a: Array) -> Array:
    return 1.0 / a


def _reciprocal_root(a: Array) -> Array:
    # The reciprocal square root of -0 is -Inf, like 1/sqrt(-0).
    return 1.0 / np.sqrt(a)


# -- cube maps -------------------------------------------------------------------------------------


def _cube(select: Callable[[Array, Array, Array], tuple[Array, Array, Array]]) -> Function:
    """Return a cube-map operation; `select` returns its result for the major axes z, y and x."""

    def cube(x: Array, y: Array, z: Array) -> Array:
        size_x, size_y, size_z = np.abs(x), np.abs(y), np.abs(z)
        on_z, on_y, on_x = select(x, y, z)
        z_major = (size_z >= size_x) & (size_z >= size_y)
        return np.where(z_major, on_z, np.where(size_y >= size_x, on_y, on_x)).astype(_F32)

    return cube


def _signed(axis: Array, negative: Any, positive: Any) -> Any:
    return np.where(axis < 0, negative, positive)


_CUBES = {
    "v_cubeid_f32": lambda x, y, z: (
        _signed(z, 5.0, 4.0),
        _signed(y, 3.0, 2.0),
        _signed(x, 1.0, 0.0),
    ),
    "v_cubesc_f32": lambda x, _, z: (_signed(z, -x, x), x, _signed(x, z, -z)),
    "v_cubetc_f32": lambda _, y, z: (-y, _signed(y, -z, z), -y),
    "v_cubema_f32": lambda x, y, z: (z * _F32(2), y * _F32(2), x * _F32(2)),
}

_TRANSCENDENTAL: dict[str, Callable[[Any], Any]] = {
    "exp": functions.curve("exp2"),
    "log": functions.curve("log2"),
    "rcp": _reciprocal,
    "rsq": _reciprocal_root,
    "sqrt": np.sqrt,
    "sin": functions.curve("sine"),
    "cos": functions.curve("cosine"),
}
_ROUNDING = {"trunc": np.trunc, "ceil": np.ceil, "rndne": np.rint, "floor": np.floor}

OPS: dict[str, Op] = {
    **{
        f"v_{name}_{kind}": Op(function)
        for name, function in (
            ("add", add),
            ("sub", _subtract),
            ("subrev", _subtract_reversed),
            ("mul", multiply),
        )
        for kind in ("f32", "f64", "f16")
    },
    "v_mul_legacy_f32": Op(_multiply_legacy),
    # multiply-add
    "v_fma_f32": Op(functions.fma),
    "v_fma_f64": Op(functions.fma),
    "v_fmac_f32": Op(functions.fma),
    "v_fmac_f64": Op(functions.fma),
    "v_fmamk_f32": Op(make=_literal_factor(functions.fma)),
    "v_fmaak_f32": Op(make=_literal_addend(functions.fma)),
    "v_mad_f32": Op(_mad_flushed),
    "v_mac_f32": Op(_mad_flushed),
    "v_madmk_f32": Op(make=_literal_factor(_mad_flushed)),
    "v_madak_f32": Op(make=_literal_addend(_mad_flushed)),
    "v_mad_legacy_f32": Op(_mad_legacy),
    "v_fma_f16": Op(functions.fma_half, keep_high=True),
    "v_fma_legacy_f16": Op(functions.fma_half),
    "v_mad_f16": Op(_mad_half, keep_high=True),
    "v_mad_legacy_f16": Op(_mad_half),
    "v_mac_f16": Op(_mad_half),
    "v_madmk_f16": Op(make=lambda inst, target: _half_literal(inst, target, multiplies=True)),
    "v_madak_f16": Op(make=lambda inst, target: _half_literal(inst, target, multiplies=False)),
    # minima and maxima
    **{
        f"v_{name}_{kind}": Op(function, keep_high=kind == "f16" and name.endswith("3"))
        for name, function in (
            ("min", _minimum),
            ("max", _maximum),
            ("min3", _min3),
            ("max3", _max3),
            ("med3", functions.median),
        )
        for kind in ("f32", "f16", "f64")
        if kind != "f64" or name in ("min", "max")
    },
    "v_minimum3_f32": Op(lambda a, b, c: _minimum_2019(_minimum_2019(a, b), c)),
    "v_maximum3_f32": Op(lambda a, b, c: _maximum_2019(_maximum_2019(a, b), c)),
    # rounding to integers, exponents
    **{
        f"v_{name}_{kind}": Op(function, exact=True)
        for name, function in _ROUNDING.items()
        for kind in ("f32", "f64", "f16")
    },
    "v_fract_f32": Op(_fract),
    "v_fract_f64": Op(_fract),
    "v_fract_f16": Op(_fract_half),
    **{f"v_frexp_mant_{kind}": Op(_frexp_mantissa, exact=True) for kind in ("f32", "f64", "f16")},
    "v_frexp_exp_i32_f32": Op(_frexp_exponent, exact=True),
    "v_frexp_exp_i32_f64": Op(_frexp_exponent, exact=True),
    "v_frexp_exp_i16_f16": Op(lambda a: _frexp_exponent(a).astype(np.int16), exact=True),
    "v_ldexp_f32": Op(_ldexp),
    "v_ldexp_f64": Op(_ldexp),
    "v_ldexp_f16": Op(_ldexp_half, "f16 i16"),
    # transcendentals
    **{f"v_{name}_f32": Op(_in_double(function)) for name, function in _TRANSCENDENTAL.items()},
    **{f"v_{name}_f16": Op(_half_in_double(curve)) for name, curve in _TRANSCENDENTAL.items()},
    "v_rcp_iflag_f32": Op(_in_double(_reciprocal)),
    "v_exp_legacy_f32": Op(_in_double(_TRANSCENDENTAL["exp"])),
    "v_log_legacy_f32": Op(_in_double(_TRANSCENDENTAL["log"])),
    "v_rcp_f64": Op(_reciprocal),
    "v_rsq_f64": Op(_reciprocal_root),
    "v_sqrt_f64": Op(np.sqrt),
    **{name: Op(_cube(select)) for name, select in _CUBES.items()},
}
