"""The device and the streams, which every group of HIP functions refers to."""

from __future__ import annotations

from cupygemm.emulator.device import Device, Stream
from cupygemm.emulator.runtime.status import HipError, Status

DEFAULT_STREAMS = (0, 1, 2)
"""The null, the legacy and the per-thread stream."""


class Handles:
    """The device and its streams, by handle.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.streams: dict[int, Stream] = {stream: Stream() for stream in DEFAULT_STREAMS}

    def check_device(self, device: int) -> None:
        """Raise unless `device` is the only device, 0."""
        if device != 0:
            raise HipError(
                Status.INVALID_DEVICE, f"device {device}: the emulated device is the only one, 0"
            )

    def check_stream(self, stream: int) -> None:
        """Raise unless `stream` exists."""
        if stream not in self.streams:
            raise HipError(
                Status.INVALID_HANDLE,
                f"stream 0x{stream:x} does not exist: it was destroyed, or never created",
            )
