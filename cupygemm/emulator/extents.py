"""A stretch of device memory, as reports name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of device memory with a name.

    Attributes
    ----------
    start, end : int
        Addresses, `end` exclusive.
    tag : str
        What it is: ``"hipMalloc"``, ``"array"``, ``"code object"``.
    serial : int
        Counts allocations up from 1.
    device : int or None
        The device that holds it, if there are several; None for memory that all of them may touch.
    """

    start: int
    end: int
    tag: str
    serial: int
    device: int | None = None

    def __str__(self) -> str:
        name = f" ({self.tag})" if self.tag else ""
        place = "" if self.device is None else f" of device {self.device}"
        return (
            f"allocation {self.serial}{name}{place}: {self.end - self.start} bytes "
            f"at 0x{self.start:x}"
        )


def gap(extent: Extent, address: int, end: int) -> int:
    """Return the bytes between an extent and ``[address, end)``."""
    return extent.start - end if extent.start >= end else max(address - extent.end, 0)
