"""Look-ahead: a panel is factored on a stream of its own, beside an update of other columns.

::

    current stream   | update next panel's columns | update the columns behind them      | ...
    side stream                                    | factor the next panel |             ^
                                                   ^ fork                           join |

Both streams are ordered by events alone, so a graph can record them.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_HIGHEST_PRIORITY = -5
"""Devices take the highest priority that they have instead."""


_spared: contextvars.ContextVar[int] = contextvars.ContextVar("spared", default=0)


def spared() -> int:
    """Return the compute units that products now leave to the work on the side stream."""
    return _spared.get()


class _Streams(threading.local):
    """The side stream of a thread on each device."""

    def __init__(self) -> None:
        self.by_device: dict[int, Any] = {}


_streams = _Streams()


@contextmanager
def beside(work: Callable[[], object], units: int = 0) -> Iterator[None]:
    """Enqueue work on the side stream, beside what the block enqueues on the current stream.

    Both begin after what the current stream holds, and what it is given later begins after both.

    Parameters
    ----------
    work : callable
    units : int
        The compute units that the products of the block leave to the work, if they can.
    """
    from cupy.cuda import Event, get_current_stream

    current, side = get_current_stream(), _side_stream()
    fork, join = Event(disable_timing=True), Event(disable_timing=True)
    fork.record(current)
    side.wait_event(fork)
    try:
        with side:
            work()
        token = _spared.set(units)
        try:
            yield
        finally:
            _spared.reset(token)
    finally:
        join.record(side)
        current.wait_event(join)


def _side_stream() -> Any:
    from cupy.cuda import Stream
    from cupy.cuda.runtime import getDevice

    index = getDevice()
    stream = _streams.by_device.get(index)
    if stream is None:
        stream = Stream(non_blocking=True, priority=_HIGHEST_PRIORITY)
        _streams.by_device[index] = stream
    return stream
