"""The HIP functions on devices, streams and events.

Work is done when it is submitted: waiting takes no time, every query finds all work finished, and
streams are only checked for existence. Graph capture would have to postpone work, so it is not
supported. The methods are HIP's functions, under HIP's names.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
import itertools

from cupygemm.emulator.device import Device, Event, Stream
from cupygemm.emulator.runtime.handles import DEFAULT_STREAMS, Handles
from cupygemm.emulator.runtime.properties import (
    HIP_VERSION,
    PCI_BUS_ID,
    device_attribute,
    device_properties,
)
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size, text_at

_DISABLE_TIMING = 2  # hipEventDisableTiming
_HIGHEST_PRIORITY, _LOWEST_PRIORITY = -1, 1  # on every AMD GPU
_LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20}  # stack, printf buffer and heap: hipLimit_t

_StreamCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DeviceFunctions(Handles):
    """Devices; a part of `HipRuntime`."""

    def hipGetDeviceCount(self, count: int) -> None:
        store_int(count, 1)

    def hipGetDevice(self, device: int) -> None:
        store_int(device, 0)

    def hipSetDevice(self, device: int) -> None:
        self.check_device(device)

    def hipDeviceSynchronize(self) -> None:
        pass

    def hipDeviceGetAttribute(self, value: int, attribute: int, device: int) -> None:
        self.check_device(device)
        found = device_attribute(device_properties(self.device.target), attribute)
        if found is None:
            raise HipError(Status.INVALID_VALUE, f"{attribute} is no hipDeviceAttribute_t")
        store_int(value, found)

    def hipDeviceGetLimit(self, value: int, limit: int) -> None:
        if limit not in _LIMITS:
            raise HipError(Status.INVALID_VALUE, f"{limit} is no hipLimit_t that can be read")
        store_size(value, _LIMITS[limit])

    def hipDeviceGetByPCIBusId(self, device: int, pci_bus_id: int) -> None:
        wanted = text_at(pci_bus_id)
        if wanted != PCI_BUS_ID:
            raise HipError(Status.INVALID_DEVICE, f"no device at {wanted}, only at {PCI_BUS_ID}")
        store_int(device, 0)

    def hipDeviceGetPCIBusId(self, pci_bus_id: int, length: int, device: int) -> None:
        self.check_device(device)
        data = PCI_BUS_ID.encode()[: length - 1] + b"\0"
        ctypes.memmove(pci_bus_id, data, len(data))

    def hipDeviceCanAccessPeer(self, can: int, device: int, peer: int) -> None:
        self.check_device(device)
        self.check_device(peer)
        store_int(can, 0)

    def hipDeviceEnablePeerAccess(self, peer: int, flags: int) -> None:
        self.check_device(peer)
        raise HipError(Status.PEER_ACCESS_UNSUPPORTED, "a device is no peer of itself")

    def hipDeviceDisablePeerAccess(self, peer: int) -> None:
        self.hipDeviceEnablePeerAccess(peer, 0)

    def hipGetDevicePropertiesR0600(self, properties: int, device: int) -> None:
        self.check_device(device)
        found = device_properties(self.device.target)
        ctypes.memmove(properties, ctypes.addressof(found), ctypes.sizeof(found))

    def hipDriverGetVersion(self, version: int) -> None:
        store_int(version, HIP_VERSION)

    def hipRuntimeGetVersion(self, version: int) -> None:
        store_int(version, HIP_VERSION)


class StreamFunctions(Handles):
    """Streams and events; a part of `HipRuntime`."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._events: dict[int, Event] = {}
        self._handles = itertools.count(0x1000, 0x10)

    def hipStreamCreate(self, stream: int) -> None:
        self.hipStreamCreateWithPriority(stream, 0, 0)

    def hipStreamCreateWithFlags(self, stream: int, flags: int) -> None:
        self.hipStreamCreateWithPriority(stream, flags, 0)

    def hipStreamCreateWithPriority(self, stream: int, flags: int, priority: int) -> None:
        handle = next(self._handles)
        priority = min(max(priority, _HIGHEST_PRIORITY), _LOWEST_PRIORITY)
        self.streams[handle] = Stream(flags, priority)
        store_size(stream, handle)

    def hipStreamDestroy(self, stream: int) -> None:
        self.check_stream(stream)
        if stream in DEFAULT_STREAMS:
            raise HipError(Status.INVALID_HANDLE, "a default stream cannot be destroyed")
        del self.streams[stream]

    def hipStreamSynchronize(self, stream: int) -> None:
        self.check_stream(stream)

    def hipStreamQuery(self, stream: int) -> None:
        self.check_stream(stream)

    def hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.check_stream(stream)
        self._event(event)

    def hipStreamGetFlags(self, stream: int, flags: int) -> None:
        self.check_stream(stream)
        store_int(flags, self.streams[stream].flags)

    def hipStreamGetPriority(self, stream: int, priority: int) -> None:
        self.check_stream(stream)
        store_int(priority, self.streams[stream].priority)

    def hipStreamAddCallback(self, stream: int, function: int, data: int, flags: int) -> None:
        self.check_stream(stream)
        _StreamCallback(function)(stream, Status.SUCCESS, data)

    def hipLaunchHostFunc(self, stream: int, function: int, data: int) -> None:
        self.check_stream(stream)
        _HostFunction(function)(data)

    def hipStreamIsCapturing(self, stream: int, status: int) -> None:
        self.check_stream(stream)
        store_int(status, 0)  # hipStreamCaptureStatusNone

    def hipStreamGetCaptureInfo(self, stream: int, status: int, identity: int) -> None:
        self.hipStreamIsCapturing(stream, status)

    def hipStreamGetCaptureInfo_v2(
        self, stream: int, status: int, identity: int, graph: int, nodes: int, count: int
    ) -> None:
        self.hipStreamIsCapturing(stream, status)

    def hipEventCreate(self, event: int) -> None:
        self.hipEventCreateWithFlags(event, 0)

    def hipEventCreateWithFlags(self, event: int, flags: int) -> None:
        handle = next(self._handles)
        self._events[handle] = Event(flags)
        store_size(event, handle)

    def hipEventDestroy(self, event: int) -> None:
        self._event(event)
        del self._events[event]

    def hipEventRecord(self, event: int, stream: int) -> None:
        self.check_stream(stream)
        self._event(event).record()

    def hipEventQuery(self, event: int) -> None:
        self._event(event)

    def hipEventSynchronize(self, event: int) -> None:
        self._event(event)

    def hipEventElapsedTime(self, milliseconds: int, start: int, stop: int) -> None:
        events = self._event(start), self._event(stop)
        if any(event.flags & _DISABLE_TIMING for event in events):
            raise HipError(Status.INVALID_HANDLE, "an event was created without timing")
        if events[0].recorded is None or events[1].recorded is None:
            raise HipError(Status.INVALID_HANDLE, "an event has not been recorded")
        elapsed = (events[1].recorded - events[0].recorded) / 1e6
        ctypes.c_float.from_address(milliseconds).value = elapsed

    def _event(self, event: int) -> Event:
        if event not in self._events:
            raise HipError(
                Status.INVALID_HANDLE,
                f"event 0x{event:x} does not exist: it was destroyed, or never created",
            )
        return self._events[event]
