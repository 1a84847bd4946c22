"""A line on a terminal that shows how far a long launch has come."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

_FIRST = 5.0  # seconds until the line appears
_EVERY = 0.5


class Progress:
    """Shows the workgroups that a launch has finished, once it has run for five seconds.

    Nothing is written if standard error is no terminal. The line disappears when the launch ends.

    Parameters
    ----------
    kernel : str
    workgroups : int
        Number of workgroups of the launch; also an attribute.
    """

    def __init__(self, kernel: str, workgroups: int) -> None:
        self._kernel, self.workgroups = kernel, workgroups
        self._started = time.perf_counter()
        self._next = self._started + _FIRST
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._write("")

    def due(self, now: float) -> bool:
        """Return whether the line must be written again at the time `now` of `perf_counter`."""
        return now >= self._next

    def show(self, now: float, finished: int, waves: int, waiting: int) -> None:
        """Write the line.

        Parameters
        ----------
        now : float
            A value of `perf_counter`.
        finished : int
            Workgroups that have ended.
        waves, waiting : int
            Waves that have not ended, and those among them that wait at a barrier.
        """
        self._next = now + _EVERY
        if not sys.stderr.isatty():
            return
        state = f"{waves:,} waves running" + f", {waiting:,} of them at barriers" * bool(waiting)
        self._write(
            f"{self._kernel}: {finished:,} of {self.workgroups:,} workgroups done, {state}, "
            f"{now - self._started:.0f} s"
        )

    def _write(self, text: str) -> None:
        if not text and not self._width:
            return
        sys.stderr.write("\r" + text.ljust(self._width) + "\r" * (not text))
        sys.stderr.flush()
        self._width = len(text)
