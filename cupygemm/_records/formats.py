"""What NumPy's dtypes cannot say of an operand: formats of 8-bit floats, and the precision.

CuPy has no 8-bit floats, so they travel as uint8 arrays, and a keyword names their format. From
here on an operand's dtype is that of ml_dtypes, as if the array had it; `container` is the way
back. A CuPy array that does have such a dtype (``view`` makes one) needs no keyword.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from cupygemm._records.problem import FLOAT8_NAMES, DType

U8 = np.dtype(np.uint8)
FLOAT8: Mapping[DType, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(getattr(ml_dtypes, f"float8_{name}")) for name in FLOAT8_NAMES}
)
"""The formats of 8-bit floats by name: OCP's, which are IEEE 754's but for infinities and NaN, and
FNUZ, which have a bias larger by one and neither infinities nor a negative zero."""
FLOAT8_DTYPES = frozenset(FLOAT8.values())
Precision = Literal["ieee", "tf32", "tf32x3"]
_PRECISIONS: Mapping[str | None, Precision] = MappingProxyType(
    {None: "ieee", "ieee": "ieee", "tf32": "tf32", "xf32": "tf32", "tf32x3": "tf32x3"}
)
assert set(_PRECISIONS.values()) == set(get_args(Precision))


def format_dtype(keyword: str, given: Any) -> np.dtype[Any]:
    """Return the dtype of a format of 8-bit floats, given by name or as a dtype.

    Raises
    ------
    TypeError
        It is none.
    """
    dtype = _float8(given)
    if dtype is None:
        known = ", ".join(f"{name!r}" for name in FLOAT8)
        raise TypeError(
            f"{keyword} = {given!r} is no format of 8-bit floats; those are {known}, also with "
            "float8_ before the name"
        )
    return dtype


def operand_dtype(name: str, keyword: str, dtype: np.dtype[Any], given: Any) -> np.dtype[Any]:
    """Return what an operand is multiplied as: its dtype, or what its format tag says.

    Raises
    ------
    TypeError
        The tag names no format, or the array does not hold bytes, or holds another format.
    """
    if given is None:
        return dtype
    tagged = format_dtype(keyword, given)
    if dtype in (U8, tagged):
        return tagged
    raise TypeError(
        f"{keyword} = {given!r} says what the bytes of {name} mean, but {name} has dtype {dtype}; "
        f"pass a uint8 array, or leave {keyword} out"
    )


def result_dtype(given: DTypeLike | None) -> np.dtype[Any] | None:
    """Return the dtype that ``dtype=`` asks for: NumPy's, or an 8-bit float's."""
    if given is None:
        return None
    dtype = _float8(given)
    return np.dtype(given) if dtype is None else dtype


def parse_precision(given: Any) -> Precision:
    """Return the precision in which float32 operands are to be multiplied.

    Raises
    ------
    ValueError
        The name means nothing.
    """
    if given is None or (isinstance(given, str) and given in _PRECISIONS):
        return _PRECISIONS[given]
    known = ", ".join(repr(name) for name in _PRECISIONS)
    raise ValueError(f"precision must be one of {known} (got {given!r})")


def container(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the CuPy array that holds elements of `dtype`."""
    return U8 if dtype in FLOAT8_DTYPES else dtype


def as_stored(array: Any) -> Any:
    """View an array of 8-bit floats as the bytes that CuPy can copy."""
    return array.view(U8) if array.dtype in FLOAT8_DTYPES else array


def _float8(given: Any) -> np.dtype[Any] | None:
    if isinstance(given, str):
        name = given.removeprefix("float8_")
        return next((dtype for known, dtype in FLOAT8.items() if known == name), None)
    try:
        dtype = np.dtype(given)
    except TypeError:
        return None
    return dtype if dtype in FLOAT8_DTYPES else None
