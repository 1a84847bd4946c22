"""RCCL: collective operations of a communicator's ranks, in one process or several.

An operation is done when its call returns, or at the end of its group. Calls for several ranks from
one thread must therefore be in a group, as RCCL's documentation requires. Data are transferred
through host memory.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.host_libraries.collectives import OPERATIONS, TYPES, Operation
from cupygemm.emulator.host_libraries.library import Call, HostLibrary, LibraryError, implements
from cupygemm.emulator.host_libraries.rccl_order import Communicator, Meetings, Work
from cupygemm.emulator.host_libraries.rendezvous import (
    UNIQUE_ID_BYTES,
    CommunicatorError,
    Link,
    Rendezvous,
)
from cupygemm.emulator.runtime.status import store_int, store_size

VERSION = 22606  # RCCL 2.26.6, ROCm 7.0's
_NO_COLOR = -1  # NCCL_SPLIT_NOCOLOR


class _Group(threading.local):
    """The open group of a thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.work: list[Work] = []
        self.joining: list[Link] = []


class Rccl(HostLibrary):
    """The functions of RCCL that CuPy binds."""

    stem = "nccl"
    soname = "librccl.so.1"
    has_streams = False  # an operation's stream is an argument of its call
    statuses = {  # noqa: RUF012
        "execution_failed": 1,
        "system_error": 2,
        "internal_error": 3,
        "invalid_value": 4,
        "invalid_usage": 5,
        "not_supported": 5,
        "remote_error": 6,
    }
    extra_source = """
const char *ncclGetErrorString(int status) {
    static const char *const texts[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage", "remote process exited or there was a network error"};
    return status >= 0 && status < 7 ? texts[status] : "unknown result code";
}
"""

    def __init__(self, devices: Any) -> None:
        super().__init__(devices)
        self._communicators: dict[int, Communicator] = {}
        self._group = _Group()
        self._keep: list[Rendezvous] = []
        self._meetings = Meetings()

    # -- communicators --

    @implements("ncclGetVersion")
    def _get_version(self, call: Call, version: int) -> None:
        store_int(version, VERSION)

    @implements("ncclGetUniqueId")
    def _get_unique_id(self, call: Call, unique_id: int) -> None:
        call.check(unique_id != 0, "unique_id is a null pointer")
        ctypes.memmove(unique_id, self._new_rendezvous(), UNIQUE_ID_BYTES)

    @implements("ncclCommInitRankConfig")
    def _init_rank(
        self, call: Call, comm: int, size: int, unique_id: int, rank: int, config: int
    ) -> None:
        call.check(size >= 1, f"{size} ranks: at least 1")
        call.check(0 <= rank < size, f"rank {rank} is none of {size} ranks")
        self._join(comm, ctypes.string_at(unique_id, UNIQUE_ID_BYTES), rank, size)
        if not self._group.depth:
            self._complete()

    @implements("ncclCommInitAll")
    def _init_all(self, call: Call, comms: int, count: int, devices: int) -> None:
        call.check(count >= 1, f"{count} devices: at least 1")
        listed = (ctypes.c_int * count).from_address(devices) if devices else range(count)
        chosen = list(listed)
        for device in chosen:
            present = 0 <= device < len(self.devices)
            call.check(present, f"device {device}: there are {len(self.devices)} devices")
        call.check(len(set(chosen)) == count, f"devices {chosen}: each may be there once")
        unique_id = self._new_rendezvous()
        for rank, device in enumerate(chosen):
            self._join(comms + 8 * rank, unique_id, rank, count, device)
        self._complete()

    @implements("ncclCommSplit")
    def _split(
        self, call: Call, comm: int, color: int, key: int, new_comm: int, config: int
    ) -> None:
        parent = self._communicator(comm)
        call.check(
            not self._group.depth, "a split inside a group is not supported", "invalid_usage"
        )
        mine = np.array([color, key], np.int64)
        gather = Operation(name="ncclAllGather", count=2, type=4)
        answer = self._exchange(parent, gather, mine.tobytes())
        everybody = np.frombuffer(answer, np.int64).reshape(-1, 2)
        members = [rank for rank in range(parent.size) if everybody[rank, 0] == color]
        members.sort(key=lambda rank: (everybody[rank, 1], rank))
        leads = color != _NO_COLOR and members[0] == parent.rank
        made = self._new_rendezvous() if leads else bytes(UNIQUE_ID_BYTES)
        gather = Operation(name="ncclAllGather", count=UNIQUE_ID_BYTES, type=1)
        identities = self._exchange(parent, gather, made)
        if color == _NO_COLOR:
            store_size(new_comm, 0)
            return
        first = members[0] * UNIQUE_ID_BYTES
        identity = identities[first : first + UNIQUE_ID_BYTES]
        rank = members.index(parent.rank)
        self._join(new_comm, identity, rank, len(members), parent.device)
        self._complete()

    @implements("ncclCommDestroy", "ncclCommAbort")
    def _destroy(self, call: Call, comm: int) -> None:
        self._communicator(comm).link.close()
        del self._communicators[comm]

    @implements("ncclCommGetAsyncError")
    def _get_async_error(self, call: Call, comm: int, error: int) -> None:
        broken = self._communicator(comm).link.broken
        store_int(error, self.statuses["remote_error"] if broken else 0)

    @implements("ncclCommCount")
    def _count(self, call: Call, comm: int, count: int) -> None:
        store_int(count, self._communicator(comm).size)

    @implements("ncclCommCuDevice")
    def _device_of(self, call: Call, comm: int, device: int) -> None:
        store_int(device, self._communicator(comm).device)

    @implements("ncclCommUserRank")
    def _rank_of(self, call: Call, comm: int, rank: int) -> None:
        store_int(rank, self._communicator(comm).rank)

    def _new_rendezvous(self) -> bytes:
        rendezvous = Rendezvous()
        self._keep.append(rendezvous)
        return rendezvous.unique_id

    def _join(
        self, where: int, unique_id: bytes, rank: int, size: int, device: int | None = None
    ) -> None:
        meeting = self._meetings.join(unique_id, rank)
        link = self._guarded(lambda: Link(unique_id, rank, size))
        handle = next(self._handles)
        index = self.device.index if device is None else device
        self._communicators[handle] = Communicator(link, rank, size, index, meeting)
        self._group.joining.append(link)
        store_size(where, handle)

    def _communicator(self, comm: int) -> Communicator:
        if comm not in self._communicators:
            raise LibraryError(
                "invalid_value",
                f"communicator 0x{comm:x} does not exist: it was destroyed, or never created",
            )
        return self._communicators[comm]

    # -- groups --

    @implements("ncclGroupStart")
    def _group_start(self, call: Call) -> None:
        self._group.depth += 1

    @implements("ncclGroupEnd")
    def _group_end(self, call: Call) -> None:
        call.check(self._group.depth > 0, "no group is open", "invalid_usage")
        self._group.depth -= 1
        if not self._group.depth:
            self._complete()

    def _submit(self, work: Work) -> None:
        self._group.work.append(work)
        if not self._group.depth:
            self._complete()

    def _complete(self) -> None:
        """Join the communicators and do a group's operations: send all, then wait for all."""
        joining, self._group.joining = self._group.joining, []
        everything, self._group.work = self._group.work, []
        for link in joining:
            self._guarded(link.joined)
        by_communicator: dict[int, list[Work]] = {}
        for work in everything:
            by_communicator.setdefault(id(work.communicator), []).append(work)
        groups = [(group[0].communicator.link, group) for group in by_communicator.values()]
        payloads = [[work.payload() for work in group] for _, group in groups]
        for (link, group), sent in zip(groups, payloads, strict=True):
            for work in group:
                work.begin(self.devices.order)
            operations = [work.operation for work in group]
            self._guarded(functools.partial(link.send, operations, sent))
        answers = [
            self._guarded(functools.partial(link.receive, len(group))) for link, group in groups
        ]
        for (_, group), answer in zip(groups, answers, strict=True):
            for work, data in zip(group, answer, strict=True):
                work.finish(self.devices.order, data)

    def _exchange(self, communicator: Communicator, operation: Operation, data: bytes) -> bytes:
        """Do one internal operation of the library."""
        link = communicator.link
        self._guarded(lambda: link.send([operation], [data]))
        received: list[bytes] = self._guarded(lambda: link.receive(1))
        return received[0]

    @staticmethod
    def _guarded(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except CommunicatorError as err:
            raise LibraryError("remote_error", str(err)) from err

    # -- operations --

    @implements("ncclAllReduce")
    def _all_reduce(
        self,
        call: Call,
        sendbuff: int,
        recvbuff: int,
        count: int,
        kind: int,
        op: int,
        comm: int,
        stream: int,
    ) -> None:
        self._collective(
            call, comm, kind, (sendbuff, count), (recvbuff, count), op=op, stream=stream
        )

    @implements("ncclReduce")
    def _reduce(
        self,
        call: Call,
        sendbuff: int,
        recvbuff: int,
        count: int,
        kind: int,
        op: int,
        root: int,
        comm: int,
        stream: int,
    ) -> None:
        received = (recvbuff, count) if self._communicator(comm).rank == root else None
        self._collective(
            call, comm, kind, (sendbuff, count), received, op=op, root=root, stream=stream
        )

    @implements("ncclBroadcast")
    def _broadcast(
        self,
        call: Call,
        sendbuff: int,
        recvbuff: int,
        count: int,
        kind: int,
        root: int,
        comm: int,
        stream: int,
    ) -> None:
        sent = (sendbuff, count) if self._communicator(comm).rank == root else None
        self._collective(call, comm, kind, sent, (recvbuff, count), root=root, stream=stream)

    @implements("ncclBcast")
    def _bcast(
        self, call: Call, buff: int, count: int, kind: int, root: int, comm: int, stream: int
    ) -> None:
        self._broadcast(call, buff, buff, count, kind, root, comm, stream)

    @implements("ncclReduceScatter")
    def _reduce_scatter(
        self,
        call: Call,
        sendbuff: int,
        recvbuff: int,
        count: int,
        kind: int,
        op: int,
        comm: int,
        stream: int,
    ) -> None:
        whole = count * self._communicator(comm).size
        self._collective(
            call, comm, kind, (sendbuff, whole), (recvbuff, count), op=op, stream=stream
        )

    @implements("ncclAllGather")
    def _all_gather(
        self,
        call: Call,
        sendbuff: int,
        recvbuff: int,
        count: int,
        kind: int,
        comm: int,
        stream: int,
    ) -> None:
        whole = count * self._communicator(comm).size
        self._collective(call, comm, kind, (sendbuff, count), (recvbuff, whole), stream=stream)

    @implements("ncclSend")
    def _send(
        self, call: Call, sendbuff: int, count: int, kind: int, peer: int, comm: int, stream: int
    ) -> None:
        self._collective(call, comm, kind, (sendbuff, count), None, root=peer, stream=stream)

    @implements("ncclRecv")
    def _recv(
        self, call: Call, recvbuff: int, count: int, kind: int, peer: int, comm: int, stream: int
    ) -> None:
        self._collective(call, comm, kind, None, (recvbuff, count), root=peer, stream=stream)

    def _collective(
        self,
        call: Call,
        comm: int,
        kind: int,
        sent: tuple[int, int] | None,
        received: tuple[int, int] | None,
        *,
        op: int = -1,
        root: int = -1,
        stream: int,
    ) -> None:
        """Submit an operation; a buffer is an address and a number of elements."""
        communicator = self._communicator(comm)
        call.order = self.devices.order
        queue = call.queue = call.order.queue(stream, communicator.device)
        call.check(0 <= kind < len(TYPES), f"{kind} is no ncclDataType_t that is supported")
        call.check(op < len(OPERATIONS), f"{op} is no ncclRedOp_t that is supported")
        call.check(root < communicator.size, f"rank {root}: there are {communicator.size} ranks")
        dtype = TYPES[kind]
        name = "ncclBroadcast" if call.function == "ncclBcast" else call.function
        buffers = [each for each in (sent, received) if each is not None]
        count = min((each[1] for each in buffers), default=0)
        for address, elements in buffers:
            call.check(address != 0 or elements == 0, "a buffer is a null pointer")
            block = self.devices.memory.block(address)
            if block is not None and block.device not in (None, communicator.device):
                raise LibraryError(
                    "invalid_value",
                    f"a buffer is on device {block.device}, and the communicator's rank "
                    f"{communicator.rank} is on device {communicator.device}",
                )

        def read() -> bytes:
            assert sent is not None
            return call.read("sendbuff", sent[0], (sent[1],), dtype).tobytes()

        def write(data: bytes) -> None:
            assert received is not None
            target = call.write("recvbuff", received[0], (received[1],), dtype)
            target[...] = np.frombuffer(data, dtype)

        operation = Operation(name=name, count=count, type=kind, op=op, root=root)
        writes = received is not None and received[1] > 0
        self._submit(
            Work(communicator, operation, queue, read if sent else None, write if writes else None)
        )
