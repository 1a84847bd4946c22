"""Which waves run next, and who waits at a barrier."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.state import Group, State

Order = Literal["lockstep", "forward", "reverse"] | tuple[Literal["random"], int]

_FAIR_STEPS = 20_000  # a group that runs this long while others could run makes way for them
_NOWHERE = 1 << 62


class BarrierFault(Fault):
    """A fault whose `wave` is an index into the batch rather than into a group."""


class Scheduler:
    """Form the next group of waves.

    In lockstep, the waves at the lowest program counter run: loops finish before what follows them,
    so diverged waves meet again. A group that spins (on a flag that another wave sets, say) makes
    way after `_FAIR_STEPS` steps. In the other orders, the waves of a workgroup run one at a time,
    each until it waits at a barrier or ends; a random order also switches at random instructions.

    Attributes
    ----------
    others : set of int
        Program counters of runnable waves outside the group; reaching one of them merges.
    ahead : int
        The lowest of them: passing it hands over.
    quantum : int
        Steps until the group makes way.
    """

    def __init__(self, state: State, order: Order) -> None:
        self.state = state
        self.alive = np.ones(state.num_waves, bool)
        self.at_barrier = np.zeros(state.num_waves, bool)
        self.others: set[int] = set()
        self.ahead = _NOWHERE
        self.quantum = _NOWHERE
        self._order = order
        self._random = np.random.default_rng(order[1]) if isinstance(order, tuple) else None
        self._last_run = np.zeros(state.num_waves, np.int64)
        self._turn = 0
        self._fair = False
        self._per_group = np.bincount(state.workgroup, minlength=len(state.workgroup_ids))

    def next_group(self) -> Group | None:
        """Return the waves to run next, or None when all have ended.

        Raises
        ------
        Fault
            Waves are left, and all of them wait.
        """
        runnable = self.alive & ~self.at_barrier
        if not runnable.any():
            if self.alive.any():
                raise self._stuck()
            return None
        state = self.state
        candidates = runnable if self._order == "lockstep" else runnable & self._one_wave(runnable)
        pcs = state.pc
        if self._fair:
            leader = np.flatnonzero(candidates)[self._last_run[candidates].argmin()]
            self._fair = False
        else:
            indices = np.flatnonzero(candidates)
            leader = indices[pcs[indices].argmin()]
        chosen = candidates & (pcs == pcs[leader]) & (state.modes == state.modes[leader])
        rest = candidates & ~chosen
        self.others = set(np.unique(pcs[rest]).tolist())
        self.ahead = min((pc for pc in self.others if pc > pcs[leader]), default=_NOWHERE)
        self.quantum = _FAIR_STEPS if (runnable & ~chosen).any() else _NOWHERE
        if self._random is not None:
            self.quantum = int(self._random.integers(1, 64))
        self._turn += 1
        self._last_run[chosen] = self._turn
        return Group(state, _as_slice(chosen), int(chosen.sum()))

    def _one_wave(self, runnable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the waves of one position within their workgroups."""
        positions = self.state.wave_in_group
        available = np.unique(positions[runnable])
        if self._random is not None:
            pick = self._random.choice(available)
        else:
            pick = available[0] if self._order == "forward" else available[-1]
        mask: NDArray[np.bool_] = positions == pick
        return mask

    def yielded(self, exhausted: bool) -> None:
        """Note that a group stopped while it could run on, and whether its quantum was used."""
        self._fair = exhausted and self._random is None

    def end(self, group: Group) -> None:
        """Retire waves at s_endpgm.

        Raises
        ------
        Fault
            Other waves of the workgroup already wait at a barrier that these will never reach.
        """
        self.alive[group.waves] = False
        if self.at_barrier.any():
            self._check_barriers()

    def arrive(self, group: Group) -> Any:
        """Let waves wait at a barrier; return the waves it releases, or None."""
        state = self.state
        if group.count == state.num_waves:
            state.barrier_epoch += 1
            return group.waves
        self.at_barrier[group.waves] = True
        arrived = np.bincount(state.workgroup[self.at_barrier], minlength=self._per_group.size)
        complete = arrived == self._per_group
        self._check_barriers()
        if not complete.any():
            return None
        released = self.at_barrier & complete[state.workgroup]
        self.at_barrier[released] = False
        state.barrier_epoch[complete] += 1
        return np.flatnonzero(released)

    def whole(self, group: Group, released: Any) -> bool:
        """Return whether the released waves are the group's own, so that it can run on."""
        count = self.state.num_waves if isinstance(released, slice) else len(released)
        if count != group.count:
            return False
        return isinstance(released, slice) or bool(np.array_equal(released, group.wave_ids))

    def _check_barriers(self) -> None:
        """Raise when waves wait for a barrier that a wave of theirs ended without reaching."""
        groups = self.state.workgroup
        size = self._per_group.size
        waiting = np.bincount(groups[self.at_barrier], minlength=size)
        ended = np.bincount(groups[~self.alive], minlength=size)
        stuck = np.flatnonzero((waiting > 0) & (ended > 0) & (waiting + ended == self._per_group))
        if stuck.size:
            raise self._divergent(int(stuck[0]))

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
            f"waves {names} of the workgroup wait at the barrier before +0x{offset:x}, and waves "
            f"{ended} have ended without reaching it:\n"
            "every wave of a workgroup must execute the same barriers",
            int(waiting[0]),
        )

    def _stuck(self) -> Fault:
        waiting = np.flatnonzero(self.at_barrier)
        detail = f"{waiting.size} waves wait at barriers and none can run"
        return BarrierFault("deadlock", detail, int(waiting[0]))


def _as_slice(chosen: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    """Return a mask as a slice if it is evenly spaced, so that register rows are views."""
    indices = np.flatnonzero(chosen)
    first, count = int(indices[0]), indices.size
    if count == 1:
        return slice(first, first + 1)
    stride = int(indices[1]) - first
    if indices[-1] == first + stride * (count - 1) and (np.diff(indices) == stride).all():
        return slice(first, int(indices[-1]) + 1, stride)
    return indices
