"""Pinned host memory that is used while an asynchronous copy from or to it is pending.

    hipMemcpyAsync(device, pinned)     its bytes are recorded
    pinned[:] = 2                      not visible to the emulator
    hipStreamSynchronize               the bytes have changed: which are copied, is undefined

    hipMemcpyAsync(pinned, device)
    print(pinned)                      not visible to the emulator
    exit                               the host has not waited: it may have read too early

The emulated device copies immediately, so such a program is right here and wrong on a GPU. The
host's accesses to memory are not visible. So the bytes are compared when the host waits for work
of a stream, and when it submits the next copy. Bytes that the device may have written in between
are exempt: by a copy, a fill or a library call, a host function, a kernel. The latest copies
are recorded, up to a limit.
"""

from __future__ import annotations

import collections
import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cupygemm.emulator.diagnostics.checking import policy
from cupygemm.emulator.diagnostics.findings import Site, at_site, call_site, report_call
from cupygemm.emulator.errors import ArgumentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cupygemm.emulator.memory.allocations import Memory

CHECK = "pending_copies"
_REMEMBERED = 8  # copies
_LARGEST = 4 << 20  # bytes of a copy, so that all recorded ones take at most 32 MiB
_SHOWN = 8  # bytes
_UNAWAITED = """\
the host never waited for a copy to its pinned memory
  {label} in {stream}, submitted at {site}
  on a GPU, the copy may come after all that the host has read there, which is what the memory held
  before. Call stream.synchronize(), or wait for an event after the copy, before the memory is read
  check: {check}"""
_TEXT = """\
pinned memory of the host changed while a copy from it was pending
  {label} in {stream}, submitted at {site}
  address 0x{address:x}
  from its byte {place} on: {before} at that time, {now} now
  the host has not waited for the copy: on a GPU, it may read either value. Call
  stream.synchronize(), or wait for an event after the copy, before the memory is used again
  check: {check}"""


class Place(Protocol):
    """The part of `stream_order.Operation` that a copy needs; that module is above this one."""

    queue: Any
    number: int
    label: str


@dataclass(frozen=True, eq=False)
class _Copy:
    """A copy for which the host has not waited.

    Attributes
    ----------
    place : Place
    start, size : int
        The pinned memory.
    data : bytes
        The bytes to be copied, if it is the source.
    serial : int
        Serial of the allocation.
    clock : int
        The clock of `GlobalShadow` at the submission.
    site : Site
    """

    place: Place
    start: int
    size: int
    data: bytes
    serial: int
    clock: int
    site: Site


class PendingCopies:
    """The latest copies from and to pinned memory for which the host has not waited."""

    def __init__(self) -> None:
        self._copies: collections.deque[_Copy] = collections.deque(maxlen=_REMEMBERED)
        self._to_host: collections.deque[_Copy] = collections.deque(maxlen=_REMEMBERED)

    def add(self, place: Place, memory: Memory, start: int, size: int) -> None:
        """Record the bytes that an asynchronous copy reads from pinned memory."""
        block, shadow = memory.block(start), memory.shadow
        if block is None or shadow is None or not 0 < size <= _LARGEST or policy()[CHECK] == "off":
            return
        data, clock = ctypes.string_at(start, size), int(shadow.clock[0])
        self._copies.append(_Copy(place, start, size, data, block.serial, clock, call_site()))

    def add_to_host(self, place: Place, start: int, size: int) -> None:
        """Record an asynchronous copy to pinned memory."""
        if policy()[CHECK] != "off":
            self._to_host.append(_Copy(place, start, size, b"", 0, 0, call_site()))

    def reach(self, clock: Mapping[Any, int]) -> None:
        """Discard the copies for which the host has waited."""
        for each in (*self._copies, *self._to_host):
            if clock.get(each.place.queue, 0) >= each.place.number:
                self._drop(each)

    def forget(self, start: int = 0, end: int = 1 << 64) -> None:
        """Discard the copies from and to memory that the device writes, or may write."""
        for each in (*self._copies, *self._to_host):
            if each.start < end and start < each.start + each.size:
                self._drop(each)

    def report_unawaited(self) -> None:
        """Report, when the program ends, the copies to the host for which it has not waited.

        Raises
        ------
        ArgumentFault
            A copy is reported, and the check is an error.
        """
        while self._to_host:
            copy = self._to_host.popleft()
            text = _UNAWAITED.format(
                label=copy.place.label, stream=copy.place.queue, site=copy.site, check=CHECK
            )
            token = at_site.set(copy.site)
            try:
                report_call(ArgumentFault(text, CHECK), policy()[CHECK])
            finally:
                at_site.reset(token)

    def look(self, memory: Memory, written: Callable[[tuple[int, int], int], bool]) -> None:
        """Report the copies whose bytes have changed.

        Parameters
        ----------
        memory : Memory
        written : callable
            Whether a kernel has written to an address range since a given time.

        Raises
        ------
        ArgumentFault
            A copy is reported, and the check is an error.
        """
        for each in tuple(self._copies):
            block, size = memory.block(each.start), each.size
            if block is None or block.serial != each.serial:  # it was freed
                self._drop(each)
                continue
            now = (ctypes.c_char * size).from_address(each.start).raw
            if now != each.data:
                self._drop(each)
                if not written((each.start, each.start + size), each.clock):
                    report_call(ArgumentFault(_text(each, now), CHECK), policy()[CHECK])

    def _drop(self, copy: _Copy) -> None:
        for copies in (self._copies, self._to_host):
            if copy in copies:
                copies.remove(copy)


def _text(copy: _Copy, now: bytes) -> str:
    differs = np.frombuffer(now, np.uint8) != np.frombuffer(copy.data, np.uint8)
    place = int(differs.argmax()) // _SHOWN * _SHOWN
    before, after = (each[place : place + _SHOWN].hex(" ", 4) for each in (copy.data, now))
    return _TEXT.format(
        label=copy.place.label, stream=copy.place.queue, site=copy.site, address=copy.start + place,
        place=place, before=before, now=after, check=CHECK,
    )  # fmt: skip
