"""IEEE arithmetic on bit patterns: exact in fractions, rounded once, independent of hardware.

Formats are named by their width (16, 32, 64). A result is the bits, or `NAN` for any NaN.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

NAN = "NaN"
NEAREST, UP, DOWN, TO_ZERO = range(4)
_DIGITS = {16: 11, 32: 24, 64: 53}
_EXPONENT_BITS = {16: 5, 32: 8, 64: 11}
_PACK = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
Result = int | str


def value(bits: int, width: int) -> float:
    """Return the number that the bits stand for."""
    float_code, int_code = _PACK[width]
    bits &= (1 << width) - 1
    return struct.unpack(float_code, struct.pack(int_code, bits))[0]


def bits_of(number: float, width: int) -> int:
    """Return the bits of a number that the format holds exactly."""
    float_code, int_code = _PACK[width]
    return struct.unpack(int_code, struct.pack(float_code, number))[0]


def infinity(width: int) -> int:
    """Return the bits of +Inf."""
    return ((1 << _EXPONENT_BITS[width]) - 1) << _DIGITS[width] - 1


def sign_bit(width: int) -> int:
    """Return the bits of -0."""
    return 1 << width - 1


def canonical(bits: int, width: int) -> Result:
    """Return the bits, or NAN."""
    return NAN if bits & ~sign_bit(width) > infinity(width) else bits


def is_subnormal(bits: int, width: int) -> bool:
    """Whether the number is subnormal or zero."""
    return bits & ~sign_bit(width) < 1 << _DIGITS[width] - 1


def flushed(bits: int, width: int) -> int:
    """Return the bits with a subnormal replaced by zero of its sign."""
    return bits & sign_bit(width) if is_subnormal(bits, width) else bits


def rounded(number: Fraction, width: int, mode: int = NEAREST) -> int:
    """Round a fraction other than zero."""
    digits, negative, size = _DIGITS[width], number < 0, abs(number)
    bias = (1 << _EXPONENT_BITS[width] - 1) - 1
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    units = size / Fraction(2) ** (exponent - digits + 1)
    whole, rest = int(units), units - int(units)
    away = mode == (DOWN if negative else UP)
    if (mode == NEAREST and (rest > 0.5 or (rest == 0.5 and whole & 1))) or (away and rest):
        whole += 1
    if whole < 1 << digits - 1:
        bits = whole  # subnormal
    else:
        bits = (exponent + bias << digits - 1) + whole - (1 << digits - 1)
    if bits >= infinity(width):
        bits = infinity(width) if mode == NEAREST or away else infinity(width) - 1
    return bits | (sign_bit(width) if negative else 0)


def fma(a: int, b: int, c: int, width: int, mode: int = NEAREST) -> Result:
    """Return a*b + c."""
    x, y, z = (value(bits, width) for bits in (a, b, c))
    if any(map(math.isnan, (x, y, z))) or (math.isinf(x) and y == 0) or (x == 0 and math.isinf(y)):
        return NAN
    if math.isinf(x) or math.isinf(y):
        product = math.copysign(math.inf, x) * math.copysign(1, y)
        return NAN if math.isinf(z) and z != product else bits_of(product, width)
    if math.isinf(z):
        return c
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total:
        return rounded(total, width, mode)
    product_sign = (a ^ b) & sign_bit(width)
    if Fraction(x) * Fraction(y) == 0 and product_sign == c & sign_bit(width):
        return product_sign  # both terms are zero of one sign
    return sign_bit(width) if mode == DOWN else 0


def add(a: int, b: int, width: int, mode: int = NEAREST) -> Result:
    """Return a + b."""
    return fma(a, bits_of(1.0, width), b, width, mode)


def multiply(a: int, b: int, width: int, mode: int = NEAREST) -> Result:
    """Return a * b."""
    sign = (a ^ b) & sign_bit(width)
    return fma(a, b, sign, width, mode)  # adding the zero of its sign changes nothing


def divide(a: int, b: int, width: int) -> Result:
    """Return a / b."""
    x, y = value(a, width), value(b, width)
    sign = (a ^ b) & sign_bit(width)
    if math.isnan(x) or math.isnan(y) or (x == 0 == y) or (math.isinf(x) and math.isinf(y)):
        return NAN
    if math.isinf(x) or y == 0:
        return infinity(width) | sign
    if math.isinf(y) or x == 0:
        return sign
    return rounded(Fraction(x) / Fraction(y), width)


def square_root(a: int, width: int) -> Result:
    """Return the square root of a."""
    x = value(a, width)
    if math.isnan(x) or x < 0:
        return NAN
    if x == 0 or math.isinf(x):
        return a
    number = Fraction(x)
    # Enough digits that the root, cut off and made odd where inexact, rounds as the true one.
    shift = 2 * max(0, 80 - number.numerator.bit_length() // 2 + number.denominator.bit_length())
    scaled = number * (1 << shift)
    whole = int(scaled)
    root = math.isqrt(whole)
    if root * root != whole or whole != scaled:
        root |= 1
    return rounded(Fraction(root, 1 << shift // 2), width)


def convert(a: int, source: int, target: int, mode: int = NEAREST) -> Result:
    """Convert between formats."""
    x = value(a, source)
    if math.isnan(x):
        return NAN
    sign = sign_bit(target) if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return infinity(target) | sign
    return rounded(Fraction(x), target, mode) if x else sign


def rounding_function(name: str) -> Callable[[float], float]:
    """Return trunc, ceil, floor or rndne as a function of finite floats."""

    def apply(x: float) -> float:
        whole = {"trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "rndne": round}[name](
            x
        )
        return math.copysign(float(whole), x) if whole == 0 else float(whole)

    return apply


def order(bits: int, width: int) -> int:
    """Return a key that orders numbers as their values, -0 below +0."""
    sign = sign_bit(width)
    return -(bits & ~sign) - 1 if bits & sign else bits


def pick(a: int, b: int, width: int, larger: bool) -> Result:
    """Return v_min or v_max in IEEE mode: a signalling NaN wins, a quiet one loses."""
    nans = [canonical(bits, width) == NAN for bits in (a, b)]
    quiet = 1 << _DIGITS[width] - 2
    if (nans[0] and not a & quiet) or (nans[1] and not b & quiet) or all(nans):
        return NAN
    if nans[0]:
        return b
    if nans[1]:
        return a
    return (max if larger else min)(a, b, key=lambda bits: order(bits, width))
