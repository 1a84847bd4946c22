"""The HIP functions of the driver API: contexts, links between devices, pointer attributes.

Each device has only its primary context, as in ROCm's runtime: creating a context selects its
device. Each thread has a stack of contexts. The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
import threading

from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.hip_graph_parameters import GraphParameterFunctions
from cupygemm.emulator.runtime.hip_memory import PointerAttributes
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size

_FIRST_CONTEXT = 0xC0C0_0000  # a handle is this plus the number of its device
_RANK, _ACCESS, _ATOMICS, _ARRAYS = range(4)  # hipDeviceP2PAttr
_XGMI = 4  # HSA_AMD_LINK_INFO_TYPE_XGMI
# hipPointer_attribute
_MEMORY_TYPE, _DEVICE_POINTER, _HOST_POINTER, _MANAGED, _DEVICE = 2, 3, 4, 8, 9
_RANGE_START, _RANGE_SIZE, _MAPPED = 11, 12, 13


class _Thread(threading.local):
    """The contexts that a thread has pushed, as numbers of devices."""

    def __init__(self) -> None:
        self.stack: list[int] = []


class ContextFunctions(GraphParameterFunctions):
    """The mixin of `HipRuntime` for contexts, links and pointer attributes."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._thread = _Thread()
        self._retained = [0] * len(devices)  # by device
        self._flags = [0] * len(devices)

    # -- contexts --

    def hipCtxCreate(self, context: int, flags: int, device: int) -> None:
        self.hipSetDevice(device)
        self._flags[device] = flags
        self._thread.stack.append(device)
        store_size(context, _FIRST_CONTEXT + device)

    def hipCtxDestroy(self, context: int) -> None:
        device = self._device_of(context)
        if self._thread.stack[-1:] == [device]:
            self._pop()

    def hipCtxPushCurrent(self, context: int) -> None:
        device = self._device_of(context)
        self.hipSetDevice(device)
        self._thread.stack.append(device)

    def hipCtxPopCurrent(self, context: int) -> None:
        if not self._thread.stack:
            raise HipError(Status.INVALID_CONTEXT, "this thread has pushed no context")
        store_size(context, _FIRST_CONTEXT + self._pop())

    def hipCtxSetCurrent(self, context: int) -> None:
        if context:
            device = self._device_of(context)
            self.hipSetDevice(device)
            self._thread.stack[-1:] = [device]
        elif self._thread.stack:
            self._pop()

    def hipCtxGetCurrent(self, context: int) -> None:
        store_size(context, _FIRST_CONTEXT + self.device.index)

    def hipCtxGetDevice(self, device: int) -> None:
        store_int(device, self.device.index)

    def hipCtxGetFlags(self, flags: int) -> None:
        store_int(flags, self._flags[self.device.index])

    def hipCtxSynchronize(self) -> None:
        self.hipDeviceSynchronize()

    def hipCtxEnablePeerAccess(self, context: int, flags: int) -> None:
        self.hipDeviceEnablePeerAccess(self._device_of(context), flags)

    def hipCtxDisablePeerAccess(self, context: int) -> None:
        self.hipDeviceDisablePeerAccess(self._device_of(context))

    def hipDevicePrimaryCtxRetain(self, context: int, device: int) -> None:
        self.check_device(device)
        self._retained[device] += 1
        store_size(context, _FIRST_CONTEXT + device)

    def hipDevicePrimaryCtxRelease(self, device: int) -> None:
        self.check_device(device)
        self._retained[device] = max(self._retained[device] - 1, 0)

    def hipDevicePrimaryCtxGetState(self, device: int, flags: int, active: int) -> None:
        self.check_device(device)
        store_int(flags, self._flags[device])
        store_int(active, int(self._retained[device] > 0 or device in self._thread.stack))

    def hipDevicePrimaryCtxSetFlags(self, device: int, flags: int) -> None:
        self.check_device(device)
        self._flags[device] = flags

    def _device_of(self, context: int) -> int:
        device = context - _FIRST_CONTEXT
        if not 0 <= device < len(self.devices):
            raise HipError(Status.INVALID_CONTEXT, f"0x{context:x} is no context")
        return device

    def _pop(self) -> int:
        """Pop a context, select the one below it, and return the popped one's device."""
        device = self._thread.stack.pop()
        if self._thread.stack:
            self.hipSetDevice(self._thread.stack[-1])
        return device

    # -- links between devices --

    def hipDeviceGetP2PAttribute(self, value: int, attribute: int, device: int, peer: int) -> None:
        self.check_device(device)
        self.check_device(peer)
        if device == peer:
            raise HipError(Status.INVALID_DEVICE, f"device {device} is no peer of itself")
        known = {_RANK: 0, _ACCESS: 1, _ATOMICS: 1, _ARRAYS: 0}
        if attribute not in known:
            raise HipError(Status.INVALID_VALUE, f"{attribute} is no hipDeviceP2PAttr")
        store_int(value, known[attribute])

    def hipExtGetLinkTypeAndHopCount(self, device: int, peer: int, link: int, hops: int) -> None:
        self.check_device(device)
        self.check_device(peer)
        if device == peer:
            raise HipError(Status.INVALID_VALUE, f"device {device} has no link to itself")
        store_int(link, _XGMI)
        store_int(hops, 1)

    # -- pointers --

    def hipPointerGetAttribute(self, data: int, attribute: int, pointer: int) -> None:
        block = self.devices.memory.block(pointer)
        if block is None:
            raise HipError(Status.INVALID_VALUE, f"0x{pointer:x} is no memory of HIP's")
        found = PointerAttributes()
        self.hipPointerGetAttributes(ctypes.addressof(found), pointer)
        is_device = found.host_pointer == 0
        if attribute == _HOST_POINTER and is_device:
            raise HipError(Status.INVALID_VALUE, f"the host has no pointer to 0x{pointer:x}")
        integers = {_MEMORY_TYPE: found.type, _MANAGED: found.is_managed, _DEVICE: found.device}
        words = {
            _DEVICE_POINTER: pointer,
            _HOST_POINTER: pointer,
            _RANGE_START: block.start,
            _RANGE_SIZE: block.end - block.start,
        }
        if attribute in integers:
            store_int(data, integers[attribute])
        elif attribute in words:
            store_size(data, words[attribute])
        elif attribute == _MAPPED:
            ctypes.c_bool.from_address(data).value = True
        else:
            raise HipError(
                Status.NOT_SUPPORTED, f"hipPointerGetAttribute of the attribute {attribute}"
            )

    # -- modules --

    def hipModuleLoadDataEx(
        self, module: int, image: int, num_options: int, options: int, values: int
    ) -> None:
        self.hipModuleLoadData(module, image)  # the options are for a just-in-time compiler

    def hipModuleOccupancyMaxPotentialBlockSize(
        self, grid_size: int, block_size: int, function: int, dynamic_lds: int, limit: int
    ) -> None:
        self.store_best_block(grid_size, block_size, self._kernel(function), dynamic_lds, limit)

    def hipModuleOccupancyMaxPotentialBlockSizeWithFlags(
        self, grid_size: int, block_size: int, function: int, dynamic_lds: int, limit: int, _: int
    ) -> None:
        self.store_best_block(grid_size, block_size, self._kernel(function), dynamic_lds, limit)

    def hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, blocks: int, function: int, block_size: int, dynamic_lds: int, _: int
    ) -> None:
        self.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks, function, block_size, dynamic_lds
        )
