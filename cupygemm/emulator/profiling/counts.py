"""Counts of waits, global memory and LDS for an instruction, a source line or a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from cupygemm.emulator.profiling.caches import Traffic


@dataclass
class Wait:
    """The operations that an ``s_waitcnt`` waited for.

    Attributes
    ----------
    counter : {"vmcnt", "lgkmcnt"}
    waves : int
        Waves that had an operation outstanding; the others did not wait.
    distance : int
        Instructions that a wave executed between the youngest operation and the wait, summed over
        those waves.
    operations : dict of int to int
        Number of operations waited for, by the byte offset of the instruction that issued them.
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
            Not modified.
        """
        self.waves += other.waves
        self.distance += other.distance
        for offset, times in other.operations.items():
            self.operations[offset] = self.operations.get(offset, 0) + times


@dataclass
class GlobalCounts:
    """The global memory accesses of vector memory instructions.

    Attributes
    ----------
    instructions, lanes : int
        Wave-instructions, and the lanes that took part.
    bytes_read, bytes_written, bytes_atomic : int
        Bytes that the lanes requested.
    lines_64, lines_128 : int
        Lines of 64 and 128 bytes touched, each counted once per wave-instruction.
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
        """Return the bytes that the lanes requested."""
        return self.bytes_read + self.bytes_written + self.bytes_atomic

    @property
    def coalescing(self) -> float | None:
        """Return the ratio of ideal to actual vL1D requests, or None if there are none."""
        return ratio(self.traffic.ideal_requests, self.traffic.requests)

    @property
    def l1_hit_rate(self) -> float | None:
        """Return the share of load requests that hit in vL1D."""
        return ratio(self.traffic.l1_hits, self.traffic.l1_reads)

    @property
    def l2_hit_rate(self) -> float | None:
        """Return the share of requests that hit in L2."""
        return ratio(self.traffic.l2_hits, self.traffic.l2_requests)

    def add(self, other: GlobalCounts) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : GlobalCounts
            Not modified.
        """
        _add_integers(self, other)
        self.traffic.add(other.traffic)


@dataclass
class LdsCounts:
    """The LDS accesses of DS instructions.

    Attributes
    ----------
    instructions : int
        Wave-instructions that access LDS memory.
    bytes : int
        Bytes that the active lanes requested.
    cycles : int
        Cycles of the LDS pipe, by the phase tables of `units.lds.profile`; at least one per phase.
    conflict_cycles : int
        The cycles among them that bank conflicts add.
    capacity : int
        Bytes that the banks can transfer in those cycles.
    """

    instructions: int = 0
    bytes: int = 0
    cycles: int = 0
    conflict_cycles: int = 0
    capacity: int = 0

    @property
    def utilisation(self) -> float | None:
        """Return the ratio of the requested bytes to the banks' capacity in that time.

        It exceeds 1 if lanes share dwords.
        """
        return ratio(self.bytes, self.capacity)

    @property
    def conflict_rate(self) -> float | None:
        """Return the share of the cycles that bank conflicts add."""
        return ratio(self.conflict_cycles, self.cycles)

    def add(self, other: LdsCounts) -> None:
        """Add another's counts to these.

        Parameters
        ----------
        other : LdsCounts
            Not modified.
        """
        _add_integers(self, other)


def ratio(part: int, whole: int) -> float | None:
    """Return a quotient, or None if the divisor is 0."""
    return part / whole if whole else None


def percent(rate: float | None) -> str:
    """Return a rate as text, or a dash for None."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _add_integers(into: Any, other: Any) -> None:
    for item in fields(into):
        value = getattr(into, item.name)
        if isinstance(value, int):
            setattr(into, item.name, value + getattr(other, item.name))
