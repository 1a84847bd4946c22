"""`Peers`: copies by copy engines between the ranks of a host, to a segment of each one's memory.

A rank copies rows to the segment of a peer, on the stream of the group, and then writes a flag
there. The peer's stream waits for the flag. Neither the host nor a compute unit takes part:

.. code-block:: text

    rank 0, group's stream    wait ready(1) | copy to 1 | write arrived(0) at 1 | ...
    rank 1, caller's stream   write ready(1) at 0 | own rows ... | wait arrived(0) | rank 0's rows

A flag is a counter. For each rank, there is one of the calls for which its segment may be written,
and one of the copies that have arrived from it. Processes open each other's memory by the driver's
handles (IPC), and threads of a process by peer access. Where this is not possible, `open_peers`
returns None on all ranks.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cupygemm._backends.stream_flags import stream_flags
from cupygemm._distributed.rendezvous import Facts

_GRANULE = 2 << 20  # cudaMalloc gives smaller ones a place within a larger allocation
_FLAG_BYTES = 64
_RELEASED = 0x3F  # all bytes: a count that no group reaches
_RELEASE_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds
_HANDLE_KIND = "handle"

Agree = Callable[[Facts], list[Facts]]


class Segment:
    """Memory of this rank, and the addresses of the segments of all ranks, by rank.

    Parameters
    ----------
    nbytes : int
        The same on all ranks.
    rank : int
    agree : callable
        Returns the facts of all ranks.

    Raises
    ------
    PeerError
        A rank cannot open the memory of another one.
    """

    def __init__(self, nbytes: int, rank: int, agree: Agree) -> None:
        from cupy.cuda import Memory, runtime
        from cupy.cuda.memory import OutOfMemoryError

        self.nbytes = -(-nbytes // _GRANULE) * _GRANULE
        self._rank = rank
        self._opened: list[int] = []
        self.addresses: list[int] = []
        self._memory: Any = None
        self.device = runtime.getDevice()
        problem = ""
        try:
            self._memory = Memory(self.nbytes)
            runtime.memset(self._memory.ptr, 0, self.nbytes)
            runtime.deviceSynchronize()
        except OutOfMemoryError as err:
            problem = str(err)
        everybody = agree({} if problem else self._own_facts())
        try:
            if all(everybody):
                self.addresses = [self._open(r, facts) for r, facts in enumerate(everybody)]
        except (runtime.CUDARuntimeError, PeerError) as err:
            problem = str(err)
        problems = [facts["problem"] for facts in agree({"problem": problem})]
        if any(problems):
            self.close()
            raise PeerError(next(filter(None, problems)))

    def _own_facts(self) -> Facts:
        from cupy.cuda import runtime

        facts = {
            "host": _host(),
            "process": os.getpid(),
            "device": self._memory.device_id,
            "address": self._memory.ptr,
            _HANDLE_KIND: "",
        }
        with contextlib.suppress(runtime.CUDARuntimeError):  # needed between processes only
            facts[_HANDLE_KIND] = runtime.ipcGetMemHandle(self._memory.ptr).hex()
        return facts

    def _open(self, rank: int, facts: Facts) -> int:
        from cupy.cuda import runtime

        if rank == self._rank:
            return int(self._memory.ptr)
        if facts["host"] != _host():
            raise PeerError("the ranks are on different hosts")
        own = self._memory.device_id
        if facts["process"] == os.getpid():
            if not runtime.deviceCanAccessPeer(own, facts["device"]):
                raise PeerError(f"device {own} cannot access device {facts['device']}")
            with contextlib.suppress(runtime.CUDARuntimeError):  # it is enabled already
                runtime.deviceEnablePeerAccess(facts["device"])
            return int(facts["address"])
        if not facts[_HANDLE_KIND]:
            raise PeerError("the driver gives no handles of memory to other processes")
        address = int(runtime.ipcOpenMemHandle(bytes.fromhex(facts[_HANDLE_KIND])))
        self._opened.append(address)
        return address

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> Any:
        """Return an array in this rank's own segment."""
        import cupy

        place = cupy.cuda.MemoryPointer(self._memory, offset)
        return cupy.ndarray(tuple(shape), dtype, place)

    def close(self) -> None:
        """Close the memory of the others; their copies to this rank's memory must have ended."""
        from cupy.cuda import runtime

        for address in self._opened:
            with contextlib.suppress(runtime.CUDARuntimeError):
                runtime.ipcCloseMemHandle(address)
        self._opened.clear()


class PeerError(RuntimeError):
    """Ranks cannot open each other's memory; the message says why."""


class Peers:
    """Copies between the ranks of one host.

    Parameters
    ----------
    rank, size : int
    stream : cupy.cuda.Stream
        On which copies are enqueued.
    agree : callable
        Returns the facts of all ranks.
    """

    def __init__(self, rank: int, size: int, stream: Any, agree: Agree) -> None:
        from cupy.cuda import Stream

        self._rank, self._size, self._agree = rank, size, agree
        self.stream = stream
        self._release_stream = Stream(non_blocking=True)
        self._driver = stream_flags()
        self._flags = Segment(2 * size * _FLAG_BYTES, rank, agree)
        self._data: Segment | None = None
        self._refused: float = math.inf  # bytes
        self._calls = 0
        self._waiting: set[int] = set()
        self._released = False
        self._sent = [0] * size
        self._received = [0] * size

    @property
    def capacity(self) -> int:
        """Return the bytes of each segment."""
        return 0 if self._data is None else self._data.nbytes

    def reserve(self, nbytes: int) -> bool:
        """Make each segment at least as large as this; all ranks call it with the same number.

        Returns
        -------
        bool
            Whether all ranks have enough memory.
        """
        from cupy.cuda import runtime

        if nbytes <= self.capacity:
            return True
        if nbytes >= self._refused:
            return False
        runtime.deviceSynchronize()  # no copy of this rank is in progress
        self._agree({"reserve": nbytes})
        if self._data is not None:
            self._data.close()
            self._agree({"closed": nbytes})
            self._data = None
        try:
            self._data = Segment(nbytes, self._rank, self._agree)
        except PeerError:
            self._refused = nbytes
            return False
        return True

    def array(self, shape: Sequence[int], dtype: Any, offset: int = 0) -> Any:
        """Return an array in this rank's segment, which other ranks write."""
        assert self._data is not None
        return self._data.array(shape, dtype, offset)

    def begin(self, stream: Any) -> None:
        """Begin a call: peers may write this rank's segment after the stream's work so far."""
        self._check()
        self._calls += 1
        self.stream.wait_event(stream.record())
        for peer in self._peers():
            self._write(self.stream, self._ready(self._rank, peer))
        self._waiting = set(self._peers())

    def send(self, array: Any, peer: int, offset: int) -> None:
        """Copy a contiguous array to a place in a peer's segment."""
        from cupy.cuda import runtime

        self._check()
        assert self._data is not None
        if not array.nbytes:
            return
        if peer in self._waiting:
            self._waiting.discard(peer)
            self._driver.wait(self.stream.ptr, self._ready(peer, self._rank), self._calls)
        to = self._data.addresses[peer] + offset
        runtime.memcpyAsync(
            to, array.data.ptr, array.nbytes, runtime.memcpyDeviceToDevice, self.stream.ptr
        )
        self._sent[peer] += 1
        place = self._arrived(self._rank, peer)
        self._driver.write(self.stream.ptr, place, self._sent[peer])

    def send_after(self, stream: Any, array: Any, peer: int, offset: int) -> None:
        """Copy an array when a stream has written it; see `send`."""
        if array.nbytes:
            self.stream.wait_event(stream.record())
            self.send(array, peer, offset)

    def receive(self, peer: int, stream: Any) -> None:
        """Let a stream wait for the next copy of a peer, which must not be empty."""
        self._check()
        self._received[peer] += 1
        self._driver.wait(stream.ptr, self._arrived(peer, self._rank), self._received[peer])

    def end(self, stream: Any) -> None:
        """Let a stream wait until the copies of this rank have read their arrays."""
        stream.wait_event(self.stream.record())

    def release(self) -> None:
        """Release the streams of this rank that wait for flags, because a rank is gone."""
        self._released = True
        threading.Thread(target=self._release, name="cupygemm-release", daemon=True).start()

    def _release(self) -> None:
        """Raise all flags, several times, because writes of other ranks may lower them again."""
        from cupy.cuda import Device, runtime

        place = self._flags.addresses[self._rank]
        nbytes = 2 * self._size * _FLAG_BYTES
        for pause in _RELEASE_PAUSES:
            time.sleep(pause)
            with Device(self._flags.device):
                runtime.memsetAsync(place, _RELEASED, nbytes, self._release_stream.ptr)

    def _check(self) -> None:
        if self._released:
            raise PeerError("a rank of the group is gone")

    def close(self) -> None:
        """Close the memory of the others, when all work of this rank has ended."""
        from cupy.cuda import runtime

        runtime.deviceSynchronize()
        for segment in (self._flags, self._data):
            if segment is not None:
                segment.close()

    def _peers(self) -> list[int]:
        return [peer for peer in range(self._size) if peer != self._rank]

    def _write(self, stream: Any, place: int) -> None:
        self._driver.write(stream.ptr, place, self._calls)

    def _ready(self, source: int, at: int) -> int:
        """Return the address, at one rank, of the count of calls of which another is ready."""
        return self._flags.addresses[at] + source * _FLAG_BYTES

    def _arrived(self, source: int, at: int) -> int:
        """Return the address, at one rank, of the count of copies that arrived from another."""
        return self._flags.addresses[at] + (self._size + source) * _FLAG_BYTES


def open_peers(rank: int, size: int, stream: Any, agree: Agree) -> Peers | None:
    """Return the peers of a group, or None if a rank cannot open another one's memory.

    All ranks call this function, and get the same answer.
    """
    try:
        return Peers(rank, size, stream, agree)
    except PeerError:
        return None


def _host() -> str:
    """Return what identifies the running system, which containers on it share."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()
