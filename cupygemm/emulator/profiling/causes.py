"""Find what costs a kernel time: a function for each cause, with its remedy, from the counts.

A cause's share is the part of the modelled time that its removal would save (`remedies`), or the
part of the waves' cycles that is spent on it. `verdict` ranks the causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cupygemm.emulator.profiling import misses, remedies
from cupygemm.emulator.profiling.counts import counted, percent, ratio
from cupygemm.emulator.profiling.kernel_counts import InstructionProfile, KernelCounts
from cupygemm.emulator.profiling.timing.machine import MACHINES
from cupygemm.emulator.profiling.timing.model import Timing

_LEAST = 0.03  # waits with a smaller share of the time are not named
_HITS_LOST = 0.1  # conflicts in a smaller share of the requests hardly change the hit rate
CONFLICTS = "Conflict misses in vL1D"
FLAT = "LDS accessed by FLAT instructions"
_LESS = {"LDS": "less LDS", "registers": "fewer registers (a smaller tile of sums)"}


@dataclass(frozen=True)
class Cause:
    """A cause that costs a kernel time.

    Attributes
    ----------
    name : str
    share : float
        Part of the modelled time, as a fraction of 1.
    why, remedy : str
        Sentences.
    """

    name: str
    share: float
    why: str
    remedy: str


def place(inst: InstructionProfile) -> str:
    """Return the name, the offset and the source line of an instruction."""
    sign = "-" if inst.offset < 0 else "+"
    name = f"{inst.text.partition(' ')[0]} at {sign}{abs(inst.offset):#x}"
    return f"{name} ({inst.place})" if inst.place else name


def costs(share: float) -> bool:
    """Tell whether a share is more than 0 % when rounded as in sentences."""
    return round(100 * share) > 0


def _conflict_misses(kernel: KernelCounts, _timing: Timing) -> Cause | None:
    traffic = kernel.global_memory.traffic
    if not traffic.l1_conflict or traffic.l1_conflict < 0.02 * traffic.l1_reads:
        return None
    share = remedies.gain(kernel, remedies.without_conflict_misses)
    inst = remedies.worst(kernel, lambda i: _traffic(i, "l1_conflict"))
    if inst is None or inst.global_memory is None:
        return None
    if costs(share):
        effect = f"they cost up to {share:.0%} of the modelled time."
    elif traffic.l1_conflict >= _HITS_LOST * traffic.l1_reads:
        effect = "they cost none of the modelled time, but they change the hit rate."
    else:
        return None
    sentence = misses.stride_sentence(inst.global_memory.traffic, kernel.target)
    return Cause(
        CONFLICTS,
        share,
        f"{effect} vL1D hits in "
        f"{percent(kernel.global_memory.l1_hit_rate)} of {traffic.l1_reads:,} requests, and "
        f"{traffic.l1_conflict:,} of {traffic.l1_reads - traffic.l1_hits:,} misses are conflicts: "
        f"without them it would hit in {percent(misses.best_hit_rate(traffic))}. The most are "
        f"{place(inst)}. {sentence}",
        misses.stride_remedy(inst.global_memory.traffic, kernel.target),
    )


def _bank_conflicts(kernel: KernelCounts, _timing: Timing) -> Cause | None:
    lds = kernel.lds
    if not lds.conflict_cycles:
        return None
    inst = remedies.worst(kernel, lambda i: i.lds.conflict_cycles if i.lds else 0)
    if inst is None or inst.lds is None:
        return None
    share = remedies.gain(kernel, remedies.without_bank_conflicts)
    each = inst.lds.cycles / inst.lds.instructions
    least = (inst.lds.cycles - inst.lds.conflict_cycles) / inst.lds.instructions
    return Cause(
        "Bank conflicts in LDS",
        share,
        f"they cost up to {share:.0%} of the modelled time, and "
        f"{percent(lds.conflict_rate)} of all LDS cycles. The most are {place(inst)}, which takes "
        f"{each:.1f} cycles instead of {least:.1f}.",
        "pad the rows of the tile, so that the lanes of a phase fall into different banks, or XOR "
        "the column with bits of the row.",
    )


def _flat_lds(kernel: KernelCounts, timing: Timing) -> Cause | None:
    inst = remedies.worst(kernel, lambda i: i.executions if i.is_flat_to_lds else 0)
    if inst is None or not kernel.lds_bytes:
        return None
    flat = [i for i in kernel.instructions if i.is_flat_to_lds]
    executed = sum(i.executions for i in flat)
    others = sum(i.lds.instructions for i in kernel.instructions if i.lds and i not in flat)
    served = [i.lds for i in flat if i.lds is not None]
    lost = ratio(sum(lds.conflict_cycles for lds in served), sum(lds.cycles for lds in served))
    spent = sum(sum(i.modelled_cycles.values()) for i in flat)
    share = ratio(spent, sum(timing.wave_cycles.values())) or 0.0
    if not costs(share):
        return None
    return Cause(
        FLAT,
        share,
        f"{executed:,} of {executed + others:,} accesses to LDS are FLAT, and "
        f"waves spend {share:.0%} of their modelled cycles at them; most are {place(inst)}. The "
        "compiler did not know that the pointer is one to LDS. FLAT takes the path of vL1D, and "
        "counts in vmcnt and in lgkmcnt, so its waits cover global loads too. Bank conflicts "
        f"are {percent(lost)} of its cycles in LDS, and are not in the modelled time.",
        "index the __shared__ array itself, or read through a pointer to "
        "__attribute__((address_space(3))); pointers and references to LDS that are kept in "
        "structs, or chosen at run time, lose the address space.",
    )


def _uncoalesced(kernel: KernelCounts, _timing: Timing) -> Cause | None:
    memory = kernel.global_memory
    if memory.coalescing is None or memory.coalescing > 0.9:
        return None
    inst = remedies.worst(kernel, lambda i: _traffic(i, "requests") - _traffic(i, "ideal_requests"))
    if inst is None or inst.global_memory is None:
        return None
    share = remedies.gain(kernel, remedies.coalesced)
    counts = inst.global_memory
    each = counts.traffic.requests / counts.instructions
    ideal = counts.traffic.ideal_requests / counts.instructions
    stride = counts.traffic.stride
    apart = f" Its lanes begin lines that are {stride:,} bytes apart." if stride else ""
    if not misses.has_stride(counts.traffic) and each > ideal + 1:
        apart = " Its lanes begin lines at no fixed distance."
    return Cause(
        "Accesses that are not coalesced",
        share,
        f"they cost up to {share:.0%} of the modelled time. {place(inst)} touches {each:.1f} lines "
        f"per wave, where its bytes fill {ideal:.1f}.{apart}",
        "let consecutive lanes access consecutive addresses, 16 bytes each; if the layout does not "
        "allow it, load along the rows and transpose in LDS.",
    )


def _memory_latency(kernel: KernelCounts, timing: Timing) -> Cause | None:
    flat = _flat_to_memory(kernel)

    def cycles(inst: InstructionProfile) -> int:
        by_flat = inst.modelled_cycles.get("lgkmcnt", 0) if _waits_for(inst, flat) else 0
        return inst.modelled_cycles.get("vmcnt", 0) + by_flat

    waited = ratio(sum(map(cycles, kernel.instructions)), sum(timing.wave_cycles.values())) or 0.0
    if waited < _LEAST or timing.bound in ("L2", "fabric", "HBM"):
        return None
    share = remedies.gain(kernel, remedies.without_l1_misses)
    inst = remedies.worst(kernel, cycles)
    if inst is None:
        return None
    wait = next((wait for wait in inst.waits if wait.counter == "vmcnt"), None)
    distance = round(wait.distance / wait.waves) if wait else 0
    between = counted(distance, "instruction") if distance else "right"
    counters, instead = "", ""
    if _waits_for(inst, flat):
        counters = " Its loads are FLAT, which count in vmcnt and in lgkmcnt."
        instead = "load by global_load, which counts in vmcnt alone; "
    memory = kernel.global_memory
    latency = MACHINES[kernel.target].l2_latency
    return Cause(
        "Waits for global memory",
        share,
        f"waves wait for loads in {waited:.0%} of their cycles; if all loads hit in vL1D, the "
        f"modelled time would be {share:.0%} shorter. The longest wait is {place(inst)}, "
        f"{between} after the youngest load that it waits for; a load takes {latency} cycles from "
        f"L2 and more from memory.{counters} "
        f"{misses.causes_sentence(memory.traffic, kernel.target)}",
        f"{instead}issue the loads of the next iteration before the work of this one (two LDS or "
        f"register stages), and wait with vmcnt(n) for the older ones only{_more_waves(kernel)}.",
    )


def _flat_to_memory(kernel: KernelCounts) -> set[int]:
    """Return the offsets of the FLAT instructions that reached global memory."""
    return {
        inst.offset
        for inst in kernel.instructions
        if inst.text.startswith("flat_") and not inst.is_flat_to_lds
    }


def _polls(kernel: KernelCounts) -> set[int]:
    return {inst.offset for inst in kernel.instructions if inst.is_poll}


def _waits_for(inst: InstructionProfile, operations: set[int]) -> bool:
    """Tell whether the lgkmcnt of an instruction waits for one of some operations."""
    return any(
        wait.counter == "lgkmcnt" and not operations.isdisjoint(wait.operations)
        for wait in inst.waits
    )


def _more_waves(kernel: KernelCounts) -> str:
    """Return a clause on how more waves could hide a latency; empty if wave slots are free."""
    room = kernel.occupancy
    if room.waves_per_simd >= 8 or room.fills < 1:
        return ""
    return (
        f"; or raise the occupancy ({room.waves_per_simd:g} of 8 waves per SIMD, limited by "
        f"{room.limited_by})"
    )


def _barriers(kernel: KernelCounts, timing: Timing) -> Cause | None:
    return _waiting(
        kernel,
        timing,
        "barrier",
        "Waits at barriers",
        "give the waves equal work between barriers, merge barriers, or let two groups of waves "
        "work in turns (ping-pong).",
    )


def _lds_waits(kernel: KernelCounts, timing: Timing) -> Cause | None:
    others = _flat_to_memory(kernel) | _polls(kernel)  # reported as separate causes

    def here(inst: InstructionProfile) -> bool:
        return not _waits_for(inst, others)

    if not kernel.mix["LDS"] and not any(i.is_flat_to_lds for i in kernel.instructions):
        return _waiting(
            kernel,
            timing,
            "lgkmcnt",
            "Waits for scalar loads",
            "give each wave more work, so that it loads its arguments once for all of it.",
            here,
        )
    ahead = (
        "read the fragments of the next MFMA while this one runs"
        if kernel.mix["MFMA"]
        else "read what the next step needs before the work of this one"
    )
    return _waiting(
        kernel,
        timing,
        "lgkmcnt",
        "Waits for LDS and scalar loads",
        f"{ahead}, and wait with lgkmcnt(n) for the older ones only.",
        here,
    )


def _flag_waits(kernel: KernelCounts, timing: Timing) -> Cause | None:
    polls = _polls(kernel)
    return _waiting(
        kernel,
        timing,
        "lgkmcnt",
        "Waits for flags in LDS",
        "keep more tiles between the waves that set the flags and those that wait for them, or "
        "give both the same time for a tile.",
        lambda inst: _waits_for(inst, polls),
    )


def _dependencies(kernel: KernelCounts, timing: Timing) -> Cause | None:
    return _waiting(
        kernel,
        timing,
        "dependency",
        "Waits for results",
        "interleave independent accumulators, so that no instruction needs the result of the one "
        "before it.",
    )


def _waiting(
    kernel: KernelCounts,
    timing: Timing,
    reason: str,
    name: str,
    remedy: str,
    counts: Callable[[InstructionProfile], bool] = lambda _inst: True,
) -> Cause | None:
    """Return the significant waits of instructions, by their share of the waves' cycles."""

    def cycles(inst: InstructionProfile) -> int:
        return inst.modelled_cycles.get(reason, 0) if counts(inst) else 0

    waited = sum(map(cycles, kernel.instructions))
    share = ratio(waited, sum(timing.wave_cycles.values())) or 0.0
    inst = remedies.worst(kernel, cycles)
    if share < 0.1 or inst is None:
        return None
    mine = cycles(inst) / max(waited, 1)
    return Cause(
        name,
        share,
        f"waves spend {share:.0%} of their modelled cycles there, {mine:.0%} of that at "
        f"{place(inst)}.",
        remedy,
    )


def _occupancy(kernel: KernelCounts, timing: Timing) -> Cause | None:
    room = kernel.occupancy
    if timing.bound != "latency" or room.waves_per_simd > 4 or room.limited_by == "wave slots":
        return None
    if timing.rounds <= 1:
        return None
    share = remedies.gain(kernel, remedies.with_more_workgroups)
    times = remedies.more_workgroups(kernel, timing.workload)
    if times < 2:
        return None
    scarce = [_LESS.get(each, f"fewer {each}") for each in room.limited_by.split(" and ")]
    return Cause(
        "Low occupancy",
        share,
        f"a SIMD holds {room.waves_per_simd:g} of 8 waves, limited by {room.limited_by} "
        f"({kernel.registers['allocated']} registers, {kernel.lds_bytes:,} bytes of LDS); with "
        f"{times} times as many workgroups on a CU, the modelled time would be {share:.0%} "
        "shorter.",
        f"use {' and '.join(scarce)}.",
    )


def _spills(kernel: KernelCounts, _timing: Timing) -> Cause | None:
    scratch = kernel.registers["scratch"]
    inst = remedies.worst(
        kernel, lambda i: i.executions if i.text.startswith(("scratch_", "buffer_")) else 0
    )
    if not scratch or inst is None or not inst.text.startswith(("scratch_", "buffer_")):
        return None
    executed = sum(i.executions for i in kernel.instructions if i.text.startswith("scratch_"))
    share = ratio(executed, kernel.executed) or 0.0
    return Cause(
        "Private memory",
        share,
        f"each lane has {scratch:,} bytes of scratch, and {share:.0%} of the instructions access "
        f"it, first {place(inst)}: registers spill, or an array is indexed at run time.",
        _without_spills(kernel),
    )


def _without_spills(kernel: KernelCounts) -> str:
    """Return a sentence on how to avoid register spills."""
    size = math.prod(kernel.block)
    general = "unroll the loops that index local arrays, or use smaller tiles."
    if kernel.max_threads < 2 * size:
        return general
    return (
        f"declare the kernel __launch_bounds__({size}): it is compiled for workgroups of up to "
        f"{kernel.max_threads:,} work-items, which limits its registers, and launched with {size}. "
        f"Or {general}"
    )


CAUSES: tuple[Callable[[KernelCounts, Timing], Cause | None], ...] = (
    _conflict_misses,
    _bank_conflicts,
    _flat_lds,
    _uncoalesced,
    _memory_latency,
    _barriers,
    _lds_waits,
    _flag_waits,
    _dependencies,
    _occupancy,
    _spills,
)


def _traffic(inst: InstructionProfile, name: str) -> int:
    return 0 if inst.global_memory is None else int(getattr(inst.global_memory.traffic, name))
