"""The HIP functions that build a graph node by node, and query and change its nodes.

A node's work is captured from the corresponding function for streams, on a stream that exists only
for this node, so that only the node's dependencies order it. The methods have the names of HIP's
functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cupygemm.emulator.concurrency.stream_order import Operation
from cupygemm.emulator.device import Stream
from cupygemm.emulator.runtime.capture import Capture, Node, in_order
from cupygemm.emulator.runtime.hip_graph import GraphFunctions
from cupygemm.emulator.runtime.hip_pitched import COPY_3D_BYTES
from cupygemm.emulator.runtime.hip_program import ProgramFunctions
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size

Submit = Callable[[int], None]
"""Submits the work of a node to a stream."""

_KERNEL, COPY, FILL, HOST, _GRAPH, _EMPTY = range(6)  # hipGraphNodeType
_TYPES = {
    "kernel": _KERNEL, "copy": COPY, "fill": FILL, "host": HOST, "callback": HOST,
    "graph": _GRAPH, "empty": _EMPTY,
}  # by the first words of labels  # fmt: skip
_TOPOLOGY_CHANGED, _TYPE_CHANGED = 2, 3  # hipGraphExecUpdateResult


class KernelNode(ctypes.Structure):
    """HIP's hipKernelNodeParams."""

    _fields_ = (
        ("block", ctypes.c_uint * 3),
        ("extra", ctypes.c_size_t),
        ("function", ctypes.c_size_t),
        ("grid", ctypes.c_uint * 3),
        ("parameters", ctypes.c_size_t),
        ("dynamic_lds", ctypes.c_uint),
    )


class _Fill(ctypes.Structure):
    """HIP's hipMemsetParams: `width` is in elements."""

    _fields_ = (
        ("to", ctypes.c_size_t),
        ("element_bytes", ctypes.c_uint),
        ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("width", ctypes.c_size_t),
    )


class _HostCall(ctypes.Structure):
    """HIP's hipHostNodeParams."""

    _fields_ = (("function", ctypes.c_size_t), ("data", ctypes.c_size_t))


@dataclass(frozen=True)
class _FromStructure:
    """Work described by one of HIP's structures."""

    given: bytes
    submit: Submit

    def __call__(self, stream: int) -> None:
        self.submit(stream)


class GraphNodeFunctions(GraphFunctions, ProgramFunctions):
    """The mixin of `HipRuntime` for nodes of graphs."""

    def hipGraphCreate(self, graph: int, flags: int) -> None:
        if flags:
            raise HipError(Status.INVALID_VALUE, f"hipGraphCreate with flags {flags}, not 0")
        store_size(graph, self.keep(self.graphs, dict))

    def hipGraphClone(self, clone: int, graph: int) -> None:
        handles = {handle: next(self.numbers) for handle in self.graph(graph)}
        nodes = {
            handles[handle]: replace(node, after=frozenset(handles[each] for each in node.after))
            for handle, node in self.graph(graph).items()
        }
        store_size(clone, self.keep(self.graphs, lambda: nodes))

    # -- new nodes --

    def hipGraphAddKernelNode(
        self, node: int, graph: int, after: int, count: int, parameters: int
    ) -> None:
        self._add(node, graph, _handles_at(after, count), self._launch_of(parameters))

    def hipGraphAddMemcpyNode(
        self, node: int, graph: int, after: int, count: int, parameters: int
    ) -> None:
        self._add(node, graph, _handles_at(after, count), self._copy_3d_of(parameters))

    def hipGraphAddMemcpyNode1D(
        self, node: int, graph: int, after: int, count: int, to: int, source: int, size: int,
        kind: int,
    ) -> None:  # fmt: skip
        copy = self._copy_of(to, source, size, kind)
        self._add(node, graph, _handles_at(after, count), copy)

    def hipGraphAddMemsetNode(
        self, node: int, graph: int, after: int, count: int, parameters: int
    ) -> None:
        self._add(node, graph, _handles_at(after, count), self._fill_of(parameters))

    def hipGraphAddHostNode(
        self, node: int, graph: int, after: int, count: int, parameters: int
    ) -> None:
        self._add(node, graph, _handles_at(after, count), self._host_call_of(parameters))

    def hipGraphAddEmptyNode(self, node: int, graph: int, after: int, count: int) -> None:
        self._add(node, graph, _handles_at(after, count), lambda _: None)

    def hipGraphAddChildGraphNode(
        self, node: int, graph: int, after: int, count: int, child: int
    ) -> None:
        nodes = in_order(self.graph(child))

        def submit(stream: int) -> None:
            self.submit(
                stream, "graph", lambda place: self.replay(stream, nodes, place.queue), "graph"
            )

        self._add(node, graph, _handles_at(after, count), submit)

    # -- changes --

    def hipGraphKernelNodeSetParams(self, node: int, parameters: int) -> None:
        self._change(self.graph_with(node), node, _KERNEL, self._launch_of(parameters))

    def hipGraphExecKernelNodeSetParams(self, executable: int, node: int, parameters: int) -> None:
        self._change(self.executable(executable), node, _KERNEL, self._launch_of(parameters))

    def hipGraphMemcpyNodeSetParams(self, node: int, parameters: int) -> None:
        self._change(self.graph_with(node), node, COPY, self._copy_3d_of(parameters))

    def hipGraphExecMemcpyNodeSetParams(self, executable: int, node: int, parameters: int) -> None:
        self._change(self.executable(executable), node, COPY, self._copy_3d_of(parameters))

    def hipGraphMemcpyNodeSetParams1D(
        self, node: int, to: int, source: int, size: int, kind: int
    ) -> None:
        copy = self._copy_of(to, source, size, kind)
        self._change(self.graph_with(node), node, COPY, copy)

    def hipGraphExecMemcpyNodeSetParams1D(
        self, executable: int, node: int, to: int, source: int, size: int, kind: int
    ) -> None:
        copy = self._copy_of(to, source, size, kind)
        self._change(self.executable(executable), node, COPY, copy)

    def hipGraphMemsetNodeSetParams(self, node: int, parameters: int) -> None:
        self._change(self.graph_with(node), node, FILL, self._fill_of(parameters))

    def hipGraphExecMemsetNodeSetParams(self, executable: int, node: int, parameters: int) -> None:
        self._change(self.executable(executable), node, FILL, self._fill_of(parameters))

    def hipGraphHostNodeSetParams(self, node: int, parameters: int) -> None:
        self._change(self.graph_with(node), node, HOST, self._host_call_of(parameters))

    def hipGraphExecHostNodeSetParams(self, executable: int, node: int, parameters: int) -> None:
        self._change(self.executable(executable), node, HOST, self._host_call_of(parameters))

    def hipGraphExecUpdate(self, executable: int, graph: int, node: int, result: int) -> None:
        """Replace an executable graph's work by that of a graph with the same structure."""
        old, new = self.executable(executable), in_order(self.graph(graph))
        store_size(node, 0)
        if len(old) != len(new):
            raise self._not_updated(node, 0, result, _TOPOLOGY_CHANGED)
        place_of = dict(zip(new, old, strict=True))
        for handle, given in new.items():
            own = old[place_of[handle]]
            if own.after != {place_of[each] for each in given.after}:
                raise self._not_updated(node, handle, result, _TOPOLOGY_CHANGED)
            if type_of(own) != type_of(given):
                raise self._not_updated(node, handle, result, _TYPE_CHANGED)
        for handle, given in new.items():
            place = place_of[handle]
            old[place] = replace(given, after=old[place].after)
        store_int(result, 0)

    @staticmethod
    def _not_updated(where: int, handle: int, result: int, reason: int) -> HipError:
        store_size(where, handle)
        store_int(result, reason)
        what = "type of a node" if reason == _TYPE_CHANGED else "nodes or their dependencies"
        return HipError(
            Status.GRAPH_EXEC_UPDATE_FAILURE,
            f"the {what} differ from those of the executable graph: instantiate the graph anew",
        )

    def hipGraphAddDependencies(self, graph: int, earlier: int, later: int, count: int) -> None:
        for first, second, node in self._pairs(graph, earlier, later, count):
            self.graph(graph)[second] = replace(node, after=node.after | {first})

    def hipGraphRemoveDependencies(self, graph: int, earlier: int, later: int, count: int) -> None:
        for first, second, node in self._pairs(graph, earlier, later, count):
            self.graph(graph)[second] = replace(node, after=node.after - {first})

    def hipGraphDestroyNode(self, node: int) -> None:
        nodes = self.graph_with(node)
        del nodes[node]
        for handle, each in nodes.items():
            nodes[handle] = replace(each, after=each.after - {node})

    # -- queries --

    def hipGraphGetNodes(self, graph: int, nodes: int, count: int) -> None:
        _store_handles(self.graph(graph), nodes, count)

    def hipGraphGetRootNodes(self, graph: int, nodes: int, count: int) -> None:
        found = (handle for handle, node in self.graph(graph).items() if not node.after)
        _store_handles(found, nodes, count)

    def hipGraphGetEdges(self, graph: int, earlier: int, later: int, count: int) -> None:
        room = ctypes.c_size_t.from_address(count).value
        nodes = self.graph(graph)
        pairs = [(each, handle) for handle, node in nodes.items() for each in sorted(node.after)]
        _store_handles((first for first, _ in pairs), earlier, count)
        ctypes.c_size_t.from_address(count).value = room
        _store_handles((second for _, second in pairs), later, count)

    def hipGraphNodeGetType(self, node: int, node_type: int) -> None:
        store_int(node_type, type_of(self.graph_with(node)[node]))

    def hipGraphNodeGetDependencies(self, node: int, nodes: int, count: int) -> None:
        _store_handles(sorted(self.graph_with(node)[node].after), nodes, count)

    def hipGraphNodeGetDependentNodes(self, node: int, nodes: int, count: int) -> None:
        graph = self.graph_with(node).items()
        _store_handles((handle for handle, each in graph if node in each.after), nodes, count)

    # -- the work of nodes, with their current parameters --

    def _launch_of(self, parameters: int) -> Submit:
        given = KernelNode.from_address(parameters)
        grid_x, grid_y, grid_z = given.grid
        block_x, block_y, block_z = given.block
        return lambda stream: self.hipModuleLaunchKernel(
            given.function, grid_x, grid_y, grid_z, block_x, block_y, block_z, given.dynamic_lds,
            stream, given.parameters, given.extra,
        )  # fmt: skip

    def _copy_of(self, to: int, source: int, size: int, kind: int) -> Submit:
        return lambda stream: self.hipMemcpyAsync(to, source, size, kind, stream)

    def _copy_3d_of(self, parameters: int) -> Submit:
        given = ctypes.string_at(parameters, COPY_3D_BYTES)
        return _FromStructure(given, lambda stream: self.hipMemcpy3DAsync(parameters, stream))

    def _fill_of(self, parameters: int) -> Submit:
        given = _Fill.from_address(parameters)
        size = given.element_bytes
        if size not in (1, 2, 4):
            raise HipError(
                Status.INVALID_VALUE, f"a fill with elements of {size} bytes, not 1, 2, 4"
            )
        word = (given.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

        def submit(stream: int) -> None:
            for row in range(given.height):
                self.fill_words(given.to + row * given.pitch, word, given.width, stream)

        return _FromStructure(bytes(given), submit)

    def _host_call_of(self, parameters: int) -> Submit:
        given = _HostCall.from_address(parameters)
        return _FromStructure(
            bytes(given),
            lambda stream: self.hipLaunchHostFunc(stream, given.function, given.data),
        )

    def _add(self, where: int, graph: int, after: Iterable[int], submit: Submit) -> None:
        """Add a node that depends on others of its graph, and store its handle."""
        nodes, earlier = self.graph(graph), frozenset(after)
        for each in earlier:
            check_member(nodes, each)
        made = replace(self._recorded(submit), after=earlier)
        store_size(where, self.keep(nodes, lambda: made))

    def _change(self, nodes: dict[int, Node], node: int, node_type: int, submit: Submit) -> None:
        """Replace a node's work by other work of the same type."""
        check_member(nodes, node)
        old = nodes[node]
        if type_of(old) != node_type:
            raise HipError(
                Status.INVALID_VALUE, f"node 0x{node:x} is of another type than that: {old.label}"
            )
        made = self._recorded(submit)
        nodes[node] = replace(made, after=old.after, stream=old.stream, enabled=old.enabled)

    def _recorded(self, submit: Submit) -> Node:
        """Return a node with the work that a function submits to a temporary stream."""
        stream = next(self.numbers)
        self.streams[stream] = Stream(0, 0, self.device.index)
        capture = self.captures[stream] = Capture(stream)
        try:
            submit(stream)
        finally:
            del self.captures[stream], self.streams[stream]
        parts = capture.nodes
        given = submit.given if isinstance(submit, _FromStructure) else b""
        if len(parts) == 1:
            return replace(parts[0], given=given)

        def run(place: Operation) -> None:
            for part in parts:  # the rows of a copy or a fill
                part.run(place)

        return Node(parts[0].label if parts else "empty", run, stream, given=given)

    def graph_with(self, node: int) -> dict[int, Node]:
        for nodes in self.graphs.values():
            if node in nodes:
                return nodes
        raise HipError(
            Status.INVALID_VALUE,
            f"node 0x{node:x} does not exist: it was destroyed, or its graph was",
        )

    def _pairs(
        self, graph: int, earlier: int, later: int, count: int
    ) -> Iterable[tuple[int, int, Node]]:
        """Yield pairs of handles with the second one's node, read when the pair is reached."""
        nodes = self.graph(graph)
        for pair in zip(_handles_at(earlier, count), _handles_at(later, count), strict=True):
            for each in pair:
                check_member(nodes, each)
            yield *pair, nodes[pair[1]]


def type_of(node: Node) -> int:
    """Return the hipGraphNodeType of a node."""
    found = _TYPES.get(node.label.partition(" ")[0])
    if found is None:
        raise HipError(Status.NOT_SUPPORTED, f"the type of a node that is a {node.label}")
    return found


def check_member(nodes: dict[int, Node], node: int) -> None:
    """Raise `HipError` unless a node belongs to a graph."""
    if node not in nodes:
        raise HipError(Status.INVALID_VALUE, f"node 0x{node:x} is not of this graph")


def _handles_at(where: int, count: int) -> list[int]:
    return list((ctypes.c_size_t * count).from_address(where)) if count else []


def _store_handles(handles: Iterable[int], where: int, count: int) -> None:
    """Store handles, or only their number if the array is null."""
    found, room = list(handles), ctypes.c_size_t.from_address(count)
    if where:
        found = found[: room.value]
        for place in range(room.value):
            handle = found[place] if place < len(found) else 0
            store_size(where + place * ctypes.sizeof(ctypes.c_size_t), handle)
    room.value = len(found)
