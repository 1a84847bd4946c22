"""The counts of the C loop for one batch of a profiled launch.

`NativeRecorder` mirrors ``struct recorder`` of native/record.h and shares the clocks and the
remembered operations with `Recorder`, so that C and Python may alternate. C's other counts are
added to the recorder at the end of the batch, except for the trace: to keep its order, it is handed
over whenever C returns.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.units.structures import PointedArrays, members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cupygemm.emulator.waves.entry import Entry
    from cupygemm.emulator.waves.state import State

RING = 64  # operations remembered per wave and counter; vmcnt counts to 63
_WAITS = 8  # entries of the hash table for each instruction, at least
_TRACED = 1 << 18  # instructions of traced waves that C records until it returns
_WAITING_WAVES, _DISTANCE = -1, -2  # keys that stand in place of an operation
_RINGS = ("vm", "lds", "scalar")
_COUNTERS = ("vmcnt", "lgkmcnt")


class RecorderStruct(ctypes.Structure):
    """``struct recorder``."""

    _fields_ = members(
        """
        pointer clock vm lds scalar before lanes conflicts lines traffic caches waits
        int64   num_waits waits_size
        pointer traced places trace accesses cycles outcomes
        int64   num_places trace_length trace_size num_accesses first_access left complete ticks
        """
    )


class NativeRecorder(PointedArrays):
    """The counts of one batch that the loop in C records.

    Parameters
    ----------
    recorder : Recorder
        Receives the counts.
    state : State
    rings : dict of str to int64 (waves, 64, 2)
        The remembered operations of each counter.
    """

    def __init__(self, recorder: Any, state: State, rings: dict[str, NDArray[np.int64]]) -> None:
        super().__init__()
        self._recorder, self._state = recorder, state
        waves = state.num_waves
        self._entries: Sequence[Entry] = ()
        self._size = 0
        self.struct = RecorderStruct(caches=recorder.caches.address, trace_size=_TRACED)
        self.address = ctypes.addressof(self.struct)
        self._point("clock", recorder.clock)
        for name in _RINGS:
            self._point(name, rings[name])
        self._point("before", np.zeros((3, waves), np.int64))
        self._point("traced", recorder.trace.traced)
        self._point("places", np.zeros(waves, np.int64))
        traced = _TRACED if recorder.trace.traced.any() else 0
        self._point("trace", np.empty((traced, 3), np.int32))
        self._point("accesses", np.empty((traced, 5), np.int32))
        self._point("cycles", np.zeros(waves, np.int32))
        self._point("outcomes", np.zeros((waves, 5), np.int32))

    def fit(self, size: int, entries: Sequence[Entry]) -> None:
        """Grow the arrays for the counts of `size` instructions."""
        self._entries = entries
        for name, extent in (("lanes", ()), ("conflicts", (3,)), ("lines", (5,))):
            old = self.arrays.get(name)
            if old is None or len(old) < size:
                grown = np.zeros((size, *extent), np.int64)
                grown[: 0 if old is None else len(old)] = 0 if old is None else old
                self._point(name, grown)
        if self.struct.waits_size < _WAITS * size:
            self._add_waits()
            waits = 1 << (_WAITS * size - 1).bit_length()
            self._point("waits", np.zeros((waits, 3), np.int64))
            self.struct.waits_size = waits
        table = np.zeros(size, np.uint64)
        for entry in entries:
            if entry.inst.encoding in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF"):
                traffic = self._recorder.traffic(entry.pc)
                table[entry.record.index] = ctypes.addressof(traffic)
        self._point("traffic", table)

    def copy_in(self) -> None:
        """Prepare for a call of the loop."""
        trace, struct = self._recorder.trace, self.struct
        struct.left, struct.complete = trace.left, trace.complete
        struct.first_access = len(trace.accesses)

    def copy_out(self) -> None:
        """Take over the loop's ordered records, and make room."""
        trace, struct = self._recorder.trace, self.struct
        trace.left, trace.complete = struct.left, bool(struct.complete)
        if struct.trace_length:
            steps = self.arrays["trace"][: struct.trace_length]
            trace.extend(self._state, steps, self.arrays["accesses"][: struct.num_accesses])
            struct.trace_length = struct.num_accesses = 0
        if 2 * struct.num_waits >= struct.waits_size:
            self._add_waits()

    def _add_waits(self) -> None:
        """Add the waits to those of the recorder."""
        if not self.struct.num_waits:
            return
        recorder, table = self._recorder, self.arrays["waits"]
        entry = recorder.kernel.entry
        for key, operation, times in table[table[:, 0] != 0].tolist():
            wait = recorder.wait((key - 2) // 2, _COUNTERS[key % 2])
            if operation == _WAITING_WAVES:
                wait.waves += times
            elif operation == _DISTANCE:
                wait.distance += times
            else:
                offset = operation - entry
                wait.operations[offset] = wait.operations.get(offset, 0) + times
        table.fill(0)
        self.struct.num_waits = 0

    def finish(self, executions: dict[int, int]) -> None:
        """Add the counts to those of the batch.

        Parameters
        ----------
        executions : dict of int to int
            Waves that executed each instruction in C, by program counter.
        """
        self._add_waits()
        lanes, counted = self._recorder.lanes, self.arrays["lanes"].tolist()
        traffic = self.arrays["traffic"].tolist()
        conflicts, lines = self.arrays["conflicts"], self.arrays["lines"]
        for entry in self._entries:
            pc, record = entry.pc, entry.record
            if pc not in executions:
                continue
            index = record.index
            if record.counts_lanes:
                lanes[pc] = lanes.get(pc, 0) + counted[index]
            if record.num_phases and conflicts[index, 0]:  # FLAT may not have reached LDS
                self._add("lds_conflicts", pc, conflicts[index].tolist())
            if traffic[index]:
                self._add("global_lines", pc, lines[index].tolist())

    def _add(self, name: str, pc: int, values: list[int]) -> None:
        """Add to the counters of an instruction."""
        counters = self._state.units.setdefault(name, {})
        old = counters.get(pc, (0,) * len(values))
        counters[pc] = tuple(a + b for a, b in zip(old, values, strict=True))
