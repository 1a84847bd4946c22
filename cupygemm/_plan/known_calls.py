"""Calls of `matmul` with options, as far as a call before found out what theirs come to.

Checking keywords and making a record of each takes longer than a launch. A call whose keywords are
those of one before, but for where the arrays are, takes what was found then and puts its own arrays
in their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._epilogue.options import ARRAYS, EpilogueArguments
from cupygemm._plan.plan import Plan
from cupygemm._request.call import signature
from cupygemm._request.layout import Operand
from cupygemm._request.options import CallOptions

_PLAIN = frozenset({bool, int, float, complex, str, type(None), np.float32, np.float64})

Reach = tuple[int, int, bool]
"""Bytes that an array covers, from and to, relative to its first element, and if it lies as out."""


def keyword_key(keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all that a call's keywords say but where their arrays are.

    Raises
    ------
    AttributeError
        A value is neither a plain one nor an array of CuPy.
    """
    key: list[Any] = []
    for name, value in keywords.items():
        kind = type(value)
        if kind in _PLAIN:
            # Equal values may differ: 0.0 and -0.0, 1 and True.
            key += (name, kind, value or str(value))
        elif kind is tuple:
            key += (name, tuple(map(type, value)), tuple(each or str(each) for each in value))
        else:
            memory = value.data
            key += (
                name, value.shape, value.strides, value.dtype, memory.ptr & 15, memory.device_id
            )  # fmt: skip
    return tuple(key)


@dataclass(frozen=True, slots=True)
class KnownCall:
    """What the keywords of a call came to.

    Attributes
    ----------
    plan : Plan
    scalars : tuple or None
        The fields of `EpilogueArguments` that are no arrays; None where there is no epilogue.
    names : tuple of str or None
        The keywords of the arrays in use, in the order of `ARRAYS`.
    reaches : tuple
        What each array covers.
    """

    plan: Plan
    scalars: tuple[Any, ...] | None
    names: tuple[str | None, ...]
    reaches: tuple[Reach | None, ...]

    @classmethod
    def of(cls, plan: Plan, out: Any, given: CallOptions) -> KnownCall:
        """Return what a checked call came to."""
        epilogue = given.epilogue
        if epilogue is None:
            return cls(plan, None, (), ())
        names: list[str | None] = []
        reaches: list[Reach | None] = []
        for name, array in zip(ARRAYS, epilogue.arrays, strict=True):
            names.append(None if array is None else name)
            if array is None or out is None:
                reaches.append(None)
            else:
                start, end = Operand(array.shape, array.strides, array.dtype).extent()
                alike = name == "c" and signature(array)[:3] == signature(out)[:3]
                reaches.append((start, end, alike))
        return cls(plan, epilogue[: -len(ARRAYS)], tuple(names), tuple(reaches))

    def values(self, keywords: Mapping[str, Any]) -> tuple[EpilogueArguments, ...]:
        """Return what the plan's runner is given besides the operands."""
        if self.scalars is None:
            return ()
        arrays = [name and keywords[name] for name in self.names]
        return (EpilogueArguments(*self.scalars, *arrays),)

    def overlaps(self, x1: Any, x2: Any, out: Any, values: tuple[EpilogueArguments, ...]) -> bool:
        """Whether writing ``out`` may change what is yet to be read."""
        if self.plan.overlaps(x1, x2, out):
            return True
        target = out.data.ptr
        first, last = (target + reach for reach in self.plan.extents[2])
        for epilogue in values:
            for reach, array in zip(self.reaches, epilogue.arrays, strict=True):
                if reach is not None:
                    start, end, alike = reach
                    place = array.data.ptr
                    in_place = alike and place == target  # each element is read, then written
                    if not in_place and place + start < last and first < place + end:
                        return True
        return False
