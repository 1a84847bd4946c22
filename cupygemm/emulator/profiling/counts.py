"""Counts of waits, of global memory and of LDS: of an instruction, a source line or a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from cupygemm.emulator.profiling.caches import Traffic


@dataclass
class Wait:
    """What an ``s_waitcnt`` waited for.

    Attributes
    ----------
    counter : {"vmcnt", "lgkmcnt"}
    waves : int
        Waves that had an operation outstanding; for the others it was free.
    distance : int
        Instructions between the youngest operation waited for and the wait, summed over those
        waves: how much a wave did meanwhile.
    operations : dict of int to int
        Operations waited for: how many, by the byte offset of the instruction that issued them.
    """

    counter: str
    waves: int = 0
    distance: int = 0
    operations: dict[int, int] = field(default_factory=dict)

    def add(self, other: Wait) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : Wait
            Left as it is.
        """
        self.waves += other.waves
        self.distance += other.distance
        for offset, times in other.operations.items():
            self.operations[offset] = self.operations.get(offset, 0) + times


@dataclass
class GlobalCounts:
    """What vector memory instructions asked of global memory.

    Attributes
    ----------
    instructions, lanes : int
        Wave-instructions, and lanes of them that took part.
    bytes_read, bytes_written, bytes_atomic : int
        Bytes that the lanes asked for.
    lines_64, lines_128 : int
        Lines touched, counted once for each wave-instruction.
    traffic : Traffic
    """

    instructions: int = 0
    lanes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_atomic: int = 0
    lines_64: int = 0
    lines_128: int = 0
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def bytes(self) -> int:
        """Return the bytes asked for."""
        return self.bytes_read + self.bytes_written + self.bytes_atomic

    @property
    def coalescing(self) -> float | None:
        """Return ideal over actual vL1D requests, or None without any."""
        return ratio(self.traffic.ideal_requests, self.traffic.requests)

    @property
    def l1_hit_rate(self) -> float | None:
        """Return the share of load requests that vL1D had."""
        return ratio(self.traffic.l1_hits, self.traffic.l1_reads)

    @property
    def l2_hit_rate(self) -> float | None:
        """Return the share of requests that L2 had."""
        return ratio(self.traffic.l2_hits, self.traffic.l2_requests)

    def add(self, other: GlobalCounts) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : GlobalCounts
            Left as it is.
        """
        _add_integers(self, other)
        self.traffic.add(other.traffic)


@dataclass
class LdsCounts:
    """What DS instructions asked of LDS.

    Attributes
    ----------
    instructions : int
        Wave-instructions that access LDS memory.
    bytes : int
        Bytes that the lanes that were on asked for.
    cycles : int
        Of the LDS pipe, by the phase tables of `units.lds_profile`; at least one for each phase.
    conflict_cycles : int
        Those of them that bank conflicts add.
    capacity : int
        Bytes that the banks can give in those cycles.
    """

    instructions: int = 0
    bytes: int = 0
    cycles: int = 0
    conflict_cycles: int = 0
    capacity: int = 0

    @property
    def utilisation(self) -> float | None:
        """Return bytes asked over what the banks can give in the same cycles.

        Above 1 where lanes share dwords.
        """
        return ratio(self.bytes, self.capacity)

    @property
    def conflict_rate(self) -> float | None:
        """Return the share of cycles that conflicts cost."""
        return ratio(self.conflict_cycles, self.cycles)

    def add(self, other: LdsCounts) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : LdsCounts
            Left as it is.
        """
        _add_integers(self, other)


def ratio(part: int, whole: int) -> float | None:
    """Return a quotient, or None where there is nothing to divide by."""
    return part / whole if whole else None


def percent(rate: float | None) -> str:
    """Return a rate as text; a dash if there is none."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


def _add_integers(into: Any, other: Any) -> None:
    for item in fields(into):
        value = getattr(into, item.name)
        if isinstance(value, int):
            setattr(into, item.name, value + getattr(other, item.name))
