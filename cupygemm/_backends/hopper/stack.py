"""A stack of matrices in memory, as TMA sees it: its tensor map, and its copy where it has none."""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm._backends.hopper import tensormap
from cupygemm._backends.hopper.config import CAMP_BYTES, LINE_BYTES, SLAB_BYTES, TMA_BYTES
from cupygemm._records.dtypes import ITEMSIZE, DType

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Stack:
    """A stack of matrices in memory, as a tensor map describes it.

    Attributes
    ----------
    dtype : str
    adjacent, rows : int
        Extents along and across the axis of adjacent elements.
    pitch : int
        Elements from a row to the next.
    batch : tuple of int
        Extents of the batch axes, outermost first, 1 where absent or broadcast.
    strides : tuple of int
        Of the batch axes, elements.
    """

    dtype: DType
    adjacent: int
    rows: int
    pitch: int
    batch: Triple
    strides: Triple

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return ITEMSIZE[self.dtype]

    def why_not_tma(self, alignment: int) -> str | None:
        """Return why TMA cannot address the stack; `alignment` divides address and strides."""
        if alignment < TMA_BYTES:
            return f"its rows begin at multiples of {alignment} bytes, and TMA needs {TMA_BYTES}"
        steps = [s for s, n in zip(self.strides, self.batch, strict=True) if n > 1]
        if min(steps, default=0) < 0:
            return "TMA cannot walk a batch axis backwards"
        if max(self.pitch, *steps, 0) * self.itemsize >= 1 << 40:
            return "TMA cannot step over a TiB"
        return None

    def why_not_stored(self, alignment: int) -> str | None:
        """Return why TMA cannot write the stack.

        It writes whole 16 bytes: of those in which a row ends in a wider matrix, also what lies
        behind the row (H200, driver 580; of bytes and of 16 bits). It reads elements.
        """
        reason = self.why_not_tma(alignment)
        row = self.adjacent * self.itemsize
        if reason is None and row % TMA_BYTES:
            return f"its rows have {row} bytes, and TMA writes whole {TMA_BYTES}"
        return reason

    def padded(self) -> Stack:
        """Return a stack of the same matrices in memory of its own, which TMA can address."""
        return self._with_pitch(copied_pitch(self.adjacent * self.itemsize) // self.itemsize)

    def _with_pitch(self, pitch: int) -> Stack:
        matrix = pitch * self.rows
        strides = (matrix * self.batch[1] * self.batch[2], matrix * self.batch[2], matrix)
        return Stack(self.dtype, self.adjacent, self.rows, pitch, self.batch, strides)

    def transposed(self) -> Stack:
        """Return the transposed matrices, of which only the extents mean anything."""
        return Stack(self.dtype, self.rows, self.adjacent, self.rows, self.batch, self.strides)

    def widened(self, parts: int) -> Stack:
        """Return a padded stack of rows that hold a row `parts` times, each padded."""
        unit = _unit(parts * self.adjacent * self.itemsize) // self.itemsize
        adjacent = parts * (-(-self.adjacent // unit) * unit)
        wide = Stack(self.dtype, adjacent, self.rows, adjacent, self.batch, self.strides)
        return wide._with_pitch(adjacent)

    @property
    def num_matrices(self) -> int:
        """Return how many matrices there are."""
        return self.batch[0] * self.batch[1] * self.batch[2]

    @property
    def num_bytes(self) -> int:
        """Return the bytes of a `padded` stack."""
        return self.num_matrices * self.rows * self.pitch * self.itemsize

    def encode(
        self,
        address: int,
        box_rows: int,
        rank: int,
        row_bytes: int = SLAB_BYTES,
        *,
        columns: int = 0,
    ) -> bytes:
        """Return the tensor map of the stack at an address.

        Its boxes have `box_rows` rows of `row_bytes` bytes, by which they are swizzled. Of fewer
        `columns`, rows lie as far from each other in shared memory.
        """
        size = self.itemsize
        axes = [
            (n, s * size if n > 1 else TMA_BYTES)
            for n, s in zip(self.batch[::-1], self.strides[::-1], strict=True)
        ][: rank - 2]
        pitch = self.pitch * size if self.rows > 1 else TMA_BYTES
        return tensormap.encode(
            self.dtype,
            address,
            (self.adjacent, self.rows, *(n for n, _ in axes)),
            (pitch, *(s for _, s in axes)),
            (columns or row_bytes // size, box_rows, *(1 for _ in axes)),
            row_bytes,
        )


def copied_pitch(row: int) -> int:
    """Return the bytes from a row of a copy to the next, given those of a row.

    Long rows do not begin at multiples of 4 KiB, which few slices of L2 hold.
    """
    pitch = -(-row // _unit(row)) * _unit(row)
    return pitch + LINE_BYTES if pitch % CAMP_BYTES == 0 else pitch


def _unit(row: int) -> int:
    """Return 16, or 128 for rows of many bytes.

    These begin at lines of the caches: in others, a box of 128 bytes reads two lines where it needs
    one.
    """
    return LINE_BYTES if row >= 8 * LINE_BYTES else TMA_BYTES
