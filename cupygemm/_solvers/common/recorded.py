"""Work that is recorded in a graph when repeated, so that the host launches it in one call.

A graph contains the addresses of all memory that it uses. So the work allocates from one block. The
first call determines its size, by placing each allocation in an imaginary block. The second call
allocates such a block and records a graph. Later calls allocate a block of this size, and launch
the graph if it has the same address. A memory pool returns the same address as long as calls
repeat; the block is free between calls.

::

    block   | input | V | sums | ... | factors |     each allocation, at a separate place
            | input | V |  T   | ... | result  |     places are taken again, as by the pool

Work may begin before all of its input is stored. Its beginning is then a separate graph, which is
launched on the side stream::

    current stream   | store the first part | store the rest                | the rest of the work
    side stream                             | work on the first part only    |
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from cupygemm._backends.device import current_device
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import forked
from cupygemm._solvers.common.errors import is_capturing
from cupygemm._solvers.common.products import as_if_recorded

Input = TypeVar("Input")
Result = TypeVar("Result")
_UNIT = 512
"""Allocations begin at multiples of this number of bytes, as in CuPy's pool."""
_SPARE = 16
"""A block is larger by one part in this many, since recorded work may allocate differently."""
_MOST_CASES = 8
_MOST_GRAPHS = 2
"""The most graphs of a case, one per address; at further addresses, none is launched."""


class _Places:
    """The allocated parts of a block; parts that a stream freed are reused only by that stream."""

    def __init__(self) -> None:
        self.size = 0
        self._free: dict[int, list[tuple[int, int]]] = {}

    def take(self, size: int, stream: int) -> int:
        """Allocate a part, and return its start."""
        free = self._free.setdefault(stream, [])
        fitting = [(length, start) for start, length in free if length >= size]
        if not fitting:
            self.size += size
            return self.size - size
        length, start = min(fitting)
        free.remove((start, length))
        if length > size:
            free.append((start + size, length - size))
        return start

    def give_back(self, start: int, size: int, stream: int) -> None:
        """Free a part."""
        free = self._free[stream]
        for part in list(free):
            if part[0] + part[1] == start or start + size == part[0]:
                free.remove(part)
                start, size = min(start, part[0]), size + part[1]
        free.append((start, size))


class _Part:
    """A part of a block, which is freed when its memory is no longer referenced."""

    def __init__(self, places: _Places, size: int, stream: int, kept: Any) -> None:
        self._places, self._size, self._stream = places, size, stream
        self._kept = kept
        self.start = places.take(size, stream)

    def __del__(self) -> None:
        self._places.give_back(self.start, self._size, self._stream)


def _allocator(
    places: _Places, allocate: Callable[[int], Any], block: Any = None, size: int = 0
) -> Callable[[int], Any]:
    """Return an allocator in a block or, without a block, one that simulates it.

    Parameters
    ----------
    places : _Places
    allocate : callable
        The allocator of memory outside the block.
    block : cupy.cuda.MemoryPointer, optional
    size : int
        The bytes of the block.
    """
    from cupy.cuda import MemoryPointer, UnownedMemory, get_current_stream

    def allocated(wanted: int) -> Any:
        rounded = max(-(-wanted // _UNIT), 1) * _UNIT
        # Only a `_Part` is kept, not the block, which is free between calls.
        memory = allocate(rounded) if block is None else None
        part = _Part(places, rounded, int(get_current_stream().ptr), memory)
        if memory is not None:
            address = memory.ptr
        elif part.start + rounded <= size:
            address = block.ptr + part.start
        else:
            raise MemoryError("the work takes more memory than when it was done before")
        return MemoryPointer(UnownedMemory(address, rounded, part), 0)

    return allocated


class Beginning(NamedTuple):
    """The beginning of some work, which needs only a part of the input.

    Attributes
    ----------
    fill : callable
        Takes an input, and stores that part.
    work : callable
        Takes an input, and returns the argument of the rest of the work.
    """

    fill: Callable[[Any], object]
    work: Callable[[Any], Any]


@dataclass(frozen=True)
class _Graph:
    """Graphs of the work on an input, whose memory may have other users between calls.

    The beginning of the work, if any, has a separate graph.
    """

    beginning: Any
    graph: Any
    given: Any
    result: Any


@dataclass
class _Case:
    """The state of some work: the bytes of its block, and its graphs by the block's address."""

    size: int
    graphs: dict[int, _Graph] = field(default_factory=dict)
    fails: bool = False


class _OfThread(threading.local):
    """The cases of a thread, the most recent last, and the streams on which it records."""

    def __init__(self) -> None:
        self.cases: OrderedDict[Hashable, _Case] = OrderedDict()
        self.streams: dict[int, Any] = {}


_of_thread = _OfThread()


def is_host_bound(shape: tuple[int, int, int], most: int, least_of_stack: int = 0) -> bool:
    """Tell whether the host takes longer to launch a factorisation than the device to compute it.

    Parameters
    ----------
    shape : tuple of int
        Matrices, rows and columns.
    most : int
        The most elements, from `blocks.LIMITS`.
    least_of_stack : int
        The fewest rows and columns of the matrices of a stack; zero if a stack is not host-bound.
    """
    batches, rows, columns = shape
    least = blocks.LIMITS.recorded if batches == 1 else least_of_stack
    is_long = 0 < least <= min(rows, columns)
    return is_long and batches * rows * columns <= most


def repeatable(
    key: tuple[Hashable, ...],
    prepare: Callable[[], Input],
    fill: Callable[[Input], object],
    work: Callable[[Any], Result],
    use: Callable[[Result], Any],
    *,
    pays: bool,
    kept: list[Any] | None = None,
    beginning: Beginning | None = None,
) -> Any:
    """Return ``use(work(given))`` of a prepared and filled input.

    Parameters
    ----------
    key : tuple of hashable
        Everything that determines the launches of `work`, except addresses, the current device and
        `blocks.LIMITS`.
    prepare : callable
        Allocates the input.
    fill : callable
        Stores an input. It is called each time.
    work : callable
        Allocates only by CuPy's allocator, and does not wait. A graph replaces later calls.
    use : callable
        Makes the returned value from the result, in separate memory.
    pays : bool
        Whether a graph can record `work`, and takes less time. Otherwise nothing is recorded.
    kept : list, optional
        Receives the owner of the result's memory, so that `use` need not copy the result.
    beginning : Beginning, optional
        The work before `work`, which then takes its result instead of the input. Its graph runs
        while `fill` stores the rest of the input.
    """
    steps = _Steps(prepare, fill, work, beginning)
    if not pays:
        return use(steps.done())
    if not is_capturing():
        return _repeated((*key, current_device(), blocks.LIMITS), steps, use, kept)
    with as_if_recorded():
        return use(steps.done())


class _Steps(NamedTuple):
    """The steps of some work: the parameters of `repeatable`."""

    prepare: Callable[[], Any]
    fill: Callable[[Any], object]
    work: Callable[[Any], Any]
    beginning: Beginning | None

    def done(self) -> Any:
        """Return the result of all steps, without a graph."""
        given = self.prepare()
        if self.beginning is None:
            self.fill(given)
            return self.work(given)
        self.beginning.fill(given)
        self.fill(given)
        return self.work(self.beginning.work(given))


def _repeated(
    key: Hashable, steps: _Steps, use: Callable[[Any], Any], kept: list[Any] | None
) -> Any:
    """Do as `repeatable`: the first call determines the memory, and later calls launch a graph."""
    from cupy.cuda import get_allocator, using_allocator

    cases, allocate = _of_thread.cases, get_allocator()
    case = cases.get(key)
    if case is None:
        places = _Places()
        with using_allocator(_allocator(places, allocate)), as_if_recorded():
            result = steps.done()
        cases[key] = _Case(places.size + places.size // _SPARE)
        if len(cases) > _MOST_CASES:
            cases.popitem(last=False)
        return use(result)
    cases.move_to_end(key)
    block = None if case.fails else _block(allocate, case.size)
    found = None
    if block is not None:
        found = case.graphs.get(block.ptr) or _record(case, block, steps)
    if found is None:
        del block
        with as_if_recorded():
            return use(steps.done())
    if steps.beginning is None:
        steps.fill(found.given)
    else:
        steps.beginning.fill(found.given)
        with forked() as streams:
            streams.launch(found.beginning)
            steps.fill(found.given)
    found.graph.launch()
    if kept is not None:
        kept.append(block)
    return use(found.result)


def _block(allocate: Callable[[int], Any], size: int) -> Any:
    """Return memory in one block, or None if only its parts fit."""
    try:
        return allocate(size)
    except MemoryError:
        return None


def _record(case: _Case, block: Any, steps: _Steps) -> _Graph | None:
    """Record the work in a block, and keep the graph; None if that is not possible."""
    from cupy.cuda import get_allocator, using_allocator

    if len(case.graphs) >= _MOST_GRAPHS:
        return None
    stream = _stream()
    places = _allocator(_Places(), get_allocator(), block, case.size)
    with using_allocator(places), as_if_recorded():
        try:
            given = steps.prepare()
            with stream:
                first, begun = None, given
                if steps.beginning is not None:
                    first, begun = _captured(stream, steps.beginning.work, given)
                graph, result = _captured(stream, steps.work, begun)
        except (MemoryError, RuntimeError):  # the driver cannot record everything
            case.fails = True
            return None
    case.graphs[block.ptr] = made = _Graph(first, graph, given, result)
    return made


def _captured(stream: Any, work: Callable[[Any], Any], given: Any) -> tuple[Any, Any]:
    """Record some work on a stream, which must be current. Return its graph and its result."""
    stream.begin_capture()
    try:
        result = work(given)
    finally:
        graph = stream.end_capture()
    return graph, result


def _stream() -> Any:
    """Return the stream of this thread and device on which work is recorded."""
    from cupy.cuda import Stream
    from cupy.cuda.runtime import getDevice

    streams, index = _of_thread.streams, getDevice()
    if index not in streams:
        streams[index] = Stream(non_blocking=True)
    return streams[index]
