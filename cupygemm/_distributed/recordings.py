"""`Recordings`: calls whose rows travel by copies, kept as graphs when they come again.

The host enqueues some 30 operations for such a call of four devices, which takes longer than a
product of medium size. A call with the same arrays, in the same half of the segments, enqueues the
same operations. The second such call is captured, and it and later ones launch the graphs:

.. code-block:: text

    group's stream    copies
    caller's stream   products            (all_gather_matmul)
    caller's stream   products | sum      (matmul_reduce_scatter, in two graphs)

A graph is one chain of operations, so that a wait for a flag never stands before an operation that
could run. Flags, not events, order the chains of a rank. Each rank decides for itself, as the other
ranks see the same copies and flags.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from cupygemm._distributed.peers import PeerError, Peers
from cupygemm._distributed.product_streams import ProductStreams
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
        For captures, and for every second product of a call that is not recorded.
    """

    def __init__(self, peers: Peers, second_stream: Any) -> None:
        self._peers, self._second = peers, second_stream
        self._table = PlanTable(_TABLE_SIZE)
        self._scratch = _Scratch()
        self._captures = True  # until the driver refuses

    def replay(self, call: Hashable) -> bool:
        """Enqueue a call if it is recorded; return whether it is.

        Parameters
        ----------
        call : hashable
            From `Way.placed`; None for a call that cannot be recorded.
        """
        from cupy.cuda import get_current_stream

        found = None if call is None else self._table.get((call, self._peers.place(after=1)))
        if not isinstance(found, _Recording):
            return False
        stream = get_current_stream()
        self._peers.begin(stream)
        found.launch(stream, self._peers)
        self._peers.end(stream)
        return True

    def enqueue(self, call: Hashable, run: Enqueue) -> None:
        """Enqueue the operations of a call that has begun, and keep them if it came before.

        Parameters
        ----------
        call : hashable
            As in `replay`.
        run : callable
            Enqueues them, on streams for products and that of the copies. The function that it is
            given is to be called before the first wait of a product for what depends on the others.
            It is called again if the driver refuses the capture.
        """
        from cupy.cuda import get_current_stream

        if call is not None:
            place = (call, self._peers.place())
            seen = self._table.get(place) == _SEEN
            recording = self._recorded(run) if seen and self._captures else None
            self._table.keep(place, recording or _SEEN)
            if recording is not None:
                recording.launch(get_current_stream(), self._peers)
                return
        run(ProductStreams(self._second), _nothing)

    def _recorded(self, run: Enqueue) -> _Recording | None:
        recording = _Recording(self._peers.stream, self._second, self._scratch)
        try:
            with recording.captured(self._peers):
                run(ProductStreams(None), recording.split)
        except PeerError:
            raise
        except RuntimeError:  # of CuPy, or of a function of the driver
            self._captures = False
            self._peers.restart()
            return None
        return recording


class _Scratch:
    """Memory that all recorded calls of a rank share, since they follow each other."""

    def __init__(self) -> None:
        self._block: Any = None
        self._used = 0

    def rewind(self) -> None:
        """Begin again: what is allocated next belongs to another call."""
        self._used = 0

    def allocate(self, nbytes: int, kept: list[Any]) -> Any:
        """Return a place, and keep its memory in a list."""
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
    copying : cupy.cuda.Stream
        On which the call enqueues copies.
    multiplying : cupy.cuda.Stream
        On which its products are captured.
    scratch : _Scratch
    """

    def __init__(self, copying: Any, multiplying: Any, scratch: _Scratch) -> None:
        self._copying, self._multiplying, self._scratch = copying, multiplying, scratch
        self._kept: list[Any] = []
        self._first: Any = None
        self._copies: Any = None
        self._last: Any = None

    @contextlib.contextmanager
    def captured(self, peers: Peers) -> Iterator[None]:
        """Capture what is enqueued on the current stream and on that of the copies."""
        from cupy.cuda import using_allocator

        self._scratch.rewind()
        peers.recording = True
        try:
            with using_allocator(self._allocate), self._multiplying:
                self._copying.begin_capture()
                self._multiplying.begin_capture()
                yield
        finally:
            peers.recording = False
            self._copies, self._last = map(_captured, (self._copying, self._multiplying))
        if self._copies is None or self._last is None:
            raise RuntimeError("the driver has captured nothing")

    def split(self) -> None:
        """Let products from here on be launched after the copies."""
        self._first = self._multiplying.end_capture()
        self._multiplying.begin_capture()

    def launch(self, stream: Any, peers: Peers) -> None:
        """Enqueue the call on a stream and that of the copies, after all of the last call."""
        peers.follow_last(stream)
        if self._first is not None:
            self._first.launch(stream)
        self._copies.launch(peers.stream)
        self._last.launch(stream)

    def _allocate(self, nbytes: int) -> Any:
        return self._scratch.allocate(nbytes, self._kept)


def _captured(stream: Any) -> Any:
    """Return the graph of a stream, which captures no longer; None if an error has ended it."""
    try:
        return stream.end_capture()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Separate no graphs, where nothing is recorded."""
