"""Agreement of a group's processes on a call before they enqueue it, and detection of failures.

Rank 0 serves a `Rendezvous`, to which each rank keeps one TCP connection. Before a product, a rank
sends the facts of its call, and receives those of all ranks. Nothing has been enqueued yet, so a
call that does not match is refused on all ranks, and the group stays usable. The group ends if the
connection of a rank ends, if a rank reports a failure, or if it does not make the call within the
timeout. Every other rank receives the reason, even if it is not waiting. The group also ends when a
rank leaves normally, but the work that the others have enqueued is completed.

Messages are JSON. `GroupError` is the only error of a group that cannot continue.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

Facts = dict[str, Any]
"""What a rank tells the others about its call: a flat dictionary of JSON's types."""
_TOKEN_BYTES = 16
_TELLING_SECONDS = 2.0
_ANSWERING_SECONDS = 10.0  # least wait for an answer that needs no other rank


class GroupError(RuntimeError):
    """A group of processes cannot continue; the message says why, and names the rank.

    Parameters
    ----------
    message : str
    ranks : iterable of int
        The ranks at fault.

    Attributes
    ----------
    ranks : tuple of int
    """

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


@dataclass
class _Member:
    """A rank as the rendezvous sees it: its connection, and the facts with which it waits."""

    outbox: queue.SimpleQueue[bytes | None] = field(default_factory=queue.SimpleQueue)
    facts: Facts | None = None
    delivery: threading.Thread | None = None
    told: threading.Event = field(default_factory=threading.Event)  # that the group has ended


class Rendezvous:
    """Serves one group; it lives in the process of rank 0.

    Parameters
    ----------
    size : int
        The number of ranks.
    """

    def __init__(self, size: int) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener = Listener(("", 0), authkey=token, backlog=max(8, size))
        self.address = f"{socket.gethostname()}:{self._listener.address[1]}:{token.hex()}"
        self._size = size
        self._lock = threading.Lock()
        self._members: dict[int, _Member] = {}
        self._broken: Facts | None = None
        _start(self._accept)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            except Exception:  # noqa: BLE001, S112  # a stranger without the token
                continue
            _start(self._serve, connection)

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """Receive the messages of one rank until it leaves."""
        rank = -1
        try:
            rank = json.loads(connection.recv_bytes())["rank"]
            with self._lock:
                self._members[rank] = member = _Member()
                member.delivery = _start(_deliver, connection, member)
                if self._broken is not None:
                    member.outbox.put(_encoded(self._broken))
                if len(self._members) == self._size:
                    self._listener.close()
            while True:
                message = json.loads(connection.recv_bytes())
                with self._lock:
                    self._take(rank, message)
        except (EOFError, OSError):
            if rank >= 0:
                with self._lock:
                    self._break(f"rank {rank} has left the group (did its process end?)", [rank])
                    self._members[rank].outbox.put(None)

    def _take(self, rank: int, message: Facts) -> None:
        if "failed" in message:
            self._break(f"rank {rank} failed: {message['failed']}", [rank])
        elif "leaves" in message:
            self._break(f"rank {rank} has left the group", [rank], in_order=True)
        elif "late" in message:
            self._break(_late(message["late"], rank, message), message["late"])
        elif "waited" in message:
            late = [i for i in range(self._size) if not self._waits(i)]
            if self._waits(rank):  # otherwise the last rank has made its call in the meantime
                self._break(_late(late, rank, message), late)
        elif self._broken is None:
            self._members[rank].facts = message["facts"]
            if all(self._waits(i) for i in range(self._size)):
                everybody = [self._members[i].facts for i in range(self._size)]
                for member in self._members.values():
                    member.facts = None
                    member.outbox.put(_encoded({"facts": everybody}))

    def _waits(self, rank: int) -> bool:
        return rank in self._members and self._members[rank].facts is not None

    def close(self) -> None:
        """Tell all ranks that rank 0 leaves."""
        with self._lock:
            self._break("rank 0 has left the group", [0], in_order=True)
            for member in self._members.values():
                member.outbox.put(None)
        for member in self._members.values():
            if member.delivery is not None:
                member.delivery.join(timeout=1)
        self._listener.close()

    def _break(self, reason: str, ranks: list[int], *, in_order: bool = False) -> None:
        if self._broken is None:
            self._broken = {"broken": reason, "ranks": ranks, "in_order": in_order}
            others = [member for rank, member in self._members.items() if rank]
            for member in others:
                member.outbox.put(_encoded(self._broken))
            _start(self._tell_rank_0, others)

    def _tell_rank_0(self, others: list[_Member]) -> None:
        """Tell rank 0 last: its process serves the others, and may end as soon as it is told."""
        for member in others:
            member.told.wait(_TELLING_SECONDS)
        if 0 in self._members:
            self._members[0].outbox.put(_encoded(self._broken or {}))


class Membership:
    """A rank's connection to the rendezvous of its group.

    Parameters
    ----------
    address : str
        Of the rendezvous.
    rank : int
    timeout : float
        The seconds that a call waits for the other ranks.
    host : str, optional
        The name or the address of the machine of rank 0, if its own host name does not work on this
        machine.
    on_break : callable, optional
        Called without arguments, in a separate thread, when a fault has ended the group: operations
        that wait for other ranks would wait forever.

    Attributes
    ----------
    faulty : bool
        Whether a fault has ended the group, and not a rank that left normally.

    Raises
    ------
    GroupError
        The rendezvous does not respond.
    """

    def __init__(
        self,
        address: str,
        rank: int,
        timeout: float,
        *,
        host: str | None = None,
        on_break: Callable[[], None] | None = None,
    ) -> None:
        name, port, token = address.split(":")
        place = host or ("127.0.0.1" if name == socket.gethostname() else name)
        self.rank, self.timeout = rank, timeout
        self._on_break = on_break
        self._lock = threading.Lock()  # guards sending on the connection
        self._answers: queue.SimpleQueue[list[Facts] | None] = queue.SimpleQueue()
        self._broken: Facts | None = None
        self.faulty = False
        self._ended = threading.Event()
        self._closed = False
        try:
            self._connection: Any = Client((place, int(port)), authkey=bytes.fromhex(token))
        except (OSError, EOFError, AuthenticationError) as err:
            raise GroupError(
                f"rank 0, on {place}, does not answer: {err}; pass host= if the machine has another"
                " name from here",
                [0],
            ) from err
        self._send({"rank": rank})
        _start(self._listen)

    @property
    def broken(self) -> GroupError | None:
        """Return why the group cannot continue; None if it can."""
        if self._broken is None:
            return None
        return GroupError(
            f"{self._broken['broken']}; the group is not usable any more: make a new communicator "
            "and connect again",
            self._broken["ranks"],
        )

    def agree(self, facts: Facts) -> list[Facts]:
        """Wait until every rank has made its call, and return the facts of all ranks, by rank.

        Raises
        ------
        GroupError
            A rank has ended, has failed, or has not made its call within the timeout.
        """
        self.raise_if_broken()
        self._send({"facts": facts})
        try:
            everybody = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self._send({"waited": self.timeout, "call": facts.get("function", "")})
            try:  # the rendezvous answers immediately, unless rank 0 is stopped
                everybody = self._answers.get(timeout=max(self.timeout, _ANSWERING_SECONDS))
            except queue.Empty:
                self._break("rank 0 does not answer", [0])
                everybody = None
        if everybody is None:
            self.raise_if_broken()
        assert everybody is not None
        return everybody

    def report_late(self, ranks: list[int], function: str) -> None:
        """End the group because ranks have not made a call within the timeout."""
        message = {"waited": self.timeout, "call": function}
        self._send({"late": ranks, **message})
        self._ended.wait(2 * _TELLING_SECONDS)  # the others know it then
        self._break(_late(ranks, self.rank, message), ranks)

    def raise_if_broken(self) -> None:
        """Raise GroupError if the group cannot continue, or was closed on this rank."""
        if self._closed:
            raise GroupError("the group was closed on this rank", [self.rank])
        broken = self.broken
        if broken is not None:
            raise broken

    def fail(self, reason: str) -> None:
        """Tell the others that this rank failed after all had agreed on a call."""
        self._send({"failed": reason})
        self._ended.wait(2 * _TELLING_SECONDS)  # the others know it then
        self._break(f"rank {self.rank} failed: {reason}", [self.rank])

    def wait_until_broken(self, seconds: float) -> GroupError | None:
        """Return why the group cannot continue; wait some seconds for the reason to arrive."""
        with contextlib.suppress(queue.Empty):
            self._answers.get(timeout=seconds)
        return self.broken

    def close(self) -> None:
        """Leave the group normally."""
        self._closed = True
        self._send({"leaves": self.rank})
        _shut(self._connection)

    def _listen(self) -> None:
        try:
            while True:
                message = json.loads(self._connection.recv_bytes())
                if "broken" in message:
                    self._break(**message)
                else:
                    self._answers.put(message["facts"])
        except (EOFError, OSError):
            self._break("rank 0 has left the group (did its process end?)", [0])

    def _break(self, broken: str, ranks: list[int], *, in_order: bool = False) -> None:
        if self._broken is None and not self._closed:
            self._broken = {"broken": broken, "ranks": ranks}
            self._ended.set()
            self.faulty = not in_order
            if self._on_break is not None and not in_order:
                self._on_break()
        self._answers.put(None)

    def _send(self, message: Facts) -> None:
        with self._lock, contextlib.suppress(OSError):  # `_listen` finds the end of a connection
            self._connection.send_bytes(_encoded(message))


def _late(late: list[int], rank: int, message: Facts) -> str:
    call = f" to {message['call']}" if message["call"] else ""
    return (
        f"{_names(late)} did not make the matching call{call} within {message['waited']:g} s "
        f"(rank {rank} waits)"
    )


def _names(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _encoded(message: Facts) -> bytes:
    return json.dumps(message).encode()


def _start(run: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, name="cupygemm-group", daemon=True)
    thread.start()
    return thread


def _deliver(connection: Any, member: _Member) -> None:
    """Send a rank its answers, without making other ranks wait while it reads them."""
    with contextlib.suppress(OSError):  # the rank has left
        while (message := member.outbox.get()) is not None:
            connection.send_bytes(message)
            if b'"broken"' in message:
                member.told.set()
    member.told.set()


def _shut(connection: Any) -> None:
    """Shut down a connection that another thread reads; leave its descriptor to that thread."""
    with contextlib.suppress(OSError), socket.socket(fileno=connection.fileno()) as view:
        try:
            view.shutdown(socket.SHUT_RDWR)
        finally:
            view.detach()
