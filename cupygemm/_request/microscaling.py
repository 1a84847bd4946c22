"""Formats of OCP Microscaling (MX): 8-, 6- and 4-bit floats, with a factor for every 32 of them.

A factor is a power of two, stored as an exponent in a byte (e8m0): ``2.0 ** (s - 127)``, or NaN for
255. CuPy lacks these types, so elements and factors are uint8 arrays. 8-bit and 6-bit floats take a
byte each, as in ml_dtypes. 4-bit floats are packed in pairs along k, the first one in the low half.

Formats for which a device has no instruction are decoded: to another format that represents the
same numbers, or to numbers with their factors applied.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Elements along k that share a factor."""
ELEMENTS: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
        "e5m2": np.dtype(ml_dtypes.float8_e5m2),
        "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
        "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
        "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    }
)
"""The formats of elements, by name."""
FACTOR = np.dtype(ml_dtypes.float8_e8m0fnu)
U8 = np.dtype(np.uint8)
_NAMES = {
    alias: name
    for name, dtype in ELEMENTS.items()
    for alias in (name, dtype.name, dtype.name.split("_")[1], f"{name}fn_x2", f"{dtype.name}_x2")
    if name == "e2m1" or not alias.endswith("_x2")
}


def element_format(given: Any) -> str | None:
    """Return the name of an element format given by name or as a dtype; None for others."""
    if isinstance(given, str):
        return _NAMES.get(given)
    try:
        return _NAMES.get(np.dtype(given).name)
    except TypeError:
        return None


def is_factors(scale: Any) -> bool:
    """Whether scales are exponents of factors, rather than numbers."""
    return getattr(scale, "dtype", None) in (U8, FACTOR)


def per_byte(name: str) -> int:
    """Return the number of elements in a byte, which are adjacent along k."""
    return 2 if name == "e2m1" else 1


# -- Decoding --------------------------------------------------------------------------------------


@functools.cache
def _numbers(name: str) -> NDArray[np.float32]:
    """Return the numbers that each byte encodes, (byte, element); unused bits are ignored."""
    dtype, bits = ELEMENTS[name], int(ELEMENTS[name].name[5])
    codes = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float32)
    byte = np.arange(256)
    return np.stack([codes[byte >> bits * i & (1 << bits) - 1] for i in range(per_byte(name))], -1)


def decoded(codes: Any, name: str, dtype: np.dtype[Any]) -> Any:
    """Return elements (rows, k), from their bytes, as a contiguous CuPy array of a type.

    `dtype` is float32 or an 8-bit type, whose bytes are returned: e4m3fn represents all numbers of
    the narrower formats.
    """
    import cupy

    table = _numbers(name).astype(dtype)
    if dtype.itemsize == 1:
        table = table.view(np.uint8)
    # One element of this table holds all numbers of a byte.
    whole = np.ascontiguousarray(table).view(np.dtype(f"u{table[0].nbytes}")).ravel()
    return cupy.take(cupy.asarray(whole), codes).view(table.dtype)


@functools.cache
def _factor_numbers() -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = np.arange(256, dtype=np.uint8).view(FACTOR).astype(np.float32)
    return numbers


def scaled_numbers(codes: Any, name: str, factors: Any) -> Any:
    """Return the products (rows, k) of elements and their factors, in bfloat16.

    They have at most four significant bits, so they are exact unless a number is beyond bfloat16's
    range.
    """
    import cupy

    numbers = decoded(codes, name, np.dtype(np.float32))
    each = cupy.take(cupy.asarray(_factor_numbers()), factors)
    numbers *= cupy.repeat(each, BLOCK, axis=1)[:, : numbers.shape[1]]
    return numbers.astype(ml_dtypes.bfloat16)
