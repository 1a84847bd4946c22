"""A stack of matrices in memory for TMA: its tensor map, and copies that TMA can read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupygemm._backends.hopper.config import CAMP_BYTES, LINE_BYTES, SLAB_BYTES, TMA_BYTES
from cupygemm._backends.hopper.cuda import tensormap
from cupygemm._records.dtypes import ITEMSIZE, DType

Triple = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class TmaStack:
    """A stack of matrices in memory, as a tensor map describes it.

    Attributes
    ----------
    dtype : str
    adjacent, rows : int
        Extents along and across the axis of adjacent elements.
    pitch : int
        Elements from a row to the next.
    batch : tuple of int
        Extents of the batch axes, outermost first; 1 for an absent or broadcast axis.
    strides : tuple of int
        Strides of the batch axes, in elements.
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
        """Return why TMA cannot address the stack, or None; `alignment` divides every address."""
        if alignment < TMA_BYTES:
            return f"its rows begin at multiples of {alignment} bytes, and TMA needs {TMA_BYTES}"
        steps = [s for s, n in zip(self.strides, self.batch, strict=True) if n > 1]
        if min(steps, default=0) < 0:
            return "TMA cannot walk a batch axis backwards"
        if max(self.pitch, *steps, 0) * self.itemsize >= 1 << 40:
            return "TMA cannot step over a TiB"
        return None

    def why_not_stored(self, alignment: int) -> str | None:
        """Return why TMA cannot write the stack, or None.

        TMA reads elements, but it writes whole units of 16 bytes. If a row ends inside a unit, TMA
        also overwrites the bytes after the row (H200, driver 580; for elements of 8 and 16 bits).
        """
        reason = self.why_not_tma(alignment)
        row = self.adjacent * self.itemsize
        if reason is None and row % TMA_BYTES:
            return f"its rows have {row} bytes, and TMA writes whole {TMA_BYTES}"
        return reason

    def padded(self) -> TmaStack:
        """Return a stack of the same extents in new memory, which TMA can address."""
        return self._with_pitch(copied_pitch(self.adjacent * self.itemsize) // self.itemsize)

    def _with_pitch(self, pitch: int) -> TmaStack:
        matrix = pitch * self.rows
        strides = (matrix * self.batch[1] * self.batch[2], matrix * self.batch[2], matrix)
        return replace(self, pitch=pitch, strides=strides)

    def transposed(self) -> TmaStack:
        """Return the transposed matrices; only their extents are meaningful."""
        return replace(self, adjacent=self.rows, rows=self.adjacent, pitch=self.rows)

    def widened(self, times: int) -> TmaStack:
        """Return a padded stack whose rows repeat each padded row `times` times."""
        unit = _unit(times * self.adjacent * self.itemsize) // self.itemsize
        adjacent = times * (-(-self.adjacent // unit) * unit)
        wide: TmaStack = replace(self, adjacent=adjacent)
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

        Its boxes have `box_rows` rows of `row_bytes` bytes, which is also their swizzle. If a box
        has fewer `columns`, its rows keep that pitch in shared memory.
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
    """Return the pitch of a copy in bytes, given the bytes of a row.

    The rows must not all begin at multiples of 4 KiB, because these map to few slices of L2.
    """
    pitch = -(-row // _unit(row)) * _unit(row)
    return pitch + LINE_BYTES if pitch % CAMP_BYTES == 0 else pitch


def _unit(row: int) -> int:
    """Return 16, or 128 for long rows.

    Long rows begin at cache lines; otherwise a box of 128 bytes would read two lines instead of
    one.
    """
    return LINE_BYTES if row >= 8 * LINE_BYTES else TMA_BYTES
