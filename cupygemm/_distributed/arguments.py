"""The arguments that the products of a group share, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._distributed.group import Group
from cupygemm._distributed.steps import balanced
from cupygemm._request.arrays import as_array, may_overlap, type_of
from cupygemm._request.call import Call, check_call
from cupygemm._request.options import call_options

_OF_PRODUCTS = ("format_a", "format_b", "precision", "reproducible")


def checked_group(function: str, group: Any) -> None:
    """Raise TypeError unless an argument is a group."""
    if not isinstance(group, Group):
        raise TypeError(
            f"{function}: group is {type_of(group)}; call "
            "cupygemm.distributed.connect(communicator) once on every rank, and pass the "
            "Group that it returns"
        )


def matrix(function: str, name: str, array: Any, group: Group) -> Any:
    """Return an operand, which must be a matrix on the device of the group.

    Raises
    ------
    ValueError
        It has another number of axes, or is on another device.
    """
    array = as_array(function, name, array)
    if array.ndim != 2:
        raise ValueError(
            f"{function}: {name} has shape {array.shape}; it must be a matrix, so reshape it to "
            f"two axes"
        )
    if array.data.device_id != group.device:
        raise ValueError(
            f"{function}: {name} is on device {array.data.device_id}, and rank {group.rank} of the "
            f"group is on device {group.device}"
        )
    return array


def matrices(function: str, a: Any, b: Any, group: Group) -> tuple[Any, Any]:
    """Return both operands; see `matrix`. If one is refused, the other ranks are notified."""
    with group.refusing(function):
        return matrix(function, "a", a, group), matrix(function, "b", b, group)


def rows_of_ranks(
    function: str,
    rows: Sequence[int] | None,
    own: int | None,
    group: Group,
    *,
    total: int | None = None,
) -> list[int]:
    """Return the numbers of rows of all ranks.

    Parameters
    ----------
    function : str
    rows : sequence of int, optional
        As the caller passed them.
    own : int or None
        The number of rows of this rank, and by default of all ranks.
    group : Group
    total : int, optional
        Their sum.

    Raises
    ------
    ValueError
        The numbers do not match the group or the operands.
    """
    if rows is None:
        return balanced(total, group.size) if total is not None else [int(own or 0)] * group.size
    counts = [int(count) for count in rows]
    if len(counts) != group.size or min(counts) < 0:
        raise ValueError(
            f"{function}: rows = {counts} must have one number for each of the {group.size} ranks"
        )
    if own is not None and counts[group.rank] != own:
        raise ValueError(
            f"{function}: rows = {counts} says {counts[group.rank]} for rank {group.rank}, and a "
            f"has {own} rows"
        )
    if total is not None and sum(counts) != total:
        raise ValueError(
            f"{function}: rows = {counts} sum to {sum(counts)}, but a has {total} rows"
        )
    return counts


def product_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that apply to each partial product, not to their sum."""
    return {name: options[name] for name in _OF_PRODUCTS if name in options}


def contiguous_rows(array: Any, out: Any) -> Any:
    """Return an array, or a copy if it is not C-contiguous or may overlap ``out``."""
    import cupy

    return array.copy() if may_overlap(out, array) else cupy.ascontiguousarray(array)


def checked_call(
    a: Any, b: Any, out: Any, *, dtype: DTypeLike | None, casting: str, options: Any
) -> Call:
    """Return the validated call of `cupygemm.matmul` with such options."""
    given = call_options(dict(options))  # type: ignore[arg-type]
    return check_call(a, b, out, dtype=dtype, casting=casting, given=given)
