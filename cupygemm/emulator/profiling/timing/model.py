"""Extend a compute unit's cycles to a launch: rounds of workgroups, and shared bandwidth.

    time = full rounds x cycles of a full CU + cycles of the last, partial round
           but at least the time that L2, the fabric and HBM need for the launch's traffic

A round is the set of workgroups that the device holds at a time. Every figure is *modelled*.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.profiling.timing.machine import MACHINES, SIMDS
from cupygemm.emulator.profiling.timing.operations import Unit
from cupygemm.emulator.profiling.timing.pipeline import Reason, Schedule
from cupygemm.emulator.profiling.timing.workload import Workload
from cupygemm.emulator.targets import TARGETS

ISSUE = "issue"
REASONS = {
    Reason.NONE: ISSUE,
    Reason.DEPENDENCY: "dependency",
    Reason.MFMA_BUSY: "MFMA busy",
    Reason.VALU_BUSY: "VALU busy",
    Reason.LDS_BUSY: "LDS busy",
    Reason.VMEM_BUSY: "VMEM busy",
    Reason.VMCNT: "vmcnt",
    Reason.LGKMCNT: "lgkmcnt",
    Reason.COUNTER_FULL: "counter full",
    Reason.BARRIER: "barrier",
    Reason.ARBITRATION: "arbitration",
}
"""The uses of a wave's cycles: issuing instructions, or waiting for one of these."""

_BUSY = 0.8  # a unit busy for this share of the cycles is the bound

UNITS = {
    "MFMA": Unit.MATRIX,
    "VALU": Unit.VECTOR,
    "LDS": Unit.LDS,
    "VMEM": Unit.VECTOR_MEMORY,
}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The modelled time of a launch, or the sum over several.

    Attributes
    ----------
    clock_mhz : float
    cycles : float
        Modelled cycles of the launch at that clock, without the launch's own overhead.
    cu_cycles : int
        Cycles of a compute unit that holds as many workgroups as it can, from start to end.
    resident : int
        The number of these workgroups.
    rounds : float
        Workgroups of the launch over those that the device holds at a time.
    bound : str
        The limiting resource: ``"MFMA"``, ``"VALU"``, ``"LDS"``, ``"VMEM"``, ``"L2"``,
        ``"fabric"``, ``"HBM"``; or ``"latency"``, when no unit is busy most of the time.
    utilisation : dict of str to float
        Share of `cu_cycles` for which each unit of the compute unit is busy.
    wave_cycles : dict of str to int
        Cycles of the simulated waves, by the values of `REASONS`.
    matrix_share : float
        Mean share of the launch's cycles in which the matrix unit of a SIMD is busy.
    workload : Workload
    """

    clock_mhz: float
    cycles: float
    cu_cycles: int
    resident: int
    rounds: float
    bound: str
    utilisation: dict[str, float]
    wave_cycles: dict[str, int]
    matrix_share: float
    workload: Workload = field(repr=False, compare=False)

    @property
    def seconds(self) -> float:
        """Return the modelled time."""
        return self.cycles / (self.clock_mhz * 1e6)

    @property
    def sustained_clock_mhz(self) -> float | None:
        """The clock to which power limits such a kernel; None if no fit covers it.

        Fitted for products on boards of MI300X: see `power`.
        """
        target = self.workload.target
        power = MACHINES[target].power
        memory = self.workload.memory_bytes / (self.cycles * TARGETS[target].num_cus)
        return None if power is None else power.clock_mhz(self.matrix_share, memory)

    def merged(self, other: Timing) -> Timing:
        """Return the sum with another launch; figures that cannot be added are this launch's.

        Parameters
        ----------
        other : Timing

        Returns
        -------
        Timing
        """
        total = {
            name: cycles + other.wave_cycles[name] for name, cycles in self.wave_cycles.items()
        }
        return replace(self, cycles=self.cycles + other.cycles, wave_cycles=total)

    def schedule(self) -> Schedule:
        """Simulate the full compute unit again, for the cycle of each instruction.

        Returns
        -------
        Schedule
            The schedule of as many workgroups as the compute unit holds.
        """
        return full_round(self.workload, self.clock_mhz)


def full_round(workload: Workload, clock_mhz: float) -> Schedule:
    """Simulate a compute unit that holds as many workgroups as it can."""
    cus = TARGETS[workload.target].num_cus
    return workload.schedule(clock_mhz, workload.resident, min(workload.workgroups, cus))


def model(
    workload: Workload, clock_mhz: float | None = None
) -> tuple[Timing, dict[int, dict[str, int]]]:
    """Return the modelled time of a launch, and the cycles of each instruction by use.

    Parameters
    ----------
    workload : Workload
    clock_mhz : float, optional
        The boost clock by default.

    Returns
    -------
    timing : Timing
    cycles : dict of int to dict of str to int
        Cycles of the simulated waves by reason, by byte offset from the kernel's entry.
    """
    target = TARGETS[workload.target]
    clock = float(clock_mhz or target.clock_mhz)
    schedule, resident = full_round(workload, clock), workload.resident
    full, rest = divmod(workload.workgroups, resident * target.num_cus)
    cycles = float(full * schedule.cycles)
    if rest:
        left = -(-rest // target.num_cus)
        partial = schedule
        if left < resident or rest < target.num_cus:
            partial = workload.schedule(clock, left, min(rest, target.num_cus))
        cycles += partial.cycles
    utilisation = {name: schedule.utilisation(unit) for name, unit in UNITS.items()}
    busiest, share = max(utilisation.items(), key=lambda item: item[1])
    bound = busiest if share >= _BUSY else "latency"
    for name, least in shared_cycles(workload, clock).items():
        if least > cycles:
            cycles, bound = least, name
    spent = spent_cycles(workload, schedule)
    total = dict.fromkeys(REASONS.values(), 0)
    for each in spent.values():
        for name, number in each.items():
            total[name] += number
    timing = Timing(
        clock_mhz=clock,
        cycles=cycles,
        cu_cycles=schedule.cycles,
        resident=resident,
        rounds=workload.workgroups / (resident * target.num_cus),
        bound=bound,
        utilisation=utilisation,
        wave_cycles=total,
        matrix_share=_matrix_cycles(workload, schedule) / (cycles * target.num_cus * SIMDS),
        workload=workload,
    )
    return timing, spent


def _matrix_cycles(workload: Workload, schedule: Schedule) -> float:
    """Return the matrix units' cycles in the whole launch, scaled from the traced workgroups."""
    return schedule.busy[Unit.MATRIX] / workload.resident * workload.workgroups


def shared_cycles(workload: Workload, clock_mhz: float) -> dict[str, float]:
    """Return the minimum cycles of the resources that all CUs share."""
    machine, target = MACHINES[workload.target], TARGETS[workload.target]
    per_clock = PARTS[workload.target].hbm_bytes_per_second / (clock_mhz * 1e6)
    return {
        "L2": workload.l2_bytes / (target.num_xcds * machine.l2_bytes),
        "fabric": workload.fabric_bytes / (target.num_xcds * machine.fabric_bytes),
        "HBM": workload.memory_bytes / (per_clock * machine.memory_efficiency),
    }


def spent_cycles(workload: Workload, schedule: Schedule) -> dict[int, dict[str, int]]:
    """Return the uses of the simulated waves' cycles, by instruction.

    A wait is attributed to the instruction that could not be issued, and to the last reason for it.
    The remaining time, until the wave can issue the next instruction, counts as issue.
    """
    hold = np.array([op.hold for op in workload.ops])[schedule.places]
    waited = schedule.issue.copy()
    waited[1:] -= schedule.issue[:-1] + hold[:-1]
    first = schedule.waves["first"]
    waited[first] = schedule.issue[first]
    count = len(Reason)
    table = np.zeros(len(workload.ops) * count, np.int64)
    np.add.at(table, schedule.places * count + schedule.reason, waited)
    np.add.at(table, schedule.places * count + int(Reason.NONE), hold)
    result: dict[int, dict[str, int]] = {}
    for offset, row in zip(workload.offsets, table.reshape(-1, count).tolist(), strict=True):
        result[offset] = {REASONS[Reason(n)]: cycles for n, cycles in enumerate(row) if cycles}
    return result
