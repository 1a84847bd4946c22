"""Number formats narrower than float32, with the hardware's conversions.

A `Format` describes a format; `decode` and `encode` convert whole NumPy arrays. Encoding rounds to
nearest even or, with random bits, stochastically. It computes in float64, so that float32 values,
also when multiplied by a power of two, are rounded only once.

Sources: OCP 8-bit Floating Point Specification 1.0 and Microscaling Formats 1.0 for the OCP types;
AMD's CDNA3 instruction-set guide and HIP's fp8 headers for FNUZ, overflow and stochastic rounding.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kind = Literal["fp8", "bf8"]
F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of up to 8 bits.

    Attributes
    ----------
    name : str
    exponent_bits, mantissa_bits, bias : int
    special : {"ieee", "fn", "fnuz", "none"}
        How Inf and NaN are encoded. ``ieee``: with the highest exponent. ``fn``: NaN has all bits
        set, and there is no Inf. ``fnuz``: NaN takes the code of negative zero, and there is no
        Inf. ``none``: there is neither.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: Literal["ieee", "fn", "fnuz", "none"]

    @property
    def bits(self) -> int:
        """Return the width in bits."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def max_code(self) -> int:
        """Return the code of the largest finite value."""
        top = (1 << self.bits - 1) - 1
        reserved = {"ieee": 1 << self.mantissa_bits, "fn": 1, "fnuz": 0, "none": 0}
        return top - reserved[self.special]

    @property
    def max(self) -> float:
        """Return the largest finite value."""
        return float(decode_table(self)[self.max_code])


FP8_FNUZ = Format("e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, special="fnuz")
BF8_FNUZ = Format("e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, special="fnuz")
FP8 = Format("e4m3fn", exponent_bits=4, mantissa_bits=3, bias=7, special="fn")
BF8 = Format("e5m2", exponent_bits=5, mantissa_bits=2, bias=15, special="ieee")
FP6 = Format("e2m3", exponent_bits=2, mantissa_bits=3, bias=1, special="none")
BF6 = Format("e3m2", exponent_bits=3, mantissa_bits=2, bias=3, special="none")
FP4 = Format("e2m1", exponent_bits=2, mantissa_bits=1, bias=1, special="none")


def fp8_format(kind: Kind, fnuz: bool) -> Format:
    """Return the 8-bit format ``fp8`` or ``bf8`` of a target."""
    if kind == "fp8":
        return FP8_FNUZ if fnuz else FP8
    return BF8_FNUZ if fnuz else BF8


@functools.cache
def decode_table(fmt: Format) -> F32:
    """Return the values of all codes of `fmt` as a read-only float32 array (2**bits,)."""
    codes = np.arange(1 << fmt.bits)
    magnitude = codes & (1 << fmt.bits - 1) - 1
    exponent = magnitude >> fmt.mantissa_bits
    mantissa = magnitude & (1 << fmt.mantissa_bits) - 1
    significand = mantissa + np.where(exponent > 0, 1 << fmt.mantissa_bits, 0)
    scale = np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits
    values = np.ldexp(significand.astype(np.float64), scale)
    if fmt.special == "ieee":
        values[magnitude == fmt.max_code + 1] = np.inf
        values[magnitude > fmt.max_code + 1] = np.nan
    elif fmt.special == "fn":
        values[magnitude > fmt.max_code] = np.nan
    values = np.where(codes >> fmt.bits - 1, -values, values)
    if fmt.special == "fnuz":
        values[1 << fmt.bits - 1] = np.nan
    table: F32 = values.astype(np.float32)
    table.flags.writeable = False
    return table


def decode(codes: ArrayLike, fmt: Format) -> F32:
    """Return the float32 values of an array of codes, which are the low bits of its elements."""
    table = decode_table(fmt)
    values: F32 = table[np.asarray(codes) & (table.size - 1)]
    return values


def encode(values: ArrayLike, fmt: Format, *, saturate: bool = False, random: Any = None) -> U8:
    """Convert values to codes.

    Parameters
    ----------
    values : array_like of float32 or float64
    fmt : Format
    saturate : bool
        Whether a finite value that overflows becomes the largest finite value (FP16_OVFL in the
        MODE register). Otherwise it becomes Inf, or NaN if the format has no Inf. An infinite value
        becomes Inf or NaN in both cases.
    random : array_like of uint32, optional
        Round stochastically: the top bits of these numbers are added below the last mantissa bit
        (21 bits for a 2-bit mantissa, 20 for others), and the sum is truncated. By default, values
        are rounded to nearest even.

    Returns
    -------
    ndarray of uint8
        In a format without Inf and NaN, both become the largest value with their sign. OCP
        Microscaling 1.0 saturates Inf in this way and leaves NaN to the implementation.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN is not an error here
        wide = np.asarray(values, np.float64)
    code = _magnitude_codes(wide, fmt, random)
    sign: NDArray[np.int64] = np.where(np.signbit(wide), 1 << fmt.bits - 1, 0)
    overflow = code > fmt.max_code
    inf, nan = np.isinf(wide), np.isnan(wide)
    match fmt.special:
        case "none":
            code = np.where(overflow | inf | nan, fmt.max_code, code) | sign
        case "fnuz":  # zero has no sign, and the code of -0 is NaN
            code = np.where(overflow & saturate, fmt.max_code, code)
            code = np.where(code == 0, 0, code | sign)
            code = np.where(overflow & (not saturate) | inf | nan, 1 << fmt.bits - 1, code)
        case _:  # the code after the largest is Inf, or the only NaN
            code = np.where(overflow, fmt.max_code if saturate else fmt.max_code + 1, code)
            code = np.where(inf, fmt.max_code + 1, code)
            code = np.where(nan, (1 << fmt.bits - 1) - 1, code) | sign
    return code.astype(np.uint8)


def _magnitude_codes(values: NDArray[np.float64], fmt: Format, random: Any) -> NDArray[np.int64]:
    """Return the codes of the magnitudes without an upper bound on the exponent; 0 for Inf, NaN."""
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)
    min_exponent = 1 - fmt.bias
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, min_exponent)
    exponent = np.where(magnitude == 0, min_exponent, exponent)
    scaled = np.ldexp(magnitude, fmt.mantissa_bits - exponent)  # in units of the last place
    if random is None:
        units = np.rint(scaled).astype(np.int64)
    else:
        width = 21 if fmt.mantissa_bits == 2 else 20  # bits S1[31:11] and S1[31:12]
        noise = (np.asarray(random, np.uint32) >> np.uint32(32 - width)).astype(np.int64)
        units = (np.floor(np.ldexp(scaled, width)).astype(np.int64) + noise) >> width
    # A carry out of the mantissa increments the exponent, which gives the next code.
    steps = (exponent - min_exponent).astype(np.int64) << fmt.mantissa_bits
    codes: NDArray[np.int64] = units + steps
    return codes


def e8m0_to_f32(codes: ArrayLike) -> F32:
    """Decode block scales: 2**(code - 127), and NaN for 255."""
    codes = np.asarray(codes, np.int64) & 0xFF
    return np.where(codes == 255, np.nan, np.ldexp(1.0, codes - 127)).astype(np.float32)


def bf16_to_f32(codes: ArrayLike) -> F32:
    """Decode bfloat16 codes (the low 16 bits of each element)."""
    bits = (np.asarray(codes).astype(np.uint32) & np.uint32(0xFFFF)) << np.uint32(16)
    return bits.view(np.float32)


def f32_to_bf16(values: ArrayLike, *, random: Any = None) -> U16:
    """Encode bfloat16, to nearest even or, with the top 16 bits of `random`, stochastically.

    A NaN becomes quiet and keeps its sign and the upper part of its payload. Subnormals are kept.
    It is an assumption, by analogy with the 8-bit conversions, that the top bits of the random
    number are used.
    """
    bits = np.atleast_1d(np.asarray(values, np.float32)).view(np.uint32).astype(np.uint64)
    if random is None:
        noise = np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    else:
        noise = np.asarray(random, np.uint32).astype(np.uint64) >> np.uint64(16)
    special = (bits & np.uint64(0x7F800000)) == 0x7F800000
    nan = special & ((bits & np.uint64(0x7FFFFF)) != 0)
    rounded = (np.where(special, bits, bits + noise) >> np.uint64(16)).astype(np.uint16)
    quiet: U16 = np.where(nan, rounded | np.uint16(0x40), rounded)
    return quiet.reshape(np.shape(values))


def f16_to_f32(codes: ArrayLike) -> F32:
    """Decode IEEE half-precision codes (the low 16 bits of each element)."""
    return np.asarray(codes).astype(np.uint16).view(np.float16).astype(np.float32)
