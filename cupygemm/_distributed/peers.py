"""`Peers`: copies by copy engines between the ranks of a host, to a segment of each one's memory.

A rank copies rows to the segment of a peer, on the stream of the group, and then raises a flag
there. The peer's stream waits for the flag. Neither the host nor a compute unit takes part:

.. code-block:: text

    rank 0, group's stream    copy to 1 | raise arrived(0) at 1 | copy to 2 | ...
    rank 1, caller's stream   own rows ... | wait for arrived(0) | rank 0's rows

A flag counts the copies of a call that have arrived from a rank, and is 0 again when the call ends.
Calls write the two halves of a segment, and of the flags, in turns, and each call sends a flag from
each rank to each other one, even without rows. So a copy cannot overtake its reader: a rank sends
the rows of call N when it has received those of call N - 1 from the peer, which the peer sent after
it had read those of call N - 2. A call with the same arrays in the same half enqueues the same
operations, which `recordings` uses.

Processes open each other's memory by the driver's handles (IPC), and threads of a process by peer
access. Where this is not possible, `open_peers` returns None on all ranks.
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
from cupygemm._distributed.messages import Message
from cupygemm._distributed.rendezvous import Facts

_GRANULE = 2 << 20  # cudaMalloc gives smaller ones a place within a larger allocation
_FLAG_BYTES = 64
_RELEASED = 0x3F  # all bytes: a count that no call reaches
_RELEASE_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds
_RELEASE_AGAIN, _RELEASE_AGAIN_AT_MOST = 1e-4, 1e-2
"""Seconds until flags are raised again while calls wait; each time frees two queued calls."""
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

    def array(self, shape: Sequence[int], dtype: Any, offset: int) -> Any:
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

    Attributes
    ----------
    capacity : int
        The bytes of each half of a segment.
    recording : bool
        Whether the operations are kept for later, and so must not use events between streams.
    """

    def __init__(self, rank: int, size: int, stream: Any, agree: Agree) -> None:
        from cupy.cuda import Event, Stream

        self._rank, self._size, self._agree = rank, size, agree
        self._sent: list[int] = []
        self._received: list[int] = []
        self.stream = stream
        self._release_stream = Stream(non_blocking=True)
        self._driver = stream_flags()
        self._flags = Segment(2 * size * _FLAG_BYTES, rank, agree)
        self._data: Segment | None = None
        self.capacity = 0
        self._refused: float = math.inf  # bytes
        self._half = 0
        self._generation = 0  # of segments
        self._begun, self._sent_all, self._ended = (Event(disable_timing=True) for _ in range(3))
        self._released = False
        self.recording = False
        self.restart()

    def reserve(self, nbytes: int) -> bool:
        """Make each half at least as large as this; all ranks call it with the same number.

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
            self._data, self.capacity = None, 0
        try:
            half = -(-nbytes // _GRANULE) * _GRANULE
            self._data = Segment(2 * half, self._rank, self._agree)
        except PeerError:
            self._refused = nbytes
            return False
        self.capacity = half
        self._generation += 1
        return True

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return an array in the half of this rank's segment that the current call writes."""
        assert self._data is not None
        return self._data.array(shape, dtype, self._half * self.capacity)

    def place(self, *, after: int = 0) -> tuple[int, int]:
        """Return which memory a call uses: the current one, or the next one after it."""
        return self._generation, self._half ^ after

    def restart(self) -> None:
        """Count the copies of the current call anew: what was enqueued of it will not happen."""
        self._sent = [0] * self._size
        self._received = [0] * self._size

    def begin(self, stream: Any) -> None:
        """Begin a call: its copies follow the work of a stream so far, and all of the last call."""
        self._check()
        self._half ^= 1
        self.restart()
        self.stream.wait_event(self._ended)
        self._begun.record(stream)
        self.stream.wait_event(self._begun)

    def send(self, message: Message, offset: int) -> None:
        """Copy memory of this rank to a place in a peer's segment, and raise the flag there."""
        from cupy.cuda import runtime

        self._check()
        stream, (address, nbytes, peer) = self.stream.ptr, message
        if nbytes:
            assert self._data is not None
            to = self._data.addresses[peer] + self._half * self.capacity + offset
            runtime.memcpyAsync(to, address, nbytes, runtime.memcpyDeviceToDevice, stream)
        self._sent[peer] += 1
        self._driver.write(stream, self._arrived(self._rank, peer), self._sent[peer])

    def send_after(self, stream: Any, message: Message, offset: int) -> None:
        """Copy memory when a stream has written it; see `send`."""
        if self.recording:
            self._sent[self._rank] += 1
            flag = self._arrived(self._rank, self._rank)
            self._driver.write(stream.ptr, flag, self._sent[self._rank])
            self._driver.wait(self.stream.ptr, flag, self._sent[self._rank])
        else:
            self._begun.record(stream)
            self.stream.wait_event(self._begun)
        self.send(message, offset)

    def follow(self, peer: int) -> None:
        """Let the next copies wait until the next one from a peer has arrived.

        In a ring this keeps two ranks from sending to the same one.
        """
        self._wait(self.stream, peer, self._received[peer] + 1)

    def receive(self, peer: int, stream: Any) -> None:
        """Let a stream wait for the next copy of a peer."""
        self._check()
        self._received[peer] += 1
        self._wait(stream, peer, self._received[peer])

    def follow_last(self, stream: Any) -> None:
        """Let a stream wait for all of the last call."""
        stream.wait_event(self._ended)

    def end(self, stream: Any) -> None:
        """End a call: a stream waits until the copies of this rank have read their arrays."""
        from cupy.cuda import runtime

        self._sent_all.record(self.stream)
        stream.wait_event(self._sent_all)
        nbytes = self._size * _FLAG_BYTES
        runtime.memsetAsync(self._arrived(0, self._rank), 0, nbytes, stream.ptr)
        self._ended.record(stream)

    def release(self) -> None:
        """Release the streams of this rank that wait for flags, because a rank is gone."""
        self._released = True
        threading.Thread(target=self._release, name="cupygemm-release", daemon=True).start()

    def _release(self) -> None:
        """Raise all flags until no call of this rank waits any more.

        The end of each queued call lowers the flags of its half again, and late writes of other
        ranks may lower some.
        """
        from cupy.cuda import Device, runtime

        place = self._flags.addresses[self._rank]
        nbytes = 2 * self._size * _FLAG_BYTES
        with Device(self._flags.device):
            for pause in _RELEASE_PAUSES:
                time.sleep(pause)
                again = _RELEASE_AGAIN
                while True:
                    runtime.memsetAsync(place, _RELEASED, nbytes, self._release_stream.ptr)
                    if self._ended.done and self.stream.done:
                        break
                    time.sleep(again)
                    again = min(2 * again, _RELEASE_AGAIN_AT_MOST)

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

    def _wait(self, stream: Any, source: int, count: int) -> None:
        self._driver.wait(stream.ptr, self._arrived(source, self._rank), count)

    def _arrived(self, source: int, at: int) -> int:
        """Return the address, at one rank, of the count of copies that arrived from another.

        That of a rank's own counts what it has multiplied for the others, while it records.
        """
        return self._flags.addresses[at] + (self._half * self._size + source) * _FLAG_BYTES


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
