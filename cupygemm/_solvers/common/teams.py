"""The memory through which the workgroups of a team exchange records."""

from __future__ import annotations

from typing import Any

from cupygemm._solvers.common.blocks import Blocks

RECORD_BYTES = 1 << 11
"""An upper bound of the bytes of a record: two rows of 64 words, and a header."""
_MAX_GRID_Y = 65535


def num_teams(shape: Blocks, units: int, batches: int) -> int:
    """Return the teams of a launch; all their workgroups are resident at the same time.

    Parameters
    ----------
    shape : Blocks
    units : int
        The compute units of the device.
    batches : int
        The number of matrices.
    """
    if shape.team == 1:
        return min(batches, _MAX_GRID_Y)
    return min(batches, max(units // shape.team, 1))


class Workspace:
    """Flags and records for the panels of one factorisation.

    Each launch has separate flags, which are zeroed once, so that no launch needs a reset.

    Parameters
    ----------
    shape : Blocks
        The shape for the tallest panel.
    columns : int
        The columns of the factorisation, an upper bound of the launches.
    units : int
        The compute units of the device, which limit the resident workgroups.
    batches : int
        The number of matrices.
    """

    def __init__(self, shape: Blocks, columns: int, units: int, *, batches: int) -> None:
        self.shape = shape
        self._units = units
        self._batches = batches
        self._columns = columns
        self._flags: Any = None
        self._records: Any = None
        self._kept: list[Any] = []  # memory that launches of another stream may still use
        self._next = 0

    @property
    def teams(self) -> int:
        """Return the teams of a launch."""
        return num_teams(self.shape, self._units, self._batches)

    def reshape(self, shape: Blocks) -> None:
        """Use another shape from the next launch on; teams shrink as panels become shorter."""
        self.shape = shape

    def next_blocks(self, count: int) -> tuple[int, int]:
        """Return the addresses of the flags and the records of the next launches.

        The flags of a launch follow those of the previous one. All launches use the same records.
        """
        import cupy

        if self.shape.team == 1:
            return 0, 0
        per_launch = self.shape.team * self.teams
        if self._flags is None or self._next + count * per_launch > self._flags.size:
            launches = max(-(-self._columns // self.shape.width), count)
            self._flags = cupy.zeros(per_launch * launches, "uint32")
            self._kept.append(self._flags)
            self._next = 0
        size = 2 * per_launch * RECORD_BYTES
        if self._records is None or self._records.size < size:
            self._records = cupy.empty(size, "uint8")
            self._kept.append(self._records)
        at = self._next
        self._next += count * per_launch
        return int(self._flags.data.ptr) + 4 * at, int(self._records.data.ptr)
