"""`scaled_matmul` with exponents as scales for blocks of 32 along k (OCP Microscaling).

A kernel that multiplies by exponents supports pairs of 8-bit formats and pairs of 4-bit formats.
For it, 6-bit floats, and 4-bit floats in a mixed pair, are converted to e4m3fn, which represents
the same numbers. A device without such a kernel multiplies the decoded numbers in bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._products.block_scaled import multiply_scaled
from cupygemm._products.matmul import matmul
from cupygemm._records.dtypes import FLOAT8
from cupygemm._records.formats import parse_dtype
from cupygemm._request.arrays import Array, as_array
from cupygemm._request.copies import assign
from cupygemm._request.microscaling import (
    BLOCK,
    ELEMENTS,
    U8,
    decoded,
    element_format,
    is_factors,
    per_byte,
    scaled_numbers,
)
from cupygemm._request.promotion import F16, F32

_NAME = "scaled_matmul"


@dataclass(frozen=True)
class Microscaled:
    """An operand and its scales, with the elements along k in rows: A, or B transposed.

    Attributes
    ----------
    codes : cupy.ndarray
        The bytes of the elements, (rows, k), or (rows, k / 2) with two elements per byte.
    name : str
        Format of the elements.
    factors : cupy.ndarray
        The bytes of the exponents, (rows, blocks).
    """

    codes: Array
    name: str
    factors: Array

    @property
    def k(self) -> int:
        """Return the extent along k."""
        return int(self.codes.shape[1]) * per_byte(self.name)

    def as_e4m3fn(self) -> Microscaled:
        """Return the same numbers as e4m3fn; the operand itself if it has an 8-bit format."""
        if self.name in FLOAT8:
            return self
        return replace(self, codes=decoded(self.codes, self.name, FLOAT8["e4m3fn"]), name="e4m3fn")

    def numbers(self) -> Array:
        """Return the decoded and scaled numbers, (rows, k), in bfloat16."""
        return scaled_numbers(self.codes, self.name, self.factors)


def microscaled_matmul(
    a: Array,
    b: Array,
    scale_a: Any,
    scale_b: Any,
    *,
    block: int | None,
    out: Any,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array:
    """Return the product of two matrices with exponents as scales; see `scaled_matmul`."""
    if block not in (None, BLOCK):
        raise ValueError(f"{_NAME}: block is {block}; with exponents as scales it must be {BLOCK}")
    first = _operand("a", a, scale_a, options.pop("format_a", None))
    second = _operand("b", b.T, scale_b, options.pop("format_b", None))
    if first.k != second.k:
        raise ValueError(
            f"{_NAME}: the extents along k differ: {first.k} in a of shape {a.shape} and format "
            f"{first.name}, {second.k} in b of shape {b.shape} and format {second.name} (a byte "
            "has two elements of e2m1)"
        )
    if min(a.size, b.size):
        result = _multiplied(first, second, out, dtype=dtype, options=options)
        if result is not None:
            return result
    return _multiplied_decoded(first, second, out, dtype=dtype, options=options)


def _multiplied_decoded(
    first: Microscaled,
    second: Microscaled,
    out: Any,
    *,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array:
    """Multiply the decoded numbers in bfloat16; the sums are rounded once, to the result's type."""
    numbers = first.numbers(), second.numbers().T
    if dtype is None:
        dtype = F32 if out is None else out.dtype
    if parse_dtype(dtype) != F16:
        return matmul(*numbers, out, dtype=dtype, **options)
    # matmul refuses float16 as the result of bfloat16 operands, since its range is smaller.
    sums = matmul(*numbers, dtype=F32, **options)
    if out is None:
        return sums.astype(F16)
    assign(out, sums)
    return out


def _operand(name: str, codes: Array, scale: Any, tag: Any) -> Microscaled:
    """Validate an operand and return it; `codes` are those of A, or of B transposed.

    Raises
    ------
    TypeError
        If the format is unknown or does not match the array, or the scales are not exponents.
    ValueError
        If the shape of the scales does not match.
    """
    given = codes.dtype if tag is None else tag
    found = element_format(given)
    tagged = tag is not None and codes.dtype == U8
    if found is None or not (tagged or (codes.dtype == ELEMENTS[found] and per_byte(found) == 1)):
        raise TypeError(
            f"{_NAME}: {name} has dtype {codes.dtype} and format_{name} is {tag!r}; with exponents "
            f"as scales {name} must be a uint8 array and format_{name} one of "
            f"{', '.join(map(repr, ELEMENTS))}"
        )
    if not is_factors(scale):
        raise TypeError(
            f"{_NAME}: scale_{name} must be exponents too, a uint8 array (e8m0), because the other "
            "scale is one or the format requires them"
        )
    factors = as_array(_NAME, f"scale_{name}", scale)
    rows, columns = codes.shape
    blocks = -(-columns * per_byte(found) // BLOCK)
    expected = (rows, blocks) if name == "a" else (blocks, rows)
    if factors.shape != expected:
        remedy = f"; pass scale_{name}.T" if factors.shape == expected[::-1] else ""
        raise ValueError(
            f"{_NAME}: scale_{name} has shape {factors.shape}; exponents for blocks of {BLOCK} "
            f"along k must have shape {expected}{remedy}"
        )
    codes, factors = (x if x.dtype == U8 else x.view(U8) for x in (codes, factors))
    return Microscaled(codes, found, factors if name == "a" else factors.T)


def _multiplied(
    first: Microscaled,
    second: Microscaled,
    out: Any,
    *,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array | None:
    """Multiply by a kernel that supports exponents; return None if there is none."""
    formats = device(first.codes.data.device_id).kernels.formats
    pairs = first.name == second.name == "e2m1"
    if "e4m3fn" not in formats:
        return None
    if not pairs:
        first, second = first.as_e4m3fn(), second.as_e4m3fn()
    # A pair of 4-bit floats is copied as a byte, that is, like an 8-bit float.
    names = ("e4m3fn", "e4m3fn") if pairs else (first.name, second.name)
    return multiply_scaled(
        first.codes,
        second.codes.T,
        out,
        scaling=BlockScaling(kind="e8m0", block=BLOCK, pairs=pairs),
        scales=(first.factors, second.factors),
        dtype=dtype,
        options={**options, "format_a": names[0], "format_b": names[1]},
    )
