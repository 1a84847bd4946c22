"""The objects that execute one batch of workgroups, reused for other batches of the same shape.

A small launch takes about as long as the allocation of its register file and of the arrays of its
checks. So a launch keeps them from batch to batch, and for later launches of the same shape: small
ones, and the latest large one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.execution.native_loop import NativeLoop, native_execution
from cupygemm.emulator.execution.schedule import Order, Scheduler
from cupygemm.emulator.hazards.scoreboard import NoScoreboard, Scoreboard
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.waves.marks import marks_of

if TYPE_CHECKING:
    from cupygemm.emulator.execution.initial import Initial
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.profiling.recorder import Recorder
    from cupygemm.emulator.programs.program import Program
    from cupygemm.emulator.waves.dispatch import Dispatch
    from cupygemm.emulator.waves.state import State

BATCH_WAVES = 1024  # waves in flight together; bounds the register file's memory
LOCKSTEP_WAVES = 256  # in lockstep, where the next batch then finds the arrays in the cache
_SMALL_WAVES, _KEPT_BATCHES = 64, 16  # a factorisation has kernels of a dozen shapes
_KEPT_BYTES = 32 << 20  # total size of the large batches kept in addition to the latest one
_kept: OrderedDict[Any, Batch] = OrderedDict()
_lock = threading.Lock()


@dataclass(eq=False)
class Batch:
    """A batch: its state, and what runs it."""

    program: Program
    state: State
    scoreboard: Scoreboard
    scheduler: Scheduler
    loop: NativeLoop | None
    vector: int  # bit masks of the registers that were initialised
    scalar: int
    initial: Initial | None = None  # what `following` has listed

    @property
    def is_large(self) -> bool:
        """Whether resetting single registers is faster than resetting all."""
        return self.state.num_waves > _SMALL_WAVES

    @property
    def followed(self) -> int:
        """Return the number of batches that C has started after this one, in its arrays."""
        return 0 if self.loop is None else self.loop.followed

    def restart(self, vector: int, scalar: int) -> None:
        """Prepare for other workgroups, whose state has been set."""
        native, marks = self.program.native, marks_of(self.state)
        if self.is_large and (vector, scalar) == (self.vector, self.scalar):
            marks.restart((native.used_vector, native.used_scalar))
        else:
            marks.restart()
        self.vector, self.scalar = vector, scalar
        self.scoreboard.restart(vector, scalar)
        self.scheduler.restart()
        machine_of(self.state).restart(self.state)
        if self.loop is not None:
            self.loop.restart()


class Batches:
    """The batches of one launch, which run one after another in the same objects.

    Parameters
    ----------
    dispatch : Dispatch
    program : Program
    memory : Memory
    order : Order
    recorder : Recorder or None
    member : int, optional
        Number of the member, if batches run side by side.
    member_waves : int, optional
        Number of waves in a member's batch.

    Attributes
    ----------
    program : Program
    may_follow : bool
        Whether C may start batches itself: in lockstep, without a profile.
    max_waves : int
        Number of waves in a batch, unless a single workgroup has more.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        program: Program,
        memory: Memory,
        order: Order,
        recorder: Recorder | None,
        member: int | None = None,
        member_waves: int = 0,
    ) -> None:
        self._dispatch, self.program, self._memory, self._order = dispatch, program, memory, order
        self._member = member
        self._recorder = recorder
        self._is_native = native_execution()
        self._latest: Batch | None = None
        # Seeded orders interleave many waves, and so does the cache model of a profile.
        self.may_follow = order == "lockstep" and recorder is None
        self.max_waves = min(LOCKSTEP_WAVES, BATCH_WAVES) if self.may_follow else BATCH_WAVES
        if member is not None:
            self.max_waves = member_waves

    def for_member(self, member: int, waves: int) -> Batches:
        """Return one member's batches of this launch, which run side by side with the others'."""
        launch = self._dispatch, self.program, self._memory, self._order, self._recorder
        return Batches(*launch, member, waves)

    def _key(self, state_waves: int) -> Any:
        dispatch = self._dispatch
        return (
            state_waves,
            dispatch.target.name,
            dispatch.waves_per_workgroup,
            dispatch.lds_bytes,
            dispatch.scratch_bytes,
            dispatch.cluster_waves(),
            dispatch.checks,
            dispatch.alignment,
            self._order,
            self._memory.shadow is None,
            self._is_native,
            self._member,
        )

    def start(self, first: int, kernarg: int) -> Batch:
        """Return the batch that begins at workgroup `first`."""
        dispatch = self._dispatch
        waves = dispatch.batch_waves(first, self.max_waves)
        batch = self._latest
        if batch is None or batch.state.num_waves != waves:
            self._latest = None
            batch = _take(self._key(waves), waves)
        reuse = None if batch is None else batch.state
        is_same = batch is not None and batch.program is self.program
        scalars = None
        if batch is not None and is_same and batch.is_large:
            scalars = self.program.native.used_scalar | batch.scalar
        state, vector, scalar = dispatch.start(
            first, self.max_waves, kernarg, self._memory, reuse, scalars
        )
        if batch is None:
            batch = self._new(state, vector, scalar)
        elif is_same and self._recorder is None:
            batch.restart(vector, scalar)
        else:
            marks_of(state).restart()
            machine_of(state).restart(state)
            batch = self._new(state, vector, scalar)
        self._latest = batch
        return batch

    def _new(self, state: State, vector: int, scalar: int) -> Batch:
        program = self.program
        scoreboard: Scoreboard
        if self._recorder is not None:
            scoreboard = self._recorder.start_batch(state, vector, scalar)
        elif state.checks:
            scoreboard = Scoreboard(state, program.native.loads, vector, scalar)
        else:
            scoreboard = NoScoreboard(state, program.native.loads)
        # The cache model sees the accesses of all waves of a batch interleaved.
        clustered = None if self._recorder is not None else self._dispatch.cluster_waves()
        scheduler = Scheduler(state, self._order, clustered)
        loop = None
        if self._is_native:
            loop = NativeLoop(state, program.native, scoreboard, scheduler)
            if self._recorder is not None:
                loop.record(self._recorder.native())
        return Batch(program, state, scoreboard, scheduler, loop, vector, scalar)

    def finish(self) -> None:
        """Keep the objects for later launches, if they are small."""
        batch: Any = self._latest
        if batch is None or self._order != "lockstep":
            return
        state: Any = batch.state
        state.kernel = state.memory = None  # which may be freed
        if self._recorder is not None:  # the next launch needs the state alone
            batch.program = batch.scoreboard = batch.scheduler = batch.loop = None
            state.profile = False
            kept = ("marks", "machine")
            state.units = {name: state.units[name] for name in kept if name in state.units}
        with _lock:
            _kept[self._key(state.num_waves)] = batch
            while len(_kept) > _KEPT_BATCHES:
                _kept.popitem(last=False)
            _drop_large(_KEPT_BYTES)


def _take(key: Any, waves: int) -> Batch | None:
    """Return a kept batch, which the caller owns from now on."""
    with _lock:
        found = _kept.pop(key, None)
        if found is None and waves > _SMALL_WAVES:
            _drop_large(_KEPT_BYTES // 2)
        return found


def _drop_large(most: int) -> None:
    """Drop the oldest large batches until those kept besides the latest have at most `most` bytes.

    Many batches are large, but most occupy little memory: an untouched page is not allocated.
    """
    large = [key for key, batch in _kept.items() if batch.state.num_waves > _SMALL_WAVES]
    sizes = [_kept[key].state.bytes_used() for key in large]
    while len(large) > 1 and sum(sizes) > most:
        del _kept[large.pop(0)], sizes[0]
