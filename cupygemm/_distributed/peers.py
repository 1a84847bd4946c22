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

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cupygemm._backends.stream_flags import stream_flags
from cupygemm._distributed.messages import Message
from cupygemm._distributed.segment import GRANULE, Agree, PeerError, Segment

_FLAG_BYTES = 64
_RELEASED = 0x3F  # all bytes: a count that no call reaches
_RELEASE_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds
_RELEASE_AGAIN, _RELEASE_AGAIN_AT_MOST = 1e-4, 1e-2
"""Seconds until flags are raised again while calls wait; each time frees two queued calls."""


class Peers:
    """Copies between the ranks of one host.

    Parameters
    ----------
    rank, size : int
    stream : cupy.cuda.Stream
        On which copies are enqueued.
    agree : callable
        Returns the facts of all ranks.
    meet : callable, optional
        Waits for the other ranks, where some are threads of one process; see `Group.meet_threads`.

    Attributes
    ----------
    capacity : int
        The bytes of each half of a segment.
    recording : bool
        Whether the operations are kept for later, and so must not use events between streams.
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
        self._sent: list[int] = []
        self._received: list[int] = []
        self.stream = stream
        self._release_stream = Stream(non_blocking=True)
        self._sides: list[Any] = []  # for captures only
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
            half = -(-nbytes // GRANULE) * GRANULE
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
        self._send(message, offset, self.stream)

    def _send(self, message: Message, offset: int, stream: Any) -> None:
        from cupy.cuda import runtime

        self._check()
        pointer, (address, nbytes, peer) = stream.ptr, message
        if nbytes:
            assert self._data is not None
            to = self._data.addresses[peer] + self._half * self.capacity + offset
            runtime.memcpyAsync(to, address, nbytes, runtime.memcpyDeviceToDevice, pointer)
        if peer != self._rank:
            self._sent[peer] += 1
            self._driver.write(pointer, self._arrived(self._rank, peer), self._sent[peer])

    def send_at_once(self, sends: Sequence[tuple[Message, int]], stream: Any) -> None:
        """Send several messages after the work of a stream, which goes on when all are sent.

        In a recording, the copies are in progress together. This rank may be one of the targets.
        """
        from cupy.cuda import Stream

        if not self.recording:
            for message, offset in sends:
                self._send(message, offset, stream)
            return
        if not self._sides:
            self._sides = [Stream(non_blocking=True) for _ in range(self._size)]
        start, ends = stream.record(), []
        for side, (message, offset) in zip(self._sides, sends, strict=True):
            side.wait_event(start)
            self._send(message, offset, side)
            ends.append(side.record())
        for end in ends:
            stream.wait_event(end)

    def receive_all(self, stream: Any) -> None:
        """Let a stream wait for the next copy of each peer."""
        for peer in range(self._size):
            if peer != self._rank:
                self.receive(peer, stream)

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

        In a ring this keeps two ranks from sending to the same one. Where ranks share a process,
        it is left out, so that nothing waits for another rank before all have met.
        """
        if self._meet is None:
            self._wait(self.stream, peer, self._received[peer] + 1)

    def sent(self) -> None:
        """Let no stream wait for a peer before each rank has enqueued all copies of the call.

        To be called before `receive`. It matters only where ranks share a process.
        """
        if self._meet is not None and not self.recording:
            self._meet()

    @property
    def among_threads(self) -> bool:
        """Whether ranks share a process."""
        return self._meet is not None

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
        self._sent_all.record(self.stream)
        stream.wait_event(self._sent_all)
        self.lower_flags(stream)
        self._ended.record(stream)

    def begin_at_once(self, stream: Any) -> None:
        """Begin a call on one stream, which waits for all of the last call."""
        self._check()
        self._half ^= 1
        self.restart()
        stream.wait_event(self._ended)

    def end_at_once(self, stream: Any) -> None:
        """End such a call, which has lowered its flags."""
        self._ended.record(stream)

    def lower_flags(self, stream: Any) -> None:
        """Set the flags of this rank to 0 when a stream has waited for them."""
        from cupy.cuda import runtime

        nbytes = self._size * _FLAG_BYTES
        runtime.memsetAsync(self._arrived(0, self._rank), 0, nbytes, stream.ptr)

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
