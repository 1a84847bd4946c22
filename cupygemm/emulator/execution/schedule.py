"""Choose the waves that run next, and hold waves at barriers."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.liveness import Finding, Watch, early_ends
from cupygemm.emulator.units.lds import partial_barriers
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.waves.state import Group, State

NamedOrder = Literal["lockstep", "abreast", "forward", "reverse"]
Order = NamedOrder | tuple[Literal["random"], int]

# A group that runs for this many steps yields to others that could run, and a group that has not
# run for this many turns gets a turn. Both limits shrink each time that they are reached: waves
# that spin once, such as on a lock, spin again, and each wait costs as many steps as the limit.
_FAIR_STEPS, _LEAST_STEPS = 20_000, 500
_PATIENCE, _LEAST_PATIENCE = 1024, 32
_LOOK_AROUND = 16  # turns between looks for such groups

LIMIT_VARIABLE = "CUPYGEMM_EMULATE_LIMIT"
_TURN_STEPS = 16  # forming a group takes about as long as this many steps
_ABREAST_STEPS = 16  # steps of a group's turn when diverged waves run abreast

_NOWHERE = 1 << 62


def step_limit() -> int:
    """Return the number of steps within which some wave must end; the environment may set it.

    A step is one instruction executed by any number of waves together. There is no limit by
    default, or if the variable is 0: `liveness` finds waves that can never end.

    Raises
    ------
    ValueError
        The variable is not a number.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return _NOWHERE
    try:
        return int(text) or _NOWHERE
    except ValueError:
        raise ValueError(
            f"{LIMIT_VARIABLE}={text!r}: set it to a number of instructions, or to 0 for no limit"
        ) from None


class BarrierFault(Fault):
    """A fault whose `wave` is an index into the batch rather than into a group."""


class Scheduler:
    """Form the next group of waves.

    Workgroups run in clusters, so that the registers and the LDS of the running waves stay in the
    processor's cache: the next cluster runs when the waves of one have ended. In lockstep, the
    waves of the cluster at the lowest program counter run. Loops finish before the code after them
    runs, so diverged waves meet again. Abreast, diverged waves take turns of a few
    instructions, as if each had a SIMD of its own. In the other orders, the waves of a workgroup
    run one at a time, each until it waits at a barrier or ends; a random order also switches at
    random instructions. In every order, waves that spin (on a flag or a lock that another wave
    holds) yield to the others from time to time. If no wave ends for very long, the launch is a
    fault.

    Attributes
    ----------
    others : set of int
        Program counters of runnable waves outside the group. The group merges with them when it
        reaches one.
    ahead : int
        The lowest of these beyond the group; a group that passes it yields.
    quantum : int
        Steps until the group yields.
    early : uint8 (workgroups,)
        Whether waves that end before a barrier are of interest, see `early_ends`.
    cluster, cluster_waves : int
        Number of the cluster whose turn it is, and its size.
    """

    def __init__(self, state: State, order: Order, cluster_waves: int | None = None) -> None:
        self.state = state
        self.order = order
        self.cluster_waves = cluster_waves or state.num_waves
        self.alive = np.ones(state.num_waves, bool)
        self.at_barrier = np.zeros(state.num_waves, bool)
        self.synchronised = np.zeros(state.num_waves, bool)  # has taken part in a barrier
        self.last_run = np.zeros(state.num_waves, np.int64)
        self._per_group = np.bincount(state.workgroup, minlength=len(state.workgroup_ids))
        self.early = np.zeros(len(state.workgroup_ids), np.uint8)
        self.restart()

    def restart(self) -> None:
        """Prepare for another batch."""
        self.alive.fill(True)
        self.at_barrier.fill(False)
        self.synchronised.fill(False)
        self.last_run.fill(0)
        order = self.order
        self.watch = Watch(self.state)
        machine_of(self.state)  # records which lanes are launched
        self.early.fill(early_ends.is_wanted(self.state))
        self.others: set[int] = set()
        self.ahead = _NOWHERE
        self.cluster = 0
        self.quantum = _NOWHERE
        self._random = np.random.default_rng(order[1]) if isinstance(order, tuple) else None
        self.turn = 0
        self.fair = False
        self.contended = False  # whether others could have run in the latest turn
        self.fair_steps = _FAIR_STEPS
        self.patience = _PATIENCE
        self.latest: slice | NDArray[np.intp] | None = None  # the waves of the latest group
        self.spent = 0  # steps since a wave last ended
        self.limit = step_limit()

    def watch_anew(self) -> None:
        """Reset the watch for another batch, which C has started."""
        progress, self.watch = self.watch.progress, Watch(self.state)
        self.watch.progress = progress

    @property
    def is_random(self) -> bool:
        """Whether the order is random."""
        return self._random is not None

    def next_group(self) -> Group | None:
        """Return the waves to run next, or None when all have ended.

        Raises
        ------
        Fault
            All remaining waves wait or can never end, or no wave has ended for too long.
        """
        if (finding := self.watch.look(self.alive, self.at_barrier, self.latest)) is not None:
            raise self._standstill(finding)
        runnable = self.alive & ~self.at_barrier
        if not runnable.any():
            if self.alive.any():
                raise self.stuck()
            return None
        state = self.state
        self.spent += _TURN_STEPS
        candidates, leader = self._choose(runnable)
        if self.spent > self.limit:
            raise self.endless(leader)
        pcs = state.pc
        chosen = candidates & (pcs == pcs[leader]) & (state.modes == state.modes[leader])
        rest = candidates & ~chosen
        self.others = set(np.unique(pcs[rest]).tolist())
        self.ahead = min((pc for pc in self.others if pc > pcs[leader]), default=_NOWHERE)
        self.quantum = self.fair_steps
        self.contended = bool((runnable & ~chosen).any())
        if self._random is not None:
            self.quantum = int(self._random.integers(1, 64))
        elif self.order == "abreast":
            self.quantum = _ABREAST_STEPS
        self.quantum = self.watch.turn(self.quantum)
        self.turn += 1
        self.last_run[chosen] = self.turn
        self.latest = _as_slice(chosen)
        self.watch.started(self.latest, int(pcs[leader]))
        return Group(state, self.latest, int(chosen.sum()))

    def _choose(self, runnable: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], int]:
        """Return the waves that may run now, and the wave whose program counter decides."""
        pcs, positions = self.state.pc, self.state.wave_in_group
        indices = np.flatnonzero(runnable)
        if self.fair or self.turn % _LOOK_AROUND == 0:
            oldest = int(indices[self.last_run[indices].argmin()])
            starving = self.turn - int(self.last_run[oldest]) > self.patience
            if self.fair or starving:
                self.fair = False
                self.cluster = oldest // self.cluster_waves
                if starving:
                    self.patience = max(self.patience // 2, _LEAST_PATIENCE)
                runnable = runnable & self._in_cluster()
                if self.order in ("lockstep", "abreast"):
                    return runnable, oldest
                return runnable & (positions == positions[oldest]), oldest
        clusters = indices // self.cluster_waves
        if not (clusters == self.cluster).any():
            later = clusters[clusters > self.cluster]
            self.cluster = int(later[0] if later.size else clusters[0])
        runnable = runnable & self._in_cluster()
        indices = np.flatnonzero(runnable)
        if self.order == "abreast":
            return runnable, int(indices[np.lexsort((pcs[indices], self.last_run[indices]))[0]])
        if self.order != "lockstep":
            runnable = runnable & self._one_wave(runnable)
            indices = np.flatnonzero(runnable)
        return runnable, int(indices[pcs[indices].argmin()])

    def _in_cluster(self) -> NDArray[np.bool_]:
        """Return the waves of the cluster whose turn it is."""
        mask = np.zeros(self.state.num_waves, bool)
        mask[self.cluster * self.cluster_waves : (self.cluster + 1) * self.cluster_waves] = True
        return mask

    def _one_wave(self, runnable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the waves at one position within their workgroups."""
        positions = self.state.wave_in_group
        available = np.unique(positions[runnable])
        if self._random is not None:
            pick = self._random.choice(available)
        else:
            pick = available[0] if self.order == "forward" else available[-1]
        mask: NDArray[np.bool_] = positions == pick
        return mask

    def yielded(self, exhausted: bool) -> None:
        """Record that a group stopped early, and whether its quantum is spent."""
        if not exhausted:
            return
        self.spent += self.quantum
        if self._random is None and self.order != "abreast" and self.contended:
            self.fair = True
            self.fair_steps = max(self.fair_steps // 2, _LEAST_STEPS)

    def end(self, group: Group) -> Any:
        """End waves at s_endpgm; return the waves that this releases from a barrier, or None.

        Raises
        ------
        Fault
            Other waves of the workgroup wait at a barrier that these waves skipped.
        """
        self.alive[group.waves] = False
        self.state.pc[group.waves] = self.state.current_pc
        self.spent = 0
        return self._release() if self.at_barrier.any() else None

    def arrive(self, group: Group) -> Any:
        """Hold waves at a barrier; return the waves that are released, or None.

        Raises
        ------
        Fault
            Waves of the workgroup skipped the barrier and have ended.
        """
        state = self.state
        self.synchronised[group.waves] = True
        if (rejoining := partial_barriers.arrive(state, group)) is not None:
            self._rejoin(group, *rejoining)
        if group.count == state.num_waves:
            state.barrier_epoch += 1
            return group.waves
        self.at_barrier[group.waves] = True
        return self._release()

    def _release(self) -> Any:
        """Release the workgroups whose waves all wait; return the waves, or None."""
        state = self.state
        size = self._per_group.size
        waiting = np.bincount(state.workgroup[self.at_barrier], minlength=size)
        ended = np.bincount(state.workgroup[~self.alive], minlength=size)
        complete = (waiting > 0) & (waiting + ended == self._per_group)
        for workgroup in np.flatnonzero(complete & (ended > 0)):
            if self._skipped_barrier(int(workgroup)):
                fault = self._divergent(int(workgroup))
                state.findings.report(fault, None, state.current_pc)
            elif self.early[workgroup]:
                self.early[workgroup] = 0
                self._look_for_early_ends(int(workgroup))
        if not complete.any():
            return None
        released = self.at_barrier & complete[state.workgroup]
        self.at_barrier[released] = False
        state.barrier_epoch[complete] += 1
        return np.flatnonzero(released)

    def _skipped_barrier(self, workgroup: int) -> bool:
        """Return whether a wave of the workgroup skipped the barrier at which the others wait.

        The hardware counts only waves that have not ended, so that work-items without work may
        return immediately. A wave that took part in an earlier barrier, or accessed memory after
        this one, did not return immediately.
        """
        state = self.state
        members = state.workgroup == workgroup
        barrier = state.pc[members & self.at_barrier].max()
        ended = members & ~self.alive
        worked_on = state.last_memory_pc[ended] >= barrier
        return bool((self.synchronised[ended] | worked_on).any())

    def whole(self, group: Group, released: Any) -> bool:
        """Return whether the released waves are exactly the group's, so that it can continue."""
        count = self.state.num_waves if isinstance(released, slice) else len(released)
        if count != group.count:
            return False
        return isinstance(released, slice) or bool(np.array_equal(released, group.wave_ids))

    def _rejoin(self, group: Group, wave: int, lanes: int) -> None:
        """Report lanes that reach a barrier after they skipped an earlier one."""
        position = int(np.flatnonzero(group.wave_ids == wave)[0])
        fault = partial_barriers.fault_of(self.state, wave, position, lanes)
        partial_barriers.forget(self.state)
        if fault is not None:
            self.state.findings.report(fault, group, self.state.current_pc)

    def _divergent(self, workgroup: int) -> Fault:
        state = self.state
        members = state.workgroup == workgroup
        ended = state.wave_in_group[members & ~self.alive].tolist()
        waiting = np.flatnonzero(members & self.at_barrier)
        names = state.wave_in_group[waiting].tolist()
        offset = int(state.pc[waiting[0]]) - state.kernel.entry
        state.current_pc = int(state.pc[waiting[0]]) - 4
        return BarrierFault(
            "divergent barrier",
            f"waves {names} of the workgroup wait at the barrier before {offset:+#x}, and waves "
            f"{ended} have ended without reaching it:\n"
            "every wave that does not return immediately must execute the same barriers\n"
            "(s_barrier waits for surviving waves only, so a GPU continues here; HIP does not "
            "allow it)",
            int(waiting[0]),
            check="barriers",
        )

    def _look_for_early_ends(self, workgroup: int) -> None:
        """Report waves that have ended before the barrier at which the others wait."""
        state = self.state
        members = state.workgroup == workgroup
        waiting = np.flatnonzero(members & self.at_barrier).tolist()
        ended = np.flatnonzero(members & ~self.alive).tolist()
        if early_ends.is_end_of_data(state, ended):
            return
        self.early.fill(0)  # one finding is enough
        detail = early_ends.describe(state, ended, waiting)
        if detail is None:
            return
        here, state.current_pc = state.current_pc, int(state.pc[waiting[0]]) - 4
        fault = BarrierFault(early_ends.KIND, detail, waiting[0], check=early_ends.CHECK)
        state.findings.report(fault, None, state.current_pc)
        state.current_pc = here

    def endless(self, wave: int) -> Fault:
        """Return the fault of a launch that does not end; `wave` is one that would run next."""
        state = self.state
        entry = state.kernel.entry
        running = self.alive & ~self.at_barrier
        places = ", ".join(
            f"{count} at {pc - entry:+#x}"
            for pc, count in zip(*np.unique(state.pc[running], return_counts=True), strict=True)
        )
        state.current_pc = int(state.pc[wave])
        first, last = int(state.launch_order[0]), int(state.launch_order[-1])
        return BarrierFault(
            "endless loop",
            f"no wave has ended in {self.limit:,} instructions.\n"
            f"Running: {places}; waiting at barriers: {int(self.at_barrier.sum())}; "
            f"ended: {int((~self.alive).sum())}.\n"
            "A wave waits for ever for a flag or a lock that no wave on the device sets;\n"
            f"workgroups {first} to {last} of the grid are on it, others start when these end.\n"
            f"{LIMIT_VARIABLE} sets the limit, 0 lifts it",
            wave,
        )

    def _standstill(self, finding: Finding) -> Fault:
        self.state.current_pc = finding.pc
        return BarrierFault(
            finding.kind,
            finding.detail,
            finding.wave,
            address=finding.address,
            is_global=finding.is_global,
        )

    def stuck(self) -> Fault:
        """Return the fault of a launch in which every wave waits."""
        waiting = np.flatnonzero(self.at_barrier)
        detail = f"{waiting.size} waves wait at barriers and none can run"
        return BarrierFault("deadlock", detail, int(waiting[0]))


def _as_slice(chosen: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    """Return a mask as a slice if its waves are evenly spaced, so that register rows are views."""
    indices = np.flatnonzero(chosen)
    first, count = int(indices[0]), indices.size
    if count == 1:
        return slice(first, first + 1)
    stride = int(indices[1]) - first
    if indices[-1] == first + stride * (count - 1) and (np.diff(indices) == stride).all():
        return slice(first, int(indices[-1]) + 1, stride)
    return indices
