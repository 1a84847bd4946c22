"""Undefined bits through bitwise logic, sums and comparisons.

An array of undefined bits holds unsigned integers as wide as the values; a bit of 1 is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Bits = Any  # unsigned integers of any width and shape


def table_of(function: Callable[..., int], inputs: int) -> int:
    """Return the truth table of a bitwise function; bit i is the result for the inputs i.

    The first input is the highest bit of i.
    """
    table = 0
    for row in range(1 << inputs):
        arguments = [row >> inputs - 1 - place & 1 for place in range(inputs)]
        table |= (function(*arguments) & 1) << row
    return table


def logic(table: int, values: Sequence[Any], undefined: Sequence[Bits]) -> Bits:
    """Return the undefined bits of a bitwise function: those that undefined inputs can change."""
    inputs = len(values)
    can_be: list[Any] = [0, 0]
    for row in range(1 << inputs):
        term: Any = None
        for place, (value, bits) in enumerate(zip(values, undefined, strict=True)):
            literal = value if row >> inputs - 1 - place & 1 else ~value
            literal = literal | bits
            term = literal if term is None else term & literal
        result = table >> row & 1
        can_be[result] = can_be[result] | term
    return can_be[0] & can_be[1]


def upward(undefined: Bits) -> Bits:
    """Return the undefined bits of a sum or product, where bit i depends on the bits 0 to i."""
    return undefined | np.negative(undefined)


def anywhere(undefined: Bits, like: Any) -> Bits:
    """Return all bits where any bit is undefined, with the type of `like`."""
    kind = np.dtype(like)
    return np.where(np.asarray(undefined) != 0, kind.type(np.iinfo(kind).max), kind.type(0))


def comparison(
    relation: str, values: Sequence[Any], undefined: Sequence[Bits], *, signed: bool
) -> Any:
    """Return where undefined bits can change the comparison of two integers, as bools.

    An order relation is evaluated for the least and the greatest value that each integer can have.
    """
    a, b = values
    if relation in _EQUALITIES:
        unsure = undefined[0] | undefined[1]
        return (unsure != 0) & ((a ^ b) & ~unsure == 0)
    if relation not in _ORDERS:
        return (undefined[0] | undefined[1]) != 0
    if signed:  # flipping the sign bit gives the order of unsigned integers
        kind = np.asarray(a).dtype.type
        sign = kind(1 << 8 * kind(0).itemsize - 1)
        a, b = a ^ sign, b ^ sign
    least = [value & ~bits for value, bits in zip((a, b), undefined, strict=True)]
    greatest = [value | bits for value, bits in zip((a, b), undefined, strict=True)]
    compare = _ORDERS[relation]
    return compare(least[0], greatest[1]) != compare(greatest[0], least[1])


_EQUALITIES = ("eq", "ne", "lg")
_ORDERS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
RELATIONS = (*_EQUALITIES, *_ORDERS)  # which undefined bits need not change
