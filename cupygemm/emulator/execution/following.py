"""Start in C the batches that follow a batch, as long as none of them needs Python.

    Python: start ► describe ─► C: run ► start ► run ► ... ─► event ─► Python: where are we?

All batches of a launch start alike, except for the ids of their workgroups. So when Python has
started one, its arrays hold the initial state of the next. `Following` copies them, lists those
that are 0, and mirrors ``struct following`` of native/following.h. It does not list what else an
instruction in Python may change: after an event, Python starts the next batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cupygemm.emulator.execution.native_loop import LoopStruct
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.units.structures import MachineStruct, members
from cupygemm.emulator.waves.marks import SCC, marks_of
from cupygemm.emulator.waves.state import rows_of

if TYPE_CHECKING:
    from cupygemm.emulator.execution.batch import Batch
    from cupygemm.emulator.waves.dispatch import Dispatch

WORK = 1 << 21  # wave-instructions until Python handles signals
_ID_REGISTERS = ctypes.c_void_p * 3


class InitialStruct(ctypes.Structure):
    """``struct initial``."""

    _fields_ = members(
        """
        pointer to source
        int64   bytes times
        """
    )


class FollowingStruct(ctypes.Structure):
    """``struct following``."""

    _fields_ = [
        ("loop", LoopStruct),
        ("machine", MachineStruct),
        *members(
            """
            pointer initial
            int64   num_initial
            """
        ),
        ("ids", _ID_REGISTERS),
        *members(
            """
            int64   grid_x grid_y vectors accumulators kept_vectors
            int64   first groups left begun work
            """
        ),
    ]


def let_follow(batch: Batch, dispatch: Dispatch, first: int, max_waves: int) -> None:
    """Allow C to start the batches after the one that Python has started at workgroup `first`.

    It may start those of the same size, if it did not need Python when it last ran the
    program.
    """
    left = (dispatch.executed - first) // dispatch.batch_size(max_waves) - 1
    is_alike = batch.program.native.is_undisturbed and not dispatch.batches_differ
    if left > 0 and is_alike and batch.loop is not None:
        batch.loop.follow(Following(batch, dispatch, first, left))


class Following:
    """The batches that may follow a batch that Python has just started.

    Parameters
    ----------
    batch : Batch
        A batch in lockstep with a native loop, before it runs.
    dispatch : Dispatch
    first : int
        Number of its first workgroup.
    left : int
        Number of batches of the same size after it.
    """

    def __init__(self, batch: Batch, dispatch: Dispatch, first: int, left: int) -> None:
        self._state, self._dispatch, self._scheduler = batch.state, dispatch, batch.scheduler
        state = batch.state
        self._kept: list[NDArray[Any]] = []
        self._initial: list[tuple[int, int, int, int]] = []
        self._list_arrays(batch)
        table = (InitialStruct * len(self._initial))(
            *(InitialStruct(*each) for each in self._initial)
        )
        vectors, accumulators = state.used_registers
        self.struct = FollowingStruct(
            initial=ctypes.addressof(table),
            num_initial=len(self._initial),
            grid_x=dispatch.grid[0],
            grid_y=dispatch.grid[1],
            vectors=vectors,
            accumulators=accumulators,
            kept_vectors=1,
            first=first,
            groups=len(state.workgroup_ids),
            left=left,
        )
        self._table = table
        for axis, register in dispatch.id_registers.items():
            self.struct.ids[axis] = state.sgpr[register].ctypes.data
        self.address = ctypes.addressof(self.struct)

    def _list_arrays(self, batch: Batch) -> None:
        """List the arrays that a batch resets, as `Batch.restart` and `Dispatch.start` do."""
        state, scheduler, scoreboard = batch.state, batch.scheduler, batch.scoreboard
        native, marks, machine = batch.program.native, marks_of(state), machine_of(state)
        zeros = [*state.zeroed(), scoreboard.scalar_issued, scoreboard.scalar_done]
        zeros += [scheduler.at_barrier, scheduler.synchronised, scheduler.last_run]
        zeros += machine.zeroed()
        if state.checks:
            zeros += marks.zeroed()
        for array in zeros:
            if array.size:
                self._initial.append((array.ctypes.data, 0, array.nbytes, 1))
        for array in (state.last_memory_pc, state.pc, state.modes):
            self._keep(array)
        self._keep(scheduler.alive)
        self._keep(scheduler.early)
        waves = state.num_waves // len(state.workgroup_ids)
        self._keep(state.vgpr[0, :waves], times=len(state.workgroup_ids))
        used = native.used_scalar | batch.scalar
        for rows in _stretches(rows_of(used & (1 << SCC) - 1)):
            self._keep(state.sgpr[rows])
        for rows in _stretches(rows_of(used & (2 << SCC) - 1)):
            self._keep(marks.undefined_scalar[rows])
        for rows in _stretches(rows_of(native.used_vector | batch.vector)):
            self._keep(marks.unwritten[rows])

    def _keep(self, array: NDArray[Any], times: int = 1) -> None:
        """List an array with its current contents, repeated `times` times."""
        if not array.size:
            return
        kept = array.copy()
        self._kept.append(kept)
        self._initial.append((array.ctypes.data, kept.ctypes.data, kept.nbytes, times))

    def enter(self, loop: LoopStruct) -> None:
        """Prepare for a call of the loop; the first one is the start of the batch."""
        self.struct.work = WORK
        if not loop.following:
            loop.following = self.address
            self.struct.loop = loop
            self.struct.machine = machine_of(self._state).struct

    def take_over(self, loop: LoopStruct, names: tuple[str, ...]) -> None:
        """Start the next batches with these members of the loop, which have changed."""
        for name in names:
            setattr(self.struct.loop, name, getattr(loop, name))

    def leave(self) -> int:
        """Tell Python which batch runs now; return how many C has started since."""
        begun = int(self.struct.begun)
        if begun:
            self.struct.begun = 0
            self._dispatch.place(self._state, self.struct.first)
            self._scheduler.watch_anew()
        return begun


def _stretches(rows: Iterable[int]) -> list[slice]:
    """Return slices of the consecutive numbers among ascending ones."""
    found: list[slice] = []
    for row in rows:
        if found and found[-1].stop == row:
            found[-1] = slice(found[-1].start, row + 1)
        else:
            found.append(slice(int(row), int(row) + 1))
    return found
