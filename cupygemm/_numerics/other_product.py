"""Find which other product of the operands a wrong result holds.

Common mistakes of a kernel give a product that is right for something else: of an operand that is
read in the other order of memory, of a part of k only, of some of k twice, with a factor, without a
conjugation. Some wrong elements are drawn and compared with each of these. A product is named only
if all of them agree with it, within the error that the right product is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._numerics.error_bounds import of_rounding

Array = NDArray[Any]
_MOST_DRAWN, _LEAST_DRAWN = 48, 12  # wrong elements
_MOST_EDGES = 256  # of the parts of k that are tried
_CLEAR = 2  # tolerances by which elements must be wrong, or else the cause may be rounding


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

    def tolerance(self, values: Array) -> Array:
        """Return how far the elements may lie from values that explain them."""
        magnitude = np.maximum(np.abs(values), np.abs(self.actual))
        return np.asarray(2 * self.bound + 2 * of_rounding(magnitude, self.dtype))

    def are(self, values: Array) -> bool:
        """Whether the elements are such values."""
        return bool(np.all(np.abs(self.actual - values) <= self.tolerance(values)))


def name_other_product(
    actual: Array, reference: Array, wrong: Array, bound: Array, x1: Array, x2: Array
) -> list[str]:
    """Return a line that says which other product the wrong elements are from, if one is found.

    Parameters
    ----------
    actual, reference : array
        The product, and what it should be.
    wrong : array of bool
    bound : array
        The absolute error that each element of the reference may have.
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
        for text, a, b in _other_operands(first, second):
            other = drawn(a, b)
            if other.are((other.rows * other.columns).sum(-1)):
                return [f"  the wrong elements are those of another product: {text}"]
        error = np.abs(asked.actual - asked.reference) / asked.tolerance(asked.reference)
        if np.median(error) < _CLEAR:
            return []
        return _name_part(asked) or _name_factor(asked)


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
    """Yield what may have been multiplied instead of the operands."""
    order = "with {} in the other order of memory, as if rows were columns"
    yield order.format("the first operand read"), _reordered(first), second
    yield order.format("the second operand read"), first, _reordered(second)
    yield order.format("both operands read"), _reordered(first), _reordered(second)
    if "c" in (first.dtype.kind, second.dtype.kind):
        yield "with the first operand conjugated", first.conj(), second
        yield "with the second operand conjugated", first, second.conj()
        yield "with both operands conjugated", first.conj(), second.conj()


def _reordered(matrix: Array) -> Array:
    """Return the matrix that a kernel sees which takes rows of memory for columns."""
    *batch, rows, columns = matrix.shape
    if matrix.flags.f_contiguous and not matrix.flags.c_contiguous:
        return np.swapaxes(matrix, -1, -2).reshape(*batch, rows, columns)
    return np.swapaxes(matrix.reshape(*batch, columns, rows), -1, -2)


def _name_factor(drawn: _Drawn) -> list[str]:
    """Name a number by which all elements are multiplied."""
    large = np.abs(drawn.reference) > 4 * drawn.tolerance(drawn.reference)
    if np.count_nonzero(large) < _LEAST_DRAWN:
        return []
    ratio = np.median((drawn.actual[large] / drawn.reference[large]).real)
    if not np.isfinite(ratio) or ratio == 0 or not drawn.are(ratio * drawn.reference):
        return []
    return [f"  the wrong elements are {ratio:.3g} times what they should be"]


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
