"""Captures of streams: work that is recorded instead of done, and the resulting graphs.

A capture begins on one stream. Another stream joins by waiting for an event of the capture, and
must be waited for before the capture ends. Nodes run in the order of submission, which streams and
events always allow; `after` holds their dependencies. A graph is a dict of nodes by handle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from cupygemm.emulator.concurrency.stream_order import Operation
from cupygemm.emulator.runtime.status import HipError, Status

Kind = Literal["device", "host", "graph"]
RELAXED = 2  # hipStreamCaptureModeRelaxed
_identities = itertools.count(1)


@dataclass(frozen=True)
class Node:
    """A piece of work.

    Attributes
    ----------
    label : str
        A description for pictures of the graph; its first word is the type of node.
    run : callable
        Called with the work's place in a stream.
    stream : int
        The stream that was captured.
    after : frozenset of int
        The nodes that it depends on: by number in a capture, by handle in a graph.
    kind : {"device", "host", "graph"}
        Where the work is done: see `Handles.submit`.
    given : bytes
        The HIP structure of parameters that it was made from; empty for captured work.
    enabled : bool
        Whether a launch of the graph does the work.
    """

    label: str
    run: Callable[[Operation], object]
    stream: int = 0
    after: frozenset[int] = frozenset()
    kind: Kind = "device"
    given: bytes = b""
    enabled: bool = True


@dataclass(eq=False)
class Capture:
    """A capture in progress.

    Attributes
    ----------
    origin : int
        The stream on which it began.
    is_blocking : bool
        Whether that stream waits for the legacy stream, which must not be used meanwhile.
    nodes : list of Node
    latest : dict of int to int
        By stream: the number of nodes after its latest one.
    ends : dict of int to frozenset of int
        By stream: the nodes that its next one depends on.
    unjoined : set of int
        Streams that joined, and whose latest work no other stream has waited for.
    broken : str
        Why the capture is invalid; empty while it is valid.
    identity : int
    """

    origin: int
    is_blocking: bool = False
    nodes: list[Node] = field(default_factory=list)
    latest: dict[int, int] = field(default_factory=dict)
    ends: dict[int, frozenset[int]] = field(default_factory=dict)
    unjoined: set[int] = field(default_factory=set)
    broken: str = ""
    identity: int = field(default_factory=lambda: next(_identities))

    def add(
        self, stream: int, label: str, run: Callable[[Operation], object], kind: Kind = "device"
    ) -> None:
        """Add work of a stream as a node; see `Node`."""
        after = self.ends.get(stream, frozenset())
        self.ends[stream] = frozenset({len(self.nodes)})
        self.nodes.append(Node(label, run, stream, after, kind))
        self.latest[stream] = len(self.nodes)
        if stream != self.origin:
            self.unjoined.add(stream)

    def mark(self, stream: int) -> CaptureMark:
        """Return the place in the capture of an event recorded in a stream."""
        return CaptureMark(self, stream, len(self.nodes), self.ends.get(stream, frozenset()))

    def join(self, stream: int, mark: CaptureMark) -> None:
        """Make a stream wait for an event of this capture."""
        self.ends[stream] = self.ends.get(stream, frozenset()) | mark.ends
        if stream != self.origin and stream not in self.latest:
            self.latest[stream] = len(self.nodes)
            self.unjoined.add(stream)
        if stream != mark.stream and self.latest.get(mark.stream, 0) <= mark.position:
            self.unjoined.discard(mark.stream)

    def fail(self, status: Status, reason: str) -> HipError:
        """Make the capture invalid; return the error to raise."""
        self.broken = self.broken or reason
        return HipError(status, reason)


@dataclass(frozen=True)
class CaptureMark:
    """The place in a capture where an event was recorded."""

    capture: Capture
    stream: int
    position: int
    ends: frozenset[int]


def in_order(graph: dict[int, Node]) -> dict[int, Node]:
    """Return a graph in topological order, otherwise keeping the order of the nodes.

    Raises
    ------
    HipError
        The dependencies have a cycle.
    """
    ordered: dict[int, Node] = {}
    waiting = dict(graph)
    while waiting:
        ready = len(ordered)
        for handle, node in tuple(waiting.items()):
            if node.after <= ordered.keys():
                ordered[handle] = waiting.pop(handle)
        if len(ordered) == ready:
            labels = ", ".join(node.label for node in waiting.values())
            raise HipError(
                Status.INVALID_VALUE,
                f"no node of these can be the first, by dependencies: {labels}",
            )
    return ordered


def dot(graph: dict[int, Node]) -> str:
    """Return a graph in Graphviz's language."""
    places = {handle: place for place, handle in enumerate(graph)}
    lines = [f'  n{places[handle]} [label="{node.label}"];' for handle, node in graph.items()]
    for handle, node in graph.items():
        earlier = sorted(places[each] for each in node.after)
        lines += [f"  n{each} -> n{places[handle]};" for each in earlier]
    return "\n".join(["digraph hip {", *lines, "}", ""])
