"""The counts of one iteration of a main loop, and the figures derived from them. *Computed*."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cupygemm.emulator.profiling.loop_issue import Segment


class Slot(NamedTuple):
    """The cycles of a segment, and the resource that binds them."""

    cycles: float
    bound: str


@dataclass(frozen=True, kw_only=True)
class LoopCounts:
    """One iteration of a kernel's main loop, with the counts described in `LoopProfile`."""

    kernel: str
    target: str
    begin: int
    end: int
    threads: int
    waves_per_simd: int
    groups: int
    resident: int
    segments: tuple[Segment, ...] = field(repr=False)
    waits: tuple[str, ...] = field(repr=False)
    mfma: int
    global_bytes: int
    lds_bytes: int
    slots: tuple[Slot, ...] = field(repr=False)
    memory_latency: int
    exposed_cycles: float
    enclosing: tuple[int, int] | None = None

    @property
    def instructions(self) -> dict[str, int]:
        """Return the instructions of a wave by category; categories without any are left out."""
        total: Counter[str] = Counter()
        for segment in self.segments:
            total.update(segment.instructions)
        return dict(total)

    @property
    def mfma_cycles(self) -> int:
        """Return the MFMA cycles of a wave."""
        return sum(segment.mfma_cycles for segment in self.segments)

    @property
    def lds_cycles(self) -> float:
        """Return the LDS cycles of a wave, bank conflicts included if they are known."""
        return sum(segment.lds_cycles for segment in self.segments)

    @property
    def lds_conflict_cycles(self) -> float:
        """Return the LDS cycles of a wave that bank conflicts add."""
        return sum(segment.lds_conflict_cycles for segment in self.segments)

    @property
    def cycles(self) -> float:
        """The cycles of an iteration, with one workgroup on the CU."""
        return sum(slot.cycles for slot in self.slots) + self.exposed_cycles

    @property
    def efficiency(self) -> float:
        """Return the share of the cycles in which the matrix pipe is busy."""
        return self.waves_per_simd * self.mfma_cycles / self.cycles

    @property
    def efficiency_of_residents(self) -> float:
        """The upper bound of the efficiency with all workgroups that a CU holds."""
        return min(1.0, self.resident * self.efficiency)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as numbers, strings, lists and dictionaries, for JSON.

        Returns
        -------
        dict
            The attributes and properties by name.
        """
        names = (
            "instructions",
            "mfma_cycles",
            "lds_cycles",
            "lds_conflict_cycles",
            "cycles",
            "efficiency",
            "efficiency_of_residents",
        )
        return asdict(self) | {name: getattr(self, name) for name in names}
