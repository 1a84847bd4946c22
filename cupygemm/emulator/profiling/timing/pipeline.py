"""Run native/timing.c on the traced waves of a compute unit."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.native import library
from cupygemm.emulator.profiling.timing.machine import SIMDS
from cupygemm.emulator.profiling.timing.operations import TimingOp, Unit


class Reason(IntEnum):
    """``enum reason``: the reason why a wave could not issue earlier."""

    NONE = 0
    DEPENDENCY = 1
    MFMA_BUSY = 2
    VALU_BUSY = 3
    LDS_BUSY = 4
    VMEM_BUSY = 5
    VMCNT = 6
    LGKMCNT = 7
    COUNTER_FULL = 8
    BARRIER = 9
    ARBITRATION = 10


class _Machine(ctypes.Structure):
    """``struct timing_machine``."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in (
                "lds_latency",
                "scalar_latency",
                "barrier_latency",
                "memory_queue",
            )
        ),
        *((name, c_double) for name in ("l2_rate", "fabric_rate", "memory_rate")),
    ]


class _Input(ctypes.Structure):
    """``struct timing_input``."""

    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                "machine",
                "ops",
                "stream",
                "cost",
                "accesses",
                "waves",
            )
        ),
        *((name, c_int64) for name in ("num_waves", "num_workgroups")),
    ]


class _Output(ctypes.Structure):
    """``struct timing_output``."""

    _fields_ = [
        *((name, c_void_p) for name in ("issue", "end", "reason")),
        ("cycles", c_int64),
        ("busy", c_int64 * len(Unit)),
    ]


ACCESS = np.dtype(
    [(name, np.int32) for name in ("cycles", "latency", "l2", "fabric", "memory", "_")]
)
"""``struct memory_access``."""

WAVE = np.dtype(
    [("first", np.int64), ("count", np.int64), ("workgroup", np.int32), ("simd", np.int32)]
)
"""``struct timing_wave``."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The rates and latencies of a CU at a known clock, with a known number of active CUs.

    Attributes
    ----------
    lds_latency, scalar_latency, barrier_latency, memory_queue : int
        Cycles.
    l2, fabric, memory : float
        Bytes per cycle for one CU.
    """

    lds_latency: int
    scalar_latency: int
    barrier_latency: int
    memory_queue: int
    l2: float
    fabric: float
    memory: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The cycles at which the instructions of the simulated waves were issued.

    The arrays are over the stream, the instructions of all waves one after another.

    Attributes
    ----------
    waves : structured array
        `WAVE`: the part of the stream of each wave.
    places : int32 array
        Index of each static instruction.
    issue, end : int64 array
        Cycle of the issue, and cycle at which the unit was done or the data arrived.
    reason : uint8 array
        `Reason`: the last reason for a wait.
    cycles : int
        From the start to the end of the last wave.
    busy : dict of Unit to int
        Cycles of each unit's work, summed over SIMDs.
    """

    waves: NDArray[np.void]
    places: NDArray[np.int32]
    issue: NDArray[np.int64]
    end: NDArray[np.int64]
    reason: NDArray[np.uint8]
    cycles: int
    busy: dict[Unit, int]

    def utilisation(self, unit: Unit) -> float:
        """Return the share of the cycles with a busy unit, over all SIMDs if each has one."""
        units = SIMDS if unit in (Unit.VECTOR, Unit.MATRIX, Unit.SCALAR) else 1
        return self.busy[unit] / max(self.cycles * units, 1)


def simulate(
    ops: list[TimingOp],
    *,
    places: NDArray[np.int32],
    cost: NDArray[np.int32],
    accesses: NDArray[np.void],
    waves: NDArray[np.void],
    rates: Rates,
) -> Schedule:
    """Simulate the waves of a compute unit.

    Parameters
    ----------
    ops : list of TimingOp
    places, cost : int32 array
        The streams of all waves one after another: index into `ops`, and the cost of the
        instruction (native/timing.h).
    accesses : structured array
        `ACCESS`.
    waves : structured array
        `WAVE`.
    rates : Rates

    Raises
    ------
    RuntimeError
        The waves wait for each other forever: the streams are not those of whole workgroups.
    """
    count = len(places)
    issue, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    reason = np.zeros(count, np.uint8)
    table = (TimingOp * max(len(ops), 1))(*ops)
    machine = _Machine(
        lds_latency=rates.lds_latency,
        scalar_latency=rates.scalar_latency,
        barrier_latency=rates.barrier_latency,
        memory_queue=rates.memory_queue,
        l2_rate=rates.l2,
        fabric_rate=rates.fabric,
        memory_rate=rates.memory,
    )
    given = _Input(
        machine=ctypes.addressof(machine),
        ops=ctypes.addressof(table),
        stream=places.ctypes.data,
        cost=cost.ctypes.data,
        accesses=accesses.ctypes.data,
        waves=waves.ctypes.data,
        num_waves=len(waves),
        num_workgroups=int(waves["workgroup"].max()) + 1,
    )
    result = _Output(issue=issue.ctypes.data, end=end.ctypes.data, reason=reason.ctypes.data)
    function = library().timing_simulate
    function.argtypes, function.restype = [c_void_p, c_void_p], ctypes.c_int
    if function(ctypes.addressof(given), ctypes.addressof(result)):
        raise RuntimeError(
            "the traced waves wait for each other: the trace does not hold whole workgroups"
        )
    busy = {unit: int(result.busy[unit]) for unit in Unit}
    return Schedule(
        waves=waves,
        places=places,
        issue=issue,
        end=end,
        reason=reason,
        cycles=int(result.cycles),
        busy=busy,
    )
