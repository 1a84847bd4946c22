"""Model a launch without one of its bottlenecks: the timing model on changed streams.

Each function returns a workload without one bottleneck. The results are *modelled*, and are upper
bounds of the gain, because a real remedy has a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.profiling.counts import GlobalCounts
from cupygemm.emulator.profiling.kernel_counts import InstructionProfile, KernelCounts
from cupygemm.emulator.profiling.occupancy import MAX_WAVES
from cupygemm.emulator.profiling.timing.model import model
from cupygemm.emulator.profiling.timing.operations import Unit
from cupygemm.emulator.profiling.timing.workload import Workload
from cupygemm.emulator.targets import TARGETS

_LONGEST = 4_000_000  # traced instructions; longer streams take too long to be modelled again


def gain(kernel: KernelCounts, change: Callable[[KernelCounts, Workload], Workload]) -> float:
    """Return the share of the modelled cycles that a change saves, 0 if it saves none.

    Parameters
    ----------
    kernel : KernelCounts
        The counts of one or several launches; the streams of the first one are modelled.
    change : callable
        One of the functions below.
    """
    timing = kernel.timing
    if timing is None or len(timing.workload.places) > _LONGEST:
        return 0.0
    workload = timing.workload
    before = model(workload, timing.clock_mhz)[0].cycles
    after = model(change(kernel, workload), timing.clock_mhz)[0].cycles
    return max(0.0, 1 - after / before) if before else 0.0


def without_conflict_misses(kernel: KernelCounts, workload: Workload) -> Workload:
    """Turn the conflict misses in vL1D into hits."""
    traffic = kernel.global_memory.traffic
    share = _by_instruction(
        kernel, lambda c: _share(c.traffic.l1_conflict, c.traffic.l1_reads - c.traffic.l1_hits)
    )
    return _with_hits(workload, share, _share(traffic.l1_conflict, traffic.l2_requests))


def without_l1_misses(kernel: KernelCounts, workload: Workload) -> Workload:
    """Turn all misses in vL1D into hits."""
    share = _by_instruction(kernel, lambda _counts: 1.0)
    traffic = kernel.global_memory.traffic
    return _with_hits(
        workload, share, _share(traffic.l1_reads - traffic.l1_hits, traffic.l2_requests)
    )


def coalesced(kernel: KernelCounts, workload: Workload) -> Workload:
    """Reduce each access to the lines that its bytes fill."""
    share = _by_instruction(
        kernel, lambda c: _share(c.traffic.ideal_requests, c.traffic.requests) or 1.0
    )
    factor = _of_accesses(workload, share, default=1.0)
    outcomes = workload.outcomes.copy()
    outcomes[:, 1:] = _rounded(outcomes[:, 1:] * factor[:, None])
    traffic = kernel.global_memory.traffic
    kept = _share(traffic.ideal_requests, traffic.requests) or 1.0
    of_requests = _share(traffic.ideal_requests, traffic.l2_requests)
    filled = int(workload.l2_bytes * of_requests) if of_requests else workload.fabric_bytes
    return replace(
        workload,
        outcomes=outcomes,
        l2_bytes=int(workload.l2_bytes * kept),
        fabric_bytes=min(workload.fabric_bytes, filled),
        memory_bytes=min(workload.memory_bytes, filled),
    )


def without_bank_conflicts(kernel: KernelCounts, workload: Workload) -> Workload:
    """Remove the cycles of bank conflicts from each LDS access."""
    share = {
        inst.offset: _share(inst.lds.conflict_cycles, inst.lds.cycles)
        for inst in kernel.instructions
        if inst.lds is not None
    }
    shares = np.array([share.get(offset, 0.0) for offset in workload.offsets])[workload.places]
    in_lds = _units(workload) == Unit.LDS
    cost = workload.cost.copy()
    cost[in_lds] = np.maximum(1, _rounded(cost[in_lds] * (1 - shares[in_lds])))
    return replace(workload, cost=cost)


def more_workgroups(kernel: KernelCounts, workload: Workload) -> int:
    """Return the factor by which a CU's workgroups would grow if only wave slots limited them.

    It is at most 8, and limited by the launch's workgroups.
    """
    slots = int(MAX_WAVES / kernel.occupancy.waves_per_simd)
    launched = workload.workgroups // (TARGETS[workload.target].num_cus * workload.resident)
    return max(1, min(slots, launched, MAX_WAVES))


def with_more_workgroups(kernel: KernelCounts, workload: Workload) -> Workload:
    """Fit more workgroups on a CU, by the factor `more_workgroups`."""
    return workload.repeated(more_workgroups(kernel, workload) * workload.resident)


def _share(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0


def _by_instruction(
    kernel: KernelCounts, share: Callable[[GlobalCounts], float]
) -> dict[int, float]:
    return {
        inst.offset: share(inst.global_memory)
        for inst in kernel.instructions
        if inst.global_memory is not None
    }


def _units(workload: Workload) -> NDArray[np.int64]:
    return np.array([op.unit for op in workload.ops])[workload.places]


def _of_accesses(
    workload: Workload, share: Mapping[int, float], default: float
) -> NDArray[np.float64]:
    """Return the share of each access from the instructions' shares, by offset."""
    result = np.full(len(workload.outcomes), default)
    memory = _units(workload) == Unit.VECTOR_MEMORY
    shares = np.array([share.get(offset, default) for offset in workload.offsets])
    result[workload.cost[memory]] = shares[workload.places[memory]]
    return result


def _with_hits(workload: Workload, share: Mapping[int, float], of_traffic: float) -> Workload:
    """Count a share of the lines that each load misses in vL1D as hits."""
    factor = _of_accesses(workload, share, default=0.0) * workload.loads
    outcomes = workload.outcomes.copy()
    moved = _rounded(outcomes[:, 2:] * factor[:, None])
    outcomes[:, 2:] -= moved
    outcomes[:, 1] += moved.sum(axis=1)
    return replace(
        workload,
        outcomes=outcomes,
        l2_bytes=int(workload.l2_bytes * max(0.0, 1 - of_traffic)),
    )


def _rounded(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Round so that sums are preserved, by rounding the cumulative sums."""
    flat = values.ravel()
    whole = np.floor(np.cumsum(flat) + 0.5)
    counts = np.diff(whole, prepend=0.0)
    limited = np.clip(counts, np.floor(flat), np.ceil(flat))
    return limited.reshape(values.shape).astype(np.int32)


def worst(
    kernel: KernelCounts, count: Callable[[InstructionProfile], float]
) -> InstructionProfile | None:
    """Return the instruction with the largest value; None if all values are 0."""
    found = max(kernel.instructions, key=count, default=None)
    return found if found is not None and count(found) > 0 else None
