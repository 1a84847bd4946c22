"""Look-ahead: a panel is factored on a stream of its own, beside an update of other columns.

::

    current stream   | update next panel's columns | update the columns behind them      | ...
    side stream                                    | factor the next panel |             ^
                                                   ^ fork                           join |

Both streams are ordered by events alone, so a graph can record them.
"""

from __future__ import annotations

import contextvars
import functools
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
    """The side streams of a thread on each device."""

    def __init__(self) -> None:
        self.by_device: dict[int, list[Any]] = {}


_streams = _Streams()
Wait = Callable[[], object]
Enqueue = Callable[[Callable[[], object]], Wait]


@contextmanager
def pieces() -> Iterator[Enqueue]:
    """Yield a function that enqueues a piece of work on a side stream.

    The piece begins after what the current stream and the side stream hold then. The function
    returns another, which has the current stream wait for the piece. What the current stream is
    given behind the block begins after all pieces.
    """
    from cupy.cuda import Event, get_current_stream

    current = get_current_stream()
    side = _side_stream(current)

    idle = [Event(disable_timing=True)]

    def after(stream: Any) -> Any:
        """Return an event behind what a stream holds."""
        event = idle.pop() if idle else Event(disable_timing=True)
        event.record(stream)
        return event

    def order(later: Any, event: Any) -> None:
        later.wait_event(event)
        idle.append(event)  # a wait is for what was recorded last, so it may be recorded again

    def enqueue(work: Callable[[], object]) -> Wait:
        order(side, after(current))
        with side:
            work()
        return functools.partial(order, current, after(side))

    order(side, after(current))
    try:
        yield enqueue
    finally:
        order(current, after(side))


@contextmanager
def in_order() -> Iterator[Enqueue]:
    """Yield a function like that of `pieces`, which enqueues on the current stream."""

    def enqueue(work: Callable[[], object]) -> Wait:
        work()
        return lambda: None

    yield enqueue


@contextmanager
def beside(work: Callable[[], object], units: int = 0) -> Iterator[None]:
    """Enqueue work on a side stream, beside what the block enqueues on the current stream.

    Both begin after what the current stream holds, and what it is given later begins after both.

    Parameters
    ----------
    work : callable
    units : int
        The compute units that the products of the block leave to the work, if they can.
    """
    with pieces() as enqueue:
        enqueue(work)
        token = _spared.set(units)
        try:
            yield
        finally:
            _spared.reset(token)


def _side_stream(current: Any) -> Any:
    """Return a side stream of the device; another one for work that is on a side stream already."""
    from cupy.cuda import Stream
    from cupy.cuda.runtime import getDevice

    streams = _streams.by_device.setdefault(getDevice(), [])
    for stream in streams:
        if stream.ptr != current.ptr:
            return stream
    streams.append(Stream(non_blocking=True, priority=_HIGHEST_PRIORITY))
    return streams[-1]
