"""The HIP functions for captures and whole graphs.

The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace
from pathlib import Path

from cupygemm.emulator.concurrency.stream_order import Clock, Queue
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.capture import RELAXED, Capture, Node, dot, in_order
from cupygemm.emulator.runtime.handles import DEFAULT_STREAMS, Handles
from cupygemm.emulator.runtime.hip_stream import NON_BLOCKING
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size, text_at

_NOT_CAPTURING, _CAPTURING, _INVALID = 0, 1, 2  # hipStreamCaptureStatus
_DEVICE_LAUNCH = 4  # hipGraphInstantiateFlagDeviceLaunch


class _ThreadMode(threading.local):
    """The hipStreamCaptureMode that a thread has set."""

    mode = 0


class GraphFunctions(Handles):
    """The mixin of `HipRuntime` for captures and graphs."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self.graphs: dict[int, dict[int, Node]] = {}
        self.executables: dict[int, dict[int, Node]] = {}  # instantiated graphs
        self._thread_mode = _ThreadMode()
        self._ends: dict[int, Clock] = {}  # by executable: the end of its latest launch

    def hipStreamBeginCapture(self, stream: int, mode: int) -> None:
        self.check_stream(stream)
        if stream in DEFAULT_STREAMS[:2]:
            raise HipError(
                Status.STREAM_CAPTURE_UNSUPPORTED,
                "the legacy default stream cannot be captured: use a stream of your own",
            )
        made = self.made()
        if stream in self.captures and not made.value:
            raise HipError(Status.ILLEGAL_STATE, f"stream 0x{stream:x} is being captured already")
        if not 0 <= mode <= RELAXED:
            raise HipError(Status.INVALID_VALUE, f"{mode} is no hipStreamCaptureMode")
        is_blocking = not self.streams[stream].flags & NON_BLOCKING
        made.value = 1
        self.captures[stream] = Capture(stream, is_blocking)
        self.devices.captured.add(stream)

    def hipThreadExchangeStreamCaptureMode(self, mode: int) -> None:
        """Exchange the mode, which has no effect: no call is unsafe during a capture here."""
        place = ctypes.c_int.from_address(mode)
        if not 0 <= place.value <= RELAXED:
            raise HipError(Status.INVALID_VALUE, f"{place.value} is no hipStreamCaptureMode")
        place.value, self._thread_mode.mode = self._thread_mode.mode, place.value

    def hipStreamEndCapture(self, stream: int, graph: int) -> None:
        self.check_stream(stream)
        capture = self.captures.get(stream)
        if capture is None and self.made().value in self.graphs:
            store_size(graph, self.made().value)
            return
        if capture is None:
            raise HipError(Status.ILLEGAL_STATE, f"stream 0x{stream:x} is not being captured")
        if capture.origin != stream:
            raise HipError(
                Status.STREAM_CAPTURE_UNMATCHED,
                f"the capture began on stream 0x{capture.origin:x}: end it there",
            )
        is_whole = not capture.broken and not capture.unjoined
        store_size(graph, self._keep(capture.nodes) if is_whole else 0)
        members = [each for each, found in self.captures.items() if found is capture]
        for each in sorted(members, key=lambda each: each == stream):  # `stream` is the last
            self.devices.captured.discard(each)
            self.captures.pop(each, None)
        if capture.broken:
            reason = f"the capture became invalid: {capture.broken}"
            raise HipError(Status.STREAM_CAPTURE_INVALIDATED, reason)
        if capture.unjoined:
            names = ", ".join(f"0x{each:x}" for each in sorted(capture.unjoined))
            raise HipError(
                Status.STREAM_CAPTURE_UNJOINED,
                f"nothing waits for the captured work of stream {names}: record an event there and "
                f"let stream 0x{stream:x} wait for it before the capture ends",
            )

    def hipStreamIsCapturing(self, stream: int, status: int) -> None:
        self.check_stream(stream)
        capture = self.captures.get(stream)
        found = _NOT_CAPTURING
        if capture is not None:
            found = _INVALID if capture.broken else _CAPTURING
        store_int(status, found)

    def hipStreamGetCaptureInfo(self, stream: int, status: int, identity: int) -> None:
        self.hipStreamIsCapturing(stream, status)
        if stream in self.captures:
            store_size(identity, self.captures[stream].identity)

    def hipStreamGetCaptureInfo_v2(
        self, stream: int, status: int, identity: int, graph: int, nodes: int, count: int
    ) -> None:
        self.hipStreamGetCaptureInfo(stream, status, identity)

    def hipGraphInstantiate(
        self, executable: int, graph: int, node: int, log: int, size: int
    ) -> None:
        nodes = in_order(self.graph(graph))
        store_size(executable, self.keep(self.executables, lambda: nodes))

    def hipGraphInstantiateWithFlags(self, executable: int, graph: int, flags: int) -> None:
        if flags & _DEVICE_LAUNCH:
            raise HipError(Status.NOT_SUPPORTED, "a graph that kernels launch")
        self.hipGraphInstantiate(executable, graph, 0, 0, 0)

    def hipGraphUpload(self, executable: int, stream: int) -> None:
        self.check_stream(stream)
        self.executable(executable)

    def hipGraphLaunch(self, executable: int, stream: int) -> None:
        self.check_stream(stream)
        nodes = self.executable(executable)
        self.submit(
            stream, "graph", lambda place: self.replay(executable, nodes, place.queue), "graph"
        )

    def replay(self, executable: int, nodes: dict[int, Node], queue: Queue) -> None:
        """Do a graph's work, with a queue for each of its streams; the first is `queue`.

        A launch is ordered after earlier ones of the same graph.
        """
        order = self.devices.order
        order.wait(queue, self._ends.get(executable, {}))
        start = order.record(queue)
        after: dict[int, Clock] = {}
        queues: dict[int, Queue] = {}
        for handle, node in nodes.items():
            own = queues.get(node.stream, None if queues else queue)
            if own is None:
                name = f"stream 0x{node.stream:x} of a graph"
                own = Queue(name, queue.device, "non-blocking")
            queues[node.stream] = own
            for earlier in [start, *(after[each] for each in node.after)]:
                order.wait(own, earlier)
            if node.enabled:
                self.perform(own, node.label, node.run, node.kind)
            after[handle] = own.now()
        for each in queues.values():
            if each is not queue:
                order.wait(queue, each.now())
                each.is_destroyed = True
        self._ends[executable] = order.record(queue)

    def hipGraphDestroy(self, graph: int) -> None:
        self.graph(graph)
        del self.graphs[graph]

    def hipGraphExecDestroy(self, executable: int) -> None:
        self.executable(executable)
        del self.executables[executable]
        self._ends.pop(executable, None)

    def hipGraphDebugDotPrint(self, graph: int, path: int, flags: int) -> None:
        Path(text_at(path)).write_text(dot(self.graph(graph)), encoding="utf-8")

    def _keep(self, nodes: list[Node]) -> int:
        """Store the nodes of a capture as a graph."""
        handles = [next(self.numbers) for _ in nodes]
        graph = {
            handle: replace(node, after=frozenset(handles[each] for each in node.after))
            for handle, node in zip(handles, nodes, strict=True)
        }
        return self.keep(self.graphs, lambda: graph)

    def graph(self, graph: int) -> dict[int, Node]:
        """Return the nodes of a graph, by their handles.

        Raises
        ------
        HipError
            There is no such graph.
        """
        return _found(self.graphs, graph, "graph")

    def executable(self, executable: int) -> dict[int, Node]:
        """Return the nodes of an instantiated graph, as `graph` does."""
        return _found(self.executables, executable, "executable graph")


def _found(table: dict[int, dict[int, Node]], handle: int, what: str) -> dict[int, Node]:
    if handle not in table:
        raise HipError(
            Status.INVALID_VALUE,
            f"{what} 0x{handle:x} does not exist: it was destroyed, or never made",
        )
    return table[handle]
