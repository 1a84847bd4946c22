"""Look-ahead: a panel is factored on a side stream while other columns are updated.

::

    current stream   | update next panel's columns | update the other trailing columns   | ...
    side stream                                    | factor the next panel |             ^
                                                   ^ fork                           join |

Only events order the two streams, so a graph can record them.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_HIGHEST_PRIORITY = -5
"""Devices clamp this to their highest priority."""


_spared: contextvars.ContextVar[int] = contextvars.ContextVar("spared", default=0)


def spared() -> int:
    """Return the number of compute units that products leave to work on the other stream."""
    return _spared.get()


class _OfThread(threading.local):
    """The side streams of a thread on each device, and its unused events."""

    def __init__(self) -> None:
        self.streams: dict[int, list[Any]] = {}
        self.events: dict[int, list[Any]] = {}


_of_thread = _OfThread()


class Streams:
    """The current stream and a side stream, and their order.

    Attributes
    ----------
    current, side : int
        Their addresses, for launches.
    """

    def __init__(self) -> None:
        get_device, get_current_stream, self._record, self._wait = _runtime()
        index, current = get_device(), get_current_stream()
        self._index = index
        self._side = _side_stream(index, current.ptr)
        self.current, self.side = int(current.ptr), int(self._side.ptr)
        self._idle = _of_thread.events.setdefault(index, [])
        self._is_forked = False

    def fork(self) -> None:
        """Make the side stream wait for the work in the current stream."""
        self._is_forked = True
        self.order(self.recorded(self.current), self.side)

    def another(self, *taken: int) -> int:
        """Return the address of one more stream, which waits for what the current one holds.

        Parameters
        ----------
        *taken : int
            The addresses of those that this has returned before.
        """
        stream = int(_side_stream(self._index, self.current, self.side, *taken).ptr)
        self.order(self.recorded(self.current), stream)
        return stream

    def order(self, event: Any, stream: int) -> None:
        """Make a stream wait for an event, for which nothing else waits."""
        self._wait(stream, event.ptr)
        self._idle.append(event)  # a wait refers to the latest record before it

    def enqueue(self, work: Callable[[], object], *, leads: bool = False) -> None:
        """Enqueue work on the side stream, after the work in the current stream.

        If it leads, it starts before later work in the current stream. Once a product has begun, a
        cluster may find no adjacent compute units, even if enough are free.
        """
        self.fork()
        if leads:
            self.join(self.mark())
        with self._side:
            work()

    def launch(self, graph: Any) -> None:
        """Launch a graph on the side stream, after the work in the current stream."""
        self.fork()
        graph.launch(self._side)

    def mark(self) -> Any:
        """Return an event after the work in the side stream, which must be joined once."""
        return self.recorded(self.side)

    def join(self, mark: Any) -> None:
        """Make the current stream wait for a mark."""
        self.order(mark, self.current)

    def end(self) -> None:
        """Make the current stream wait for all work in the side stream."""
        if self._is_forked:
            self.join(self.mark())

    def recorded(self, stream: int) -> Any:
        """Return an event that is recorded in a stream now, and must be joined once."""
        event = self._idle.pop() if self._idle else _event()
        self._record(event.ptr, stream)
        return event


class OneStream:
    """A stand-in for `Streams` that uses the current stream for everything."""

    def __init__(self) -> None:
        from cupy.cuda import get_current_stream

        self.current = self.side = int(get_current_stream().ptr)

    def fork(self) -> None:
        """Do nothing: the order of the stream suffices."""

    def mark(self) -> None:
        """Return no event."""

    def join(self, mark: None) -> None:
        """Do nothing."""


@contextmanager
def forked() -> Iterator[Streams]:
    """Yield the current stream and a side stream, which is joined at the end."""
    streams = Streams()
    try:
        yield streams
    finally:
        streams.end()


def reached() -> Any:
    """Return an event after the work in the current stream, for one call of `wait_for`."""
    streams = Streams()
    return streams.recorded(streams.current)


def wait_for(event: Any) -> None:
    """Make the current stream wait for an event of `reached`."""
    Streams().join(event)


@contextmanager
def in_order() -> Iterator[OneStream]:
    """Yield a stand-in that uses the current stream for everything."""
    yield OneStream()


@contextmanager
def beside(
    work: Callable[[], object], spared: int = 0, units: int = 0, *, leads: bool = False
) -> Iterator[None]:
    """Enqueue work on a side stream, to run alongside the block's work on the current stream.

    Both begin after the work already in the current stream, and later work begins after both.

    Parameters
    ----------
    work : callable
    spared : int
        The compute units that the products of the block leave to the work, if they can.
    units : int
        The compute units of the device. Products of the work use no more than are left to it, since
        further thread blocks would wait until the products of the block have ended.
    leads : bool
        Whether the work starts before that of the block.
    """
    with forked() as streams:
        with sparing(max(units - spared, 0)):
            streams.enqueue(work, leads=leads)
        with sparing(spared):
            yield


@contextmanager
def sparing(units: int) -> Iterator[None]:
    """Let products of the block leave compute units to work on other streams, if they can."""
    token = _spared.set(units)
    try:
        yield
    finally:
        _spared.reset(token)


@functools.cache
def _runtime() -> tuple[Any, Any, Any, Any]:
    """Return the functions that order streams. Importing them takes longer than calling them."""
    from cupy.cuda import get_current_stream
    from cupy.cuda.runtime import eventRecord, getDevice, streamWaitEvent

    return getDevice, get_current_stream, eventRecord, streamWaitEvent


def _event() -> Any:
    from cupy.cuda import Event

    return Event(disable_timing=True)


def _side_stream(index: int, *taken: int) -> Any:
    """Return a side stream of a device that is at none of the given addresses."""
    from cupy.cuda import Stream

    streams = _of_thread.streams.setdefault(index, [])
    for stream in streams:
        if stream.ptr not in taken:
            return stream
    streams.append(Stream(non_blocking=True, priority=_HIGHEST_PRIORITY))
    return streams[-1]
