"""`Recordings`: repeated calls that send rows to peers' memory, kept as graphs.

The host enqueues some 30 operations for such a call of four devices, which takes longer than a
product of medium size. A call with the same arrays, in the same half of the segments, enqueues the
same operations. The second such call is captured, and it and later ones launch the graphs:

.. code-block:: text

    group's stream    copies
    caller's stream   products            (all_gather_matmul)
    caller's stream   products | sum      (matmul_reduce_scatter, in two graphs)

Such a graph is one chain of operations, so that a wait for a flag never delays an operation that
could run. Flags, not events, order the chains of a rank. A call whose rows are stored by a kernel
is a single graph. Each rank decides separately whether to record, since the other ranks see the
same rows and flags in either case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from cupygemm._distributed.peers import Peers
from cupygemm._distributed.product_streams import ProductStreams
from cupygemm._distributed.segment import PeerError
from cupygemm._distributed.shortcuts import Shortcuts
from cupygemm._plan.table import PlanTable

_TABLE_SIZE = 512
_ALIGNMENT = 512  # bytes, as in CuPy's pool
_SEEN = "seen"
Enqueue = Callable[[ProductStreams, Callable[[], None]], None]


class Recordings:
    """The recorded calls of a rank.

    Parameters
    ----------
    peers : Peers
    second_stream : cupy.cuda.Stream
        The stream for captures, and for every second product of a call that is not recorded.

    Attributes
    ----------
    shortcuts : Shortcuts
    launched : (hashable, recording) or None
        The recording that `replay` launched last, and the memory that it uses.
    """

    def __init__(self, peers: Peers, second_stream: Any) -> None:
        self._peers, self._second = peers, second_stream
        self._table = PlanTable(_TABLE_SIZE)
        self._scratch = _Scratch()
        self._captures = True  # until the driver refuses
        self.shortcuts = Shortcuts()
        self.launched: tuple[Hashable, _Recording] | None = None

    @property
    def next_place(self) -> Hashable:
        """Return which memory the next call uses."""
        return self._peers.place(after=1)

    def replay(self, call: Hashable) -> bool:
        """Enqueue a call if it is recorded; return whether it was.

        Parameters
        ----------
        call : hashable
            From `Transport.placed`; None for a call that cannot be recorded.
        """
        if call is None:
            return False
        place = self.next_place
        found = self._table.get((call, place))
        if not isinstance(found, _Recording):
            return False
        self.launch(found)
        self.launched = place, found
        return True

    def launch(self, recording: _Recording) -> None:
        """Begin a call, launch its recording, and end it, on the current stream."""
        from cupy.cuda import get_current_stream

        stream, peers = get_current_stream(), self._peers
        if recording.one_stream:
            peers.begin_on(stream)
            recording.launch(stream, peers)
            peers.end_on(stream)
        else:
            peers.begin(stream)
            recording.launch(stream, peers)
            peers.end(stream)

    def enqueue(self, call: Hashable, run: Enqueue, *, one_stream: bool = False) -> None:
        """Enqueue the operations of a call that has begun, and record them if the call is repeated.

        Parameters
        ----------
        call : hashable
            As in `replay`.
        run : callable
            ``run(streams, split)`` enqueues them: products on `streams`, copies on the copy stream.
            It calls ``split()`` before the first product waits for another rank. It is called
            again if the driver refuses the capture.
        one_stream : bool
            Whether all operations are on the current stream.
        """
        from cupy.cuda import get_current_stream

        if call is not None and not (one_stream and self._peers.among_threads):
            place = (call, self._peers.place())
            seen = self._table.get(place) == _SEEN
            recording = self._recorded(run, one_stream) if seen and self._captures else None
            self._table.keep(place, recording or _SEEN)
            if recording is not None:
                recording.launch(get_current_stream(), self._peers)
                return
        run(ProductStreams(None if one_stream else self._second), _nothing)

    def _recorded(self, run: Enqueue, one_stream: bool) -> _Recording | None:
        copying = None if one_stream else self._peers.stream
        recording = _Recording(copying, self._second, self._scratch)
        try:
            with recording.captured(self._peers):
                run(ProductStreams(None), recording.split)
        except PeerError:
            raise
        except RuntimeError:  # an error of CuPy, or of a driver function
            self._captures = False
            self._peers.restart()
            return None
        return recording


class _Scratch:
    """Memory that all recorded calls of a rank share, since they run one after another."""

    def __init__(self) -> None:
        self._block: Any = None
        self._used = 0

    def rewind(self) -> None:
        """Start over: the next allocations belong to another call."""
        self._used = 0

    def allocate(self, nbytes: int, kept: list[Any]) -> Any:
        """Allocate memory for a place, keep it in a list, and return the place."""
        from cupy.cuda import Memory, MemoryPointer

        nbytes = max(_ALIGNMENT, -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        if self._block is None or self._used + nbytes > self._block.size:
            self._block, self._used = Memory(max(nbytes, self._used)), 0
        place = MemoryPointer(self._block, self._used)
        self._used += nbytes
        kept.append(self._block)
        return place


class _Recording:
    """The graphs of a call, and the memory that they use.

    Parameters
    ----------
    copying : cupy.cuda.Stream or None
        The stream of the call's copies; None if one stream has all of its work.
    multiplying : cupy.cuda.Stream
        The stream on which its products are captured.
    scratch : _Scratch

    Attributes
    ----------
    one_stream : bool
        Whether the recording is one graph.
    """

    def __init__(self, copying: Any, multiplying: Any, scratch: _Scratch) -> None:
        self._copying, self._multiplying, self._scratch = copying, multiplying, scratch
        self._kept: list[Any] = []
        self._first: Any = None
        self._copies: Any = None
        self._last: Any = None
        self.one_stream = copying is None

    @contextlib.contextmanager
    def captured(self, peers: Peers) -> Iterator[None]:
        """Capture the work of the current stream and of the copy stream."""
        from cupy.cuda import using_allocator

        self._scratch.rewind()
        peers.recording = True
        try:
            with using_allocator(self._allocate), self._multiplying:
                for stream in self._captured_streams():
                    stream.begin_capture()
                yield
        finally:
            peers.recording = False
            *copies, self._last = map(_captured, self._captured_streams())
        if None in (*copies, self._last):
            raise RuntimeError("the driver has captured no work")
        if copies:
            (self._copies,) = copies

    def _captured_streams(self) -> list[Any]:
        return [self._multiplying] if self.one_stream else [self._copying, self._multiplying]

    def split(self) -> None:
        """End the first graph of products: the following ones are launched after the copies."""
        self._first = self._multiplying.end_capture()
        self._multiplying.begin_capture()

    def launch(self, stream: Any, peers: Peers) -> None:
        """Enqueue the call on a stream and the copy stream, after the whole last call."""
        if self.one_stream:
            self._last.launch(stream)
            return
        peers.follow_last(stream)
        if self._first is not None:
            self._first.launch(stream)
        self._copies.launch(peers.stream)
        peers.sent()
        self._last.launch(stream)

    def _allocate(self, nbytes: int) -> Any:
        return self._scratch.allocate(nbytes, self._kept)


def _captured(stream: Any) -> Any:
    """End a stream's capture and return its graph; None if an error has ended the capture."""
    try:
        return stream.end_capture()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Do nothing: without a recording, there are no graphs to separate."""
