"""Orders in which a kernel may take the rows, columns or k of a product by mistake.

A fragment of a matrix instruction spreads a tile over lanes and registers. A kernel that confuses
the two, 4 * i + j instead of 4 * j + i, stores rows or columns of each tile in another order, or
multiplies elements of k that do not belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_TILES = (4, 8, 16, 32, 64, 128)
_MOST_COLUMNS = 24  # that are compared
_MOST_SHOWN = 4  # places listed for an order without a formula


def of_k(k: int) -> Iterator[tuple[str, Array]]:
    """Yield orders of the first operand's elements along k, each after its description."""
    for size in _TILES:
        if k % size:
            continue
        place = np.arange(size)
        for inner, outer, order in _transposes(size):
            text = f"{outer}*j + i of the first meets {inner}*i + j of the second, in each {size}"
            yield text, _repeated(order, k)
        for flip in sorted({1, size // 2, size - 1}):
            text = f"i of the first meets i ^ {flip} of the second"
            yield text, _repeated(place ^ flip, k)


def name_order(actual: Array, reference: Array, bound: Array) -> list[str]:
    """Name an order that rows or columns have in each tile of a wrong product.

    Parameters
    ----------
    actual, reference, bound : array (matrices, rows, columns)

    Returns
    -------
    list of str
        Empty, or with one line.
    """
    for what, axes in (("row", (0, 1, 2)), ("column", (0, 2, 1))):
        held, right, error = (each.transpose(axes) for each in (actual, reference, bound))
        order = _order(held, right, error)
        if order is not None:
            return [f"  {what}s are in another order, in each {len(order)}: {_words(what, order)}"]
    return []


def _transposes(size: int) -> Iterator[tuple[int, int, Array]]:
    """Yield inner, outer and the order that moves place outer * j + i to place inner * i + j."""
    place = np.arange(size)
    for inner in (2**power for power in range(1, size.bit_length() - 1)):
        outer = size // inner
        yield inner, outer, place % inner * outer + place // inner


def _repeated(order: Array, extent: int) -> Array:
    starts = np.arange(0, extent, len(order))
    return np.asarray((starts[:, None] + order).ravel())


def _order(actual: Array, reference: Array, bound: Array) -> Array | None:
    """Return where the rows of each tile belong, as places in the tile; None if not found."""
    _, rows, width = actual.shape
    columns = np.unique(np.linspace(0, width - 1, _MOST_COLUMNS).astype(int))
    some = [each[:, :, columns] for each in (actual, reference, bound)]
    for size in _TILES:
        if rows < size:
            break
        tiles = [each[:, : rows // size * size] for each in some]
        held, right, error = (
            each.reshape(len(each), -1, size, len(columns)).swapaxes(0, 2) for each in tiles
        )
        order = np.full(size, -1)
        for place in range(size):
            fits = np.abs(held[place] - right) <= error
            found = np.flatnonzero(fits.all(axis=(1, 2, 3)))
            if len(found) != 1:  # none, or rows that are equal
                break
            order[place] = found[0]
        if np.array_equal(np.sort(order), np.arange(size)) and _holds(
            order, actual, reference, bound
        ):
            return order
    return None


def _holds(order: Array, actual: Array, reference: Array, bound: Array) -> bool:
    """Whether an order other than the identity explains all elements of whole tiles."""
    rows = actual.shape[1] // len(order) * len(order)
    places = _repeated(order, rows)
    near = np.abs(actual[:, :rows] - reference[:, places]) <= bound[:, places]
    return bool(np.any(order != np.arange(len(order))) and near.all())


def _words(what: str, order: Array) -> str:
    size = len(order)
    place = np.arange(size)
    for inner, outer, transposed in _transposes(size):
        if np.array_equal(order, transposed):
            return f"{what} {inner}*i + j holds what belongs to {outer}*j + i"
    moved = [int(each) for each in np.flatnonzero(order != place)]
    shown = [f"{each} holds what belongs to {order[each]}" for each in moved[:_MOST_SHOWN]]
    more = len(moved) - len(shown)
    return f"{what} " + ", ".join(shown) + (f", and so on for {more} more" if more else "")
