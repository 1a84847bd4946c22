"""The ``axes=`` and ``order=`` of products, by views of the arrays and of the result.

Neither moves data in memory. For ``axes``, views of the arrays are made in which the core axes are
the last ones. For ``order``, a new result of that order is passed to the product as ``out``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cupygemm._request.arrays import Array
from cupygemm._request.signatures import Axes, Signature, core_axes, normalized_axes


@dataclass(frozen=True)
class CoreAxesLast:
    """The arrays of a matrix product with the core axes last.

    Attributes
    ----------
    x1, x2 : cupy.ndarray
    out : cupy.ndarray or None
    axes : tuple of int
        The positions of the core axes in the result.
    """

    x1: Array
    x2: Array
    out: Array | None
    axes: tuple[int, ...]

    def moved_back(self, result: Array) -> Array:
        """Return a result with its core axes moved to their positions."""
        import cupy

        return cupy.moveaxis(result, range(-len(self.axes), 0), self.axes)


def core_axes_last(x1: Array, x2: Array, out: Array | None, axes: Axes) -> CoreAxesLast:
    """Return the arrays of ``matmul(x1, x2, out, axes=axes)`` with the core axes last.

    Raises
    ------
    ValueError
        An axis is out of range or named twice, or the numbers of axes are not the signature's.
    TypeError
        ``axes`` is not a list of axes.
    """
    import cupy

    row, column = "m" if x1.ndim > 1 else "", "n" if x2.ndim > 1 else ""
    cores = row + "k", "k" + column, row + column
    places = core_axes(Signature("matmul", *cores), cores, axes)
    batch = max(x1.ndim - len(cores[0]), x2.ndim - len(cores[1]))
    found = []
    for name, x, place in zip(("x1", "x2", "out"), (x1, x2, out), places, strict=True):
        ndim = batch + len(place) if x is None else x.ndim
        core = normalized_axes("matmul", name, place, ndim)
        found.append(x if x is None else cupy.moveaxis(x, core, range(-len(core), 0)))
    return CoreAxesLast(x1=found[0], x2=found[1], out=found[2], axes=core)


def result_order(
    function: str, order: str | None, operands: Sequence[Any]
) -> Literal["C", "F"] | None:
    """Return the memory order of a new result; None if any order will do.

    Raises
    ------
    ValueError
        The order is not one of NumPy's.
    """
    wanted = "K" if order is None else parsed_order(function, order)
    if wanted == "A":
        return "F" if all(x.flags.f_contiguous for x in operands) else "C"
    return None if wanted == "K" else "F" if wanted == "F" else "C"


def parsed_order(function: str, order: Any) -> str:
    """Return a memory order, ``"K"``, ``"C"``, ``"F"`` or ``"A"``; upper or lower case is accepted.

    Raises
    ------
    ValueError
        The order is not one of NumPy's.
    """
    wanted = str(order).upper()
    if wanted not in ("K", "C", "F", "A"):
        raise ValueError(f"{function}: order must be 'K', 'C', 'F' or 'A' (got {order!r})")
    return wanted
