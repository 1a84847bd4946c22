"""The message of a failed comparison: how many elements are wrong, where, and their values.

The first lines count the wrong elements and show the worst. A map of blocks follows, then what is
known about them: elements that were never written, elements with one common value or NaN, and tiles
whose contents belong elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._numerics.displaced import Tile, find_tiles
from cupygemm._numerics.orders import name_order

Array = NDArray[Any]
_MOST_ROWS, _MOST_COLUMNS = 24, 64  # cells of a map
_MOST_MATRICES = 3  # matrices of a batch for which maps are shown
_MOST_LINES = 8  # tiles that are listed
_LEAST_EQUAL = 8  # elements with one common value
_FRESH = 0xA5  # each byte of fresh memory of the emulated device
_SEARCHED = 1 << 24  # elements; larger products are not searched for displaced tiles
_MMA_TILES = (32, 16, 4)  # extents of the results of MFMA instructions
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def report(
    actual: Array,
    reference: Array,
    wrong: Array,
    error: Array,
    bound: Array,
    unwritten: Array | None = None,
) -> str:
    """Return how many elements are wrong, where they are, and a possible cause.

    Parameters
    ----------
    actual, reference : array
        The computed and the expected product.
    wrong : array of bool
    error, bound : array
        Absolute.
    unwritten : array of bool, optional
        Elements that were never written, if the device records writes.

    Returns
    -------
    str
    """
    with np.errstate(invalid="ignore"):
        excess = np.where(wrong, np.nan_to_num(error - bound, nan=np.inf), -np.inf)
    worst = tuple(int(index) for index in np.unravel_index(np.argmax(excess), excess.shape))
    number = complex if actual.dtype.kind == "c" else float
    places = np.argwhere(wrong)
    ranges = ", ".join(
        f"{low}..{high}" for low, high in zip(places.min(0), places.max(0), strict=True)
    )
    summary = (
        f"{len(places)} of {wrong.size} elements of the {actual.dtype} product are wrong, "
        f"all within [{ranges}]\n"
        f"  worst at {worst}: {number(actual[worst])!r}, not {number(reference[worst])!r}; "
        f"error {float(error[worst]):.3g}, bound {float(bound[worst]):.3g}"
    )
    lines = [summary]
    shape = (1, 1, *actual.shape)[-2:] if actual.ndim < 2 else actual.shape[-2:]
    rows = (-1, shape[1])
    unwritten = np.zeros_like(wrong) if unwritten is None else unwritten & wrong
    wide = np.result_type(reference.dtype, np.float64)
    tiles: list[Tile] = []
    if wrong.size <= _SEARCHED:
        tiles = find_tiles(
            actual.reshape(rows).astype(wide),
            reference.reshape(rows).astype(wide),
            (wrong & ~unwritten).reshape(rows),
            bound.reshape(rows),
            period=shape[0],
        )
    lines += _maps(wrong.reshape(-1, *shape), unwritten.reshape(-1, *shape), tiles, actual.shape)
    lines += _named_unwritten(unwritten, wrong)
    lines += _named_values(actual, wrong & ~unwritten & ~_inside(tiles, wrong))
    lines += _named_tiles(tiles, actual.shape)
    lines += _named_orders(actual.reshape(-1, *shape), reference, bound)
    return "\n".join(lines)


def _named_orders(actual: Array, reference: Array, bound: Array) -> list[str]:
    """Name a product that is right once it, or each tile, is transposed or its rows reordered."""
    count, rows, columns = actual.shape
    if actual.size > _SEARCHED:
        return []
    wide = np.result_type(reference.dtype, np.float64)
    for size in (*((rows,) if rows == columns else ()), *_MMA_TILES):
        if size < 2 or rows % size or columns % size:
            continue
        tiles = actual.reshape(count, rows // size, size, columns // size, size).astype(wide)
        swapped = tiles.transpose(0, 1, 4, 3, 2).reshape(reference.shape)
        with np.errstate(invalid="ignore"):
            if np.all(np.abs(swapped - reference) <= bound):
                whole = size == rows == columns
                what = "the product" if whole else f"each tile of {size}x{size}"
                return [f"  {what} is transposed: its rows and columns are exchanged"]
    with np.errstate(invalid="ignore"):
        stacked = reference.reshape(actual.shape).astype(wide)
        return name_order(actual.astype(wide), stacked, bound.reshape(actual.shape))


def _maps(wrong: Array, unwritten: Array, tiles: list[Tile], shape: tuple[int, ...]) -> list[str]:
    """Return maps of the first matrices that have wrong elements."""
    period, width = wrong.shape[1:]
    cell = _cell(period, width)
    matrices = np.flatnonzero(wrong.any(axis=(1, 2)))
    lines = []
    for matrix in matrices[:_MOST_MATRICES]:
        held = np.zeros((period, width), np.uint8)
        for index, tile in enumerate(tiles):
            if tile.row // period == matrix:
                row = tile.row % period
                held[row : row + tile.rows, tile.column : tile.column + tile.columns] = index + 1
        name = ", ".join(map(str, np.unravel_index(matrix, shape[:-2]))) if len(shape) > 2 else ""
        heading = f"matrix ({name}), " if name else ""
        lines.append(
            f"  {heading}each sign is {cell[0]}x{cell[1]} elements; lines start with their row"
        )
        lines += _map(wrong[matrix], unwritten[matrix], held, cell)
    if len(matrices) > _MOST_MATRICES:
        rest = len(matrices) - _MOST_MATRICES
        lines.append(f"  {rest} more matrices of the batch have wrong elements")
    legend = "  . right   + some wrong   # all wrong"
    legend += "   ? never written" * bool(unwritten.any())
    legend += "   A, B, ... see below" * bool(tiles)
    return [*lines, legend]


def _cell(rows: int, columns: int) -> tuple[int, int]:
    """Return the extents of a map's cell: powers of two, 16 if the map is then small enough."""
    sizes = []
    for extent, most in ((rows, _MOST_ROWS), (columns, _MOST_COLUMNS)):
        size = 16 if extent > 64 else 4 if extent > 16 else 1
        while -(-extent // size) > most:
            size *= 2
        sizes.append(size)
    return sizes[0], sizes[1]


def _map(wrong: Array, unwritten: Array, held: Array, cell: tuple[int, int]) -> list[str]:
    lines = []
    for top in range(0, wrong.shape[0], cell[0]):
        signs = ""
        for left in range(0, wrong.shape[1], cell[1]):
            block = np.s_[top : top + cell[0], left : left + cell[1]]
            bad, tile = wrong[block], int(held[block].max())
            if not bad.any():
                signs += "."
            elif unwritten[block].sum() * 2 >= bad.sum():
                signs += "?"
            elif tile:
                signs += _LETTERS[(tile - 1) % len(_LETTERS)]
            else:
                signs += "#" if bad.all() else "+"
        lines.append(f"  {top:>7} {signs}")
    return lines


def _named_unwritten(unwritten: Array, wrong: Array) -> list[str]:
    """Say which elements no store wrote, if there are any."""
    if not unwritten.any():
        return []
    count = int(unwritten.sum())
    which = "any of them" if count == wrong.sum() else f"{count} of them"
    return [f"  no store wrote {which}: {_rectangle(unwritten)}"]


def _inside(tiles: list[Tile], wrong: Array) -> Array:
    """Return a mask of the elements that the tiles cover."""
    inside = np.zeros(wrong.shape, bool)
    rows = inside.reshape(-1, wrong.shape[-1] if wrong.ndim else 1)
    for tile in tiles:
        rows[tile.row : tile.row + tile.rows, tile.column : tile.column + tile.columns] = True
    return inside


def _named_values(actual: Array, wrong: Array) -> list[str]:
    """Say which wrong elements are NaN, and which value many of the others hold."""
    absent = np.isnan(actual) if actual.dtype.kind not in "iu" else np.zeros_like(wrong)
    absent &= wrong
    lines = []
    if absent.any():
        lines.append(f"  {int(absent.sum())} of the wrong elements are NaN: {_rectangle(absent)}")
    rest = wrong & ~absent
    kinds, counts = np.unique(actual[rest], return_counts=True)
    if not kinds.size or counts.max() < max(_LEAST_EQUAL, counts.sum() / 4):
        return lines
    value = kinds[counts.argmax()]
    place = _rectangle(rest & (actual == value))
    fresh = set(value.tobytes()) == {_FRESH}
    return [
        *lines,
        f"  {counts.max()} of the wrong elements hold {value.item()!r}: {place}; "
        + "no store wrote them: fresh memory of the emulated device holds that" * fresh
        + "if the array held that before, no store wrote them" * (not fresh),
    ]


def _rectangle(mask: Array) -> str:
    """Describe the bounding rectangle of a mask, and how much of it is set."""
    places = np.argwhere(mask)
    low, high = places.min(0), places.max(0) + 1
    ranges = ", ".join(f"{a}:{b}" for a, b in zip(low, high, strict=True))
    inside = int(np.prod(high - low))
    part = "" if inside == len(places) else f", {len(places)} of its {inside} elements"
    return f"[{ranges}]{part}"


def _named_tiles(tiles: list[Tile], shape: tuple[int, ...]) -> list[str]:
    """Say where the contents of displaced tiles belong."""

    def place(row: int, column: int) -> str:
        whole = shape if len(shape) > 1 else (1, *shape) if shape else (1, 1)
        element = row * whole[-1] + column
        indices = [int(index) for index in np.unravel_index(element, whole)]
        return f"({', '.join(map(str, indices[len(indices) - len(shape) :]))})"

    lines = []
    for index, tile in enumerate(tiles):
        here, there = place(tile.row, tile.column), place(tile.from_row, tile.from_column)
        lines.append(
            f"  {_LETTERS[index % len(_LETTERS)]}: tile {here} holds what belongs to {there}, "
            f"{tile.rows}x{tile.columns} elements"
        )
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"  and {len(lines) - _MOST_LINES} more tiles that are elsewhere"]
    return lines
