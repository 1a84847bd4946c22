"""Prove that the waves on the device can never end.

A wave is deterministic: its registers and memory determine all that it does. If its registers
return to an earlier state, and no memory has changed in between, it repeats the same steps
for ever. If each wave of a batch does so, or waits at a barrier that such waves do not reach,
memory never changes again, in whichever order the waves run. A store that writes the old value,
such as a compare-and-swap that fails, changes nothing. A loop that reads a clock proves nothing.

The proof takes three phases. While memory changes, `look` only compares a counter that C
increments (native/machine.h). After a tenth of a second without a change it compares states, and
groups run for few steps. When all states have repeated, one more repetition is recorded
instruction by instruction: that is the loop of the report.
"""

from __future__ import annotations

import ctypes
import functools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.liveness.progress import Progress
from cupygemm.emulator.liveness.report import Finding, describe
from cupygemm.emulator.native import library
from cupygemm.emulator.waves.state import State

_QUIET = 0.1  # seconds without a change until states are compared
_LONGEST_QUIET = 30.0
_EFFORT = 0.5  # seconds of comparing, after which it pauses
# A prime: a loop of n instructions is then seen at each of them within n looks.
_COMPARED_TURN = 61
_CLOCKS = ("s_memtime", "s_memrealtime", "s_getreg")
_UNBOUNDED = 1 << 62


@dataclass
class _Snapshot:
    """The state, at one time, of the waves that had not ended."""

    waves: NDArray[np.intp]
    place: NDArray[np.intp]  # index of each wave of the batch in the arrays, -1 for none
    pc: NDArray[np.int64]
    modes: NDArray[np.uint32]
    scc: NDArray[np.bool_]
    sgpr: NDArray[np.uint32]
    vgpr: NDArray[np.uint32]
    repeated: NDArray[np.bool_]
    ran: NDArray[np.bool_]


@functools.cache
def _memory_changes() -> ctypes.c_int64:
    """Return C's counter of memory changes."""
    return ctypes.c_int64.in_dll(library(), "memory_changes")


class Watch:
    """Watches the waves of a batch.

    Parameters
    ----------
    state : State
    """

    def __init__(self, state: State) -> None:
        self.progress: Progress | None = None
        self._state = state
        self._changes = _memory_changes()
        self._seen = -1
        self._alive = -1
        self._quiet_since = 0.0
        self._patience = _QUIET
        self._snapshot: _Snapshot | None = None
        self._began = 0.0
        self._looks = self._retake = 0
        self._executed: dict[int, set[int]] | None = None  # while a repetition is recorded: by wave
        self._rows: NDArray[np.intp] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no states are being compared."""
        return self._snapshot is None and self._executed is None

    def turn(self, steps: int) -> int:
        """Return the number of steps for a group's turn, which the scheduler would give `steps`."""
        if self._executed is not None:
            return 1
        return steps if self._snapshot is None else min(steps, _COMPARED_TURN)

    def look(
        self, alive: NDArray[np.bool_], at_barrier: NDArray[np.bool_], ran: Any
    ) -> Finding | None:
        """Return why the waves can never end, once that is proved.

        Parameters
        ----------
        alive, at_barrier : bool (waves,)
        ran : slice or ndarray or None
            Indices of the waves that have run since the last call.
        """
        now = time.perf_counter()
        if self.progress is not None and self.progress.due(now):
            self._show(self.progress, now, alive, at_barrier)
        changes, left = self._changes.value, int(np.count_nonzero(alive))
        if changes != self._seen or left != self._alive:
            self._seen, self._alive = changes, left
            self._quiet_since, self._patience = now, _QUIET
            self._drop()
            return None
        if self._snapshot is None:
            if now - self._quiet_since >= self._patience:
                self._began, self._looks, self._retake = now, 0, 64
                self._snapshot = self._take(alive)
            return None
        return self._compare(self._snapshot, alive, at_barrier, ran, now)

    def started(self, waves: Any, pc: int) -> None:
        """Note that waves are about to execute the instruction at `pc`."""
        if self._executed is not None:
            for wave in np.arange(self._state.num_waves)[waves].tolist():
                self._executed.setdefault(wave, set()).add(pc)

    def _drop(self) -> None:
        self._snapshot = self._executed = None

    def _take(self, alive: NDArray[np.bool_]) -> _Snapshot:
        state = self._state
        waves = np.flatnonzero(alive)
        place = np.full(state.num_waves, -1, np.intp)
        place[waves] = np.arange(waves.size)
        return _Snapshot(
            waves=waves,
            place=place,
            pc=state.pc[waves],
            modes=state.modes[waves],
            scc=state.scc[waves],
            sgpr=state.sgpr[:, waves],
            vgpr=state.vgpr[np.ix_(self._vector_rows(), waves)],
            repeated=np.zeros(waves.size, bool),
            ran=np.zeros(waves.size, bool),
        )

    def _vector_rows(self) -> NDArray[np.intp]:
        """Return the rows of the vector registers that the kernel may use."""
        if self._rows is None:
            used = min(256, self._state.kernel.descriptor.num_registers)
            self._rows = np.concatenate([np.arange(used), 256 + np.arange(used)])
        return self._rows

    def _compare(
        self,
        snapshot: _Snapshot,
        alive: NDArray[np.bool_],
        at_barrier: NDArray[np.bool_],
        ran: Any,
        now: float,
    ) -> Finding | None:
        self._looks += 1
        if ran is not None:
            self._note_repetitions(snapshot, ran)
        waits = ~snapshot.ran & at_barrier[snapshot.waves]
        if (snapshot.repeated | waits).all():
            if self._executed is None:
                self._snapshot, self._executed = self._take(alive), {}
                return None
            return self._found(snapshot, self._executed)
        if now - self._began > _EFFORT * max(1.0, self._patience):
            self._drop()
            self._quiet_since, self._patience = now, min(4 * self._patience, _LONGEST_QUIET)
        elif self._executed is None and self._looks >= self._retake:
            self._retake *= 2  # as in Brent's search for cycles: it may have been before the loop
            self._snapshot = self._take(alive)
        return None

    def _note_repetitions(self, snapshot: _Snapshot, ran: Any) -> None:
        """Note which of the waves that have run are back in their state of the snapshot."""
        state = self._state
        places = snapshot.place[ran]
        places = places[places >= 0]
        snapshot.ran[places] = True
        places = places[~snapshot.repeated[places]]
        places = places[state.pc[snapshot.waves[places]] == snapshot.pc[places]]
        if not places.size:
            return
        waves = snapshot.waves[places]
        same = (state.modes[waves] == snapshot.modes[places]) & (
            state.scc[waves] == snapshot.scc[places]
        )
        same &= (state.sgpr[:, waves] == snapshot.sgpr[:, places]).all(axis=0)
        places, waves = places[same], waves[same]
        if places.size:
            now = state.vgpr[np.ix_(self._vector_rows(), waves)]
            same = (now == snapshot.vgpr[:, places]).all(axis=(0, 2))
            snapshot.repeated[places[same]] = True

    def _found(self, snapshot: _Snapshot, executed: dict[int, set[int]]) -> Finding | None:
        """Return the finding, unless a loop reads a clock: then later turns may differ."""
        state = self._state
        image, target = state.kernel.code_object.image, state.target.name
        for pc in set().union(*executed.values()) if executed else ():
            try:
                mnemonic = decode(image, pc, target).mnemonic
            except UnsupportedInstruction:
                return None
            if mnemonic.startswith(_CLOCKS):
                self._drop()
                self._patience = _UNBOUNDED
                return None
        spinning = {
            int(wave): executed.get(int(wave), set()) for wave in snapshot.waves[snapshot.repeated]
        }
        waiting = [int(wave) for wave in snapshot.waves[~snapshot.repeated]]
        return describe(state, spinning, waiting)

    def _show(
        self,
        progress: Progress,
        now: float,
        alive: NDArray[np.bool_],
        at_barrier: NDArray[np.bool_],
    ) -> None:
        state = self._state
        running = np.unique(state.workgroup[alive]).size
        begun = int(state.launch_order[0]) + len(state.workgroup_ids)
        finished = min(begun, progress.workgroups) - running
        progress.show(now, finished, int(alive.sum()), int(at_barrier.sum()))
