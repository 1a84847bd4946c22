"""The published arithmetic of matrix instructions, one element of D at a time, in exact fractions.

MMA-Sim (Xie et al., "Bit-accurate reference model of tensor cores and matrix cores", arXiv
2511.10909) describes it and compares it with CDNA1 to CDNA3 hardware. A value here is a float,
which represents every format exactly; NaN results compare equal whatever their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

# Exponent of the smallest normal number.
MIN_EXPONENT = {"f16": -14, "bf16": -126, "xf32": -126, "fp8": -7, "bf8": -15}
MIN_EXPONENT_OCP = {"fp8": -6, "bf8": -14, "fp6": 0, "bf6": -2, "fp4": 0}

Dot = Callable[[Sequence[float], Sequence[float], float], float]


def round_f32(value: Fraction | float) -> float:
    """Round to nearest even float32; a float argument holds the value exactly."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(float(value)))


def scientific(value: float, min_exponent: int) -> tuple[Fraction, int]:
    """Split into significand and exponent: subnormals keep `min_exponent`, zero has -126."""
    if value == 0:
        return Fraction(0), -126
    exponent = max(math.frexp(value)[1] - 1, min_exponent)
    return Fraction(value) / Fraction(2) ** exponent, exponent


def _cut(value: Fraction, bits: int, rounding: Callable[[Fraction], int]) -> Fraction:
    return Fraction(rounding(value * 2**bits), 2**bits)


def _aligned(terms: Sequence[tuple[Fraction, int]]) -> tuple[Fraction, int]:
    """Sum products truncated to 24 fraction bits of the largest exponent."""
    top = max(exponent for _, exponent in terms)
    cut = [_cut(s * Fraction(2) ** (e - top), 24, math.trunc) for s, e in terms]
    return sum(cut, Fraction(0)), top


def _special(products: Sequence[float], c: float) -> float | None:
    """Return the result if Inf, NaN or a product beyond float32 determines it."""
    values = [*products, c]
    infinite = {math.copysign(1, x) for x in values if math.isinf(x)}
    if any(math.isnan(x) for x in values) or len(infinite) == 2:
        return math.nan
    if infinite:
        return infinite.pop() * math.inf
    beyond = {math.copysign(1, x) for x in products if abs(x) >= 2.0**128}
    if beyond:
        return math.nan if len(beyond) == 2 else beyond.pop() * math.inf
    return None


def _product(a: float, b: float) -> float:
    return math.nan if (a == 0 and math.isinf(b)) or (b == 0 and math.isinf(a)) else a * b


def fused_dot(kind_a: str, kind_b: str, group: int, *, fnuz: bool = True, scale: int = 0) -> Dot:
    """CDNA3: aligned sums of `group` products and C, each rounded once.

    Parameters
    ----------
    kind_a, kind_b : str
    group : int
        Number of products of one sum; for 8-bit inputs, even and odd ones are first summed apart.
    fnuz : bool
        Whether 8-bit formats are FNUZ.
    scale : int
        Exponent that block scales add to every product.
    """
    exponents = MIN_EXPONENT if fnuz else MIN_EXPONENT | MIN_EXPONENT_OCP
    narrow = kind_a in MIN_EXPONENT_OCP

    def one_group(a: Sequence[float], b: Sequence[float], c: float) -> float:
        products = [_product(x, y) * 2.0**scale for x, y in zip(a, b, strict=True)]
        special = _special(products, c)
        if special is not None:
            return special
        terms = []
        for x, y in zip(a, b, strict=True):
            (sx, ex), (sy, ey) = scientific(x, exponents[kind_a]), scientific(y, exponents[kind_b])
            terms.append((sx * sy, ex + ey + scale))
        if narrow:
            halves = [_aligned(terms[0::2]), _aligned(terms[1::2])]
            top = max(exponent for _, exponent in halves)
            total = sum(
                (_cut(s * Fraction(2) ** (e - top), 24, math.floor) for s, e in halves), Fraction(0)
            )
        else:
            total, top = _aligned(terms)
        sc, ec = scientific(c, -126)
        largest = max(top, ec)
        total = _cut(total * Fraction(2) ** (top - largest), 31, math.floor)
        addend = _cut(sc * Fraction(2) ** (ec - largest), 24, math.floor)
        if narrow and ec < largest - 25:
            addend = Fraction(0)
        return round_f32((total + addend) * Fraction(2) ** largest)

    def dot(a: Sequence[float], b: Sequence[float], c: float) -> float:
        if kind_a == "xf32":
            a, b = [truncate_xf32(x) for x in a], [truncate_xf32(x) for x in b]
        for first in range(0, len(a), group):
            c = one_group(a[first : first + group], b[first : first + group], c)
        return c

    return dot


def truncate_xf32(value: float) -> float:
    """Drop the 13 low bits of a float32."""
    if math.isnan(value):
        return value
    bits = np.float32(value).view(np.uint32) & np.uint32(0xFFFFE000)
    return float(bits.view(np.float32))


def _flush(value: float, min_exponent: int = -126) -> float:
    return math.copysign(0.0, value) if abs(value) < 2.0**min_exponent else value


def pairwise_dot(kind: str, group: int) -> Dot:
    """CDNA2: a tree of float32 sums over each group, then C; subnormals are flushed everywhere."""
    smallest = {"f16": -14, "bf16": -126}[kind]

    def add(x: float, y: float) -> float:
        with np.errstate(all="ignore"):
            return _flush(float(np.float32(x) + np.float32(y)))

    def tree(values: Sequence[float]) -> float:
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return add(tree(values[:half]), tree(values[half:]))

    def dot(a: Sequence[float], b: Sequence[float], c: float) -> float:
        a = [abs(_flush(x, smallest)) if x == 0 or abs(x) < 2.0**smallest else x for x in a]
        b = [abs(_flush(x, smallest)) if x == 0 or abs(x) < 2.0**smallest else x for x in b]
        c = 0.0 if abs(c) < 2.0**-126 else c
        for first in range(0, len(a), group):
            last = first + group
            terms = [
                _flush(round_f32(_product(x, y)))
                for x, y in zip(a[first:last], b[first:last], strict=True)
            ]
            c = add(c, tree([x + 0.0 for x in terms]))
        return c

    return dot


def sequential_fma(*, double: bool) -> Dot:
    """One fused multiply-add after another, rounded to float32 or float64."""

    def fma(a: float, b: float, c: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return _product(a, b) + c
        if not math.isfinite(c):
            return c  # a finite product, though float64 may overflow
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            return a * b + c  # the sign of a zero sum
        if double:
            return _float64(exact)
        return _nearest_f32(exact)

    def dot(a: Sequence[float], b: Sequence[float], c: float) -> float:
        for x, y in zip(a, b, strict=True):
            c = fma(x, y, c)
        return c

    return dot


def _float64(exact: Fraction) -> float:
    try:
        return float(exact)  # int / int rounds correctly, subnormals included
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _nearest_f32(exact: Fraction) -> float:
    """Round a fraction to float32 once (by way of float64 it might round twice)."""
    size = abs(exact)
    exponent = max(math.frexp(_float64(size))[1] - 1, -126) if size < 2**200 else 200
    if size < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1  # float64 rounded up to a power of two
    unit = Fraction(2) ** (exponent - 23)
    rounded = round(size / unit) * unit  # Python rounds halves to even
    value = math.inf if rounded >= 2**128 else float(rounded)
    return math.copysign(value, exact)
