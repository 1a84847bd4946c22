"""Captures of streams: work that is kept instead of done, and the graphs that it becomes.

A capture begins on one stream. Another stream joins by waiting for an event of the capture, and
must be waited for before the capture ends. Nodes run in the order in which they were submitted,
which every order by streams and events allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from cupygemm.emulator.runtime.status import HipError, Status

RELAXED = 2  # hipStreamCaptureModeRelaxed
_identities = itertools.count(1)


@dataclass(frozen=True)
class Node:
    """A piece of work.

    Attributes
    ----------
    label : str
        What it is, for pictures of the graph.
    run : callable
    """

    label: str
    run: Callable[[], object]


@dataclass(eq=False)
class Capture:
    """A capture in progress.

    Attributes
    ----------
    origin : int
        The stream that it began on.
    is_blocking : bool
        Whether that stream waits for the legacy stream, which must not be used meanwhile.
    nodes : list of Node
    latest : dict of int to int
        By stream: the number of nodes after its latest one.
    unjoined : set of int
        Streams that joined, and that no other stream has waited for since their latest work.
    broken : str
        Why the capture is invalid; empty while it is valid.
    identity : int
    """

    origin: int
    is_blocking: bool = False
    nodes: list[Node] = field(default_factory=list)
    latest: dict[int, int] = field(default_factory=dict)
    unjoined: set[int] = field(default_factory=set)
    broken: str = ""
    identity: int = field(default_factory=lambda: next(_identities))

    def add(self, stream: int, node: Node) -> None:
        """Keep work of a stream."""
        self.nodes.append(node)
        self.latest[stream] = len(self.nodes)
        if stream != self.origin:
            self.unjoined.add(stream)

    def join(self, stream: int, mark: CaptureMark) -> None:
        """Let a stream wait for an event of this capture."""
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
    """Where in a capture an event was recorded."""

    capture: Capture
    stream: int
    position: int


def dot(nodes: list[Node]) -> str:
    """Return a graph in the language of Graphviz."""
    lines = [f'  n{place} [label="{node.label}"];' for place, node in enumerate(nodes)]
    lines += [f"  n{place} -> n{place + 1};" for place in range(len(nodes) - 1)]
    return "\n".join(["digraph hip {", *lines, "}", ""])
