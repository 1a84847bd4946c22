"""`Peers`: the ranks of a host copy rows to a segment of each other's memory.

A rank copies rows to the segment of a peer, on the stream of the group, and then raises a flag
there. The peer's stream waits for the flag. This involves neither the host nor compute units:

.. code-block:: text

    rank 0, group's stream    copy to 1 | raise arrived(0) at 1 | copy to 2 | ...
    rank 1, caller's stream   own rows ... | wait for arrived(0) | rank 0's rows

A flag counts the copies of a call that have arrived from a rank, and is 0 again when the call ends.
Calls alternate between the two halves of a segment, and of the flags, and each call sends a flag
from each rank to each other one, even without rows. So a copy cannot overwrite rows that are still
being read: a rank sends the rows of call N after it has received those of call N - 1 from the peer,
which the peer sent after it had read those of call N - 2. A call with the same arrays in the same
half enqueues the same operations; `recordings` relies on this.

For little data, one kernel stores all rows in the segments of the peers instead, and each rank
raises all flags and waits for all of its own in one operation (`store`, `exchange_flags`).

Processes open each other's memory by the driver's handles (IPC), and threads of a process by peer
access. Where this is not possible, `open_peers` returns None on all ranks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cupygemm._backends.stream_flags import FlagOperation, stream_flags
from cupygemm._distributed.messages import Message
from cupygemm._distributed.peer_stores import Copy, store_copies
from cupygemm._distributed.segment import GRANULE, Agree, PeerError, Segment

_FLAG_BYTES = 64
_RELEASED = 0x3F  # all bytes: more than any call counts
_RELEASE_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds
_RELEASE_AGAIN, _RELEASE_AGAIN_AT_MOST = 1e-4, 1e-2
"""Seconds until flags are raised again while calls wait; each time frees two queued calls."""


class Peers:
    """Copies between the ranks of one host.

    Parameters
    ----------
    rank, size : int
    stream : cupy.cuda.Stream
        The stream of the copies.
    agree : callable
        Returns the facts of all ranks.
    meet : callable, optional
        Waits for the other ranks, if some are threads of one process; see `Group.meet_threads`.

    Attributes
    ----------
    capacity : int
        The bytes of each half of a segment.
    others_first : list of int
        All ranks, beginning after this one and ending with it.
    recording : bool
        Whether operations are recorded, and so must not use events between streams.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        stream: Any,
        agree: Agree,
        *,
        meet: Callable[[], None] | None = None,
    ) -> None:
        from cupy.cuda import Event, Stream

        self._rank, self._size, self._agree, self._meet = rank, size, agree, meet
        self.others_first = [(rank + shift) % size for shift in range(1, size + 1)]
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
        """Enlarge each half to at least this size; all ranks call it with the same number.

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
            half = -(-nbytes // GRANULE) * GRANULE
            self._data = Segment(2 * half, self._rank, self._agree)
        except PeerError:
            self._refused = nbytes
            return False
        self.capacity = half
        self._generation += 1
        return True

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return an array in the current call's half of this rank's segment."""
        assert self._data is not None
        return self._data.array(shape, dtype, self._half * self.capacity)

    def place(self, *, after: int = 0) -> tuple[int, int]:
        """Return which memory a call uses, the current one or the next one."""
        return self._generation, self._half ^ after

    def restart(self) -> None:
        """Reset the counts of the current call, because its enqueued copies will not run."""
        self._sent = [0] * self._size
        self._received = [0] * self._size

    def begin(self, stream: Any) -> None:
        """Begin a call: its copies follow all work so far on a stream, and the whole last call."""
        self._check()
        self._half ^= 1
        self.restart()
        self.stream.wait_event(self._ended)
        self._begun.record(stream)
        self.stream.wait_event(self._begun)

    def send(self, message: Message, offset: int) -> None:
        """Copy memory of this rank to a place in a peer's segment, and raise the peer's flag."""
        from cupy.cuda import runtime

        self._check()
        pointer, (address, nbytes, peer) = self.stream.ptr, message
        if nbytes:
            assert self._data is not None
            to = self._data.addresses[peer] + self._half * self.capacity + offset
            runtime.memcpyAsync(to, address, nbytes, runtime.memcpyDeviceToDevice, pointer)
        self._sent[peer] += 1
        self._driver.write(pointer, self._arrived(self._rank, peer), self._sent[peer])

    def store(self, sends: Sequence[tuple[Message, int]], stream: Any) -> None:
        """Store messages at places in the segments of peers, or of this rank, by one kernel."""
        self._check()
        assert self._data is not None
        start = self._half * self.capacity
        copies = [
            Copy(address, self._data.addresses[peer] + start + offset, nbytes)
            for (address, nbytes, peer), offset in sends
        ]
        store_copies(copies, stream)

    def exchange_flags(self, stream: Any) -> None:
        """Tell all peers that `store` is done, and wait until all of them have done theirs.

        The flags of this rank are 0 again afterwards.
        """
        peers = self.others_first[:-1]
        told = [FlagOperation("write", self._arrived(self._rank, peer), 1) for peer in peers]
        own = [self._arrived(peer, self._rank) for peer in peers]
        met = [FlagOperation("wait", flag, 1) for flag in own]
        lowered = [FlagOperation("write", flag, 0) for flag in own]
        if self._meet is not None:
            self._driver.enqueue(stream.ptr, told)
            self.sent()
            told = []
        self._driver.enqueue(stream.ptr, [*told, *met, *lowered])

    def send_after(self, stream: Any, message: Message, offset: int) -> None:
        """Copy memory after a stream has written it; see `send`."""
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
        """Make the next copies wait until the next one from a peer has arrived.

        In a ring this prevents two ranks from sending to the same one. If ranks share a process,
        it has no effect, so that nothing waits for another rank before all have met.
        """
        if self._meet is None:
            self._wait(self.stream, peer, self._received[peer] + 1)

    def sent(self) -> None:
        """Wait until each rank has enqueued all its copies, so that streams may wait for them.

        Call it before `receive`. It has an effect only if ranks share a process.
        """
        if self._meet is not None and not self.recording:
            self._meet()

    @property
    def among_threads(self) -> bool:
        """Whether ranks share a process."""
        return self._meet is not None

    def receive(self, peer: int, stream: Any) -> None:
        """Make a stream wait for the next copy of a peer."""
        self._check()
        self._received[peer] += 1
        self._wait(stream, peer, self._received[peer])

    def follow_last(self, stream: Any) -> None:
        """Make a stream wait for the whole last call."""
        stream.wait_event(self._ended)

    def end(self, stream: Any) -> None:
        """End a call: make a stream wait until the copies of this rank have read their arrays."""
        from cupy.cuda import runtime

        self._sent_all.record(self.stream)
        stream.wait_event(self._sent_all)
        flags = self._arrived(0, self._rank)
        runtime.memsetAsync(flags, 0, self._size * _FLAG_BYTES, stream.ptr)
        self._ended.record(stream)

    def begin_on(self, stream: Any) -> None:
        """Begin a call with all its work on one stream, which waits for the whole last call."""
        self._check()
        self._half ^= 1
        self.restart()
        stream.wait_event(self._ended)

    def end_on(self, stream: Any) -> None:
        """End such a call."""
        self._ended.record(stream)

    def release(self) -> None:
        """Release the streams of this rank that wait for flags, because a rank has ended."""
        self._released = True
        threading.Thread(target=self._release, name="cupygemm-release", daemon=True).start()

    def _release(self) -> None:
        """Raise all flags until no call of this rank waits.

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
            raise PeerError("a rank of the group has ended")

    def close(self) -> None:
        """Close the memory of the others, after all work of this rank has ended."""
        from cupy.cuda import runtime

        runtime.deviceSynchronize()
        for segment in (self._flags, self._data):
            if segment is not None:
                segment.close()

    def _wait(self, stream: Any, source: int, count: int) -> None:
        self._driver.wait(stream.ptr, self._arrived(source, self._rank), count)

    def _arrived(self, source: int, at: int) -> int:
        """Return the address, at one rank, of the count of copies that arrived from another.

        During a recording, a rank's own count is used for the products that it has computed for the
        others.
        """
        return self._flags.addresses[at] + (self._half * self._size + source) * _FLAG_BYTES


def open_peers(
    rank: int, size: int, stream: Any, agree: Agree, *, meet: Callable[[], None] | None = None
) -> Peers | None:
    """Return the peers of a group, or None if a rank cannot open another one's memory.

    All ranks call this function, and get the same answer.
    """
    try:
        return Peers(rank, size, stream, agree, meet=meet)
    except PeerError:
        return None
