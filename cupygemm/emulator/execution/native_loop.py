"""Run a batch in C where possible, and in Python otherwise.

    C: group ► hazards ► execute ► ... ─► event ─► Python: one instruction ─► C

`NativeLoop` mirrors ``struct loop`` of native/loop.h. Arrays are shared. Python's integers (the bit
masks of the scoreboard and the marks, the scheduler's counters) are copied before and after each
event, so that each side works with its own. ``CUPYGEMM_INTERPRETER=reference`` switches the C loop
off; results, counts and reports are the same.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.native import library
from cupygemm.emulator.programs.native_program import ScalarMask, VectorMask
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.units.structures import PointedArrays, members
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.state import Group

if TYPE_CHECKING:
    from cupygemm.emulator.execution.schedule import Scheduler
    from cupygemm.emulator.hazards.scoreboard import Scoreboard
    from cupygemm.emulator.programs.native_program import NativeProgram
    from cupygemm.emulator.waves.entry import Entry
    from cupygemm.emulator.waves.state import State

VARIABLE = "CUPYGEMM_INTERPRETER"
_NAMES = {"": True, "native": True, "reference": False}

# enum event
DONE, NEEDS_GROUP, NOT_DECODED, STEP, FAULT, UNDEFINED, STUCK, ENDLESS, FOLLOWED = range(9)
# and AT_ACCESS, which Python does not see

_WORK = 1 << 19  # wave-instructions until the scheduler looks for waves that can never end
STEP_WORK = 256  # the wave-instructions that C executes while Python executes one instruction
_SCHEDULE = ("cluster", "turn", "fair", "contended", "fair_steps", "patience", "spent", "limit")
# Members that point to arrays which may grow while a batch runs, and their sizes.
_GROWING = ("counts", "num_counts", "slots", "outstanding", "slot_loads", "num_slots")
_LISTED = ("listed", "num_listed")
_VECTOR_BYTES, _SCALAR_BYTES = ctypes.sizeof(VectorMask), ctypes.sizeof(ScalarMask)


class LoopStruct(ctypes.Structure):
    """``struct loop``."""

    _fields_ = [
        *members(
            """
            pointer machine recorder program
            int64   program_words
            pointer counts
            int64   num_counts
            pointer vm_issued lds_issued scalar_issued vm_done lds_done scalar_done
            pointer vm_released lds_released vm_passed lds_passed last_memory_pc slots
            pointer slot_loads
            int64   num_slots
            pointer outstanding
            int64   num_outstanding
            pointer unwritten
            int64   checks hazards
            """
        ),
        ("pending_vector", VectorMask),
        ("pending_scalar", ScalarMask),
        ("suspect_vector", VectorMask),
        ("suspect_scalar", ScalarMask),
        ("marked", VectorMask),
        *members(
            """
            pointer alive at_barrier synchronised early joins last_run pcs modes
            pointer barrier_epoch others
            int64   num_others ahead lockstep shared
            int64   cluster cluster_waves turn fair contended fair_steps patience spent
            int64   limit quantum leader work
            pointer ids remaining
            int64   num_remaining
            pointer listed
            int64   num_listed first step count has_group pc mode steps resumed code current
            pointer following turns
            int64   member
            """
        ),
    ]


def native_execution() -> bool:
    """Tell whether launches use the C loop, as they do by default.

    Raises
    ------
    ValueError
        The variable's value is neither ``native`` nor ``reference``.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in _NAMES:
        raise ValueError(f"{VARIABLE} must be 'native' or 'reference' (got {value!r})")
    return _NAMES[value]


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LoopRecorder(Protocol):
    """The recorder that the loop in C fills for a profile: `profiling.native_recorder`."""

    address: int

    def fit(self, size: int, entries: list[Entry]) -> None:
        """Make room for the counts of `size` instructions."""

    def copy_in(self) -> None:
        """Prepare for a call of the loop."""

    def copy_out(self) -> None:
        """Copy back what the loop has recorded."""

    def finish(self, executions: dict[int, int]) -> None:
        """Hand over the counts of the batch."""


class LoopFollower(Protocol):
    """The state with which the loop in C starts further batches: `following`."""

    def enter(self, loop: LoopStruct) -> None:
        """Prepare for a call of the loop; the first one is the start of a batch."""

    def take_over(self, loop: LoopStruct, names: tuple[str, ...]) -> None:
        """Start further batches with these members of the loop, too."""

    def leave(self) -> int:
        """Return the number of batches that C has started during the call."""


class NativeLoop(PointedArrays):
    """The C loop over one batch."""

    def __init__(
        self, state: State, program: NativeProgram, scoreboard: Scoreboard, scheduler: Scheduler
    ) -> None:
        super().__init__()
        self.state, self.program = state, program
        self.recorder: LoopRecorder | None = None
        self.following: LoopFollower | None = None
        self.followed = 0  # batches that C has started since Python last started one
        self.is_undisturbed = True  # Python has executed none of their instructions
        self.scoreboard, self.scheduler, self.marks = scoreboard, scheduler, marks_of(state)
        self._function = library().run_loop
        self._function.argtypes, self._function.restype = [ctypes.c_void_p], ctypes.c_int32
        waves = state.num_waves
        self.ids = np.zeros(waves, np.int64)
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._num_linked = 0  # loads whose slot points to their record
        self.struct = LoopStruct(
            machine=machine_of(state).address,
            program_words=program.table.size,
            checks=scoreboard.counts,
            hazards=state.checks,
            shared=not scheduler.is_random,
            cluster_waves=scheduler.cluster_waves,
        )
        self.address = ctypes.addressof(self.struct)
        self._lockstep = scheduler.order == "lockstep"
        self.struct.lockstep, self.struct.work = self._lockstep, _WORK
        for name in ("vm_issued", "lds_issued", "vm_released", "lds_released"):
            self._point(name, getattr(state, name))
        for name in ("vm_passed", "lds_passed"):
            self._point(name, getattr(state, name))
        for name in ("vm_done", "lds_done", "scalar_issued", "scalar_done"):
            self._point(name, getattr(scoreboard, name))
        for name in ("alive", "at_barrier", "synchronised", "early", "last_run"):
            self._point(name, getattr(scheduler, name))
        self._point("program", program.table)
        self._point("last_memory_pc", state.last_memory_pc)
        self._point("pcs", state.pc)
        self._point("modes", state.modes)
        self._point("barrier_epoch", state.barrier_epoch)
        self._point("unwritten", self.marks.unwritten)
        self._point("joins", np.zeros(waves, np.uint8))
        self._point("others", np.zeros(waves, np.int64))
        self._point("ids", self.ids)
        self._point("remaining", np.zeros(waves, np.int64))
        library().set_threads(ctypes.c_int64(usable_cores()))
        self._locate_code()
        self.fit()

    def record(self, recorder: LoopRecorder) -> None:
        """Record the counts that a profile needs."""
        self.recorder = recorder
        self.struct.recorder = recorder.address
        recorder.fit(self.counts.size, self.program.entries)

    def restart(self) -> None:
        """Prepare for another batch, whose counts are added to the previous ones."""
        struct = self.struct
        struct.has_group = struct.resumed = struct.num_outstanding = 0
        struct.lockstep, struct.work = self._lockstep, _WORK
        self.follow(None)
        self.followed, self.is_undisturbed = 0, True
        self.counts.fill(0)
        self._locate_code()
        self.fit()

    def _locate_code(self) -> None:
        machine_of(self.state).struct.code_base = self.state.kernel.code_object.base

    def follow(self, following: LoopFollower | None) -> None:
        """Allow C to start the batches after this one, which has not run yet; None forbids it."""
        self.following = following
        self.struct.following = None

    def join(self, turns: int | None, member: int) -> None:
        """Take turns with the other batches of the ``struct turns`` at `turns`; None ends this."""
        self.struct.turns, self.struct.member = turns, member

    def fit(self) -> None:
        """Make room for the instructions and loads that the program has gained."""
        program, struct = self.program, self.struct
        if len(program.entries) > self.counts.size or not self.counts.size:
            grown = np.zeros(2 * len(program.entries) + 64, np.int64)
            grown[: self.counts.size] = self.counts
            self.counts = grown
            self._point("counts", grown)
            struct.num_counts = grown.size
        self.scoreboard.fit()
        slots = self.scoreboard.slots
        if "slots" not in self.arrays or self.arrays["slots"] is not slots:
            outstanding = np.zeros(len(slots), np.int64)
            in_flight = int(struct.num_outstanding)
            outstanding[:in_flight] = self.arrays.get("outstanding", outstanding)[:in_flight]
            self._point("slots", slots)
            self._point("outstanding", outstanding)
            self._point("slot_loads", np.zeros(len(slots), np.uint64))
            struct.num_slots = len(slots)
            self._num_linked = 0
        loads = self.arrays["slot_loads"]
        for slot, entry in enumerate(program.loads[self._num_linked :], self._num_linked):
            loads[slot] = ctypes.addressof(entry.record)
        self._num_linked = len(program.loads)
        if self.following is not None:
            self.following.take_over(struct, _GROWING)
        if self.recorder is not None:
            self.recorder.fit(self.counts.size, program.entries)

    # -- events ------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until something happens that Python handles; return the event."""
        self.enter()
        event = int(self._function(self.address))
        self.leave(event)
        return event

    def enter(self) -> None:
        """Pass the state of the batch to C."""
        self._copy_in()
        if self.recorder is not None:
            self.recorder.copy_in()
        if self.following is not None:
            self.following.enter(self.struct)

    def leave(self, event: int) -> None:
        """Take over the state of the batch from C after an event."""
        self._copy_out()
        if self.following is not None:
            self.followed += self.following.leave()
        if event not in (DONE, FOLLOWED):
            self.follow(None)
            self.is_undisturbed = False
        self.program.is_undisturbed = self.is_undisturbed
        if self.recorder is not None:
            self.recorder.copy_out()
        self.state.mode, self.state.current_pc = self.struct.mode, self.struct.pc

    def _copy_in(self) -> None:
        struct, board, marks = self.struct, self.scoreboard, self.marks
        for name, mask in (
            ("pending_vector", board.pending_vector),
            ("suspect_vector", marks.suspect_vector),
            ("marked", marks.marked),
        ):
            ctypes.memmove(
                ctypes.addressof(getattr(struct, name)),
                mask.to_bytes(_VECTOR_BYTES, "little"),
                _VECTOR_BYTES,
            )
        for name, mask in (
            ("pending_scalar", board.pending_scalar),
            ("suspect_scalar", marks.suspect_scalar),
        ):
            ctypes.memmove(
                ctypes.addressof(getattr(struct, name)),
                mask.to_bytes(_SCALAR_BYTES, "little"),
                _SCALAR_BYTES,
            )
        outstanding = board.outstanding
        self.arrays["outstanding"][: len(outstanding)] = outstanding
        struct.num_outstanding = len(outstanding)
        for name in _SCHEDULE:
            setattr(struct, name, getattr(self.scheduler, name))
        self.list_findings()

    def list_findings(self) -> None:
        """Have C leave the instructions that have a finding to Python."""
        listed = self.state.findings.listed
        if len(listed) != self.struct.num_listed:
            self._point("listed", np.fromiter(listed, np.int64))
            self.struct.num_listed = len(listed)
            if self.following is not None:
                self.following.take_over(self.struct, _LISTED)

    def _copy_out(self) -> None:
        struct, board, marks = self.struct, self.scoreboard, self.marks
        board.pending_vector = int.from_bytes(struct.pending_vector, "little")
        board.pending_scalar = int.from_bytes(struct.pending_scalar, "little")
        marks.suspect_vector = int.from_bytes(struct.suspect_vector, "little")
        marks.suspect_scalar = int.from_bytes(struct.suspect_scalar, "little")
        marks.take_marked(int.from_bytes(struct.marked, "little"))
        board.outstanding = self.arrays["outstanding"][: struct.num_outstanding].tolist()
        for name in _SCHEDULE:
            setattr(self.scheduler, name, getattr(struct, name))

    def group(self) -> Group:
        """Return the group at which the loop has stopped."""
        struct = self.struct
        count, step = struct.count, struct.step
        waves: Any = self.ids[:count].copy()
        if step:
            waves = slice(struct.first, struct.first + step * (count - 1) + 1, step)
        return Group(self.state, waves, count)

    def remaining(self, group: Group) -> Group:
        """Return the waves of a group that have yet to execute the instruction that stopped."""
        count = self.struct.num_remaining
        if not count:
            return group
        return Group(self.state, self.arrays["remaining"][:count].copy(), count)

    def start_group(self, group: Group) -> None:
        """Continue the loop with a group that Python's scheduler has chosen."""
        struct, scheduler, ids = self.struct, self.scheduler, group.wave_ids
        self.ids[: group.count] = ids
        is_slice = isinstance(group.waves, slice)
        struct.first, struct.count = int(ids[0]), group.count
        struct.step = (group.waves.step or 1) if is_slice else 0  # type: ignore[union-attr]
        is_idle = self._lockstep and scheduler.watch.is_idle
        struct.lockstep, struct.work = is_idle, _WORK
        others = sorted(scheduler.others)
        self.arrays["others"][: len(others)] = others
        struct.num_others, struct.ahead = len(others), scheduler.ahead
        struct.quantum, struct.steps, struct.has_group = scheduler.quantum, 0, 1
        struct.pc, struct.mode = int(self.state.pc[ids[0]]), int(self.state.modes[ids[0]])

    def lacks_room(self, entry: Entry) -> bool:
        """Return whether an instruction exceeds the arrays' sizes, see `fit`."""
        record, struct = entry.record, self.struct
        return bool(record.index >= struct.num_counts or record.slot >= struct.num_slots)

    def resume(self, pc: int | None) -> None:
        """Continue after an instruction that Python executed: at `pc`, or with another group."""
        struct = self.struct
        struct.has_group = pc is not None
        if pc is not None:
            struct.pc, struct.resumed, struct.mode = pc, 1, self.state.mode

    def add_counts(self, loops: Iterable[NativeLoop]) -> None:
        """Add the counts of other loops over the same program to this one's."""
        self.fit()
        for loop in loops:
            size = min(self.counts.size, loop.counts.size)  # both have all instructions
            self.counts[:size] += loop.counts[:size]

    def executions(self) -> dict[int, int]:
        """Return the number of waves that executed each instruction in C, by program counter."""
        found = np.flatnonzero(self.counts)
        entries, counts = self.program.entries, self.counts[found].tolist()
        return {entries[i].pc: n for i, n in zip(found.tolist(), counts, strict=True)}
