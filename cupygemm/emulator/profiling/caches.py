"""The cache model of a launch: what Python keeps of it; native/caches.c simulates.

Every launch starts with cold caches. With X XCDs, workgroup w of a launch runs on XCD w mod X, and
there on CU (w div X) mod (CUs of an XCD): neighbours are dealt round-robin over the XCDs.
Workgroups in flight together in the emulator (1024 waves of them) interleave their accesses
instruction by instruction; on a GPU they drift apart.

Addresses are those of allocations laid out one after another, each in pages of its own, so that a
run repeats: what the host's allocator did plays no part. Of an access to a swizzled buffer only the
place of the first dword counts.

Not modelled: the scalar and instruction caches and their share of L2, translation, prefetching,
cache-control bits (sc0, sc1, nt) and invalidations, LDS and private memory (scratch) traffic, the
capacity that other kernels take, and any effect of time.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_uint64, c_void_p
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.native import library
from cupygemm.emulator.profiling.parts import PARTS, CacheGeometry
from cupygemm.emulator.state import Group, State
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.machine import Operation, c_function, machine_of, wave_list

_PAGE = 4096


class _Cache(ctypes.Structure):
    """``struct cache`` of native/caches.c."""

    _fields_ = [
        *((name, c_void_p) for name in ("tags", "used", "state")),
        *((name, c_int64) for name in ("sets", "ways", "line_shift", "fold")),
    ]


class _Model(ctypes.Structure):
    """``struct cache_model``."""

    _fields_ = [
        *((name, _Cache) for name in ("l1", "l2", "last")),
        *((name, c_int64) for name in ("num_xcds", "cus_per_xcd", "has_last")),
        *((name, c_void_p) for name in ("placement", "launch_order")),
        ("clock", c_uint64),
        *((name, c_int64) for name in ("fabric_written", "hbm_read", "hbm_written")),
    ]


@dataclass
class Traffic:
    """What vector memory instructions asked of the caches; ``struct traffic``, summed.

    Attributes
    ----------
    requests : int
        Lines of vL1D, counted once for each wave-instruction that touches them.
    ideal_requests : int
        The lines that the same bytes fill when contiguous, at most `requests` of each instruction.
    l1_reads, l1_hits : int
        Requests of loads, and how many vL1D had. Stores and atomics go through to L2.
    l2_requests, l2_hits : int
        A write hits if the line is there.
    fabric_read : int
        Bytes that L2 misses fetched.
    """

    requests: int = 0
    ideal_requests: int = 0
    l1_reads: int = 0
    l1_hits: int = 0
    l2_requests: int = 0
    l2_hits: int = 0
    fabric_read: int = 0

    def add(self, other: Traffic) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : Traffic
            Left as it is.
        """
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


class CacheModel:
    """The caches of a device during one launch."""

    def __init__(self, target: Target) -> None:
        part = PARTS[target.name]
        self._arrays: list[Any] = []
        self._struct = _Model(
            l1=self._cache(part.l1, target.num_cus, folded=False),
            l2=self._cache(part.l2, target.num_xcds, folded=True),
            last=self._cache(part.last, 1, folded=True) if part.last else _Cache(),
            num_xcds=target.num_xcds, cus_per_xcd=target.num_cus // target.num_xcds,
            has_last=part.last is not None,
        )  # fmt: skip
        self._address = ctypes.addressof(self._struct)
        self._l2_lines = target.num_xcds * part.l2.size // part.l2.line
        self._last_lines = part.last.size // part.last.line if part.last else 0
        self._batch: tuple[Any, ...] = ()
        self._simulate = c_function("simulate_caches", c_void_p, c_void_p, c_void_p)

    def _cache(self, geometry: CacheGeometry, count: int, *, folded: bool) -> _Cache:
        lines = count * geometry.size // geometry.line
        arrays = np.zeros(lines, np.uint64), np.zeros(lines, np.uint64), np.zeros(lines, np.uint8)
        self._arrays += arrays
        tags, used, state = (array.ctypes.data for array in arrays)
        fold = geometry.sets.bit_length() - 1 if folded else 0
        shift = geometry.line.bit_length() - 1
        return _Cache(tags, used, state, geometry.sets, geometry.ways, shift, fold)

    def start_batch(self, state: State) -> None:
        """Point the model at the batch that runs next; what the caches hold stays."""
        starts, ends = state.memory.ranges()
        within = starts.astype(np.uint64) % np.uint64(_PAGE)
        sizes = -(-(ends - starts + within).astype(np.int64) // _PAGE) * _PAGE
        firsts = _PAGE + np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uint64)
        placement = np.ascontiguousarray(firsts + within, np.uint64)
        order = np.ascontiguousarray(state.launch_order, np.int64)
        self._batch = placement, order
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
        traffic : ctypes array of 7 int64
            Counts to add to, in the order of `Traffic`.
        outcomes : int32 (waves, 5), optional
            Added to for each wave of the group: bytes, and lines found in vL1D, in L2, in the
            last-level cache and in memory.
        """
        ids, first, step = wave_list(group)
        self._simulate(
            machine_of(group.state).address, operation.address,
            None if ids is None else ids.ctypes.data, first, step, group.count, self._address,
            ctypes.addressof(traffic), None if outcomes is None else outcomes.ctypes.data,
        )  # fmt: skip

    def finish(self) -> tuple[int, int, int]:
        """Write back what is dirty.

        Returns
        -------
        fabric_written, hbm_read, hbm_written : int
            Bytes, of the whole launch.
        """
        write_back = library().write_back_caches
        write_back.argtypes = [c_void_p, c_int64, c_int64]
        write_back.restype = None
        write_back(self._address, self._l2_lines, self._last_lines)
        model = self._struct
        return model.fabric_written, model.hbm_read, model.hbm_written
