"""Whether work of different streams that touches the same memory is ordered, if that is asked for.

The emulated device does work when it is submitted, so a missing event or synchronisation changes no
result. With ``CUPYGEMM_EMULATE_STREAM_ORDER=1``, it keeps vector clocks: of each stream, how far it
has seen every other one. An event carries the clock of the stream that recorded it, a stream that
waits for it takes the clock over, and what the host has waited for comes before all that it submits
next, in any thread. The null stream of a device waits for the blocking streams of that device, and
they for it.

Copies, fills and RCCL's operations are known by their ranges. What a kernel has touched stands in
the records of device memory (`global_shadow`), byte by byte, until the bytes are touched again. Two
kernels are compared only where one reads what the other wrote last; a kernel that overwrites what
another one has read or written is not found.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.global_shadow import GRANULE_BYTES, RECORD_BYTES

VARIABLE = "CUPYGEMM_EMULATE_STREAM_ORDER"
_KEPT = 4096
"""Accesses and launches that are remembered; a race with an older one is missed."""
_NULL_STREAMS, _THREAD_STREAM = (0, 1), 2
_NON_BLOCKING = 1  # hipStreamNonBlocking
_SITES = 3  # of a record: the last write, and the last reads of two waves

Clock = dict[Hashable, int]


class Span(NamedTuple):
    """Bytes that an operation reads or writes."""

    start: int
    size: int
    writes: bool


@dataclass(frozen=True, kw_only=True)
class _Access:
    """A range that an operation of a stream has touched."""

    stream: Hashable
    tick: int
    span: Span
    label: str


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """A kernel, with the first and the last time of its records."""

    stream: Hashable
    tick: int
    first: int
    last: int
    label: str


class StreamOrder:
    """The order of the streams of a process.

    Parameters
    ----------
    shadow : GlobalShadow or None
        The records of device memory; without them, kernels are not looked at.
    """

    def __init__(self, shadow: Any) -> None:
        self._shadow = shadow
        self._lock = threading.RLock()
        self._seen: dict[Hashable, Clock] = {}
        self._host: Clock = {}
        self._devices: dict[Hashable, int] = {}  # of the streams
        self._blocking: dict[int, set[Hashable]] = {}  # by device
        self._accesses: list[_Access] = []
        self._launches: list[_Launch] = []

    def key(self, stream: int, device: int) -> Hashable:
        """Return what identifies a stream: default streams are those of a device."""
        if stream in _NULL_STREAMS:
            key: Hashable = ("null", device)
        elif stream == _THREAD_STREAM:
            key = ("thread", device, threading.get_ident())
            self._blocking.setdefault(device, set()).add(key)
        else:
            key = stream
        self._devices.setdefault(key, device)
        return key

    def created(self, stream: int, device: int, flags: int) -> None:
        """Note a new stream."""
        self._devices[stream] = device
        if not flags & _NON_BLOCKING:
            self._blocking.setdefault(device, set()).add(stream)

    # -- what orders --

    def recorded(self, stream: int, device: int) -> Clock:
        """Return the clock that an event takes along."""
        with self._lock:
            return dict(self._begin(self.key(stream, device)))

    def waits(self, stream: int, device: int, clock: Clock | None) -> None:
        """Order an event before what a stream does next."""
        if clock is not None:
            with self._lock:
                _join(self._seen.setdefault(self.key(stream, device), {}), clock)

    def host_waits(self, clock: Clock | None) -> None:
        """Order an event before what the host does next."""
        if clock is not None:
            with self._lock:
                _join(self._host, clock)

    def host_waits_for(self, device: int, stream: int | None = None) -> None:
        """Let the host wait for a stream, or for all streams of a device."""
        with self._lock:
            if stream is not None:
                _join(self._host, self._begin(self.key(stream, device)))
                return
            for key in [key for key, place in self._devices.items() if place == device]:
                _join(self._host, self._seen.get(key, {}))

    def freed(self) -> None:
        """Let the host wait for everything, as it does when memory is freed."""
        with self._lock:
            for clock in self._seen.values():
                _join(self._host, clock)
            self._accesses.clear()
            self._launches.clear()

    # -- what is ordered --

    def touches(self, stream: int, device: int, label: str, spans: Sequence[Span]) -> str:
        """Note an operation, and return how it races with an earlier one; empty if it does not."""
        with self._lock:
            key = self.key(stream, device)
            seen = self._begin(key)
            found = ""
            for span in spans:
                found = found or self._race(seen, label, key, span)
                access = _Access(stream=key, tick=seen[key], span=span, label=label)
                self._accesses = [*self._accesses[-_KEPT:], access]
            return found

    def launched(self, stream: int, device: int, label: str, first: int, last: int) -> str:
        """Note a kernel with the times of its records, and return how it races."""
        with self._lock:
            key = self.key(stream, device)
            seen = self._begin(key)
            now = _Launch(stream=key, tick=seen[key], first=first, last=last, label=label)
            self._launches = [*self._launches[-_KEPT:], now]
            for access in self._accesses:
                if not _ordered(seen, access) and self._touched(access.span, now):
                    return self._text(label, key, access)
            return ""

    def _begin(self, key: Hashable) -> Clock:
        """Return the clock of a stream for an operation that it begins."""
        seen = self._seen.setdefault(key, {})
        _join(seen, self._host)
        device = self._devices[key]
        null, blocking = ("null", device), self._blocking.get(device, set())
        if key == null:
            for other in blocking:
                _join(seen, self._seen.get(other, {}))
        elif key in blocking:
            _join(seen, self._seen.get(null, {}))
        seen[key] = seen.get(key, 0) + 1
        return seen

    def _race(self, seen: Clock, label: str, key: Hashable, span: Span) -> str:
        end = span.start + span.size
        for access in self._accesses:
            other = access.span
            overlaps = other.start < end and span.start < other.start + other.size
            if overlaps and (span.writes or other.writes) and not _ordered(seen, access):
                return self._text(label, key, access)
        for launch in self._launches:
            if not _ordered(seen, launch) and self._touched(span, launch):
                return self._text(label, key, launch)
        return ""

    def _touched(self, span: Span, launch: _Launch) -> bool:
        """Whether a launch has touched bytes of a range, and one of the two writes."""
        if self._shadow is None or not span.size:
            return False
        bytes_of, times = self._sites(span)
        if not span.writes:  # only the launch's writes conflict
            bytes_of, times = bytes_of[:, :1], times[:, :1]
        in_launch = (times >= launch.first) & (times <= launch.last)
        return bool((in_launch & (bytes_of != 0)).any())

    def _sites(self, span: Span) -> tuple[NDArray[Any], NDArray[np.uint32]]:
        """Return the bytes within a range that the records name, as bits, and their times."""
        first = (span.start - self._shadow.base) // GRANULE_BYTES
        last = (span.start + span.size - self._shadow.base - 1) // GRANULE_BYTES
        size = (last - first + 1) * RECORD_BYTES
        address = self._shadow.address + first * RECORD_BYTES
        words = np.frombuffer(ctypes.string_at(address, size), np.uint32).reshape(-1, _SITES, 4)
        bytes_of: NDArray[Any] = words[:, :, 2] >> 24 | words[:, :, 3] >> 24 << 8
        skipped = (span.start - self._shadow.base) % GRANULE_BYTES
        bytes_of[0] &= (0xFFFF << skipped) & 0xFFFF
        kept = (span.start + span.size - self._shadow.base - 1) % GRANULE_BYTES + 1
        bytes_of[-1] &= 0xFFFF >> (GRANULE_BYTES - kept)
        return bytes_of, words[:, :, 0]

    def _text(self, label: str, key: Hashable, other: _Access | _Launch) -> str:
        return (
            f"{label} on {self._name(key)} touches memory that {other.label} on "
            f"{self._name(other.stream)} touches too, and nothing orders the two: let one stream "
            "wait for an event that the other one records"
        )

    def _name(self, key: Hashable) -> str:
        kind = f"stream 0x{key:x}" if isinstance(key, int) else "the default stream"
        return f"{kind} of device {self._devices[key]}"


def _join(clock: Clock, other: Clock) -> None:
    for key, tick in other.items():
        if tick > clock.get(key, 0):
            clock[key] = tick


def _ordered(seen: Clock, before: _Access | _Launch) -> bool:
    return before.tick <= seen.get(before.stream, 0)


def stream_order(shadow: Any) -> StreamOrder | None:
    """Return the order of the streams of a process, or None unless the environment asks for it."""
    return StreamOrder(shadow) if os.environ.get(VARIABLE) == "1" else None
