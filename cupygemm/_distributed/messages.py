"""`Message`: memory that is sent between two ranks."""

from __future__ import annotations

from typing import Any, NamedTuple


class Message(NamedTuple):
    """Memory of this rank, and the rank that receives or sends its contents."""

    address: int
    nbytes: int
    peer: int

    @classmethod
    def of(cls, array: Any, peer: int) -> Message:
        """Return the message of a contiguous array."""
        return cls(array.data.ptr, array.nbytes, peer)

    @classmethod
    def of_rows(cls, array: Any, rows: tuple[int, int], peer: int) -> Message:
        """Return the message of some rows of a C-contiguous matrix."""
        row_bytes = array.strides[0] if array.shape[1] else 0
        first, last = rows
        return cls(array.data.ptr + first * row_bytes, (last - first) * row_bytes, peer)
