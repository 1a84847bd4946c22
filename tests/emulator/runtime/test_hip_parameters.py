"""HIP functions for parameters of nodes, memory of the host, 64-bit flags and launches by size."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.emulator.hip_entry_points import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    Fill,
    Hip,
    HostCall,
    Launch,
    launch_of,
)

pytestmark = pytest.mark.usefixtures("cp")


@pytest.fixture
def hip(cp: ModuleType) -> Hip:
    return Hip(cp)


def test_a_captured_launch_gets_other_arguments(cp: ModuleType, hip: Hip, scale: Any) -> None:
    """Like a program that moves its buffers: parameters are read, changed and written back."""
    x, other, stream = (
        cp.arange(4, dtype="i4"),
        cp.arange(4, dtype="i4"),
        cp.cuda.Stream(non_blocking=True),
    )
    cp.cuda.Device().synchronize()
    hip.hipStreamBeginCapture(stream.ptr, 2)
    with stream:
        scale((1,), (4,), (x, np.int32(3)))
    place = ctypes.c_size_t()
    hip.hipStreamEndCapture(stream.ptr, ctypes.byref(place))
    graph = place.value
    (node,) = hip.handles("hipGraphGetNodes", graph)
    found = Launch()
    hip.hipGraphKernelNodeGetParams(node, ctypes.byref(found))
    assert (list(found.block), list(found.grid), found.lds) == ([4, 1, 1], [1, 1, 1], 0)
    pointers = (ctypes.c_void_p * 2).from_address(found.parameters)
    assert ctypes.c_size_t.from_address(pointers[0]).value == x.data.ptr
    assert ctypes.c_int.from_address(pointers[1]).value == 3
    place.value = other.data.ptr
    pointers[0] = ctypes.addressof(place)
    hip.hipGraphKernelNodeSetParams(node, ctypes.byref(found))
    executable = hip.made("hipGraphInstantiate", graph, None, None, 0)
    hip.hipGraphLaunch(executable, 0)
    hip.hipStreamSynchronize(0)
    assert (x.get().tolist(), other.get().tolist()) == ([0, 1, 2, 3], [0, 3, 6, 9])


def test_parameters_of_fills_and_calls(cp: ModuleType, hip: Hip, scale: Any) -> None:
    x = cp.zeros(4, "i4")
    graph = hip.made("hipGraphCreate", ctypes.c_uint(0))
    given = Fill(x.data.ptr, 4, 1, 0, 7, 4)
    filled = hip.node("MemsetNode", graph, [], ctypes.byref(given))
    found = Fill()
    hip.hipGraphMemsetNodeGetParams(filled, ctypes.byref(found))
    assert bytes(found) == bytes(given)
    assert (
        hip.status("hipGraphHostNodeGetParams", filled, ctypes.byref(HostCall())) == INVALID_VALUE
    )
    assert (
        hip.status("hipGraphKernelNodeGetParams", filled, ctypes.byref(Launch())) == INVALID_VALUE
    )
    copied = hip.node("MemcpyNode1D", graph, [filled], x.data.ptr, x.data.ptr + 8, 4, 4)
    room = ctypes.create_string_buffer(256)
    assert hip.status("hipGraphMemcpyNodeGetParams", copied, room) == NOT_SUPPORTED


def test_a_node_is_switched_off(cp: ModuleType, hip: Hip, scale: Any) -> None:
    x = cp.ones(2, "i4")
    cp.cuda.Device().synchronize()
    graph = hip.made("hipGraphCreate", ctypes.c_uint(0))
    launch, _kept = launch_of(scale, x, 5)
    first = hip.node("KernelNode", graph, [], ctypes.byref(launch))
    hip.node("KernelNode", graph, [first], ctypes.byref(launch))
    executable, state = hip.made("hipGraphInstantiate", graph, None, None, 0), ctypes.c_uint(7)
    hip.hipGraphNodeSetEnabled(executable, first, 0)
    hip.hipGraphNodeGetEnabled(executable, first, ctypes.byref(state))
    hip.hipGraphLaunch(executable, 0)
    hip.hipStreamSynchronize(0)
    assert (x.get().tolist(), state.value) == ([5, 5], 0)


def test_memory_of_the_program_is_registered(cp: ModuleType, hip: Hip, scale: Any) -> None:
    own, place = np.arange(8, dtype="i4"), ctypes.c_size_t()
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="out-of-bounds"):
        scale((1,), (8,), (np.uintp(own.ctypes.data), np.int32(2)))
    hip.hipHostRegister(own.ctypes.data, own.nbytes, 0)
    assert hip.status("hipHostRegister", own.ctypes.data + 4, 8, 0) == INVALID_VALUE
    hip.hipHostGetDevicePointer(ctypes.byref(place), own.ctypes.data, 0)
    scale((1,), (8,), (np.uintp(place.value), np.int32(2)))
    cp.cuda.Device().synchronize()
    assert own.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="hipHostRegister"):
        scale((1,), (9,), (np.uintp(place.value), np.int32(2)))
    assert hip.status("hipFree", own.ctypes.data) == INVALID_VALUE
    hip.hipHostUnregister(own.ctypes.data)
    assert hip.status("hipHostUnregister", own.ctypes.data) == INVALID_VALUE
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="out-of-bounds"):
        scale((1,), (8,), (np.uintp(own.ctypes.data), np.int32(2)))


def test_flags_of_64_bits(cp: ModuleType, hip: Hip) -> None:
    flag, high = cp.zeros(2, "u8"), 1 << 40
    cp.cuda.Device().synchronize()
    hip.hipStreamWriteValue64(0, flag.data.ptr, high | 5, 0)
    for way, value in ((0, high), (1, high | 5), (2, 4), (3, 2)):
        hip.hipStreamWaitValue64(0, flag.data.ptr, value, way, (1 << 64) - 1)
    assert int(flag[0]) == high | 5
    assert hip.status("hipStreamWriteValue64", 0, flag.data.ptr + 4, 1, 0) == INVALID_VALUE
    assert hip.status("hipStreamWaitValue64", 0, flag.data.ptr, 0, 9, 0) == NOT_SUPPORTED


def test_a_launch_by_its_work_items_between_events(cp: ModuleType, hip: Hip, scale: Any) -> None:
    x, values = cp.ones(4, "i4"), []
    cp.cuda.Device().synchronize()
    first, last = cp.cuda.Event(), cp.cuda.Event()
    launch, values = launch_of(scale, x, 3)
    more = (4, 1, 1, 4, 1, 1, 0, 0, ctypes.c_void_p(launch.parameters), None, first.ptr, last.ptr)
    hip.hipExtModuleLaunchKernel(scale.kernel.ptr, *more, 0)
    assert (
        hip.status("hipExtModuleLaunchKernel", scale.kernel.ptr, 6, *more[1:], 0) == NOT_SUPPORTED
    )
    last.synchronize()
    assert x.get().tolist() == [3, 3, 3, 3]
    assert values


def test_limits_modes_and_the_end(cp: ModuleType, hip: Hip) -> None:
    limit, mode = ctypes.c_size_t(), ctypes.c_int(2)
    before = ctypes.c_size_t()
    hip.hipDeviceGetLimit(ctypes.byref(before), 2)
    hip.hipDeviceSetLimit(2, 1 << 24)
    hip.hipDeviceGetLimit(ctypes.byref(limit), 2)
    hip.hipDeviceSetLimit(2, before.value)
    assert limit.value == 1 << 24
    assert hip.status("hipDeviceSetLimit", 77, 1) == INVALID_VALUE
    hip.hipThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == 0
    hip.hipThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == 2
    hip.hipDeviceReset()
