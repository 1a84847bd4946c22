"""The HIP functions that query the parameters of a graph's nodes, and disable nodes.

The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.hip_graph_nodes import (
    COPY,
    FILL,
    HOST,
    GraphNodeFunctions,
    KernelNode,
    check_member,
    type_of,
)
from cupygemm.emulator.runtime.kernel_launch import KernelLaunch
from cupygemm.emulator.runtime.status import HipError, Status, store_int


class GraphParameterFunctions(GraphNodeFunctions):
    """The mixin of `HipRuntime` for parameters of nodes."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._handed_out: dict[int, tuple[Any, ...]] = {}  # arguments of launches, by node

    def hipGraphNodeSetEnabled(self, executable: int, node: int, enabled: int) -> None:
        nodes = self.executable(executable)
        check_member(nodes, node)
        nodes[node] = replace(nodes[node], enabled=bool(enabled))

    def hipGraphNodeGetEnabled(self, executable: int, node: int, enabled: int) -> None:
        nodes = self.executable(executable)
        check_member(nodes, node)
        store_int(enabled, nodes[node].enabled)

    def hipGraphKernelNodeGetParams(self, node: int, parameters: int) -> None:
        """Store a launch's parameters; the arguments are valid as long as the node."""
        launch = self.graph_with(node)[node].run
        if not isinstance(launch, KernelLaunch):
            raise HipError(Status.INVALID_VALUE, f"node 0x{node:x} launches no kernel")
        kept = [ctypes.create_string_buffer(value, len(value)) for value in launch.values]
        pointers = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        self._handed_out[node] = (*kept, pointers)
        given = KernelNode.from_address(parameters)
        given.function, given.dynamic_lds, given.extra = launch.function, launch.dynamic_lds, 0
        given.grid[:], given.block[:] = launch.grid, launch.block
        given.parameters = ctypes.addressof(pointers)

    def hipGraphMemcpyNodeGetParams(self, node: int, parameters: int) -> None:
        self._store_given(node, COPY, parameters)

    def hipGraphMemsetNodeGetParams(self, node: int, parameters: int) -> None:
        self._store_given(node, FILL, parameters)

    def hipGraphHostNodeGetParams(self, node: int, parameters: int) -> None:
        self._store_given(node, HOST, parameters)

    def _store_given(self, node: int, node_type: int, parameters: int) -> None:
        """Store the structure that a node was made from."""
        known = self.graph_with(node)[node]
        if type_of(known) != node_type:
            raise HipError(Status.INVALID_VALUE, f"node 0x{node:x} is a {known.label}")
        if not known.given:
            raise HipError(
                Status.NOT_SUPPORTED,
                f"the parameters of node 0x{node:x}, a {known.label} that was captured, or made "
                "without such a structure",
            )
        ctypes.memmove(parameters, known.given, len(known.given))
