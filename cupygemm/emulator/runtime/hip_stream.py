"""The HIP functions for devices, streams and events.

`stream_order` records the dependencies. Without a seed (`stream_deferral`), work is done when it is
submitted: waiting takes no time, except for a flag that another thread has yet to write, and every
query finds all work finished. The methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from cupygemm.emulator.concurrency.stream_order import Clock, Operation
from cupygemm.emulator.device import Event, Stream
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.capture import CaptureMark
from cupygemm.emulator.runtime.handles import DEFAULT_STREAMS, Handles
from cupygemm.emulator.runtime.properties import (
    HIP_VERSION,
    device_attribute,
    device_properties,
    pci_address,
)
from cupygemm.emulator.runtime.status import HipError, Status, store_int, store_size, text_at

NON_BLOCKING = 1  # hipStreamNonBlocking
_DISABLE_TIMING = 2  # hipEventDisableTiming
_HOLDS: dict[int, Callable[[int, int, Any], bool]] = {  # hipStreamWaitValueGte, Eq, And, Nor
    0: lambda held, value, word: word(held - value).value >= 0,
    1: lambda held, value, _word: held == value,
    2: lambda held, value, _word: held & value != 0,
    3: lambda held, value, word: ~(held | value) & (1 << 8 * ctypes.sizeof(word)) - 1 != 0,
}
_POLL_SECONDS = 50e-6
_HIGHEST_PRIORITY, _LOWEST_PRIORITY = -1, 1  # on every AMD GPU
_LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20}  # stack, printf buffer and heap: hipLimit_t

_StreamCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DeviceFunctions(Handles):
    """The mixin of `HipRuntime` for devices."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._limits: dict[int, int] = {}  # hipLimit_t that the program has set

    def hipGetDeviceCount(self, count: int) -> None:
        store_int(count, len(self.devices))

    def hipGetDevice(self, device: int) -> None:
        store_int(device, self.device.index)

    def hipSetDevice(self, device: int) -> None:
        self.check_device(device)
        self.devices.select(device)

    def hipDeviceSynchronize(self) -> None:
        for stream in tuple(self.captures):
            self.check_not_captured(stream, "a wait for all streams, and so for")
        self.look_at_copies()
        self.devices.order.synchronise_device(self.device.index)
        self.devices.order.deferral.raise_failure()

    def hipDeviceGetAttribute(self, value: int, attribute: int, device: int) -> None:
        self.check_device(device)
        found = device_attribute(device_properties(self.devices.target, device), attribute)
        if found is None:
            raise HipError(Status.INVALID_VALUE, f"{attribute} is no hipDeviceAttribute_t")
        store_int(value, found)

    def hipDeviceGetLimit(self, value: int, limit: int) -> None:
        if limit not in _LIMITS:
            raise HipError(Status.INVALID_VALUE, f"{limit} is no hipLimit_t that can be read")
        store_size(value, self._limits.get(limit, _LIMITS[limit]))

    def hipDeviceSetLimit(self, limit: int, value: int) -> None:
        """Store the limit, which has no effect: stacks and heaps grow as needed."""
        if limit not in _LIMITS:
            raise HipError(Status.INVALID_VALUE, f"{limit} is no hipLimit_t that can be set")
        self._limits[limit] = value

    def hipDeviceReset(self) -> None:
        """Wait for the device; allocations stay, as at the end of the program."""
        self.hipDeviceSynchronize()

    def hipDeviceGetByPCIBusId(self, device: int, pci_bus_id: int) -> None:
        wanted = text_at(pci_bus_id)
        present = [pci_address(index) for index in range(len(self.devices))]
        if wanted not in present:
            where = ", ".join(present)
            raise HipError(Status.INVALID_DEVICE, f"no device at {wanted}, only at {where}")
        store_int(device, present.index(wanted))

    def hipDeviceGetPCIBusId(self, pci_bus_id: int, length: int, device: int) -> None:
        self.check_device(device)
        data = pci_address(device).encode()[: length - 1] + b"\0"
        ctypes.memmove(pci_bus_id, data, len(data))

    def hipDeviceCanAccessPeer(self, can: int, device: int, peer: int) -> None:
        self.check_device(device)
        self.check_device(peer)
        store_int(can, int(device != peer))

    def hipDeviceEnablePeerAccess(self, peer: int, flags: int) -> None:
        own = self._own_index_beside(peer)
        made = self.made()
        if self.devices.has_peer(own, peer) and not made.value:
            raise HipError(
                Status.PEER_ACCESS_ALREADY_ENABLED,
                f"device {own} has access to the memory of device {peer} already",
            )
        made.value = 1
        self.devices.order.deferral.run_all()  # earlier work has no access
        self.devices.enable_peer(own, peer)

    def hipDeviceDisablePeerAccess(self, peer: int) -> None:
        own = self._own_index_beside(peer)
        made = self.made()
        if not self.devices.has_peer(own, peer) and not made.value:
            raise HipError(
                Status.PEER_ACCESS_NOT_ENABLED,
                f"device {own} has no access to the memory of device {peer}",
            )
        made.value = 1
        self.devices.order.deferral.run_all()  # earlier work has access
        self.devices.disable_peer(own, peer)

    def _own_index_beside(self, peer: int) -> int:
        """Return the current device's index; raise if it is the peer's."""
        self.check_device(peer)
        if peer == self.device.index:
            raise HipError(Status.PEER_ACCESS_UNSUPPORTED, "a device is no peer of itself")
        return self.device.index

    def hipGetDevicePropertiesR0600(self, properties: int, device: int) -> None:
        self.check_device(device)
        found = device_properties(self.devices.target, device)
        ctypes.memmove(properties, ctypes.addressof(found), ctypes.sizeof(found))

    def hipDriverGetVersion(self, version: int) -> None:
        store_int(version, HIP_VERSION)

    def hipRuntimeGetVersion(self, version: int) -> None:
        store_int(version, HIP_VERSION)


class StreamFunctions(Handles):
    """The mixin of `HipRuntime` for streams and events."""

    def __init__(self, devices: Devices) -> None:
        super().__init__(devices)
        self._events: dict[int, Event] = {}
        self._flag_clocks: dict[int, Clock] = {}  # of the latest write, by address

    def hipStreamCreate(self, stream: int) -> None:
        self.hipStreamCreateWithPriority(stream, 0, 0)

    def hipStreamCreateWithFlags(self, stream: int, flags: int) -> None:
        self.hipStreamCreateWithPriority(stream, flags, 0)

    def hipStreamCreateWithPriority(self, stream: int, flags: int, priority: int) -> None:
        priority = min(max(priority, _HIGHEST_PRIORITY), _LOWEST_PRIORITY)
        made = Stream(flags, priority, self.device.index)
        handle = self.keep(self.streams, lambda: made)
        is_blocking = not flags & NON_BLOCKING
        self.devices.order.add(handle, self.device.index, is_blocking=is_blocking)
        store_size(stream, handle)

    def hipStreamDestroy(self, stream: int) -> None:
        self.check_stream(stream)
        if stream in DEFAULT_STREAMS:
            raise HipError(Status.INVALID_HANDLE, "a default stream cannot be destroyed")
        self.check_not_captured(stream, "destruction of")
        del self.streams[stream]
        self.devices.order.remove(stream)

    def hipStreamSynchronize(self, stream: int) -> None:
        self.check_stream(stream)
        self.check_not_captured(stream, "a wait for")
        self.look_at_copies()
        self.devices.order.synchronise(self.queue(stream))
        self.devices.order.deferral.raise_failure()

    def hipStreamQuery(self, stream: int) -> None:
        self.check_stream(stream)
        self.check_not_captured(stream, "a query of")
        self._query(self.devices.order.record(self.queue(stream)), f"stream 0x{stream:x}")

    def hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.check_stream(stream)
        known, capture = self._event(event), self.captures.get(stream)
        mark: CaptureMark | None = known.mark
        if mark is None or self.captures.get(mark.stream) is not mark.capture:
            if capture is not None and known.recorded is not None:
                raise capture.fail(
                    Status.STREAM_CAPTURE_ISOLATION,
                    f"the captured stream 0x{stream:x} waits for an event that was recorded "
                    "outside of the capture",
                )
            self.devices.order.wait(self.queue(stream), known.clock)
            return
        joined = mark.capture
        if capture is None:
            self.captures[stream] = joined
            self.devices.captured.add(stream)
        elif capture is not joined:
            raise capture.fail(
                Status.STREAM_CAPTURE_MERGE, "an event joins two captures, which must stay apart"
            )
        joined.join(stream, mark)

    def hipStreamGetFlags(self, stream: int, flags: int) -> None:
        self.check_stream(stream)
        store_int(flags, self.streams[stream].flags)

    def hipStreamGetPriority(self, stream: int, priority: int) -> None:
        self.check_stream(stream)
        store_int(priority, self.streams[stream].priority)

    def hipStreamAddCallback(self, stream: int, function: int, data: int, flags: int) -> None:
        self.check_stream(stream)
        self.check_not_captured(stream, "a callback in")

        def run(place: Operation) -> None:
            _StreamCallback(function)(stream, Status.SUCCESS, data)
            self.devices.order.reach(place.clock())  # the host knows how far the stream is

        self.submit(stream, "callback", run, "host")

    def hipLaunchHostFunc(self, stream: int, function: int, data: int) -> None:
        self.check_stream(stream)

        def run(place: Operation) -> None:
            _HostFunction(function)(data)
            self.devices.order.reach(place.clock())

        self.submit(stream, "host function", run, "host")

    def hipStreamWriteValue32(self, stream: int, flag: int, value: int, flags: int) -> None:
        self._write_flag(stream, flag, value, ctypes.c_uint32)

    def hipStreamWriteValue64(self, stream: int, flag: int, value: int, flags: int) -> None:
        self._write_flag(stream, flag, value, ctypes.c_uint64)

    def hipStreamWaitValue32(
        self, stream: int, flag: int, value: int, flags: int, mask: int
    ) -> None:
        self._wait_for_flag(stream, flag, value, flags, mask, ctypes.c_int32)

    def hipStreamWaitValue64(
        self, stream: int, flag: int, value: int, flags: int, mask: int
    ) -> None:
        self._wait_for_flag(stream, flag, value, flags, mask, ctypes.c_int64)

    def _write_flag(self, stream: int, flag: int, value: int, word: Any) -> None:
        self.check_stream(stream)
        self._check_flag(flag, ctypes.sizeof(word))

        def run(place: Operation) -> None:
            self._flag_clocks[flag] = self.devices.order.record(place.queue)
            word.from_address(flag).value = value

        self.submit(stream, "write to a flag", run, "host")

    def _wait_for_flag(
        self, stream: int, flag: int, value: int, flags: int, mask: int, word: Any
    ) -> None:
        """Wait until another thread has submitted the write of a flag."""
        self.check_stream(stream)
        self._check_flag(flag, ctypes.sizeof(word))
        if flags not in _HOLDS:
            raise HipError(
                Status.NOT_SUPPORTED, f"a wait for a flag with flags {flags}, not 0 to 3"
            )

        def run(place: Operation) -> None:
            held = word.from_address(flag)
            while not _HOLDS[flags](held.value & mask, value & mask, word):
                time.sleep(_POLL_SECONDS)
            self.devices.order.wait(place.queue, self._flag_clocks.get(flag, {}))

        self.submit(stream, "wait for a flag", run, "host")  # another thread may have to write

    def _check_flag(self, flag: int, size: int) -> None:
        if flag % size or not self.devices.memory.contains(flag, size):
            raise HipError(
                Status.INVALID_VALUE,
                f"a flag at 0x{flag:x}: {self.devices.memory.describe(flag, size)}",
            )

    def hipEventCreate(self, event: int) -> None:
        self.hipEventCreateWithFlags(event, 0)

    def hipEventCreateWithFlags(self, event: int, flags: int) -> None:
        store_size(event, self.keep(self._events, lambda: Event(flags)))

    def hipEventDestroy(self, event: int) -> None:
        self._event(event)
        del self._events[event]

    def hipEventRecord(self, event: int, stream: int) -> None:
        self.check_stream(stream)
        known, capture = self._event(event), self.captures.get(stream)
        known.mark = None
        if capture is not None:
            known.mark = capture.mark(stream)
            return
        queue = self.queue(stream)
        clock = self.devices.order.record(queue)
        known.record(clock)
        if not self.devices.order.deferral.is_idle:
            self.devices.order.deferral.add(queue, clock, "", lambda: known.pass_by(clock))

    def hipEventQuery(self, event: int) -> None:
        known = self._reachable(event, "a query of")
        self._query(known.clock, f"event 0x{event:x}")

    def hipEventSynchronize(self, event: int) -> None:
        known = self._reachable(event, "a wait for")
        self.look_at_copies()
        self.devices.order.reach(known.clock)
        self.devices.order.deferral.raise_failure()

    def _query(self, clock: Clock, what: str) -> None:
        """Raise unless all work before a point is done; otherwise order the host after it."""
        deferral = self.devices.order.deferral
        is_done = deferral.is_done(clock)
        deferral.raise_failure()
        if not is_done:
            raise HipError(Status.NOT_READY, f"the work before {what} is not done")
        self.look_at_copies()
        self.devices.order.reach(clock)

    def _reachable(self, event: int, what: str) -> Event:
        """Return an event; raise if it belongs to a capture in progress."""
        known = self._event(event)
        if known.mark is not None:
            self.check_not_captured(known.mark.stream, f"{what} an event of")
        return known

    def hipEventElapsedTime(self, milliseconds: int, start: int, stop: int) -> None:
        events = self._event(start), self._event(stop)
        if any(event.flags & _DISABLE_TIMING for event in events):
            raise HipError(Status.INVALID_HANDLE, "an event was created without timing")
        if events[0].recorded is None or events[1].recorded is None:
            raise HipError(Status.INVALID_HANDLE, "an event has not been recorded")
        for event, handle in zip(events, (start, stop), strict=True):
            self._query(event.clock, f"event 0x{handle:x}")
        elapsed = (events[1].recorded - events[0].recorded) / 1e6
        ctypes.c_float.from_address(milliseconds).value = elapsed

    def _event(self, event: int) -> Event:
        if event not in self._events:
            raise HipError(
                Status.INVALID_HANDLE,
                f"event 0x{event:x} does not exist: it was destroyed, or never created",
            )
        return self._events[event]
