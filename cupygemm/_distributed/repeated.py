"""Calls that a group repeats: what was checked and chosen is kept by the layouts of the arrays.

Only calls without an epilogue are kept, on contiguous arrays, with a result that overlaps no
operand. Nothing that is kept refers to an array of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cupygemm._distributed.board import digest_of
from cupygemm._distributed.rendezvous import Facts

_MAX_KEPT = 1024
Layout = tuple[Hashable, ...]


def key_of(
    a: Any, b: Any, out: Any, options: Mapping[str, Any], rows: Any, *others: Any
) -> Layout | None:
    """Return what identifies a call; None if it cannot be kept.

    Parameters
    ----------
    a, b : cupy.ndarray
    out : cupy.ndarray or None
    options : mapping
        Keywords of `cupygemm.matmul`; a call with any cannot be kept.
    rows : sequence of int or None
    *others
        Other arguments.
    """
    from cupy import ndarray

    if options or type(a) is not ndarray or type(b) is not ndarray:
        return None
    start, end = 0, 0
    if out is not None:
        if type(out) is not ndarray or not out.flags.c_contiguous:
            return None
        start = out.data.ptr
        end = start + out.nbytes
    try:
        hash(others)
        key: list[Hashable] = [others, None if rows is None else tuple(rows)]
    except TypeError:
        return None
    for array in (a, b):
        flags, place = array.flags, array.data.ptr
        if not (flags.c_contiguous or (array is b and flags.f_contiguous)):
            return None
        if start < place + array.nbytes and place < end:
            return None
        key += (array.shape, array.strides, array.dtype, place & 15, array.data.device_id)
    if out is not None:
        key += (out.shape, out.dtype, start & 15, out.data.device_id)
    return tuple(key)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a call.

    Attributes
    ----------
    facts : dict
        What the other ranks were told.
    digest : int
        Of the function and the facts.
    details : object
        What the function has checked and chosen.
    """

    facts: Facts
    digest: int
    details: Any


def keep(
    table: dict[Any, Kept],
    key: Layout,
    function: str,
    facts: Facts,
    own: Sequence[str],
    details: Any,
) -> None:
    """Keep a call in the table of a group."""
    if len(table) >= _MAX_KEPT:
        table.clear()
    table[function, key] = Kept(
        facts=facts, digest=digest_of_call(function, facts, own), details=details
    )


def digest_of_call(function: str, facts: Facts, own: Sequence[str]) -> int:
    """Return the digest by which ranks of one host agree on a call."""
    return digest_of(json.dumps([{"function": function, **facts}, *own]))
