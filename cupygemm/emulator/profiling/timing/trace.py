"""The executed instructions of the waves that share a compute unit, as the timing model reads them.

    emulator: group of waves ─► TracedGroup (its traced waves, program counters, costs) ─► streams

The traced workgroups are those resident on the first compute unit of the device: w, w + CUs, w + 2
CUs, ..., as the cache model distributes them. The trace records the LDS cycles of each access, and
the cache that held each line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.waves.state import Group, State

LIMIT = 8_000_000
"""Instructions of a launch that are kept."""


@dataclass
class TracedGroup:
    """The instructions that some waves executed together.

    Attributes
    ----------
    waves : list of (int, int)
        Workgroup in the launch, and wave in it.
    pcs : list of int
    costs : list of (int or slice, ndarray)
        Places in `pcs`, and one value for each wave: LDS cycles, or an index into `Trace.accesses`.
    """

    waves: list[tuple[int, int]]
    pcs: list[int] = field(default_factory=list)
    costs: list[tuple[int | slice, NDArray[Any]]] = field(default_factory=list)


class Trace:
    """The instructions that the waves of some workgroups execute.

    Parameters
    ----------
    workgroups : range
        Linear numbers of the workgroups in the launch.

    Attributes
    ----------
    accesses : list of ndarray
        For each vector memory instruction of a traced wave: bytes, and lines found in vL1D, in L2,
        in the last-level cache and in memory.
    complete : bool
        Whether all instructions were recorded.
    left : int
        Instructions that can still be recorded.
    traced : bool (waves,)
        The traced waves of the batch.
    """

    def __init__(self, workgroups: range) -> None:
        self.workgroups = workgroups
        self.accesses: list[NDArray[np.int32]] = []
        self.complete = True
        self.left = LIMIT
        self._groups: list[TracedGroup] = []
        self._group: Group | None = None
        self._places: NDArray[np.intp] = np.zeros(0, np.intp)
        self.traced: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def start_batch(self, state: State) -> None:
        """Find the traced waves of a batch."""
        chosen = np.isin(state.launch_order, np.asarray(self.workgroups))
        self.traced = chosen[state.workgroup]
        self._group = None

    def wants(self, group: Group) -> bool:
        """Tell whether any wave of a group is traced."""
        if group is not self._group:
            self._enter(group)
        return self._places.size > 0

    def _enter(self, group: Group) -> None:
        ids, state = group.wave_ids, group.state
        self._group = group
        self._places = np.flatnonzero(self.traced[ids])
        if not self.complete:
            self._places = self._places[:0]
        if self._places.size:
            waves = ids[self._places]
            orders = state.launch_order[state.workgroup[waves]].tolist()
            numbers = state.wave_in_group[waves].tolist()
            self._groups.append(TracedGroup(list(zip(orders, numbers, strict=True))))

    def record(self, pc: int, lds_cycles: Any = None, outcomes: Any = None) -> None:
        """Record an instruction of the group that `wants` was last called with.

        Parameters
        ----------
        pc : int
        lds_cycles : int32 (waves,), optional
            For all waves of the group.
        outcomes : int32 (waves, 5), optional
            For all waves of the group; see `CacheModel.access`.
        """
        traced = self._groups[-1]
        place = len(traced.pcs)
        traced.pcs.append(pc)
        if lds_cycles is not None:
            traced.costs.append((place, lds_cycles[self._places]))
        elif outcomes is not None:
            first = len(self.accesses)
            self.accesses.extend(outcomes[self._places])
            traced.costs.append((place, np.arange(first, len(self.accesses))))
        self.left -= self._places.size
        if self.left < 0:
            self.complete = False
            self._places = self._places[:0]

    def extend(self, state: State, steps: NDArray[np.int32], accesses: NDArray[np.int32]) -> None:
        """Record instructions that traced waves have executed in C.

        Parameters
        ----------
        state : State
        steps : int32 (instructions, 3)
            Wave in the batch, program counter, and LDS cycles, number of the access in `accesses`,
            or -1.
        accesses : int32 (accesses, 5)
            The rows to append to `Trace.accesses`.
        """
        self._group = None
        self.accesses.extend(accesses.copy())
        for wave in np.unique(steps[:, 0]).tolist():
            pcs, costs = steps[steps[:, 0] == wave, 1:].T
            workgroup = int(state.launch_order[state.workgroup[wave]])
            group = TracedGroup([(workgroup, int(state.wave_in_group[wave]))], pcs.tolist())
            group.costs = [(slice(None), costs[:, None])]
            self._groups.append(group)

    def streams(self) -> dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Return the program counters and costs of each traced wave, in its own order."""
        parts: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        for traced in self._groups:
            pcs = np.array(traced.pcs, np.int64)
            costs = np.full((len(pcs), len(traced.waves)), -1, np.int32)
            for place, values in traced.costs:
                costs[place] = values
            for column, wave in enumerate(traced.waves):
                parts.setdefault(wave, []).append((pcs, costs[:, column]))
        return {
            wave: (np.concatenate([p for p, _ in found]), np.concatenate([c for _, c in found]))
            for wave, found in sorted(parts.items())
        }
