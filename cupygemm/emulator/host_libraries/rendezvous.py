"""The rendezvous of a communicator's ranks, in threads of one process or in several processes.

The process that creates a unique id runs a `Rendezvous`, to which each rank connects. A rank sends
the operations of a group in one message, and receives one answer when all of them are done. A
collective operation is done when all ranks have reached it, a send when its peer has reached the
receive. If a rank disconnects, operations do not match, or all ranks wait for each other, the
communicator ends and every rank receives the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import secrets
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from cupygemm.emulator.host_libraries.collectives import POINT_TO_POINT, Operation, Payload, results

UNIQUE_ID_BYTES = 128
TIMEOUT_VARIABLE = "CUPYGEMM_EMULATE_RCCL_TIMEOUT"
_DEFAULT_TIMEOUT = 300.0  # seconds
_ID = struct.Struct("<H16s")


class CommunicatorError(Exception):
    """The communicator is no longer usable; the message says why."""


@dataclass
class _Pending:
    """A pending operation of a rank, and its result once it is done."""

    operation: Operation
    sent: Payload
    result: bytes = b""
    done: bool = False


@dataclass
class _Rank:
    """A rank: its connection, and the operations of its current message."""

    outbox: queue.SimpleQueue[bytes]
    pending: list[_Pending] = field(default_factory=list)
    gone: bool = False

    @property
    def waits(self) -> bool:
        return bool(self.pending)

    def first_collective(self) -> _Pending | None:
        """Return the first pending collective operation."""
        found = (each for each in self.pending if not each.done)
        return next((e for e in found if e.operation.name not in POINT_TO_POINT), None)

    def point_to_point(self, name: str) -> Iterable[_Pending]:
        """Return the pending sends or receives."""
        return [e for e in self.pending if not e.done and e.operation.name == name]


class Rendezvous:
    """The server of one communicator, which ranks find by its `unique_id`."""

    def __init__(self) -> None:
        token = secrets.token_bytes(16)
        self._listener = Listener(("127.0.0.1", 0), authkey=token, backlog=64)
        self.unique_id = _ID.pack(self._listener.address[1], token).ljust(UNIQUE_ID_BYTES, b"\0")
        self._lock = threading.Lock()
        self._ranks: dict[int, _Rank] = {}
        self._size = 0
        self._broken = ""
        threading.Thread(target=self._accept, name="rccl-rendezvous", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            except Exception:  # noqa: BLE001, S112  # a client without the token
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="rccl-rank", daemon=True
            ).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        """Receive the messages of one rank until it leaves."""
        rank = -1
        try:
            hello = json.loads(connection.recv_bytes())
            with self._lock:
                self._join(hello["rank"], hello["size"], connection)
            rank = hello["rank"]
            while True:
                message = json.loads(connection.recv_bytes())
                if "waited" in message:
                    with self._lock:
                        self._give_up(rank, message["waited"])
                    continue
                listed = message["operations"]
                pending = [_Pending(Operation(**each), connection.recv_bytes()) for each in listed]
                with self._lock:
                    self._ranks[rank].pending = pending
                    self._advance()
        except (EOFError, OSError):
            if rank >= 0:
                with self._lock:
                    self._ranks[rank].gone = True
                    self._advance()

    def _join(self, rank: int, size: int, connection: Any) -> None:
        problem = self._broken
        if self._size and size != self._size:
            problem = f"rank {rank} says that there are {size} ranks, another one {self._size}"
        elif rank in self._ranks:
            problem = f"two ranks have the number {rank}"
        if problem:
            connection.send_bytes(_error(problem))
            raise EOFError
        self._size = size
        outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._ranks[rank] = _Rank(outbox)
        threading.Thread(
            target=_deliver, args=(connection, outbox), name="rccl-answers", daemon=True
        ).start()
        if len(self._ranks) == size:
            self._listener.close()
            for each in self._ranks.values():
                each.outbox.put(b"{}")

    def _give_up(self, rank: int, seconds: float) -> None:
        """End the communicator because a rank has waited too long."""
        late = [index for index, each in self._ranks.items() if not each.waits and index != rank]
        missing = [index for index in range(self._size) if index not in self._ranks]
        names = ", ".join(map(str, sorted(late + missing))) or "none"
        place = f" in {_first(self._ranks[rank])}" if self._ranks[rank].waits else " to join"
        self._broken = self._broken or (
            f"rank {rank} waited {seconds:g} s{place}; missing ranks: {names} (see "
            f"{TIMEOUT_VARIABLE})"
        )
        self._ranks[rank].outbox.put(_error(self._broken))
        self._ranks[rank].pending = []
        self._advance()

    # -- progress --

    def _advance(self) -> None:
        """Do operations that all their ranks have reached, answer these ranks, and find faults."""
        while not self._broken and (self._match_collective() or self._match_point_to_point()):
            pass
        for rank in self._ranks.values():
            if rank.waits and all(each.done for each in rank.pending):
                rank.outbox.put(b"{}")
                for each in rank.pending:
                    rank.outbox.put(each.result)
                rank.pending = []
        self._broken = self._broken or self._stuck()
        if self._broken:
            for rank in self._ranks.values():
                if rank.waits:
                    rank.pending = []
                    rank.outbox.put(_error(self._broken))

    def _match_collective(self) -> bool:
        first = [self._ranks[index].first_collective() for index in sorted(self._ranks)]
        ready = [each for each in first if each is not None]
        if len(ready) < self._size:
            return False
        for index, each in enumerate(ready):
            if each.operation != ready[0].operation:
                self._broken = (
                    f"the ranks call different operations: rank 0 {ready[0].operation}, "
                    f"rank {index} {each.operation}"
                )
                return False
        received = results(ready[0].operation, [each.sent for each in ready])
        for each, result in zip(ready, received, strict=True):
            each.result, each.done = result, True
        return True

    def _match_point_to_point(self) -> bool:
        receives: dict[tuple[int, int], list[_Pending]] = defaultdict(list)
        for index, rank in self._ranks.items():
            for each in rank.point_to_point("ncclRecv"):
                receives[each.operation.root, index].append(each)
        for index, rank in self._ranks.items():
            for each in rank.point_to_point("ncclSend"):
                waiting = receives[index, each.operation.root]
                if not waiting:
                    continue
                if (each.operation.count, each.operation.type) != (
                    waiting[0].operation.count,
                    waiting[0].operation.type,
                ):
                    self._broken = (
                        f"rank {index} sends {each.operation}, and rank {each.operation.root} "
                        f"receives {waiting[0].operation}"
                    )
                    return False
                waiting[0].result, waiting[0].done, each.done = bytes(each.sent), True, True
                return True
        return False

    def _stuck(self) -> str:
        """Return why no waiting rank can continue, or "" if one may."""
        waiting = {index: rank for index, rank in self._ranks.items() if rank.waits}
        gone = [index for index, rank in self._ranks.items() if rank.gone]
        if gone and waiting:
            index, rank = next(iter(sorted(waiting.items())))
            return (
                f"rank {gone[0]} has left the communicator (did its process end?) while rank "
                f"{index} waits in {_first(rank)}"
            )
        if len(waiting) == self._size:
            where = "; ".join(f"rank {i} in {_first(rank)}" for i, rank in sorted(waiting.items()))
            return f"all ranks wait for each other: {where}"
        return ""


class Link:
    """A rank's connection to its rendezvous.

    Parameters
    ----------
    unique_id : bytes
    rank, size : int

    Raises
    ------
    CommunicatorError
        The rendezvous has ended, or the rank is invalid.
    """

    def __init__(self, unique_id: bytes, rank: int, size: int) -> None:
        port, token = _ID.unpack(unique_id[: _ID.size])
        self.broken = ""
        try:
            self._connection: Any = Client(("127.0.0.1", port), authkey=token)
        except OSError as err:
            raise CommunicatorError(
                "the process that made the unique id does not answer: has it ended, or is the "
                "communicator already complete?"
            ) from err
        self._connection.send_bytes(json.dumps({"rank": rank, "size": size}).encode())

    def joined(self) -> None:
        """Wait until all ranks have joined."""
        self._receive()

    def send(self, operations: list[Operation], payloads: Sequence[Payload]) -> None:
        """Send the operations of a group, with this rank's data for each."""
        if self.broken:
            raise CommunicatorError(f"{self.broken}; destroy the communicator and make a new one")
        message = {"operations": [dataclasses.asdict(each) for each in operations]}
        try:
            self._connection.send_bytes(json.dumps(message).encode())
            for payload in payloads:
                self._connection.send_bytes(payload)
        except OSError as err:
            raise self._gone() from err

    def receive(self, count: int) -> list[bytes]:
        """Wait for the sent operations, and return the result of each."""
        self._receive()
        try:
            return [self._connection.recv_bytes() for _ in range(count)]
        except (EOFError, OSError) as err:
            raise self._gone() from err

    def close(self) -> None:
        """Leave the communicator."""
        self._connection.close()

    def _receive(self) -> None:
        seconds = float(os.environ.get(TIMEOUT_VARIABLE, _DEFAULT_TIMEOUT))
        try:
            if not self._connection.poll(seconds):
                self._connection.send_bytes(json.dumps({"waited": seconds}).encode())
            answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as err:
            raise self._gone() from err
        if "error" in answer:
            self.broken = answer["error"]
            raise CommunicatorError(self.broken)

    def _gone(self) -> CommunicatorError:
        self.broken = "the process that made the unique id has ended"
        return CommunicatorError(self.broken)


def _first(rank: _Rank) -> Operation:
    return next(each.operation for each in rank.pending if not each.done)


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def _deliver(connection: Any, outbox: queue.SimpleQueue[bytes]) -> None:
    """Send a rank its answers, without blocking others if it reads them late."""
    with contextlib.suppress(OSError):  # the rank has disconnected
        while True:
            connection.send_bytes(outbox.get())
