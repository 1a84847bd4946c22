"""Formats of 8-bit floats and precisions of float32, which NumPy's dtypes cannot express.

CuPy has no 8-bit floats. They are passed as uint8 arrays, and a keyword names their format. Inside
this library such an operand has the dtype of ml_dtypes, as if the array had it, and `container`
returns the dtype of the array that holds the bytes. A CuPy array that has such a dtype (``view``
makes one) needs no keyword.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._records.dtypes import FLOAT8, FLOAT8_DTYPES, named_dtype

U8 = np.dtype(np.uint8)
Precision = Literal[
    "ieee",
    "tf32",
    "tf32x3",
    "int8x6",
    "int8x7",
    "int8x8",
    "int8x9",
    "int8x10",
    "int8x11",
    "int8x12",
    "int8x13",
    "int8x14",
    "int8x15",
    "int8x16",
]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_PRECISIONS: Mapping[str | None, Precision] = MappingProxyType(
    {None: "ieee", **{name: name for name in PRECISIONS}, "xf32": "tf32"}
)
_RESIDUES = "int8x"


def format_dtype(keyword: str, given: Any) -> np.dtype[Any]:
    """Return the dtype of a format of 8-bit floats, given by name or as a dtype.

    Raises
    ------
    TypeError
        It is not a format of 8-bit floats.
    """
    dtype = _float8(given)
    if dtype is None:
        known = ", ".join(f"{name!r}" for name in FLOAT8)
        raise TypeError(
            f"matmul: {keyword} = {given!r} is not a format of 8-bit floats; use one of {known}, "
            "with or without float8_ before the name"
        )
    return dtype


def operand_dtype(name: str, keyword: str, dtype: np.dtype[Any], given: Any) -> np.dtype[Any]:
    """Return the type in which an operand is multiplied: its dtype, or that of its format keyword.

    Raises
    ------
    TypeError
        The tag does not name a format, or the array holds another type.
    """
    if given is None:
        return dtype
    tagged = format_dtype(keyword, given)
    if dtype in (U8, tagged):
        return tagged
    raise TypeError(
        f"matmul: {keyword} = {given!r} says what the bytes of {name} mean, but {name} has dtype "
        f"{dtype}; pass a uint8 array, or leave {keyword} out"
    )


def parse_dtype(given: DTypeLike | None) -> np.dtype[Any] | None:
    """Return the dtype for a user's name: one of NumPy or ml_dtypes, or a short name.

    Short names are those of `ELEMENT_TYPES`, such as ``"bf16"``, ``"fp32"`` and ``"e4m3fn"``.

    Raises
    ------
    TypeError
        The name is unknown.
    """
    if given is None or isinstance(given, np.dtype):
        return given
    if isinstance(given, str):
        dtype = named_dtype(given)
        if dtype is not None:
            return dtype
    try:
        return np.dtype(given)
    except TypeError as err:
        raise TypeError(
            f"{given!r} is not a type; pass a NumPy dtype, or a name such as 'float32', "
            "'bfloat16' or 'e4m3fn'"
        ) from err


def parse_precision(given: Any) -> Precision:
    """Return the precision in which float32 operands may be multiplied.

    Raises
    ------
    ValueError
        The name is unknown.
    """
    if given is None or (isinstance(given, str) and given in _PRECISIONS):
        return _PRECISIONS[given]
    named = [repr(name) for name in _PRECISIONS if not str(name).startswith(_RESIDUES)]
    residues = [repr(name) for name in PRECISIONS if name.startswith(_RESIDUES)]
    raise ValueError(
        f"matmul: precision must be one of {', '.join(named)}, or from {residues[0]} to "
        f"{residues[-1]} (got {given!r})"
    )


def moduli_of(precision: Precision) -> int:
    """Return the number of moduli of a precision such as ``"int8x14"``; 0 for others."""
    return int(precision.removeprefix(_RESIDUES)) if precision.startswith(_RESIDUES) else 0


def container(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the CuPy array that holds elements of `dtype`."""
    return U8 if dtype in FLOAT8_DTYPES else dtype


def as_stored(array: Any) -> Any:
    """View an array of 8-bit floats as the bytes that CuPy can copy."""
    return array.view(U8) if array.dtype in FLOAT8_DTYPES else array


def _float8(given: Any) -> np.dtype[Any] | None:
    try:
        dtype = parse_dtype(given)
    except TypeError:
        return None
    return dtype if dtype in FLOAT8_DTYPES else None
