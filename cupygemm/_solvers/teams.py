"""The memory through which the workgroups of a team tell each other of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._solvers.blocks import Blocks

_RECORD_BYTES = 1 << 11
"""At least the bytes of a record: two rows of 64 words, and a header."""
_MAX_GRID_Y = 65535


class Workspace:
    """Flags and records for the panels of one factorisation.

    Each launch has flags of its own, which are zeroed once, so that no launch needs a reset.

    Parameters
    ----------
    shape : Blocks
        Of the tallest panel.
    dtype : numpy.dtype
        The element type.
    columns : int
        The columns of the factorisation: no more launches are made.
    units : int
        The compute units of the device, which bound the workgroups that are resident together.
    batches : int
        The number of matrices.
    """

    def __init__(
        self, shape: Blocks, dtype: np.dtype[Any], columns: int, units: int, *, batches: int
    ) -> None:
        self.shape = shape
        self._units = units
        self._batches = batches
        self._columns = columns
        self._flags: Any = None
        self._records: Any = None
        self._itemsize = dtype.itemsize
        self._scratch: Any = None
        self._kept: list[Any] = []  # memory that launches of another stream may still use
        self._next = 0

    @property
    def teams(self) -> int:
        """Return the teams of a launch; all their workgroups are resident at the same time."""
        if self.shape.team == 1:
            return min(self._batches, _MAX_GRID_Y)
        return min(self._batches, max(self._units // self.shape.team, 1))

    def reshape(self, shape: Blocks) -> None:
        """Use another shape from the next launch on; panels become shorter, so teams do too."""
        self.shape = shape

    def next_block(self) -> tuple[int, int]:
        """Return the addresses of the flags and the records of the next launch."""
        import cupy

        if self.shape.team == 1:
            return 0, 0
        per_launch = self.shape.team * self.teams
        if self._flags is None or self._next + per_launch > self._flags.size:
            self._flags = cupy.zeros(
                per_launch * max(-(-self._columns // self.shape.width), 1), "uint32"
            )
            self._kept.append(self._flags)
            self._next = 0
        size = 2 * per_launch * _RECORD_BYTES
        if self._records is None or self._records.size < size:
            self._records = cupy.empty(size, "uint8")
            self._kept.append(self._records)
        at = self._next
        self._next += per_launch
        return int(self._flags.data.ptr) + 4 * at, int(self._records.data.ptr)

    def scratch(self) -> int:
        """Return the address of memory for the blocks that the teams of a launch hold."""
        import cupy

        shape = self.shape
        size = self.teams * shape.team * shape.threads * shape.rows * shape.width * self._itemsize
        if self._scratch is None or self._scratch.size < size:
            self._scratch = cupy.empty(size, "uint8")
            self._kept.append(self._scratch)
        return int(self._scratch.data.ptr)
