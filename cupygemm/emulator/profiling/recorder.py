"""Collect the counts of one launch while it runs.

The run loops are the same with and without a profile. On the reference path, `ProfiledProgram`
wraps the step of every instruction to count lanes, to feed the cache model, and to trace the waves
that the timing model simulates. `ProfilingScoreboard` records which instructions an s_waitcnt waits
for. The native loop makes the same counts in C (`native_recorder`), except for the instructions
that it leaves to Python. Launches without a profile use neither.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.hazards.scoreboard import EVERY_SCALAR, EVERY_VECTOR, Scoreboard
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.profiling.build import LaunchCounts, build_profile
from cupygemm.emulator.profiling.caches import TRAFFIC_COUNTS, CacheModel, Traffic
from cupygemm.emulator.profiling.counts import Wait
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.native_recorder import RING, NativeRecorder
from cupygemm.emulator.profiling.occupancy import occupancy
from cupygemm.emulator.profiling.sampling import choose, scaled
from cupygemm.emulator.profiling.timing.trace import Trace
from cupygemm.emulator.programs.program import CheckedStep, Program
from cupygemm.emulator.units.lds.profile import ConflictCounter
from cupygemm.emulator.units.memory.machine import NativeStep
from cupygemm.emulator.waves.entry import Entry
from cupygemm.emulator.waves.state import LANES, Group, State

if TYPE_CHECKING:
    from cupygemm.emulator.targets import Target
    from cupygemm.emulator.waves.dispatch import Dispatch

_ALL_VECTOR, _ALL_SCALAR = (1 << 512) - 1, (1 << 128) - 1  # every register, as bit masks
_VECTOR_MEMORY = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF")


class ProfiledProgram(Program):
    """A program whose steps report to the recorder of the launch that executes them.

    Attributes
    ----------
    lane_bytes : dict of int to int
        Bytes of LDS that a lane of each DS or FLAT instruction accesses, by program counter.
    """

    def __init__(self, image: bytes, target: Target) -> None:
        super().__init__(image, target)
        self.lane_bytes: dict[int, int] = {}

    def _decode(self, pc: int) -> Entry:
        entry = super()._decode(pc)
        step = _bare(entry.step)
        record = entry.record
        record.counts_lanes = _counts_lanes(entry.inst)
        if isinstance(step, NativeStep) and isinstance(step.profiler, ConflictCounter):
            masks = step.profiler.masks
            record.phases, record.num_phases = masks.ctypes.data, masks.size
        if entry.inst.encoding in ("DS", "FLAT") and isinstance(step, NativeStep):
            operation = step.operation.struct
            self.lane_bytes[pc] = operation.bytes * (1 + operation.pair)
        entry.step = CountedStep(pc, entry.inst, entry.step)
        return entry


def _bare(step: Callable[[Group], Any]) -> Callable[[Group], Any]:
    """Return an instruction's unwrapped step."""
    return step.step if isinstance(step, CheckedStep) else step


def _counts_lanes(inst: Instruction) -> bool:
    return inst.encoding.startswith(("VOP", "DS", *_VECTOR_MEMORY))


class CountedStep:
    """A step that counts, then runs the instruction's unwrapped step."""

    def __init__(self, pc: int, inst: Instruction, step: Callable[[Group], Any]) -> None:
        bare: Any = _bare(step)
        is_native = isinstance(bare, NativeStep)
        self._pc, self._step, self._bare = pc, step, bare
        self._counts_lanes = _counts_lanes(inst)
        self._is_memory = inst.encoding in _VECTOR_MEMORY and is_native
        self._is_lds = inst.encoding == "DS" and is_native and bare.profiler is not None

    def __call__(self, group: Group) -> Any:
        """Count and execute the instruction."""
        units, pc = group.state.units, self._pc
        recorder: Recorder = units["recorder"]
        recorder.clock[group.waves] += 1
        if self._counts_lanes:
            recorder.count_lanes(pc, group)
        trace = recorder.trace
        traced = trace.wants(group)
        outcomes = None
        if self._is_memory:
            outcomes = recorder.count_traffic(pc, group, self._bare, traced)
        result = self._step(group)
        if traced:
            trace.record(pc, units["lds_cycles"] if self._is_lds else None, outcomes)
        return result

    def finish(self, group: Group, code: int) -> None:
        """Handle C's result as `NativeStep.finish` does; C has counted the instruction."""
        self._bare.finish(group, code)


class Recorder:
    """The counts of one launch.

    Attributes
    ----------
    program : ProfiledProgram
    clock : int64 (waves,)
        Instructions that each wave of the batch has executed.
    lanes : dict of int to int
        Active lanes, summed over waves, by program counter.
    waits : dict of (int, str) to Wait
        By program counter and name of the counter.
    trace : Trace
        Trace of the workgroups that are resident on the first compute unit.
    """

    def __init__(self, dispatch: Dispatch, target: Target, program: ProfiledProgram) -> None:
        kernel = self.kernel = dispatch.kernel
        self.dispatch = dispatch
        self.target = target
        self.program = program
        self.caches = CacheModel(target)
        self.occupancy = occupancy(
            kernel,
            target,
            waves_per_workgroup=dispatch.waves_per_workgroup,
            lds_bytes=dispatch.lds_bytes,
            workgroups=dispatch.num_workgroups,
        )
        resident = max(self.occupancy.workgroups, 1)
        stop = min(dispatch.num_workgroups, resident * target.num_cus)
        self.trace = Trace(range(0, stop, target.num_cus))
        self.clock: NDArray[np.int64] = np.zeros(0, np.int64)
        self.lanes: dict[int, int] = {}
        self.waits: dict[tuple[int, str], Wait] = {}
        self._traffic: dict[int, Any] = {}
        self._board: ProfilingScoreboard | None = None

    def choose_sample(self, count: int) -> None:
        """Run only `count` workgroups of the launch."""
        self.dispatch.sample = choose(self.dispatch, max(self.occupancy.workgroups, 1), count)

    def start_batch(self, state: State, vector: int, scalar: int) -> ProfilingScoreboard:
        """Prepare for a batch of workgroups; parameters and result as for `Scoreboard`."""
        state.profile = True
        state.units["recorder"] = self
        state.units["lds_cycles"] = None
        self.trace.start_batch(state)
        self.clock = np.zeros(state.num_waves, np.int64)
        self.caches.start_batch(state)
        if not state.checks:
            vector, scalar = EVERY_VECTOR, EVERY_SCALAR
        self._board = ProfilingScoreboard(state, vector, scalar, self)
        return self._board

    def native(self) -> NativeRecorder:
        """Return this recorder's counterpart in C for the current batch."""
        assert self._board is not None
        return NativeRecorder(self, self._board.state, self._board.rings)

    def count_lanes(self, pc: int, group: Group) -> None:
        """Count the active lanes of a group."""
        lanes = LANES * group.count if group.full else int(np.count_nonzero(group.mask))
        self.lanes[pc] = self.lanes.get(pc, 0) + lanes

    def count_traffic(
        self, pc: int, group: Group, step: Any, traced: bool
    ) -> NDArray[np.int32] | None:
        """Send a vector memory instruction through the cache model; return each wave's outcome."""
        outcomes = np.zeros((group.count, 5), np.int32) if traced else None
        self.caches.access(group, step.operation, self.traffic(pc), outcomes)
        return outcomes

    def traffic(self, pc: int) -> Any:
        """Return the counts of a vector memory instruction, in the order of `Traffic`."""
        found = self._traffic.get(pc)
        if found is None:
            found = self._traffic[pc] = (c_int64 * TRAFFIC_COUNTS)()
        return found

    def count_wait(self, pc: int, counter: str, pcs: NDArray[Any], distances: NDArray[Any]) -> None:
        """Count waits of some waves.

        Parameters
        ----------
        pc : int
            Program counter of the s_waitcnt.
        counter : str
        pcs : int64 array
            Program counters of the awaited operations of all waves.
        distances : int64 array
            Instructions between the youngest operation and the wait, for each wave.
        """
        wait = self.wait(pc, counter)
        wait.waves += distances.size
        wait.distance += int(distances.sum())
        for operation, times in zip(*np.unique(pcs, return_counts=True), strict=True):
            offset = int(operation) - self.kernel.entry
            wait.operations[offset] = wait.operations.get(offset, 0) + int(times)

    def wait(self, pc: int, counter: str) -> Wait:
        """Return the counts of an s_waitcnt for one of its counters."""
        return self.waits.setdefault((pc, counter), Wait(counter))

    def finish(
        self, counts: dict[int, int], conflicts: dict[int, Any], lines: dict[int, Any]
    ) -> KernelProfile:
        """Return the profile of the launch.

        Parameters
        ----------
        counts : dict of int to int
            Waves that executed each instruction, by program counter.
        conflicts, lines : dict
            The fields of `LaunchStats`, by byte offset from the kernel's entry.
        """
        waits = dict(sorted(self.waits.items()))
        for wait in waits.values():
            wait.operations = dict(sorted(wait.operations.items()))
        return build_profile(
            scaled(
                LaunchCounts(
                    dispatch=self.dispatch,
                    target=self.target,
                    executions=counts,
                    lanes=self.lanes,
                    lane_bytes=self.program.lane_bytes,
                    conflicts=dict(sorted(conflicts.items())),
                    lines=dict(sorted(lines.items())),
                    traffic={
                        pc: Traffic(*values)
                        for pc, values in sorted(self._traffic.items())
                        if pc in counts
                    },
                    memory=self.caches.finish(),
                    waits=waits,
                    occupancy=self.occupancy,
                    trace=self.trace,
                )
            )
        )


class ProfilingScoreboard(Scoreboard):
    """A scoreboard that also records which instructions each wait waits for.

    In a launch without checks it only counts waits: every register may be read at any time.
    """

    def __init__(self, state: State, vector: int, scalar: int, recorder: Recorder) -> None:
        if not state.checks:
            vector, scalar = _ALL_VECTOR, _ALL_SCALAR
        super().__init__(state, recorder.program.native.loads, vector, scalar)
        self.recorder = recorder
        waves = state.num_waves
        # (wave, sequence number modulo the ring, (program counter, clock))
        self.rings = {
            name: np.zeros((waves, RING, 2), np.int64) for name in ("vm", "lds", "scalar")
        }

    def _counters(self, name: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the numbers of operations that each wave has issued and waited for."""
        return {
            "vm": (self.state.vm_issued, self.vm_done),
            "lds": (self.state.lds_issued, self.lds_done),
            "scalar": (self.scalar_issued, self.scalar_done),
        }[name]

    def check(self, group: Group, entry: Entry) -> None:
        """Check for missing waits, if the launch is checked."""
        if self.state.checks:
            super().check(group, entry)

    def issue(self, group: Group, entry: Entry) -> None:
        """Count a memory instruction, and remember it."""
        super().issue(group, entry)
        if not self.state.checks:
            self.outstanding.clear()
            self.pending_vector = self.pending_scalar = 0
        ids = group.wave_ids
        counter, pc = entry.counter or "", entry.pc
        for name in ("vm", "lds") if counter == "flat" else (counter,):
            issued, _ = self._counters(name)
            place = self.rings[name][ids, issued[ids] % RING]
            place[:, 0], place[:, 1] = pc, self.recorder.clock[ids] + 1
            self.rings[name][ids, issued[ids] % RING] = place

    def wait(self, group: Group, simm16: int) -> None:
        """Execute s_waitcnt, and count the operations that each wave waited for."""
        ids, pc = group.wave_ids, self.state.current_pc
        before = {name: self._counters(name)[1][ids] for name in self.rings}
        super().wait(group, simm16)
        for counter, names in (("vmcnt", ("vm",)), ("lgkmcnt", ("lds", "scalar"))):
            pcs, youngest = [], np.zeros(ids.size, np.int64)
            for name in names:
                found = self._waited(name, ids, before[name])
                pcs.append(found[0])
                youngest = np.maximum(youngest, found[1])
            waiting = youngest > 0
            if waiting.any():
                distances = self.recorder.clock[ids][waiting] - 1 - youngest[waiting]
                self.recorder.count_wait(pc, counter, np.concatenate(pcs), distances)

    def _waited(
        self, name: str, ids: NDArray[Any], before: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the awaited operations, and the clock of each wave's youngest, 0 for none."""
        _, done = self._counters(name)
        after = done[ids]
        pending = np.minimum(after - before, RING)
        youngest = np.zeros(ids.size, np.int64)
        pcs = [np.zeros(0, np.int64)]
        for back in range(int(pending.max(initial=0))):
            waves = np.flatnonzero(pending > back)
            records = self.rings[name][ids[waves], (after[waves] - back) % RING]
            pcs.append(records[:, 0])
            if back == 0:
                youngest[waves] = records[:, 1]
        return np.concatenate(pcs), youngest
