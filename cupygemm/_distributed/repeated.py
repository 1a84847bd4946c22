"""Calls that a group repeats: `key_of` identifies a call by the layouts of its arrays.

`Group.checked` keeps the facts that it has derived from the arguments of such a call. It keeps only
calls without an epilogue, on contiguous arrays, with a result that overlaps no operand, and no
references to the caller's arrays.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cupygemm._distributed.board import digest_of
from cupygemm._distributed.rendezvous import Facts

Key = tuple[Hashable, ...]
Details = TypeVar("Details")


def key_of(
    function: str,
    device: int,
    a: Any,
    b: Any,
    out: Any,
    options: Mapping[str, Any],
    rows: Sequence[int] | None,
    *others: Any,
) -> Key | None:
    """Return the key of a call; None if nothing can be kept for it.

    The operands of a call with a key are contiguous matrices of CuPy on the device, do not overlap
    ``out``, and need no conversion.

    Parameters
    ----------
    function : str
    device : int
        CuPy's number of the group's device.
    a, b : cupy.ndarray
        ``a`` must be C-contiguous, ``b`` C- or F-contiguous.
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
    start, end, given = 0, 0, None
    if out is not None:
        if type(out) is not ndarray or out.data.device_id != device:
            return None
        start = out.data.ptr
        end = start + out.nbytes
        given = _layout(out)
        if given is None:
            return None
    try:
        hash(others)
        key: list[Hashable] = [function, others, None if rows is None else tuple(rows), given]
    except TypeError:
        return None
    for array in (a, b):
        data = array.data
        place = data.ptr
        if data.device_id != device or (start < place + array.nbytes and place < end):
            return None
        found = _layout(array)
        if found is None:
            if array is a:
                return None
            found = _layout(array.T)
            if found is None:
                return None
            found = ("F", *found)
        key.append(found)
    return tuple(key)


def _layout(array: Any) -> Key | None:
    """Return the shape, type and alignment of a C-contiguous matrix; None for other arrays."""
    shape, strides, dtype = array.shape, array.strides, array.dtype
    itemsize = dtype.itemsize
    if len(shape) != 2 or strides != (shape[1] * itemsize, itemsize):
        return None
    return shape, dtype, array.data.ptr & 15


@dataclass(frozen=True, kw_only=True)
class Checked(Generic[Details]):
    """A call whose arguments this rank has checked.

    Attributes
    ----------
    facts : dict
        The facts for the other ranks.
    digest : int or None
        A digest of the function and the facts; None if the call is not kept.
    details : object
        Values that the function has derived from the arguments.
    """

    facts: Facts
    digest: int | None
    details: Details


def digest_of_call(function: str, facts: Facts, own: Sequence[str]) -> int:
    """Return the digest by which ranks of one host agree on a call."""
    return digest_of(json.dumps([{"function": function, **facts}, *own]))
