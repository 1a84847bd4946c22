"""The ordering of streams by RCCL's operations.

A receiving stream is ordered after the earlier work of the senders' streams in this process.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from cupygemm.emulator.concurrency.stream_order import Clock, Queue, StreamOrder, merge
from cupygemm.emulator.host_libraries.collectives import POINT_TO_POINT, Operation
from cupygemm.emulator.host_libraries.rendezvous import Link


@dataclass
class _Exchange:
    """An operation of several ranks: the clock of the senders, and the number of finished ranks."""

    clock: Clock = field(default_factory=dict)
    ranks: int = 2
    done: int = 0


class Meeting:
    """The operations of a communicator's ranks in this process.

    Attributes
    ----------
    ranks : set of int
        The ranks in this process.
    """

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self._lock = threading.Lock()
        self._counts: Counter[Hashable] = Counter()
        self._exchanges: dict[Hashable, _Exchange] = {}

    def begin(self, rank: int, operation: Operation, clock: Clock) -> Hashable:
        """Record a rank's next operation, and return its key, which is the same for all ranks.

        Parameters
        ----------
        rank : int
        operation : Operation
        clock : dict
            The work before the rank's data; empty if it sends none.
        """
        name, peer = operation.name, operation.root
        key: tuple[Hashable, ...] = ("all",)
        own: tuple[Hashable, ...] = (rank,)
        with self._lock:
            everybody = len(self.ranks)
            if name in POINT_TO_POINT:
                everybody = 2 if peer in self.ranks else 1
                key = (rank, peer) if name == "ncclSend" else (peer, rank)
                own = (rank, name, peer)
            self._counts[own] += 1
            key = *key, self._counts[own]
            exchange = self._exchanges.setdefault(key, _Exchange(ranks=everybody))
            merge(exchange.clock, clock)
            return key

    def finish(self, key: Hashable) -> Clock:
        """Return the clock of all senders when a rank's operation is done."""
        with self._lock:
            exchange = self._exchanges[key]
            exchange.done += 1
            if exchange.done == exchange.ranks:
                del self._exchanges[key]
            return exchange.clock


class Meetings:
    """The meetings of a process, by the unique ids of the communicators in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[bytes, Meeting] = WeakValueDictionary()

    def join(self, unique_id: bytes, rank: int) -> Meeting:
        """Add a rank, before the other ranks can see its call."""
        with self._lock:
            found = self._known.setdefault(unique_id, Meeting())
            found.ranks.add(rank)
            return found


@dataclass
class Communicator:
    """One rank of a communicator."""

    link: Link
    rank: int
    size: int
    device: int
    meeting: Meeting


@dataclass
class Work:
    """An operation between its call and the end of its group.

    Attributes
    ----------
    communicator : Communicator
    operation : Operation
    queue : Queue
        The stream.
    read : callable or None
        Returns the rank's data; None if it sends none.
    write : callable or None
        Called with the data for the rank; None if it receives none.
    """

    communicator: Communicator
    operation: Operation
    queue: Queue
    read: Callable[[], bytes] | None
    write: Callable[[bytes], None] | None
    _key: Hashable = None

    def payload(self) -> bytes:
        """Return the bytes that the rank contributes."""
        return self.read() if self.read else b""

    def begin(self, order: StreamOrder) -> None:
        """Record the work before the rank's data."""
        clock = order.record(self.queue) if self.read else {}
        meeting = self.communicator.meeting
        self._key = meeting.begin(self.communicator.rank, self.operation, clock)

    def finish(self, order: StreamOrder, data: bytes) -> None:
        """Store the data that the rank receives, ordered after the senders' work."""
        clock = self.communicator.meeting.finish(self._key)
        if self.write:
            order.wait(self.queue, clock)
            self.write(data)
