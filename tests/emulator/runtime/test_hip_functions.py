"""HIP functions that CuPy does not call: graphs node by node, pools of memory, rows with a pitch.

The tests call the entry points of the stand-in for libamdhip64 that CuPy has loaded.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.emulator.hip_entry_points import (
    COPY,
    DEFAULT,
    EMPTY,
    FILL,
    HOST,
    INVALID_VALUE,
    KERNEL,
    NOT_SUPPORTED,
    NOT_UPDATED,
    OUT_OF_MEMORY,
    Copy3D,
    Fill,
    Hip,
    HostCall,
    PoolProperties,
    Sizes,
    Volume,
    launch_of,
)

pytestmark = pytest.mark.usefixtures("cp")


@pytest.fixture
def hip(cp: ModuleType) -> Hip:
    return Hip(cp)


def test_a_graph_runs_by_its_dependencies(cp: ModuleType, hip: Hip, scale: Any) -> None:
    x, given, seen = cp.zeros(4, "i4"), np.arange(4, dtype="i4"), np.zeros(4, "i4")
    called: list[int] = []
    host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.append(int(seen[3])))
    cp.cuda.Device().synchronize()
    graph = hip.made("hipGraphCreate", ctypes.c_uint(0))
    launch, kept = launch_of(scale, x, 10)
    call = HostCall(ctypes.cast(host_function, ctypes.c_void_p).value, None)
    # The host node and the launch are added before their predecessors.
    told = hip.node("HostNode", graph, [], ctypes.byref(call))
    scaled = hip.node("KernelNode", graph, [], ctypes.byref(launch))
    kept[0][1].value = 77  # the node has the arguments as they were
    copy_in = hip.node("MemcpyNode1D", graph, [], x.data.ptr, given.ctypes.data, 16, DEFAULT)
    fill = Fill(x.data.ptr + 4, 2, 1, 0, 0xABCD0007, 1)
    filled = hip.node("MemsetNode", graph, [copy_in], ctypes.byref(fill))
    joined = hip.node("EmptyNode", graph, [filled])
    copy_out = hip.node("MemcpyNode1D", graph, [scaled], seen.ctypes.data, x.data.ptr, 16, DEFAULT)
    earlier, later = (ctypes.c_size_t * 2)(joined, copy_out), (ctypes.c_size_t * 2)(scaled, told)
    hip.hipGraphAddDependencies(graph, earlier, later, 2)

    assert hip.handles("hipGraphGetNodes", graph) == [
        told, scaled, copy_in, filled, joined, copy_out
    ]  # fmt: skip
    assert hip.handles("hipGraphGetRootNodes", graph) == [copy_in]
    assert hip.handles("hipGraphNodeGetDependencies", scaled) == [joined]
    assert hip.handles("hipGraphNodeGetDependentNodes", scaled) == [copy_out]
    types = []
    for node in (told, scaled, copy_in, filled, joined):
        kind = ctypes.c_int()
        hip.hipGraphNodeGetType(node, ctypes.byref(kind))
        types.append(kind.value)
    assert types == [HOST, KERNEL, COPY, FILL, EMPTY]

    executable = hip.made("hipGraphInstantiate", graph, None, None, 0)
    hip.hipGraphUpload(executable, 0)
    for _ in range(2):
        hip.hipGraphLaunch(executable, 0)
        hip.hipStreamSynchronize(0)
        assert (seen.tolist(), called.pop()) == ([0, 70, 20, 30], 30)

    parent = hip.made("hipGraphCreate", ctypes.c_uint(0))
    child = hip.node("ChildGraphNode", parent, [], graph)
    hip.node("KernelNode", parent, [child], ctypes.byref(launch))
    whole = hip.made("hipGraphInstantiateWithFlags", parent, ctypes.c_ulonglong(0))
    hip.hipGraphLaunch(whole, 0)
    hip.hipStreamSynchronize(0)
    assert x.get().tolist() == [0, 70 * 77, 20 * 77, 30 * 77]


def test_nodes_of_a_graph_change(cp: ModuleType, hip: Hip, scale: Any) -> None:
    x = cp.arange(3, dtype="i4")
    cp.cuda.Device().synchronize()
    graph = hip.made("hipGraphCreate", ctypes.c_uint(0))
    launch, _ = launch_of(scale, x, 2)
    first = hip.node("KernelNode", graph, [], ctypes.byref(launch))
    second = hip.node("KernelNode", graph, [first], ctypes.byref(launch))
    executable = hip.made("hipGraphInstantiate", graph, None, None, 0)
    other, _kept = launch_of(scale, x, 5)
    hip.hipGraphExecKernelNodeSetParams(executable, second, ctypes.byref(other))
    hip.hipGraphLaunch(executable, 0)
    hip.hipStreamSynchronize(0)
    assert x.get().tolist() == [0, 10, 20]

    clone, result = hip.made("hipGraphClone", graph), ctypes.c_int()
    place = ctypes.c_size_t()
    hip.hipGraphExecUpdate(executable, clone, ctypes.byref(place), ctypes.byref(result))
    hip.hipGraphLaunch(executable, 0)
    hip.hipStreamSynchronize(0)
    assert x.get().tolist() == [0, 40, 80]

    hip.hipGraphDestroyNode(first)
    assert hip.handles("hipGraphGetRootNodes", graph) == [second]
    update = executable, graph, ctypes.byref(place), ctypes.byref(result)
    assert hip.status("hipGraphExecUpdate", *update) == NOT_UPDATED
    assert (result.value, "instantiate" in hip.message(NOT_UPDATED)) == (2, True)


def test_what_is_wrong_with_a_graph_is_told(cp: ModuleType, hip: Hip) -> None:
    graph, other = (hip.made("hipGraphCreate", ctypes.c_uint(0)) for _ in range(2))
    first = hip.node("EmptyNode", graph, [])
    second = hip.node("EmptyNode", graph, [first])
    one, two = (ctypes.c_size_t * 1)(first), (ctypes.c_size_t * 1)(second)
    hip.hipGraphAddDependencies(graph, two, one, 1)
    place = ctypes.c_size_t()
    instantiate = ctypes.byref(place), graph, None, None, 0
    assert hip.status("hipGraphInstantiate", *instantiate) == INVALID_VALUE
    assert "no node of these can be the first" in hip.message(INVALID_VALUE)
    hip.hipGraphRemoveDependencies(graph, two, one, 1)
    hip.hipGraphInstantiate(*instantiate)

    add = ctypes.byref(place), other, one, 1
    assert hip.status("hipGraphAddEmptyNode", *add) == INVALID_VALUE
    assert f"node 0x{first:x} is not of this graph" in hip.message(INVALID_VALUE)
    fill = Fill(cp.zeros(1).data.ptr, 3, 1, 0, 0, 1)
    add_fill = ctypes.byref(place), graph, None, 0, ctypes.byref(fill)
    assert hip.status("hipGraphAddMemsetNode", *add_fill) == INVALID_VALUE
    assert "elements of 3 bytes" in hip.message(INVALID_VALUE)
    hip.hipGraphDestroy(graph)
    assert hip.status("hipGraphDestroyNode", first) == INVALID_VALUE


def test_pools_count_what_is_in_use(hip: Hip) -> None:
    properties = PoolProperties(1, 0, 1, 0, None, 3000)
    pool = hip.made("hipMemPoolCreate", ctypes.byref(properties))

    def attribute(which: int) -> int:
        value = ctypes.c_uint64()
        hip.hipMemPoolGetAttribute(pool, ctypes.c_int(which), ctypes.byref(value))
        return value.value

    blocks = [hip.made("hipMallocFromPoolAsync", size, pool, 0) for size in (1000, 500)]
    assert [attribute(which) for which in (1, 4, 5, 7, 8)] == [1, 0, 1500, 1500, 1500]
    hip.hipFreeAsync(blocks[0], 0)
    assert [attribute(which) for which in (7, 8)] == [500, 1500]
    zero = ctypes.c_uint64(0)
    hip.hipMemPoolSetAttribute(pool, ctypes.c_int(8), ctypes.byref(zero))
    assert attribute(8) == 500
    place = ctypes.c_size_t()
    too_much = ctypes.byref(place), 2501, pool, 0
    assert hip.status("hipMallocFromPoolAsync", *too_much) == OUT_OF_MEMORY
    assert "at most 3000, of which 500" in hip.message(OUT_OF_MEMORY)

    hip.hipDeviceSetMemPool(ctypes.c_int(0), pool)
    own = hip.made("hipMallocAsync", 100, 0)
    assert attribute(7) == 600
    hip.hipFree(own)
    default = hip.made("hipDeviceGetDefaultMemPool", ctypes.c_int(0))
    assert hip.status("hipMemPoolDestroy", default) == INVALID_VALUE
    hip.hipMemPoolDestroy(pool)
    assert hip.made("hipDeviceGetMemPool", ctypes.c_int(0)) == default
    hip.hipMemset(blocks[1], ctypes.c_int(0), 500)  # existing allocations remain
    hip.hipFree(blocks[1])
    assert hip.status("hipMemPoolTrimTo", pool, 0) == INVALID_VALUE


def test_volumes_are_filled_and_copied(hip: Hip) -> None:
    volume, extent = Volume(), Sizes(5, 3, 2)
    hip.hipMalloc3D(ctypes.byref(volume), extent)
    assert (volume.pitch % 256, volume.xsize, volume.ysize) == (0, 5, 3)
    hip.hipMemset3D(volume, ctypes.c_int(1), extent)
    given = np.arange(2 * 4 * 6, dtype=np.uint8).reshape(2, 4, 6)
    on_host = Volume(given.ctypes.data, 6, 6, 4)
    box = Copy3D(
        source_at=Sizes(2, 1, 0), source=on_host, to_at=Sizes(1, 1, 0), to=volume,
        extent=Sizes(3, 2, 2), kind=DEFAULT,
    )  # fmt: skip
    hip.hipMemcpy3D(ctypes.byref(box))
    seen = np.zeros((2, 3, 5), np.uint8)
    out = Copy3D(source=volume, to=Volume(seen.ctypes.data, 5, 5, 3), extent=extent, kind=DEFAULT)
    hip.hipMemcpy3DAsync(ctypes.byref(out), 0)
    hip.hipStreamSynchronize(0)
    expected = np.ones((2, 3, 5), np.uint8)
    expected[:, 1:3, 1:4] = given[:, 1:3, 2:5]
    np.testing.assert_array_equal(seen, expected)

    box.to_at = Sizes(1, 2, 0)  # rows 2 and 3 of 3
    assert hip.status("hipMemcpy3D", ctypes.byref(box)) == INVALID_VALUE
    assert "2 rows x 2 planes from byte 1 of row 2 on" in hip.message(INVALID_VALUE)
    out.source_array = 1
    assert hip.status("hipMemcpy3D", ctypes.byref(out)) == NOT_SUPPORTED
    start, size = ctypes.c_size_t(), ctypes.c_size_t()
    hip.hipMemGetAddressRange(ctypes.byref(start), ctypes.byref(size), volume.pointer + 7)
    assert (start.value, size.value) == (volume.pointer, 6 * volume.pitch)
    hip.hipFree(volume.pointer)


def test_names_of_errors(hip: Hip) -> None:
    name = ctypes.c_char_p()
    hip.hipDrvGetErrorName(ctypes.c_int(910), ctypes.byref(name))
    assert name.value == b"hipErrorGraphExecUpdateFailure"
    assert hip.status("hipDrvGetErrorName", ctypes.c_int(12345), ctypes.byref(name)) == 1
    assert hip.status("hipExtGetLastError") == 1
    assert hip.status("hipExtGetLastError") == 0
