"""The executed instructions of the waves that share a compute unit, as the timing model reads them.

    emulator: group of waves ─► segment (its traced waves, program counters, costs) ─► streams

Traced are the workgroups that the first compute unit of the device holds at once: w, w + CUs,
w + 2 CUs, ..., as the cache model deals them. Each keeps what its own accesses cost in LDS and
where their lines were found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.state import Group, State

LIMIT = 8_000_000
"""Instructions that are kept of a launch."""


@dataclass
class Segment:
    """What some waves executed together.

    Attributes
    ----------
    waves : list of (int, int)
        Workgroup in the launch, and wave in it.
    pcs : list of int
    costs : list of (int, ndarray)
        Place in `pcs`, and one value for each wave: LDS cycles, or an index into `Trace.accesses`.
    """

    waves: list[tuple[int, int]]
    pcs: list[int] = field(default_factory=list)
    costs: list[tuple[int, NDArray[Any]]] = field(default_factory=list)


class Trace:
    """Collects what the waves of some workgroups execute.

    Parameters
    ----------
    workgroups : range
        Their numbers in the launch.

    Attributes
    ----------
    accesses : list of ndarray
        Of each traced wave's vector memory instructions: bytes, and lines found in vL1D, in L2, in
        the last-level cache and in memory.
    complete : bool
        Whether all instructions are there.
    """

    def __init__(self, workgroups: range) -> None:
        self.workgroups = workgroups
        self.accesses: list[NDArray[np.int32]] = []
        self.complete = True
        self._segments: list[Segment] = []
        self._left = LIMIT
        self._group: Group | None = None
        self._places: NDArray[np.intp] = np.zeros(0, np.intp)
        self._traced: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def start_batch(self, state: State) -> None:
        """Find the traced waves of a batch."""
        chosen = np.isin(state.launch_order, np.asarray(self.workgroups))
        self._traced = chosen[state.workgroup]
        self._group = None

    def wants(self, group: Group) -> bool:
        """Return whether any wave of a group is traced."""
        if group is not self._group:
            self._enter(group)
        return self._places.size > 0

    def _enter(self, group: Group) -> None:
        ids, state = group.wave_ids, group.state
        self._group = group
        self._places = np.flatnonzero(self._traced[ids])
        if not self.complete:
            self._places = self._places[:0]
        if self._places.size:
            waves = ids[self._places]
            orders = state.launch_order[state.workgroup[waves]].tolist()
            numbers = state.wave_in_group[waves].tolist()
            self._segments.append(Segment(list(zip(orders, numbers, strict=True))))

    def record(self, pc: int, lds_cycles: Any = None, outcomes: Any = None) -> None:
        """Note an instruction of the group that was last asked for.

        Parameters
        ----------
        pc : int
        lds_cycles : int32 (waves,), optional
            Of all waves of the group.
        outcomes : int32 (waves, 5), optional
            Likewise; see `CacheModel.access`.
        """
        segment = self._segments[-1]
        place = len(segment.pcs)
        segment.pcs.append(pc)
        if lds_cycles is not None:
            segment.costs.append((place, lds_cycles[self._places]))
        elif outcomes is not None:
            first = len(self.accesses)
            self.accesses.extend(outcomes[self._places])
            segment.costs.append((place, np.arange(first, len(self.accesses))))
        self._left -= self._places.size
        if self._left < 0:
            self.complete = False
            self._places = self._places[:0]

    def streams(self) -> dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Return the program counters and costs of each traced wave, in its own order."""
        parts: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        for segment in self._segments:
            pcs = np.array(segment.pcs, np.int64)
            costs = np.full((len(pcs), len(segment.waves)), -1, np.int32)
            for place, values in segment.costs:
                costs[place] = values
            for column, wave in enumerate(segment.waves):
                parts.setdefault(wave, []).append((pcs, costs[:, column]))
        return {
            wave: (np.concatenate([p for p, _ in found]), np.concatenate([c for _, c in found]))
            for wave, found in sorted(parts.items())
        }
