"""Keys of the plan table: everything in a call's arguments on which its plan depends.

Building a key must be fast, since every call does it, so nothing is checked here. A call whose
arguments are not CuPy arrays, or whose options are not plain values, has no key; its arguments are
converted and checked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._plan.table import Key
from cupygemm._records.formats import parse_dtype
from cupygemm._request.arrays import ARRAY_TYPES

_WORDS = frozenset({bool, str, type(None)})
_REAL_NUMBERS = frozenset({int, float, np.float32, np.float64})
_SPECIAL = (0, 1)  # numbers that allow a simpler computation


def array_key(array: Any) -> Key:
    """Return the properties of a CuPy array on which a plan depends."""
    memory = array.data
    return array.shape, array.strides, array.dtype, memory.ptr & 15, memory.device_id


def product_key(x1: Any, x2: Any, out: Any, dtype: DTypeLike | None, casting: str) -> Key | None:
    """Return the key of a matrix product without further options; None if it has none."""
    if type(x1) not in ARRAY_TYPES or type(x2) not in ARRAY_TYPES or type(casting) is not str:
        return None
    if dtype is not None:
        dtype = parse_dtype(dtype)
    m1, m2 = x1.data, x2.data
    if out is None:
        return (
            "matmul",
            x1.shape,
            x1.strides,
            x1.dtype,
            m1.ptr & 15,
            m1.device_id,
            x2.shape,
            x2.strides,
            x2.dtype,
            m2.ptr & 15,
            m2.device_id,
            dtype,
            casting,
        )
    if type(out) not in ARRAY_TYPES:
        return None
    m = out.data
    return (
        "matmul",
        x1.shape,
        x1.strides,
        x1.dtype,
        m1.ptr & 15,
        m1.device_id,
        x2.shape,
        x2.strides,
        x2.dtype,
        m2.ptr & 15,
        m2.device_id,
        out.shape,
        out.strides,
        out.dtype,
        m.ptr & 15,
        m.device_id,
        dtype,
        casting,
    )


def options_key(options: Mapping[str, Any]) -> Key | None:
    """Return the part of a call's keywords on which a plan depends; None if one is no plain value.

    Numbers are passed to the kernel by value, so it matters only whether they are 0, 1 or complex.
    """
    key: list[Any] = []
    for name, value in options.items():
        kind = type(value)
        if kind in ARRAY_TYPES:
            memory = value.data
            key += (
                name,
                value.shape,
                value.strides,
                value.dtype,
                memory.ptr & 15,
                memory.device_id,
            )
        elif kind in _WORDS:
            key += (name, value)
        elif kind in _REAL_NUMBERS:
            key += (name, value if value in _SPECIAL else 2)
        elif kind is complex:
            key += (name, "complex", value == 1, value == 0, value.imag != 0)
        elif kind is tuple:
            key += (name, len(value))
        else:
            return None
    return tuple(key)
