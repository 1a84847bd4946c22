"""Run batches side by side, on all available cores.

    member 0   ── accesses ───────────── accesses ─────
    member 1   ─────────── accesses ───────────── accesses

Batches whose workgroups do not wait for each other share nothing but device memory. They access it
in turns: each member makes one access and those that soon follow it in straight code, or begins its
next batch, and the turn passes on. So results and reports depend neither on the number of cores nor
on which is faster. C runs the members (native/turns.h) until the one whose turn it is needs Python.
The reference path runs them one after another, in the same order.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cupygemm.emulator.execution.batch import Batches
from cupygemm.emulator.execution.executor import Executor
from cupygemm.emulator.execution.following import WORK, Following
from cupygemm.emulator.execution.native_loop import DONE, NOT_DECODED, NativeLoop
from cupygemm.emulator.native import library
from cupygemm.emulator.units.memory.write_backs import may_communicate
from cupygemm.emulator.units.structures import members

if TYPE_CHECKING:
    from cupygemm.emulator.execution.batch import Batch
    from cupygemm.emulator.liveness.progress import Progress
    from cupygemm.emulator.waves.dispatch import Dispatch

MEMBERS = 4  # whatever the number of cores is, so that the order of accesses is the same
MEMBER_WAVES = 64  # of a member's batch; a launch needs as many for each member
_NO_EVENT = -1
_ENDED = object()


class MemberStruct(ctypes.Structure):
    """``struct member``."""

    _fields_ = members(
        """
        pointer loop
        int32   state event
        int64   thread
        """
    )


class TurnsStruct(ctypes.Structure):
    """``struct turns``."""

    _fields_ = [
        ("members", MemberStruct * MEMBERS),
        *members("int64 turn stopped first groups end work"),
    ]


def run_side_by_side(
    batches: Batches,
    dispatch: Dispatch,
    kernarg: int,
    counts: dict[int, int],
    progress: Progress,
) -> bool:
    """Run the batches of a launch side by side if they may; return whether they have run.

    Parameters
    ----------
    batches : Batches
        The batches of the launch that run one after another.
    dispatch : Dispatch
    kernarg : int
        Address of the arguments.
    counts : dict of int to int
        Number of waves that executed each instruction, by program counter; updated.
    progress : Progress
    """
    share = dispatch.executed // MEMBERS * dispatch.waves_per_workgroup
    if share < MEMBER_WAVES or not dispatch.lds_bytes:
        return False
    if not batches.may_follow or dispatch.cooperative:
        return False
    if may_communicate(dispatch.kernel):
        return False
    dispatch.apart = True
    members = [batches.for_member(member, MEMBER_WAVES) for member in range(MEMBERS)]
    SideBySide(members, dispatch, kernarg, counts, progress).run()
    return True


class SideBySide:
    """The batches of one launch that run side by side.

    Parameters
    ----------
    batches : list of Batches
        The batches of each of the `MEMBERS` members.
    dispatch : Dispatch
    kernarg : int
        Address of the arguments.
    counts : dict of int to int
        Number of waves that executed each instruction, by program counter. The counts of the
        members are added.
    progress : Progress
    """

    def __init__(
        self,
        batches: list[Batches],
        dispatch: Dispatch,
        kernarg: int,
        counts: dict[int, int],
        progress: Progress,
    ) -> None:
        self._batches, self._dispatch, self._kernarg = batches, dispatch, kernarg
        self._counts, self._progress = counts, progress
        groups = dispatch.batch_size(batches[0].max_waves)
        self._turns = TurnsStruct(groups=groups, end=dispatch.executed, work=WORK)
        for member in self._turns.members:
            member.thread = -1
        self._executors = [self._begin(member) for member in range(len(batches))]

    def _begin(self, member: int) -> Executor:
        """Begin the next batch of a member."""
        turns, batches = self._turns, self._batches[member]
        first = turns.first
        turns.first += turns.groups
        batch = batches.start(first, self._kernarg)
        batch.scheduler.watch.progress = self._progress
        executor = Executor(batch, batches.program, counts=self._counts)
        if batch.loop is not None:
            self._join(member, batch, batch.loop, first)
        return executor

    def _join(self, member: int, batch: Batch, loop: NativeLoop, first: int) -> None:
        struct = self._turns.members[member]
        struct.loop, struct.state, struct.event = loop.address, 0, _NO_EVENT
        loop.join(ctypes.addressof(self._turns), member)
        if batch.program.native.is_undisturbed and not self._dispatch.batches_differ:
            loop.follow(Following(batch, self._dispatch, first))
        loop.enter()

    def run(self) -> None:
        """Run the launch."""
        if self._executors[0].loop is None:
            self._run_reference()
        else:
            self._run_native()
        for batches in self._batches:
            batches.finish()

    def _run_reference(self) -> None:
        runs = {member: each.accesses() for member, each in enumerate(self._executors)}
        while runs:
            for member in list(runs):
                if next(runs[member], _ENDED) is not _ENDED:
                    continue
                if self._turns.first < self._turns.end:
                    self._executors[member] = self._begin(member)
                    runs[member] = self._executors[member].accesses()
                else:
                    del runs[member]

    def _run_native(self) -> None:
        turns, lib = self._turns, library()
        address = ctypes.c_void_p(ctypes.addressof(turns))
        while True:
            lib.run_turns(address)
            if turns.turn < 0:
                break
            if self._serve(turns.turn):
                lib.pass_turn(address)
        loops = [_loop_of(executor) for executor in self._executors]
        for loop in loops:
            loop.leave(DONE)
            loop.join(None, 0)
        loops[0].add_counts(loops[1:])
        self._executors[0].finish()
        loops[0].program.is_undisturbed = any(loop.is_undisturbed for loop in loops)

    def _serve(self, number: int) -> bool:
        """Handle an event of the member with the turn; return whether its turn ends."""
        turns, executor = self._turns, self._executors[number]
        member, loop = turns.members[number], _loop_of(executor)
        event = member.event
        if event == DONE and loop.following is not None:  # Python has handled signals meanwhile
            turns.work = WORK
            return False
        member.event = _NO_EVENT
        loop.leave(event)
        if event == DONE:
            executor.finish()
            self._executors[number] = self._begin(number)
            return True
        accessed = executor.serve(event)
        loop.enter()
        for each in map(_loop_of, self._executors):
            each.list_findings()
            if event == NOT_DECODED:
                each.fit()
        if accessed is None:
            member.event = DONE
        return bool(accessed)


def _loop_of(executor: Executor) -> NativeLoop:
    """Return the loop of an executor that has one."""
    assert executor.loop is not None
    return executor.loop
