"""The devices and the streams, which all groups of HIP functions use.

If a signal handler's exception ends a call, C repeats the call and raises the exception afterwards.
So a function that creates an object stores its handle in `Handles.made` just before, and returns
that handle when it is called again.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import TypeVar

from cupygemm.emulator.concurrency.stream_order import Operation, Queue
from cupygemm.emulator.concurrency.stream_races import look_at_copies
from cupygemm.emulator.device import Device, Stream
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.runtime.capture import Capture, Kind
from cupygemm.emulator.runtime.status import HipError, Status

Made = TypeVar("Made")
DEFAULT_STREAMS = (0, 1, 2)
"""The null, the legacy and the per-thread stream."""


class Handles:
    """The devices and their streams, by handle.

    Parameters
    ----------
    devices : Devices
    """

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.streams: dict[int, Stream] = {stream: Stream() for stream in DEFAULT_STREAMS}
        self.captures: dict[int, Capture] = {}  # by each participating stream
        self.numbers = itertools.count(0x1000, 0x10)  # handles of streams, events and graphs
        # Return the handle that an earlier attempt of the current call stored, or 0.
        self.made: Callable[[], ctypes.c_size_t] = ctypes.c_size_t

    def keep(self, table: dict[int, Made], make: Callable[[], Made]) -> int:
        """Create an object and return its handle in a table, or an earlier attempt's handle."""
        made = self.made()
        if not made.value or made.value not in table:  # 0 is the default stream
            handle = next(self.numbers)
            value = make()
            made.value = handle
            table[handle] = value
        return made.value

    @property
    def device(self) -> Device:
        """Return the current device of this thread."""
        return self.devices.current

    def check_device(self, device: int) -> None:
        """Raise unless `device` is one of the devices."""
        count = len(self.devices)
        if not 0 <= device < count:
            present = "the emulated device is the only one, 0"
            if count > 1:
                present = f"there are {count} emulated devices, 0 to {count - 1}"
            raise HipError(Status.INVALID_DEVICE, f"device {device}: {present}")

    def check_stream(self, stream: int) -> None:
        """Raise unless `stream` exists."""
        if stream not in self.streams:
            raise HipError(
                Status.INVALID_HANDLE,
                f"stream 0x{stream:x} does not exist: it was destroyed, or never created",
            )

    def queue(self, stream: int) -> Queue:
        """Return the queue of the current device that determines a stream's order."""
        return self.devices.order.queue(stream, self.device.index)

    def submit(
        self,
        stream: int,
        label: str,
        run: Callable[[Operation], object],
        kind: Kind = "device",
    ) -> Operation | None:
        """Do work of a stream, or record it if the stream is being captured.

        Parameters
        ----------
        stream : int
        label : str
            A description for reports and pictures of graphs.
        run : callable
            Called with the work's place in the stream.
        kind : {"device", "host", "graph"}
            Device work may be executed later, in a seeded order. Flags and host functions are
            executed immediately, after the work before them: the program may wait for them without
            a call. A graph submits its nodes.

        Returns
        -------
        Operation or None
            Its place in the stream; None if it was recorded.
        """
        if not self.captures:
            return self.perform(self.queue(stream), label, run, kind)
        capture = self.captures.get(stream)
        if capture is not None:
            capture.add(stream, label, run, kind)
            return None
        if stream in DEFAULT_STREAMS[:2]:
            for capture in self.captures.values():
                if capture.is_blocking:
                    raise capture.fail(
                        Status.STREAM_CAPTURE_IMPLICIT,
                        f"{label} on the legacy default stream, which the captured stream "
                        f"0x{capture.origin:x} waits for: use another stream, or capture one that "
                        "was made with non_blocking=True",
                    )
        return self.perform(self.queue(stream), label, run, kind)

    def perform(
        self, queue: Queue, label: str, run: Callable[[Operation], object], kind: Kind
    ) -> Operation:
        """Do or defer work of a stream that is not being captured; see `submit`."""
        order, memory = self.devices.order, self.devices.memory
        deferral = order.deferral
        if deferral.seed is None or kind != "device":
            operation = order.begin(queue, label)
            if kind == "host":
                deferral.run_until(operation.clock())
                self.look_at_copies()
                order.copies.forget()  # the function may write any memory
            run(operation)
            return operation
        with deferral.lock:
            deferral.advance()
            operation = order.begin(queue, label)
            moment = memory.moment()

            def later() -> None:
                with memory.at(moment):
                    run(operation)

            deferral.add(queue, operation.clock(), label, later)
        return operation

    def look_at_copies(self) -> None:
        """Report copies whose pinned source the host has changed without waiting for them."""
        try:
            look_at_copies(self.devices.order, self.devices.memory)
        except EmulatorError as fault:
            self.device.last_fault = fault
            raise

    def check_not_captured(self, stream: int, what: str) -> None:
        """Raise an error if a call would wait for a stream that is being captured."""
        capture = self.captures.get(stream)
        if capture is not None:
            raise capture.fail(
                Status.STREAM_CAPTURE_UNSUPPORTED,
                f"{what} stream 0x{stream:x}, which is being captured: its work has not begun",
            )

    def check_launch_stream(self, stream: int) -> None:
        """Raise unless `stream` exists on the current device."""
        self.check_stream(stream)
        owner = self.streams[stream].device
        if owner not in (None, self.device.index):
            raise HipError(
                Status.INVALID_HANDLE,
                f"a launch on device {self.device.index} into a stream of device {owner}: make "
                f"device {owner} the current one first",
            )
