"""Which work of different streams is ordered: a vector clock for each stream, event and the host.

A GPU may execute the work of different streams concurrently or in any order, unless something
orders it; `stream_deferral` chooses among these orders. A clock holds the number of pieces of work
of each stream that come before a point. The rules are those of CUDA's "Stream synchronization
behavior", which HIP follows:

* Work comes after earlier work in its stream, and after all that the host has waited for.
* The legacy default stream and all blocking streams of its device wait for each other.
* A stream that waits for an event comes after what its stream held when the event was recorded.

All threads of the host share one clock: how they wait for each other is not visible. So a race may
be missed, but no false race is reported.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cupygemm.emulator.concurrency.pending_copies import PendingCopies
from cupygemm.emulator.concurrency.stream_deferral import Deferral

if TYPE_CHECKING:
    pass

Clock = dict["Queue", int]
_REMEMBERED = 512  # unordered pieces of work of a stream; older ones count as ordered

INTERVAL = np.dtype([("first", "u4"), ("last", "u4")])  # struct interval of native/machine.h
STRETCH = np.dtype([(name, "u8") for name in ("start", "end", "pitch", "run", "writes")])


class Stretch(NamedTuple):
    """Memory that a copy, a fill or a library call accesses: `run` bytes in each `pitch`."""

    start: int
    end: int
    pitch: int
    run: int
    writes: bool

    @classmethod
    def plain(cls, start: int, size: int, *, writes: bool) -> Stretch:
        """Return a stretch without gaps."""
        return cls(start, start + size, size, size, writes)

    def first_common(self, other: Stretch) -> int | None:
        """Return the first address that both access, or None."""
        low, high = max(self.start, other.start), min(self.end, other.end)
        first = self.start + (low - self.start) // self.pitch * self.pitch
        for start in range(first, high, self.pitch):
            place = max(start, low)
            end = min(start + self.run, high)
            if place < end and (found := other.first_within(place, end)) is not None:
                return found
        return None

    def first_within(self, low: int, high: int) -> int | None:
        """Return the first address in ``[low, high)`` that it accesses, or None."""
        low, high = max(low, self.start), min(high, self.end)
        within = (low - self.start) % self.pitch
        found = low if within < self.run else low - within + self.pitch
        return found if found < high else None


@dataclass(eq=False, slots=True)
class Operation:
    """A piece of work in a stream.

    Attributes
    ----------
    queue : Queue
    number : int
        Its number in the stream, from 1.
    submitted : int
        Its number among all work.
    label : str
        For reports: ``"kernel cupy_add"``, ``"copy of 16 bytes"``.
    first, last : int
        When the kernel accessed memory, by the clock of `GlobalShadow`; 0 if it did not.
    stretches : list of Stretch
        The memory accessed by work other than a kernel.
    serial : int
        The newest allocation at the time.
    kernel : tuple of Kernel and str, or None
        The kernel and its target's name, to describe its instructions.
    seen : dict of Queue to int, or None
        The work that it follows, if it is executed later; by default, what its stream follows.
    """

    queue: Queue
    number: int
    submitted: int
    label: str
    first: int = 0
    last: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    serial: int = 0
    kernel: Any = None
    seen: Clock | None = None

    def clock(self) -> Clock:
        """Return the clock of work that follows this."""
        seen = self.queue.seen if self.seen is None else self.seen
        return {**seen, self.queue: self.number}


class Queue:
    """A stream, for the purpose of ordering.

    Parameters
    ----------
    short_name : str
        For reports.
    device : int
    kind : {"legacy", "blocking", "non-blocking"}
    """

    def __init__(self, short_name: str, device: int, kind: str) -> None:
        self.short_name, self.device, self.kind = short_name, device, kind
        self.is_legacy, self.is_blocking = kind == "legacy", kind == "blocking"
        self.count = 0
        self.seen: Clock = {}
        self.epoch = 0  # of the part of the host's clock that is in `seen`
        self.is_destroyed = False
        self.operations: collections.deque[Operation] = collections.deque(maxlen=_REMEMBERED)

    def __str__(self) -> str:
        return self.short_name + " (non-blocking)" * (self.kind == "non-blocking")

    def now(self) -> Clock:
        """Return the clock of work that follows everything submitted so far."""
        return {**self.seen, self: self.count}


class Rivals:
    """The earlier work that is unordered with a piece of work, as C reads it.

    Attributes
    ----------
    operation : Operation
    intervals : numpy.ndarray
        INTERVAL (n,), ascending: the times of launches.
    stretches : numpy.ndarray
        STRETCH (m,), of everything else.
    """

    def __init__(self, operation: Operation, others: Iterable[Operation]) -> None:
        self.operation = operation
        everything = list(others)
        self.launches = sorted((each for each in everything if each.last), key=lambda o: o.first)
        self.intervals = np.array([(o.first, o.last) for o in self.launches], INTERVAL)
        self.touched = [(each, part) for each in everything for part in each.stretches]
        self.stretches = np.array([part for _, part in self.touched], STRETCH)

    def at(self, time: int) -> Operation:
        """Return the work whose access C found, by its time or by minus the number of a stretch."""
        if time < 0:
            return self.touched[-time - 1][0]
        position = int(np.searchsorted(self.intervals["last"], time))
        return self.launches[position]


class StreamOrder:
    """The order of all work of a process; safe to use from several threads.

    Attributes
    ----------
    deferral : Deferral
        The work that has not begun. Its lock is taken before this object's own, never after.
    copies : PendingCopies
        Copies from pinned memory for which the host has not waited.
    """

    def __init__(self) -> None:
        self.deferral, self.copies = Deferral(), PendingCopies()
        self._lock = threading.RLock()
        self._queues: dict[Hashable, Queue] = {}
        self._legacy: dict[int, Queue] = {}  # by device
        self._host: Clock = {}
        self._epoch = 0  # of the host's clock
        self._submissions = itertools.count(1)
        self._busy: list[Queue] = []  # with work for which the host has not waited

    # -- streams --

    def queue(self, stream: int, device: int) -> Queue:
        """Return the queue of a stream's handle; for a default stream, that of a device."""
        key: Hashable = stream
        if stream <= 1:  # null and legacy
            found = self._legacy.get(device)
            if found is not None:
                return found
        elif stream == 2:
            key = stream, device, threading.get_ident()
        found = self._queues.get(key)
        if found is not None:
            return found
        with self._lock:
            if stream > 1:
                name = "the per-thread default stream" if stream == 2 else f"stream 0x{stream:x}"
                return self._queues.setdefault(key, Queue(name, device, "blocking"))
            name = "the default stream" + f" of device {device}" * (device > 0)
            return self._legacy.setdefault(device, Queue(name, device, "legacy"))

    def add(self, stream: int, device: int, *, is_blocking: bool) -> None:
        """Record that a stream was created."""
        kind = "blocking" if is_blocking else "non-blocking"
        name = f"stream 0x{stream:x}" + f" of device {device}" * (device > 0)
        self._queues[stream] = Queue(name, device, kind)

    def remove(self, stream: int) -> None:
        """Record that a stream was destroyed; its work may still run."""
        with self._lock:
            queue = self._queues.pop(stream, None)
            if queue is not None:
                queue.is_destroyed = True
                self._retire()

    # -- work --

    def begin(self, queue: Queue, label: str) -> Operation:
        """Submit a piece of work."""
        with self._lock:
            self._catch_up(queue)
            queue.count += 1
            operation = Operation(queue, queue.count, next(self._submissions), label)
            if self.deferral.seed is not None:
                operation.seen = dict(queue.seen)
            queue.operations.append(operation)
            if queue not in self._busy:
                self._busy.append(queue)
            return operation

    def rivals(self, operation: Operation) -> Rivals | None:
        """Return the earlier work that is unordered with a piece of work; None without any."""
        busy, own = self._busy, operation.queue
        if len(busy) <= 1 and own in busy:
            return None
        seen = own.seen if operation.seen is None else operation.seen
        with self._lock:
            others = [
                each
                for queue in busy
                if queue is not own and queue.count > (after := seen.get(queue, 0))
                for each in queue.operations
                if each.number > after and (each.last or each.stretches)
            ]
        return Rivals(operation, others) if others else None

    def has_work_only_in(self, queue: Queue) -> bool:
        """Tell whether the host has waited for all work except that of one stream."""
        return all(each is queue for each in tuple(self._busy))

    def forget_times(self) -> None:
        """Discard the times of launches, since the clock was set back and all records are gone."""
        with self._lock:
            for queue in self._busy:
                for each in queue.operations:
                    each.last = 0

    def _catch_up(self, queue: Queue) -> None:
        """Make a stream wait for the work that HIP orders before its next work."""
        if queue.epoch != self._epoch:
            merge(queue.seen, self._host)
            queue.epoch = self._epoch
        if queue.is_legacy:
            for other in self._busy:
                if other.is_blocking and other.device == queue.device:
                    self._follow(queue, other)
        elif queue.is_blocking:
            legacy = self._legacy.get(queue.device)
            if legacy is not None:
                self._follow(queue, legacy)

    @staticmethod
    def _follow(queue: Queue, other: Queue) -> None:
        if queue.seen.get(other, 0) < other.count:
            merge(queue.seen, other.seen)
            queue.seen[other] = other.count

    # -- waiting --

    def record(self, queue: Queue) -> Clock:
        """Return the clock of an event that is recorded in a stream."""
        with self._lock:
            self._catch_up(queue)
            return queue.now()

    def wait(self, queue: Queue, clock: Clock) -> None:
        """Make the later work of a stream wait for an event."""
        with self._lock:
            self._catch_up(queue)
            merge(queue.seen, clock)
            queue.count += 1  # streams that follow this one wait, too
            if queue not in self._busy:
                self._busy.append(queue)

    def synchronise(self, queue: Queue) -> None:
        """Record that the host waits for all work of a stream."""
        self.reach(self.record(queue))

    def synchronise_device(self, device: int | None = None) -> None:
        """Record that the host waits for all work of a device, or of all devices."""
        clock: Clock = {}
        with self._lock:
            for queue in self._busy:
                if device is None or queue.device == device:
                    merge(clock, queue.now())
        self.reach(clock)

    def reach(self, clock: Clock) -> None:
        """Record that the host waits for an event."""
        self.deferral.run_until(clock)
        with self._lock:
            merge(self._host, clock)
            self._advance()
        self.copies.reach(self._host)

    def _advance(self) -> None:
        self._epoch += 1
        self._retire()

    def _retire(self) -> None:
        """Discard work that all later work follows, unless some has not begun."""
        if not self.deferral.is_idle:
            return
        host = self._host
        for queue in tuple(self._busy):
            done, operations = host.get(queue, 0), queue.operations
            if done >= queue.count:
                operations.clear()
                self._busy.remove(queue)
            while operations and operations[0].number <= done:
                operations.popleft()
        for queue in [each for each in host if each.is_destroyed and each not in self._busy]:
            del host[queue]


def merge(clock: Clock, other: Clock) -> None:
    """Merge another clock into a clock, which then comes after it."""
    for queue, count in other.items():
        if clock.get(queue, 0) < count:
            clock[queue] = count
