"""The timing model's input: the traced streams, and totals of the whole launch.

A profile keeps the workload, so that a launch can be drawn, or modelled at another clock.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.profiling.timing.machine import MACHINES, SIMDS
from cupygemm.emulator.profiling.timing.operations import Flag, TimingOp, Unit, describe
from cupygemm.emulator.profiling.timing.pipeline import ACCESS, WAVE, Rates, Schedule, simulate
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm.emulator.profiling.caches import MemoryTraffic, Traffic
    from cupygemm.emulator.profiling.timing.trace import Trace

_SECTOR = 32
_GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are evenly spread in any interval


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The traced waves of a launch, and the memory traffic of the whole launch.

    Attributes
    ----------
    target : str
    workgroups : int
        Workgroups of the launch.
    offsets : list of int
        Byte offset of each static instruction from the kernel's entry.
    ops : list of TimingOp
        The cost of each static instruction.
    places, cost : int32 array
        The streams of the traced waves, workgroup by workgroup (native/timing.h).
    outcomes : int32 (accesses, 5)
        See `CacheModel.access`.
    loads : bool (accesses,)
        Whether an access is a load rather than a store.
    waves : structured array
        `WAVE` records of the streams.
    l2_bytes, fabric_bytes, memory_bytes : int
        Bytes that the launch moves between the CUs and L2, between L2 and the fabric, and from or
        to HBM.
    fabric_share, memory_share : float
        Bytes from the fabric and from HBM per byte requested from L2.
    waits : (float, float, float), optional
        Shares of the loads beyond vL1D that wait for L2, the last-level cache and HBM. By default,
        each load waits for the level where the cache model found its lines.
    """

    target: str
    workgroups: int
    offsets: list[int]
    ops: list[TimingOp] = field(repr=False)
    places: NDArray[np.int32] = field(repr=False)
    cost: NDArray[np.int32] = field(repr=False)
    outcomes: NDArray[np.int32] = field(repr=False)
    loads: NDArray[np.bool_] = field(repr=False)
    waves: NDArray[np.void] = field(repr=False)
    l2_bytes: int
    fabric_bytes: int
    memory_bytes: int
    fabric_share: float
    memory_share: float
    waits: tuple[float, float, float] | None = None

    @property
    def resident(self) -> int:
        """The number of traced workgroups, which a CU holds at a time."""
        return int(self.waves["workgroup"].max()) + 1

    def repeated(self, resident: int) -> Workload:
        """Return a workload of `resident` copies of the first workgroup.

        Parameters
        ----------
        resident : int

        Returns
        -------
        Workload
        """
        one = self.waves[self.waves["workgroup"] == 0]
        count = int(one["count"].sum())
        waves = np.tile(one, resident)
        copies = np.repeat(np.arange(resident), len(one))
        waves["first"] += copies * count
        waves["workgroup"] = copies
        waves["simd"] = np.arange(len(waves)) % SIMDS
        return replace(
            self,
            places=np.tile(self.places[:count], resident),
            cost=np.tile(self.cost[:count], resident),
            waves=waves,
        )

    def schedule(self, clock_mhz: float, resident: int, active_cus: int) -> Schedule:
        """Simulate a compute unit.

        Parameters
        ----------
        clock_mhz : float
        resident : int
            Workgroups on the unit, at most the traced ones.
        active_cus : int
            Number of CUs that share L2, the fabric and HBM.
        """
        waves = self.waves[self.waves["workgroup"] < resident]
        count = int(waves["count"].sum())
        return simulate(
            self.ops,
            places=self.places[:count],
            cost=self.cost[:count],
            accesses=self._accesses(clock_mhz),
            waves=waves,
            rates=self._rates(clock_mhz, active_cus),
        )

    def _rates(self, clock_mhz: float, active_cus: int) -> Rates:
        machine, target = MACHINES[self.target], TARGETS[self.target]
        sharing = max(1, active_cus)
        xcds = min(target.num_xcds, sharing)
        per_clock = PARTS[self.target].hbm_bytes_per_second / (clock_mhz * 1e6)
        return Rates(
            lds_latency=machine.lds_latency,
            scalar_latency=machine.scalar_latency,
            barrier_latency=machine.barrier_latency,
            memory_queue=machine.memory_queue,
            l2=min(machine.l1_bytes, machine.l2_bytes * xcds / sharing),
            fabric=min(machine.l1_bytes, machine.fabric_bytes * xcds / sharing),
            memory=min(machine.l1_bytes, per_clock * machine.memory_efficiency / sharing),
        )

    def _accesses(self, clock_mhz: float) -> NDArray[np.void]:
        """Return the cost of each access at a clock."""
        machine, line = MACHINES[self.target], PARTS[self.target].l1.line
        accesses = np.zeros(max(len(self.outcomes), 1), ACCESS)
        if not len(self.outcomes):
            return accesses
        size, lines = self.outcomes[:, 0], self.outcomes[:, 1:]
        requests = lines.sum(axis=1)
        moved = np.where(self.loads, lines[:, 1:].sum(axis=1) * line, -(-size // _SECTOR) * _SECTOR)
        beyond = np.array([0, machine.last_ns, machine.memory_ns]) * clock_mhz / 1000
        latencies = np.array([machine.l1_latency, *(machine.l2_latency + beyond)])
        farthest = 3 - np.argmax((lines > 0)[:, ::-1], axis=1)
        farthest[requests == 0] = 0
        if self.waits is not None:
            beyond_l1 = np.flatnonzero((farthest > 0) & self.loads)
            farthest[beyond_l1] = 1 + _dealt(self.waits, len(beyond_l1))
        accesses["cycles"] = np.maximum.reduce(
            [-(-size // machine.l1_bytes), -(-requests // machine.l1_lines), np.full(len(size), 4)]
        )
        accesses["latency"] = np.where(self.loads, latencies[farthest], machine.l2_latency)
        accesses["l2"] = moved
        accesses["fabric"] = moved * self.fabric_share * self.loads
        accesses["memory"] = moved * self.memory_share * self.loads
        return accesses


def _dealt(shares: tuple[float, ...], count: int) -> NDArray[np.intp]:
    """Distribute `count` accesses over levels by their shares, evenly."""
    place = (np.arange(count) * _GOLDEN) % 1
    return np.searchsorted(np.cumsum(shares)[:-1], place, side="right")


def build_workload(
    trace: Trace,
    target: str,
    *,
    entry: int,
    instructions: Mapping[int, Instruction],
    lane_bytes: Mapping[int, int],
    workgroups: int,
    traffic: Traffic,
    memory: MemoryTraffic,
    resident: range,
) -> Workload | None:
    """Return the workload of a launch; None if it has nothing to model.

    Parameters
    ----------
    trace : Trace
    target : str
    entry : int
        Program counter of the kernel's first instruction.
    instructions : mapping of int to Instruction
        By program counter.
    lane_bytes : mapping of int to int
        Bytes of LDS that a lane of each DS instruction accesses.
    workgroups : int
        Workgroups of the launch.
    traffic : Traffic
    memory : MemoryTraffic
        Both for the whole launch.
    resident : range
        The workgroups that the traced compute unit holds at a time. If a sample omits some of them,
        copies of the first one replace them.
    """
    streams = trace.streams()
    if not trace.complete or not streams:
        return None
    pcs = np.concatenate([pcs for pcs, _ in streams.values()])
    cost = np.concatenate([costs for _, costs in streams.values()])
    unique, places = np.unique(pcs, return_inverse=True)
    line = PARTS[target].l1.line
    ops = [_described(instructions[pc], target, lane_bytes.get(pc, 0)) for pc in unique.tolist()]
    outcomes = np.array(trace.accesses, np.int32).reshape(-1, 5)
    units = np.array([op.unit for op in ops])[places]
    stores = np.array([bool(op.flags & Flag.STORES) for op in ops])[places]
    vector_memory = units == Unit.VECTOR_MEMORY
    # Instructions outside the cache model (cache control) become accesses of 0 bytes.
    unseen = vector_memory & (cost < 0)
    cost[unseen] = len(outcomes)
    outcomes = np.vstack([outcomes, np.zeros((1, 5), np.int32)])
    cost[(units == Unit.LDS) & (cost < 0)] = (
        2  # lane exchanges use the LDS pipe, but not its memory
    )
    loads = np.ones(len(outcomes), np.bool_)
    loads[cost[vector_memory]] = ~stores[vector_memory]
    asked = max(traffic.l2_requests * line, 1)
    workload = Workload(
        target=target,
        workgroups=workgroups,
        offsets=[pc - entry for pc in unique.tolist()],
        ops=ops,
        places=np.ascontiguousarray(places, np.int32),
        cost=np.ascontiguousarray(cost, np.int32),
        outcomes=outcomes,
        loads=loads,
        waves=_waves(streams),
        l2_bytes=traffic.l2_requests * line,
        fabric_bytes=traffic.fabric_read + memory.fabric_written,
        memory_bytes=memory.hbm_read + memory.hbm_written,
        fabric_share=traffic.fabric_read / asked,
        memory_share=memory.hbm_read / asked,
    )
    return workload if workload.resident == len(resident) else workload.repeated(len(resident))


@functools.lru_cache(maxsize=4096)
def _described(inst: Instruction, target: str, lds_bytes: int) -> TimingOp:
    """Return `describe`'s result, computed once per instruction."""
    return describe(inst, target, MACHINES[target], lds_bytes)


def _waves(streams: Mapping[tuple[int, int], tuple[Any, Any]]) -> NDArray[np.void]:
    """Assign waves to SIMDs round-robin as they start: waves i and i + 4 share a SIMD."""
    waves = np.zeros(len(streams), WAVE)
    numbers = {workgroup: n for n, workgroup in enumerate(sorted({w for w, _ in streams}))}
    waves["count"] = counts = [len(pcs) for pcs, _ in streams.values()]
    waves["first"] = list(itertools.accumulate(counts, initial=0))[:-1]
    waves["workgroup"] = [numbers[workgroup] for workgroup, _ in streams]
    waves["simd"] = np.arange(len(streams)) % SIMDS
    return waves
