"""HIP functions of the driver's API: contexts, links, attributes; exported names."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import pytest

from tests.emulator.hip_entry_points import INVALID_VALUE, NOT_SUPPORTED, Hip

INVALID_DEVICE, INVALID_CONTEXT = 101, 201

pytestmark = pytest.mark.usefixtures("cp")


@pytest.fixture
def hip(cp: ModuleType) -> Hip:
    return Hip(cp)


def size() -> Any:
    return ctypes.c_size_t()


def test_contexts_select_their_device(hip: Hip) -> None:
    first, second, found, device = size(), size(), size(), ctypes.c_int(-1)
    hip.hipCtxCreate(ctypes.byref(first), 0, 0)
    hip.hipDevicePrimaryCtxRetain(ctypes.byref(second), 0)
    assert first.value == second.value != 0, "a device has one context"
    hip.hipCtxGetCurrent(ctypes.byref(found))
    hip.hipCtxGetDevice(ctypes.byref(device))
    assert (found.value, device.value) == (first.value, 0)
    hip.hipCtxPushCurrent(first.value)
    hip.hipCtxSetCurrent(first.value)
    for _ in range(2):
        found.value = 0
        hip.hipCtxPopCurrent(ctypes.byref(found))
        assert found.value == first.value
    assert hip.status("hipCtxPopCurrent", ctypes.byref(found)) == INVALID_CONTEXT
    assert "pushed no context" in hip.message(INVALID_CONTEXT)
    assert hip.status("hipCtxSetCurrent", 7) == INVALID_CONTEXT
    assert hip.status("hipCtxCreate", ctypes.byref(found), 0, 99) == INVALID_DEVICE
    hip.hipCtxSetCurrent(0)
    hip.hipCtxSynchronize()


def test_the_state_of_a_primary_context(hip: Hip) -> None:
    context, flags, active = size(), ctypes.c_uint(9), ctypes.c_int(9)
    hip.hipDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    before = active.value
    hip.hipDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    hip.hipDevicePrimaryCtxSetFlags(0, 4)
    hip.hipDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    assert (flags.value, active.value) == (4, 1)
    hip.hipDevicePrimaryCtxSetFlags(0, 0)
    hip.hipDevicePrimaryCtxRelease(0)
    hip.hipDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    assert (flags.value, active.value) == (0, before)


def test_attributes_of_pointers(hip: Hip, cp: ModuleType) -> None:
    x = cp.cuda.alloc(4096).ptr  # of a pool: the block begins before it or at it
    word, number = size(), ctypes.c_int(-1)
    expected = {2: 2, 8: 0, 9: 0}  # of the device, not managed, device 0
    for attribute, value in expected.items():
        hip.hipPointerGetAttribute(ctypes.byref(number), attribute, x)
        assert number.value == value
    hip.hipPointerGetAttribute(ctypes.byref(word), 3, x + 8)
    assert word.value == x + 8
    hip.hipPointerGetAttribute(ctypes.byref(word), 11, x + 8)
    start = word.value
    hip.hipPointerGetAttribute(ctypes.byref(word), 12, x + 8)
    assert start <= x < x + 4096 <= start + word.value
    assert hip.status("hipPointerGetAttribute", ctypes.byref(word), 4, x) == INVALID_VALUE
    assert hip.status("hipPointerGetAttribute", ctypes.byref(word), 5, x) == NOT_SUPPORTED
    assert hip.status("hipPointerGetAttribute", ctypes.byref(word), 3, 64) == INVALID_VALUE


def test_a_device_has_no_link_to_itself(hip: Hip) -> None:
    value = ctypes.c_int()
    place = ctypes.byref(value)
    assert hip.status("hipDeviceGetP2PAttribute", place, 1, 0, 0) == INVALID_DEVICE
    assert hip.status("hipExtGetLinkTypeAndHopCount", 0, 0, place, place) == INVALID_VALUE


def test_the_best_block_of_a_function(hip: Hip, cp: ModuleType) -> None:
    module = cp.RawModule(code='extern "C" __global__ void k(int* x) { *x = 1; }')
    function = module.get_function("k").kernel.ptr
    grid, block, blocks = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    places = ctypes.byref(grid), ctypes.byref(block)
    hip.hipModuleOccupancyMaxPotentialBlockSizeWithFlags(*places, function, 0, 128, 0)
    assert (block.value, grid.value > 0) == (128, True)
    hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        ctypes.byref(blocks), function, 128, 0, 0
    )
    assert blocks.value > 0


@pytest.mark.parametrize(
    "name", ["hipTexRefSetArray", "hipImportExternalMemory", "hipGraphAddMemAllocNode"]
)
def test_what_is_not_supported_is_exported_and_names_itself(hip: Hip, name: str) -> None:
    assert hip.status(name) == NOT_SUPPORTED
    assert hip.message(NOT_SUPPORTED) == f"the emulated device does not support {name}"
