"""The words that name products on the command line: shapes such as 4x512x512x512, and types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from cupygemm._records.dtypes import ELEMENT_TYPES
from cupygemm._records.formats import parse_dtype

DTYPE_HELP = "bf16, fp16, fp32, fp64, int8, e4m3fn, complex64, ..."
LAYOUT_HELP = "NN, NT, TN or TT: N is an operand in C order, T a transposed view of one."
_SHAPE = re.compile(r"\d+(x\d+)+", re.IGNORECASE)


def is_shape(word: str) -> bool:
    """Tell whether a word consists of numbers with an x between them."""
    return _SHAPE.fullmatch(word) is not None


def parse_shape(word: str) -> tuple[int, ...]:
    """Return the extents that a word names.

    Raises
    ------
    ValueError
        The word is not a shape.
    """
    if not is_shape(word):
        raise ValueError(
            f"the shape {word!r} is not MxNxK, or BATCHxMxNxK, such as 512x512x512 or 8x64x64x64"
        )
    return tuple(int(extent) for extent in word.lower().split("x"))


def parse_types(words: Iterable[str]) -> list[np.dtype[Any]]:
    """Return the types that words name, as `parse_dtype` reads them.

    Raises
    ------
    ValueError
        A word is not the name of a type.
    """
    return [_parse_type(word) for word in words]


def _parse_type(word: str) -> np.dtype[Any]:
    try:
        dtype = parse_dtype(word)
    except TypeError:
        dtype = None
    if dtype is None:
        short = ", ".join(alias for row in ELEMENT_TYPES.values() for alias in row.aliases)
        raise ValueError(
            f"{word!r} is not a type; write one of {short}, or a name of NumPy's such as int8 or "
            "complex64"
        )
    return dtype
