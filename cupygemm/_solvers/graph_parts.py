"""Work that is recorded as several graphs, so that the device starts while the host still launches.

A device starts a graph when the host has launched all of its nodes, of which a factorisation has
thousands. So the first graph is short, and the host launches each of the others while the device
computes the one before::

    host     | launch 1 | launch 2      | launch 3                            |
    device              | graph 1          | graph 2             | graph 3 ...

A graph can end where all streams are joined in the current one. The work calls `end_step`
there; of these calls, the first, the fourth, the sixteenth and so on end a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
_GROWTH = 4
"""The steps up to the end of a graph, as a multiple of those up to the end of the graph before."""


class GraphParts:
    """The graphs of some work, in the order in which they are launched.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        Where the work is recorded.

    Attributes
    ----------
    graphs : list of cupy.cuda.Graph
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.graphs: list[Any] = []
        self._steps, self._steps_of_part = 0, 1

    def record(self, work: Callable[[], Result]) -> Result:
        """Return the result of the work, whose launches are recorded."""
        with self._stream:
            self._stream.begin_capture()
            _of_thread.recorded = self
            try:
                return work()
            finally:
                _of_thread.recorded = None
                self.graphs.append(self._stream.end_capture())

    def end_step(self) -> None:
        """End a graph and begin another, if enough steps have ended."""
        self._steps += 1
        if self._steps == self._steps_of_part:
            self._steps_of_part *= _GROWTH
            self.graphs.append(self._stream.end_capture())
            self._stream.begin_capture()

    def launch(self) -> None:
        """Launch the graphs on the current stream."""
        for graph in self.graphs:
            graph.launch()


class _OfThread(threading.local):
    recorded: GraphParts | None = None


_of_thread = _OfThread()


def end_step() -> None:
    """Say that a step of the work ends here, where the current stream has joined all others."""
    if _of_thread.recorded is not None:
        _of_thread.recorded.end_step()
