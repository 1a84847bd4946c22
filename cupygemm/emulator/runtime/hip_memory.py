"""The HIP functions for memory. Device memory is host memory: a copy is a checked memmove.

A copy or a fill must stay inside allocated device memory (for a CuPy array: inside the array).
Otherwise it fails with an invalid value, and the message describes the memory at the address. The
methods have the names of HIP's functions.
"""
# ruff: noqa: D102, N802, N815

from __future__ import annotations

import ctypes
from typing import Any

from cupygemm.emulator.concurrency.stream_order import Operation, Stretch
from cupygemm.emulator.concurrency.stream_races import touch
from cupygemm.emulator.device import OutOfMemory
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.memory.host_memory import host_available
from cupygemm.emulator.runtime.handles import Handles
from cupygemm.emulator.runtime.status import HipError, Status, store_size

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
_MEMORY_TYPE = {"hipHostMalloc": 1, "hipMallocManaged": 3}  # by tag; hipMemoryTypeDevice is 2
_ADVICE = (*range(1, 7), 100, 101)  # hipMemoryAdvise
_READ_MOSTLY = (1, 2)  # of these, hipMemAdviseSetReadMostly and its inverse apply to all devices
_ATTACHMENTS = (1, 2)  # hipMemAttachGlobal, hipMemAttachHost
_CPU_DEVICE = -1  # hipCpuDeviceId, also valid as the location of managed memory


class PointerAttributes(ctypes.Structure):
    """HIP's hipPointerAttribute_t (ROCm 6 and later)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_size_t),
        ("host_pointer", ctypes.c_size_t),
        ("is_managed", ctypes.c_int),
        ("allocation_flags", ctypes.c_uint),
    )


def _is_pinned(memory: Memory, address: int) -> bool:
    block = memory.block(address) if memory.owns(address) else None
    return block is not None and block.tag == "hipHostMalloc"


class MemoryFunctions(Handles):
    """The mixin of `HipRuntime` for memory."""

    def hipMalloc(self, pointer: int, size: int) -> None:
        store_size(pointer, self._malloc(size, "hipMalloc"))

    def hipHostMalloc(self, pointer: int, size: int, flags: int) -> None:
        store_size(pointer, self._malloc_for_host(size, "hipHostMalloc"))

    def hipMallocManaged(self, pointer: int, size: int, flags: int) -> None:
        if size == 0 or flags not in _ATTACHMENTS:
            raise HipError(
                Status.INVALID_VALUE,
                f"{size} bytes of managed memory with the flags {flags}, which are not "
                "hipMemAttachGlobal (1) or hipMemAttachHost (2)",
            )
        store_size(pointer, self._malloc_for_host(size, "hipMallocManaged"))

    def hipFree(self, pointer: int) -> None:
        if pointer:
            self.devices.order.deferral.after_running(lambda: self._free(pointer))

    def _free(self, pointer: int) -> None:
        self.devices.order.synchronise_device()  # as HIP does before it frees memory
        try:
            self.devices.memory.free(pointer)
        except ValueError as err:
            raise HipError(Status.INVALID_VALUE, str(err)) from err

    hipHostFree = hipFree

    def hipMemGetInfo(self, available: int, total: int) -> None:
        size = self.device.target.memory_bytes
        store_size(available, min(size - self.device.memory.used_bytes, host_available()))
        store_size(total, size)

    def hipPointerGetAttributes(self, attributes: int, pointer: int) -> None:
        found = PointerAttributes.from_address(attributes)
        block = self.devices.memory.block(pointer)
        if block is None:  # memory that HIP does not know: hipMemoryTypeUnregistered
            found.type, found.device, found.device_pointer = 0, -2, 0
            found.host_pointer = pointer
        else:
            found.type = _MEMORY_TYPE.get(block.tag, 2)
            found.device, found.device_pointer = block.device or 0, pointer
            found.host_pointer = 0 if found.type == 2 else pointer
        found.is_managed = found.type == 3
        found.allocation_flags = 0

    def hipMemcpy(self, to: int, source: int, size: int, kind: int) -> None:
        self._await(self._submit_copy(to, source, size, kind, 0))

    def _submit_copy(
        self, to: int, source: int, size: int, kind: int, stream: int
    ) -> Operation | None:
        if self.devices.order.deferral.seed is not None and stream not in self.captures:
            self._check_copy(to, source, size, kind)
        return self.submit(
            stream,
            f"copy of {size} bytes",
            lambda place: self._copy(place, to, source, size, kind),
        )

    def _await(self, place: Operation | None) -> None:
        """Make the host wait for an operation, which is dropped if the wait is interrupted."""
        if place is None:
            return
        order = self.devices.order
        self.look_at_copies()
        try:
            order.reach(place.clock())
        except BaseException:
            order.deferral.drop(place.queue, place.number)
            raise
        order.deferral.raise_failure()

    def _check_copy(self, to: int, source: int, size: int, kind: int) -> None:
        if kind not in range(DEFAULT + 1):
            raise HipError(Status.INVALID_VALUE, f"{kind} is no hipMemcpyKind")
        if size == 0:
            return
        to_device = kind in (HOST_TO_DEVICE, DEVICE_TO_DEVICE)
        from_device = kind in (DEVICE_TO_HOST, DEVICE_TO_DEVICE)
        self._check("copy to", to, size, on_device=to_device)
        self._check("copy from", source, size, on_device=from_device)

    def _copy(self, place: Operation, to: int, source: int, size: int, kind: int) -> None:
        self._check_copy(to, source, size, kind)
        if size == 0:
            return
        self._touch(place, Stretch.plain(source, size, writes=False))
        self._touch(place, Stretch.plain(to, size, writes=True))
        ctypes.memmove(to, source, size)
        self.devices.memory.define(to, size)

    def _touch(self, place: Operation, part: Stretch) -> None:
        """Record the accesses of a copy or a fill to device memory and pinned memory."""
        memory = self.devices.memory
        if memory.owns(part.start):
            try:
                touch(self.devices.order, place, memory, [part])
            except EmulatorError as fault:
                self.device.last_fault = fault
                raise

    def hipMemcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self.check_stream(stream)
        memory = self.devices.memory
        if memory.owns(source) or memory.owns(to):
            self.look_at_copies()
        place = self._submit_copy(to, source, size, kind, stream)
        if (
            place is not None
            and self.devices.order.deferral.seed is None
            and _is_pinned(memory, source)
        ):
            self.devices.order.copies.add(place, memory, source, size)
        if place is not None and size and _is_pinned(memory, to) and memory.owns(source):
            self.devices.order.copies.add_to_host(place, to, size)
        if not (memory.owns(to) and memory.owns(source)):
            # "If host or dest are not pinned, the memory copy will be performed synchronously."
            self._await(place)

    def hipMemcpyPeer(
        self, to: int, to_device: int, source: int, from_device: int, size: int
    ) -> None:
        self.check_device(to_device)
        self.check_device(from_device)
        self.hipMemcpy(to, source, size, DEVICE_TO_DEVICE)

    def hipMemcpyPeerAsync(
        self, to: int, to_device: int, source: int, from_device: int, size: int, stream: int
    ) -> None:
        self.check_stream(stream)
        self.check_device(to_device)
        self.check_device(from_device)
        self._submit_copy(to, source, size, DEVICE_TO_DEVICE, stream)

    def hipMemset(self, to: int, value: int, size: int) -> None:
        self._await(self._submit_fill(to, value, size, 0))

    def _fill(self, place: Operation, to: int, value: int, size: int) -> None:
        if size:
            self._check("fill of", to, size, on_device=True)
            self._touch(place, Stretch.plain(to, size, writes=True))
            ctypes.memset(to, value, size)
            self.devices.memory.define(to, size)

    def hipMemsetAsync(self, to: int, value: int, size: int, stream: int) -> None:
        self.check_stream(stream)
        self._submit_fill(to, value, size, stream)

    def _submit_fill(self, to: int, value: int, size: int, stream: int) -> Operation | None:
        if size and self.devices.order.deferral.seed is not None and stream not in self.captures:
            self._check("fill of", to, size, on_device=True)
        return self.submit(
            stream, f"fill of {size} bytes", lambda place: self._fill(place, to, value, size)
        )

    # There is only one memory, so advice and prefetches have no effect: only the arguments are
    # checked, as in ROCm's hip_hmm.cpp. Memory that HIP did not allocate would need XNACK, which is
    # off.

    def hipMemAdvise(self, pointer: int, size: int, advice: int, device: int) -> None:
        if advice not in _ADVICE:
            raise HipError(Status.INVALID_VALUE, f"{advice} is no hipMemoryAdvise")
        if advice not in _READ_MOSTLY:
            self._check_place(device)
        if size == 0:
            raise HipError(Status.INVALID_VALUE, "advice on no bytes")
        self._check("advice on", pointer, size, on_device=True)

    def hipMemPrefetchAsync(self, pointer: int, size: int, device: int, stream: int) -> None:
        self.check_stream(stream)
        self._check_place(device)
        if size == 0:
            raise HipError(Status.INVALID_VALUE, "a prefetch of no bytes")
        if pointer and device != _CPU_DEVICE and not self.devices.memory.owns(pointer):
            raise HipError(
                Status.NOT_SUPPORTED,
                f"a prefetch of 0x{pointer:x}, which is not memory of HIP's: that needs XNACK",
            )
        self._check("prefetch of", pointer, size, on_device=True)

    def _check_place(self, device: int) -> None:
        if device != _CPU_DEVICE:
            self.check_device(device)

    def _malloc(self, size: int, tag: str, **options: Any) -> int:
        if size == 0:
            return 0
        memory = self.device.memory
        if memory.used_bytes + size > self.device.target.memory_bytes:
            raise HipError(
                Status.OUT_OF_MEMORY,
                f"{size} bytes requested, {memory.used_bytes} of {self.device.target.memory_bytes} "
                "in use",
            )
        made = self.made()
        if made.value:
            block = memory.block(made.value)
            if block is not None and block.start == made.value:
                return made.value
        try:
            return memory.malloc(size, tag, made=made, **options)
        except OutOfMemory as err:
            raise HipError(Status.OUT_OF_MEMORY, str(err)) from err

    def _malloc_for_host(self, size: int, tag: str) -> int:
        """Allocate memory that every device, and the host without a HIP call, may write."""
        address = self._malloc(size, tag, device=None)
        self.devices.memory.define(address, size)
        return address

    def _check(self, what: str, address: int, size: int, *, on_device: bool) -> None:
        memory = self.devices.memory
        if not address:
            raise HipError(Status.INVALID_VALUE, f"{what} a null pointer")
        if (on_device or memory.owns(address)) and not memory.contains(address, size):
            raise HipError(
                Status.INVALID_VALUE,
                f"{what} {size} bytes at 0x{address:x}: {memory.describe(address, size)}",
            )
