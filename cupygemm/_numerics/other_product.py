"""Find the other product of the operands that a wrong result equals.

A common mistake in a kernel gives the right result of a different product: of an operand that is
read in the other memory order or with a wrong leading dimension, of elements along k that do not
belong together, of only a part of k, with some of k added twice, with a factor or a number added,
or without a conjugation. Or the result has an unwanted rounding (`narrow`). Some wrong elements are
drawn and compared with each of these. A product is named only if all of them agree with it, within
the allowed error of the right product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._numerics.error_bounds import of_rounding
from cupygemm._numerics.leading_dimension import Operand, find, stored_with
from cupygemm._numerics.narrow import name_rounding, of_operands
from cupygemm._numerics.orders import of_k

Array = NDArray[Any]
_MOST_DRAWN, _LEAST_DRAWN = 48, 12  # wrong elements
_MOST_EDGES = 256  # lengths of the parts of k that are tried
_CLEAR = 2  # tolerances; elements with smaller errors may be wrong by rounding


@dataclass(frozen=True)
class _Drawn:
    """Some wrong elements of a product.

    Attributes
    ----------
    rows, columns : array (count, k)
        The row of the first operand and the column of the second one for each element.
    actual, reference : array (count,)
    bound : array (count,)
        The errors that the elements of the reference may have.
    dtype : dtype
        Of the product.
    """

    rows: Array
    columns: Array
    actual: Array
    reference: Array
    bound: Array
    dtype: np.dtype[Any]

    def tolerance(self, values: Array, some: slice = slice(None)) -> Array:
        """Return how far all elements, or some, may be from values that explain them."""
        magnitude = np.maximum(np.abs(values), np.abs(self.actual[some]))
        return np.asarray(2 * self.bound[some] + 2 * of_rounding(magnitude, self.dtype))

    def are(self, values: Array) -> bool:
        """Whether the elements equal these values, within the tolerance."""
        return bool(np.all(np.abs(self.actual - values) <= self.tolerance(values)))


def name_other_product(
    actual: Array, reference: Array, wrong: Array, bound: Array, x1: Array, x2: Array
) -> list[str]:
    """Return a line that names the product that the wrong elements belong to, if one is found.

    Parameters
    ----------
    actual, reference : array
        The computed and the expected product.
    wrong : array of bool
    bound : array
        The allowed absolute error of each element.
    x1, x2 : array
        The operands.

    Returns
    -------
    list of str
        Empty, or with one line.
    """
    first = x1 if x1.ndim > 1 else x1[None, :]
    second = x2 if x2.ndim > 1 else x2[:, None]
    places = _draw(wrong & np.isfinite(reference) & np.isfinite(actual), first, second)
    if places is None:
        return []
    shape = (*np.broadcast_shapes(first.shape[:-2], second.shape[:-2]), first.shape[-2])
    shape = (*shape, second.shape[-1])
    wide = np.result_type(reference.dtype, np.float64)
    actual_there, reference_there, bound_there = (
        each.reshape(shape)[places].astype(kind)
        for each, kind in ((actual, wide), (reference, wide), (bound, np.float64))
    )

    def drawn(a: Array, b: Array) -> _Drawn:
        rows, columns = _factors(a, b, shape, places, wide)
        return _Drawn(rows, columns, actual_there, reference_there, bound_there, actual.dtype)

    with np.errstate(all="ignore"):
        asked = drawn(first, second)
        dtypes = first.dtype, actual.dtype
        if text := name_rounding(
            asked.rows, asked.columns, asked.actual, asked.reference, asked.bound, dtypes
        ):
            return [f"  the wrong elements {text}"]
        error = np.abs(asked.actual - asked.reference) / asked.tolerance(asked.reference)
        if np.median(error) < _CLEAR:
            return []
        for text, a, b in _other_operands(first, second):
            other = drawn(a, b)
            if other.are((other.rows * other.columns).sum(-1)):
                return [f"  the wrong elements are those of another product: {text}"]
        text = _other_order_of_k(asked) or _other_leading_dimension(asked, places, first, second)
        if text:
            return [f"  the wrong elements are those of another product: {text}"]
        if actual.ndim == 2 and (ld := _stored_leading_dimension(asked, places, reference, bound)):
            apart = f"{ld} elements apart in memory, not {shape[-1]} (its leading dimension)"
            return [f"  the product is stored with rows {apart}"]
        return _name_part(asked) or _name_factor(asked) or _name_offset(asked)


def _draw(wrong: Array, first: Array, second: Array) -> tuple[Array, ...] | None:
    """Return the indices of some wrong elements in the product of matrices."""
    found = np.flatnonzero(wrong)
    if len(found) < _LEAST_DRAWN or not first.shape[-1]:
        return None
    if len(found) > _MOST_DRAWN:
        found = np.random.default_rng(0).choice(found, _MOST_DRAWN, replace=False)
    batch = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return np.unravel_index(found, (*batch, first.shape[-2], second.shape[-1]))


def _factors(
    a: Array, b: Array, shape: tuple[int, ...], places: tuple[Array, ...], wide: Any
) -> tuple[Array, Array]:
    """Return the row of `a` and the column of `b` for each place of the product."""
    *batch, rows, columns = places
    a = np.broadcast_to(a, (*shape[:-2], *a.shape[-2:]))
    b = np.broadcast_to(b, (*shape[:-2], *b.shape[-2:]))
    return (
        a[(*batch, rows)].astype(wide),
        np.swapaxes(b, -1, -2)[(*batch, columns)].astype(wide),
    )


def _other_operands(first: Array, second: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yield pairs that may have been multiplied instead of the operands."""
    order = "with {} in the other order of memory, as if rows were columns"
    yield order.format("the first operand read"), _reordered(first), second
    yield order.format("the second operand read"), first, _reordered(second)
    yield order.format("both operands read"), _reordered(first), _reordered(second)
    yield from of_operands(first, second)
    if "c" in (first.dtype.kind, second.dtype.kind):
        yield "with the first operand conjugated", first.conj(), second
        yield "with the second operand conjugated", first, second.conj()
        yield "with both operands conjugated", first.conj(), second.conj()


def _reordered(matrix: Array) -> Array:
    """Return the matrix as read by a kernel that confuses rows and columns in memory."""
    *batch, rows, columns = matrix.shape
    if matrix.flags.f_contiguous and not matrix.flags.c_contiguous:
        return np.swapaxes(matrix, -1, -2).reshape(*batch, rows, columns)
    return np.swapaxes(matrix.reshape(*batch, columns, rows), -1, -2)


def _other_order_of_k(drawn: _Drawn) -> str:
    """Say which elements along k are multiplied, if they are the wrong ones."""
    for text, order in of_k(drawn.rows.shape[-1]):
        if drawn.are((drawn.rows[:, order] * drawn.columns).sum(-1)):
            return f"along k, element {text}"
    return ""


def _other_leading_dimension(
    drawn: _Drawn, places: tuple[Array, ...], first: Array, second: Array
) -> str:
    """Name the wrong leading dimension with which an operand is read, if any."""
    extents = first.shape[-2], first.shape[-1], second.shape[-1]
    for which, operand in (("first", Operand.of(first)), ("second", Operand.of(second))):
        explains = partial(_explains, drawn, places, operand, is_first=which == "first")
        ld = find(extents, operand.ld, explains)
        if ld is not None:
            unit = "columns" if operand.in_columns else "rows"
            return (
                f"with the {which} operand read with {unit} {ld} elements apart in memory, not "
                f"{operand.ld} (its leading dimension)"
            )
    return ""


def _explains(
    drawn: _Drawn, places: tuple[Array, ...], operand: Operand, ld: int, *, is_first: bool
) -> bool:
    """Whether a leading dimension of an operand explains the elements."""
    for some in (slice(_LEAST_DRAWN), slice(None)):  # the first few exclude most candidates
        *batch, rows, columns = (each[some] for each in places)
        other = operand.with_ld(ld, batch, rows if is_first else columns, are_rows=is_first)
        factor = (drawn.columns if is_first else drawn.rows)[some]
        values = (other * factor).sum(-1)
        known = ~np.isnan(values)
        near = np.abs(drawn.actual[some] - values) <= drawn.tolerance(values, some)
        if not near[known].all():
            return False
    return bool(np.count_nonzero(known) >= _LEAST_DRAWN)


def _stored_leading_dimension(
    drawn: _Drawn, places: tuple[Array, ...], reference: Array, bound: Array
) -> int | None:
    """Name the wrong leading dimension with which the product was stored, if any."""
    rows, columns = reference.shape
    in_memory = places[0] * columns + places[1]

    def explains(ld: int) -> bool:
        return stored_with(ld, in_memory, drawn.actual, reference, bound, _LEAST_DRAWN)

    return find((rows, columns, drawn.rows.shape[-1]), columns, explains)


def _name_factor(drawn: _Drawn) -> list[str]:
    """Name a number by which all elements are multiplied."""
    large = np.abs(drawn.reference) > 4 * drawn.tolerance(drawn.reference)
    if np.count_nonzero(large) < _LEAST_DRAWN:
        return []
    ratio = np.median((drawn.actual[large] / drawn.reference[large]).real)
    if not np.isfinite(ratio) or ratio == 0 or not drawn.are(ratio * drawn.reference):
        return []
    return [f"  the wrong elements are {ratio:.3g} times what they should be"]


def _name_offset(drawn: _Drawn) -> list[str]:
    """Name a number that is added to all elements."""
    offset = np.median((drawn.actual - drawn.reference).real)
    if offset == 0 or not drawn.are(drawn.reference + offset):
        return []
    sign, size = ("more", offset) if offset > 0 else ("less", -offset)
    cause = "is it a bias, or what the array held before?"
    return [f"  the wrong elements are {size:.3g} {sign} than they should be: {cause}"]


def _name_part(drawn: _Drawn) -> list[str]:
    """Name a part of k that is missing from all elements, or that is added twice."""
    k = drawn.rows.shape[-1]
    step = 1
    while k > step * (_MOST_EDGES - 1):
        step *= 2
    edges = np.array([*range(0, k, step), k])
    sums = np.zeros((len(drawn.rows), len(edges)), drawn.rows.dtype)
    sums[:, 1:] = np.add.reduceat(drawn.rows * drawn.columns, edges[:-1], axis=1).cumsum(1)
    missing = drawn.reference - drawn.actual
    tolerance = drawn.tolerance(drawn.reference)
    for sign, verb in ((1, "are missing"), (-1, "are added twice")):
        fits = edges[:, None] < edges[None, :]
        fits[0, -1] = False
        for at, much, error in zip(sums, sign * missing, tolerance, strict=True):
            fits &= np.abs(at[None, :] - at[:, None] - much) <= error
        found = edges[np.argwhere(fits)]
        lengths = {int(end - start) for start, end in found}
        if len(found) == 1:
            start, end = found[0]
            return [f"  products of k from {start} to {end - 1}, of {k}, {verb}"]
        if len(lengths) == 1:
            return [f"  as many as {lengths.pop()} of the {k} products along k {verb}"]
    return []
