"""The cache model of a launch: its state and its counts. native/caches.c does the simulation.

Every launch starts with cold caches. With X XCDs, workgroup w of a launch runs on XCD w mod X, and
there on CU (w div X) mod (CUs of an XCD): consecutive workgroups go round-robin over the XCDs.
Workgroups that the emulator executes together (1024 waves of them) interleave their accesses
instruction by instruction; on a GPU they drift apart.

The model lays out the allocations one after another, each in its own pages. Its addresses do not
depend on the host's allocator, so runs are reproducible. For an access to a swizzled buffer, only
the address of the first dword counts.

Not modelled: the scalar and instruction caches and their share of L2, translation, prefetching,
cache-control bits (sc0, sc1, nt) and invalidations, the traffic of LDS and of private memory
(scratch), the capacity that other kernels use, and all effects of time.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from ctypes import c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.memory.host_memory import reserve
from cupygemm.emulator.native import library
from cupygemm.emulator.profiling.parts import PARTS, CacheGeometry
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.memory.machine import c_function, machine_of, wave_list
from cupygemm.emulator.units.memory.operation import Operation
from cupygemm.emulator.waves.state import Group, State

_PAGE = 4096


def _zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros in separate pages, which use no memory until they are accessed."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = reserve(max(size, 1))
    array: NDArray[Any] = np.frombuffer(pages, np.uint8, size).view(dtype).reshape(shape)
    return array


@dataclass
class _Storage:
    """The arrays of a device's caches, which launches use in turn.

    Tags grow from launch to launch, so stale entries never match and need not be cleared.
    """

    arrays: list[NDArray[Any]]
    first_tag: int = 1
    clock: int = 0


_TAGS = 1 << 42  # tags of one launch: more than it has lines
_MOST_LAUNCHES = 1 << 20
_idle: dict[str, _Storage] = {}  # by target


class _Cache(ctypes.Structure):
    """``struct cache`` of native/caches.c."""

    _fields_ = [
        *((name, c_void_p) for name in ("tags", "used", "state")),
        *((name, c_int64) for name in ("sets", "ways", "line_shift", "fold")),
        ("first_tag", c_uint64),
    ]


class _MissCauses(ctypes.Structure):
    """``struct miss_causes`` of native/misses.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("recent", "seen", "seen_by_l2")),
        *((name, c_int64) for name in ("lines", "seen_words")),
    ]


class _Model(ctypes.Structure):
    """``struct cache_model``."""

    _fields_ = [
        *((name, _Cache) for name in ("l1", "l2", "last")),
        *((name, c_int64) for name in ("num_xcds", "cus_per_xcd", "has_last")),
        *((name, c_void_p) for name in ("placement", "launch_order")),
        ("causes", _MissCauses),
        ("clock", c_uint64),
        *((name, c_int64) for name in ("fabric_written", "hbm_read", "hbm_written")),
    ]


@dataclass
class Traffic:
    """The cache requests of vector memory instructions, summed from ``struct traffic``.

    Attributes
    ----------
    requests : int
        Lines of vL1D, each counted once per wave-instruction that touches it.
    ideal_requests : int
        Lines that the same bytes would fill if they were contiguous; for each instruction at most
        its `requests`.
    l1_reads, l1_hits : int
        Requests of loads, and their hits in vL1D. Stores and atomics bypass it to L2.
    l2_requests, l2_hits : int
        Requests that reach L2, and hits. A write hits if L2 holds the line.
    fabric_read : int
        Bytes that L2 misses fetched from the fabric.
    l1_compulsory, l1_capacity, l1_conflict : int
        The misses in vL1D by cause (native/misses.h): this CU never requested the line before; a
        fully associative cache of the same size would miss too; lines that share a set evict each
        other.
    l2_compulsory : int
        Requests that miss in L2 for lines that the XCD never requested before.
    l1_sets_used, l1_sets_possible : int
        Sets of vL1D that the lines of a wave's load use, and the sets that they could use; summed
        over waves.
    stride, stride_votes : int
        The most frequent distance in bytes between consecutive lanes that begin a new line, and its
        lead in votes over all other distances.
    """

    requests: int = 0
    ideal_requests: int = 0
    l1_reads: int = 0
    l1_hits: int = 0
    l2_requests: int = 0
    l2_hits: int = 0
    fabric_read: int = 0
    l1_compulsory: int = field(default=0, compare=False)
    l1_capacity: int = field(default=0, compare=False)
    l1_conflict: int = field(default=0, compare=False)
    l2_compulsory: int = field(default=0, compare=False)
    l1_sets_used: int = field(default=0, compare=False)
    l1_sets_possible: int = field(default=0, compare=False)
    stride: int = field(default=0, compare=False)
    stride_votes: int = field(default=0, compare=False)

    def add(self, other: Traffic) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : Traffic
            Not modified.
        """
        stride, votes = max(
            ((self.stride, self.stride_votes), (other.stride, other.stride_votes)),
            key=lambda found: found[1],
        )
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        self.stride, self.stride_votes = stride, votes


TRAFFIC_COUNTS = len(fields(Traffic))


@dataclass(frozen=True, kw_only=True)
class MemoryTraffic:
    """Bytes that a launch moved beyond L2.

    Attributes
    ----------
    fabric_written : int
        Bytes that the L2s wrote back.
    hbm_read, hbm_written : int
    """

    fabric_written: int
    hbm_read: int
    hbm_written: int


def _arrays(target: Target) -> list[NDArray[Any]]:
    """Return tags, times and states of vL1D, L2 and the last-level cache."""
    part = PARTS[target.name]
    found = []
    for geometry, count in ((part.l1, target.num_cus), (part.l2, target.num_xcds), (part.last, 1)):
        lines = count * geometry.size // geometry.line if geometry else 0
        found += [_zeros((lines,), dtype) for dtype in (np.uint64, np.uint64, np.uint8)]
    return found


class CacheModel:
    """The caches of a device during one launch."""

    def __init__(self, target: Target) -> None:
        part = PARTS[target.name]
        kept: _Storage | None = _idle.pop(target.name, None)
        self._storage = kept or _Storage(_arrays(target))
        arrays = iter(self._storage.arrays)
        self._struct = _Model(
            l1=self._cache(part.l1, arrays, folded=False),
            l2=self._cache(part.l2, arrays, folded=True),
            last=self._cache(part.last, arrays, folded=True) if part.last else _Cache(),
            clock=self._storage.clock,
            num_xcds=target.num_xcds,
            cus_per_xcd=target.num_cus // target.num_xcds,
            has_last=part.last is not None,
        )
        recent = np.zeros((target.num_cus, part.l1.size // part.l1.line), np.uint64)
        self._seen: tuple[NDArray[np.uint64], ...] = (recent,)
        self._struct.causes.recent, self._struct.causes.lines = recent.ctypes.data, recent.shape[1]
        self._target = target
        self.address = ctypes.addressof(self._struct)
        self._l2_lines = target.num_xcds * part.l2.size // part.l2.line
        self._last_lines = part.last.size // part.last.line if part.last else 0
        self._batch: tuple[Any, ...] = ()
        self._simulate = c_function("simulate_caches", c_void_p, c_void_p, c_void_p)

    def _cache(
        self, geometry: CacheGeometry, arrays: Iterator[NDArray[Any]], *, folded: bool
    ) -> _Cache:
        tags, used, state = (next(arrays).ctypes.data for _ in range(3))
        return _Cache(
            tags=tags,
            used=used,
            state=state,
            sets=geometry.sets,
            ways=geometry.ways,
            line_shift=geometry.line.bit_length() - 1,
            fold=geometry.sets.bit_length() - 1 if folded else 0,
            first_tag=self._storage.first_tag,
        )

    def start_batch(self, state: State) -> None:
        """Point the model at the next batch; the contents of the caches stay."""
        starts, ends = state.memory.ranges()
        within = starts.astype(np.uint64) % np.uint64(_PAGE)
        sizes = -(-(ends - starts + within).astype(np.int64) // _PAGE) * _PAGE
        firsts = _PAGE + np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uint64)
        placement = np.ascontiguousarray(firsts + within, np.uint64)
        order = np.ascontiguousarray(state.launch_order, np.int64)
        self._batch = placement, order
        if len(self._seen) == 1:
            line = PARTS[self._target.name].l1.line
            words = (int(firsts[-1] + sizes[-1]) // line + 64) // 64 if len(firsts) else 1
            for count in (self._target.num_cus, self._target.num_xcds):
                self._seen += (_zeros((count, words), np.uint64),)
            causes = self._struct.causes
            causes.seen_words = words
            causes.seen, causes.seen_by_l2 = (array.ctypes.data for array in self._seen[1:])
        self._struct.placement, self._struct.launch_order = placement.ctypes.data, order.ctypes.data

    def access(
        self,
        group: Group,
        operation: Operation,
        traffic: Any,
        outcomes: NDArray[np.int32] | None = None,
    ) -> None:
        """Send an instruction of a group through the caches, before it executes.

        Parameters
        ----------
        group : Group
        operation : Operation
        traffic : ctypes array of int64
            The counts to which the access adds, in the order of `Traffic`.
        outcomes : int32 (waves, 5), optional
            The counts of each wave of the group, to which the access adds: bytes, and lines found
            in vL1D, in L2, in the last-level cache and in memory.
        """
        ids, first, step = wave_list(group)
        self._simulate(
            machine_of(group.state).address,
            operation.address,
            None if ids is None else ids.ctypes.data,
            first,
            step,
            group.count,
            self.address,
            ctypes.addressof(traffic),
            None if outcomes is None else outcomes.ctypes.data,
        )

    def finish(self) -> MemoryTraffic:
        """Write back the dirty lines, and return the launch's traffic beyond L2."""
        write_back = library().write_back_caches
        write_back.argtypes = [c_void_p, c_int64, c_int64]
        write_back.restype = None
        write_back(self.address, self._l2_lines, self._last_lines)
        model, storage = self._struct, self._storage
        storage.first_tag += _TAGS
        storage.clock = model.clock
        if storage.first_tag < _TAGS * _MOST_LAUNCHES:
            _idle[self._target.name] = storage
        return MemoryTraffic(
            fabric_written=model.fabric_written,
            hbm_read=model.hbm_read,
            hbm_written=model.hbm_written,
        )
