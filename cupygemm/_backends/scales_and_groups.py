"""Records that request scales along k and groups of rows from backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BlockScaling:
    """Scales for blocks of k.

    Attributes
    ----------
    kind : {"float32", "e8m0"}
        The type of a scale: a number, or a byte with the exponent of a power of two.
    block : int
        The number of elements along k that share a scale.
    rows, columns : int
        The number of rows of x1, and of columns of x2, that share a scale.
    pairs : bool
        Each byte of the operands holds two 4-bit floats that are adjacent along k.
    """

    kind: Literal["float32", "e8m0"]
    block: int
    rows: int = 1
    columns: int = 1
    pairs: bool = False


@dataclass(frozen=True)
class RowGroups:
    """Groups of rows of x1, each of which multiplies a matrix of x2, the stack of the batch.

    Their sizes are in an array on the device, of int32.

    Attributes
    ----------
    count : int
        The number of groups.
    shared : bool
        x1 has a batch of 1, and groups are consecutive rows of it and of the result. Otherwise x1
        has a matrix for each group, and a group consists of its first rows.
    are_ends : bool
        The array holds the row at which each group ends, instead of its number of rows.
    expected : int
        The rows of a typical group, for which a kernel is chosen.
    scaling : BlockScaling or None
        Scales along k, if any.
    """

    count: int
    shared: bool
    are_ends: bool
    expected: int
    scaling: BlockScaling | None = None
