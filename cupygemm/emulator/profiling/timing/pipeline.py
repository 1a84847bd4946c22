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
    """``enum reason``: why a wave could not issue earlier."""

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
        *((name, c_int32) for name in (
            "lds_latency", "scalar_latency", "barrier_latency", "memory_queue",
        )),
        *((name, c_double) for name in ("l2_rate", "fabric_rate", "memory_rate")),
    ]  # fmt: skip


class _Input(ctypes.Structure):
    """``struct timing_input``."""

    _fields_ = [
        *((name, c_void_p) for name in (
            "machine", "ops", "stream", "cost", "accesses", "waves",
        )),
        *((name, c_int64) for name in ("num_waves", "num_workgroups")),
    ]  # fmt: skip


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


@dataclass(frozen=True)
class Rates:
    """What is left of a `TimingMachine` when the clock and the active CUs are known.

    Attributes
    ----------
    lds_latency, scalar_latency, barrier_latency, memory_queue : int
        Cycles.
    l2, fabric, memory : float
        Bytes per cycle for the CU.
    """

    lds_latency: int
    scalar_latency: int
    barrier_latency: int
    memory_queue: int
    l2: float
    fabric: float
    memory: float


@dataclass(frozen=True)
class Schedule:
    """When each instruction of the simulated waves was issued; arrays over the stream.

    Attributes
    ----------
    waves : structured array
        `WAVE`: which part of the stream is whose.
    places : int32 array
        Index of the static instruction.
    issue, end : int64 array
        Cycles: when it was issued, and when its unit was done or its data were there.
    reason : uint8 array
        `Reason`: what it waited for last.
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
        """Return the share of the cycles that a unit works; of all four SIMDs' where it is one."""
        units = SIMDS if unit in (Unit.VECTOR, Unit.MATRIX, Unit.SCALAR) else 1
        return self.busy[unit] / max(self.cycles * units, 1)


def simulate(
    ops: list[TimingOp],
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
        The streams of all waves one after another: index into `ops`, and what the instruction cost
        (native/timing.h).
    accesses : structured array
        `ACCESS`.
    waves : structured array
        `WAVE`.
    rates : Rates

    Raises
    ------
    RuntimeError
        The waves end up waiting for each other: the streams are not those of whole workgroups.
    """
    count = len(places)
    issue, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    reason = np.zeros(count, np.uint8)
    table = (TimingOp * max(len(ops), 1))(*ops)
    machine = _Machine(
        rates.lds_latency, rates.scalar_latency, rates.barrier_latency, rates.memory_queue,
        rates.l2, rates.fabric, rates.memory,
    )  # fmt: skip
    given = _Input(
        ctypes.addressof(machine), ctypes.addressof(table), places.ctypes.data, cost.ctypes.data,
        accesses.ctypes.data, waves.ctypes.data, len(waves), int(waves["workgroup"].max()) + 1,
    )  # fmt: skip
    result = _Output(issue.ctypes.data, end.ctypes.data, reason.ctypes.data)
    function = library().timing_simulate
    function.argtypes, function.restype = [c_void_p, c_void_p], ctypes.c_int
    if function(ctypes.addressof(given), ctypes.addressof(result)):
        raise RuntimeError("the traced waves wait for each other: the trace is not whole")
    busy = {unit: int(result.busy[unit]) for unit in Unit}
    return Schedule(waves, places, issue, end, reason, int(result.cycles), busy)
