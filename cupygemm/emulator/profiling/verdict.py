"""The verdict on a kernel: what bounds it, by how much, why, and what to try.

    bound (timing.bound) ─► launch too small? ─► causes, ranked by modelled gain

Each sentence has the figure that it follows from. A cause's share is the part of the modelled time
that would go without it (`remedies`), or the part of the waves' cycles that is spent on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cupygemm.emulator.profiling import misses, remedies
from cupygemm.emulator.profiling.counts import percent, ratio
from cupygemm.emulator.profiling.kernel_counts import InstructionProfile, KernelCounts
from cupygemm.emulator.profiling.timing.machine import MACHINES
from cupygemm.emulator.profiling.timing.model import ISSUE, Timing
from cupygemm.emulator.targets import TARGETS

_LEAST = 0.03  # share of the time from which a cause is named
_MOST_CAUSES = 4
_CONFLICTS = "Conflict misses in vL1D"
_FLAT = "LDS accessed by FLAT instructions"
_ALWAYS = (_CONFLICTS, _FLAT)
_UNITS = {
    "MFMA": "the matrix units are",
    "VALU": "the vector ALUs are",
    "LDS": "LDS is",
    "VMEM": "the path to vL1D (addresses and lines) is",
}


@dataclass(frozen=True)
class Cause:
    """Something that costs a kernel time.

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


@dataclass(frozen=True)
class Verdict:
    """What bounds a kernel, and why.

    Attributes
    ----------
    bound : str
        `Timing.bound`, or ``"unknown"`` without a modelled time.
    summary : str
        What bounds it, by how much.
    warning : str
        Why the modelled time may mislead; empty if there is no reason.
    causes : tuple of Cause
        Those that cost most first.
    """

    bound: str
    summary: str
    warning: str
    causes: tuple[Cause, ...]

    def __str__(self) -> str:
        lines = [self.summary]
        if self.warning:
            lines.append(f"Warning: {self.warning}")
        for number, cause in enumerate(self.causes, 1):
            lines.append(f"{number}. {cause.name}: {cause.why}")
            lines.append(f"   Try: {cause.remedy}")
        return "\n".join(lines)


def verdict(kernel: KernelCounts) -> Verdict:
    """Return the verdict on a kernel.

    Parameters
    ----------
    kernel : KernelCounts
    """
    timing = kernel.timing
    if timing is None:
        unknown = "The launch was too long for the timing model to keep, so its bound is not known."
        return Verdict("unknown", unknown, "", ())
    found = [cause for find in _CAUSES if (cause := find(kernel, timing)) is not None]
    found.sort(key=lambda cause: -cause.share)
    named = [cause for cause in found if cause.share >= _LEAST][:_MOST_CAUSES]
    # These are always said: whoever looks at the hit rate, or at the figures of LDS, asks for them.
    named += [cause for cause in found if cause.name in _ALWAYS and cause not in named]
    return Verdict(timing.bound, _summary(kernel, timing), _warning(kernel, timing), tuple(named))


def place(inst: InstructionProfile) -> str:
    """Return the name, the offset and the source line of an instruction."""
    sign = "-" if inst.offset < 0 else "+"
    name = f"{inst.text.partition(' ')[0]} at {sign}{abs(inst.offset):#x}"
    return f"{name} ({inst.place})" if inst.place else name


def _summary(kernel: KernelCounts, timing: Timing) -> str:
    total = max(sum(timing.wave_cycles.values()), 1)
    waiting = {name: n / total for name, n in timing.wave_cycles.items() if name != ISSUE and n}
    waits = ", ".join(
        f"{name} {share:.0%}"
        for name, share in sorted(waiting.items(), key=lambda item: -item[1])[:3]
        if share >= 0.01
    )
    busy = sorted(timing.utilisation.items(), key=lambda item: -item[1])
    others = ", ".join(f"{name} {share:.0%}" for name, share in busy)
    waited = f" Its waves wait in {sum(waiting.values()):.0%} of their cycles"
    waited += f": {waits}." if waits else "."
    if timing.bound == "latency":
        return (
            f"Latency bounds it: no unit of a CU is busy for more than {busy[0][1]:.0%} of the "
            f"modelled cycles ({others}).{waited}"
        )
    if timing.bound in _UNITS:
        return (
            f"{timing.bound} bounds it: {_UNITS[timing.bound]} busy for "
            f"{timing.utilisation[timing.bound]:.0%} of the modelled cycles of a full CU "
            f"({others}).{waited}"
        )
    moved = {
        "L2": timing.workload.l2_bytes,
        "fabric": timing.workload.fabric_bytes,
        "HBM": timing.workload.memory_bytes,
    }[timing.bound]
    rate = moved / timing.seconds / 1e12
    return (
        f"{timing.bound} bounds it: {moved / 2**20:,.1f} MiB pass through it, which takes the "
        f"whole modelled time at {rate:.2f} TB/s. The busiest unit of a CU is {busy[0][0]}, "
        f"{busy[0][1]:.0%} of the cycles."
    )


def _warning(kernel: KernelCounts, timing: Timing) -> str:
    """Say that a launch is too small to stand for a full one, or that a sample stands for it."""
    if kernel.sampled:
        return (
            f"{kernel.sampled:,} of {kernel.workgroups:,} workgroups ran, and the counts are "
            "scaled from them. What they would share with the others is not seen: misses in L2 "
            "and bytes of HBM are upper bounds."
        )
    cus, per_launch = TARGETS[kernel.target].num_cus, kernel.workgroups // kernel.launches
    if cus / 2 <= per_launch < cus:
        return (
            f"the launch has {per_launch:,} workgroups for {cus} compute units: "
            f"{1 - per_launch / cus:.0%} of the device is idle."
        )
    if per_launch < cus:
        return (
            f"the launch has {per_launch:,} workgroup{'s' * (per_launch > 1)} for {cus} compute "
            f"units: {cus - per_launch} are idle, and what all CUs share (L2, fabric, HBM) is "
            "free. The modelled time does not rank kernels for a full grid: "
            f"profile at least {timing.resident * cus:,} workgroups ({timing.resident} to a CU), "
            "or the grid that you will run, whole or from a sample (sample=, --sample)."
        )
    rounds = timing.rounds
    if rounds < 4 and rounds % 1 and (rounds % 1) < 0.7:
        tail = 1 - rounds / (int(rounds) + 1)
        return (
            f"the grid is {rounds:.2f} rounds of what the device holds at once: about {tail:.0%} "
            "of the slots stay empty."
        )
    return ""


# -- causes ----------------------------------------------------------------------------------------


def _conflict_misses(kernel: KernelCounts, _timing: Timing) -> Cause | None:
    traffic = kernel.global_memory.traffic
    if not traffic.l1_conflict or traffic.l1_conflict < 0.02 * traffic.l1_reads:
        return None
    share = remedies.gain(kernel, remedies.without_conflict_misses)
    inst = remedies.worst(kernel, lambda i: _traffic(i, "l1_conflict"))
    if inst is None or inst.global_memory is None:
        return None
    sentence = misses.stride_sentence(inst.global_memory.traffic, kernel.target)
    return Cause(
        _CONFLICTS,
        share,
        f"they cost up to {share:.0%} of the modelled time. vL1D hits in "
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
    if inst is None or not kernel.lds_bytes or kernel.registers["scratch"]:
        return None
    flat = [i for i in kernel.instructions if i.is_flat_to_lds]
    executed = sum(i.executions for i in flat)
    spent = sum(sum(i.modelled_cycles.values()) for i in flat)
    share = ratio(spent, sum(timing.wave_cycles.values())) or 0.0
    return Cause(
        _FLAT,
        share,
        f"{executed:,} of {executed + kernel.lds.instructions:,} accesses to LDS are FLAT, and "
        f"waves spend {share:.0%} of their modelled cycles at them; most are {place(inst)}. The "
        "compiler did not know that the pointer is one to LDS. FLAT takes the path of vL1D, and "
        "counts in vmcnt and in lgkmcnt, so its waits cover global loads too. Its bank conflicts "
        "are not counted.",
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
    return Cause(
        "Accesses that are not coalesced",
        share,
        f"they cost up to {share:.0%} of the modelled time. {place(inst)} touches {each:.1f} lines "
        f"per wave, where its bytes fill {ideal:.1f}.{apart}",
        "let consecutive lanes access consecutive addresses, 16 bytes each; if the layout does not "
        "allow it, load along the rows and transpose in LDS.",
    )


def _memory_latency(kernel: KernelCounts, timing: Timing) -> Cause | None:
    waited = ratio(timing.wave_cycles.get("vmcnt", 0), sum(timing.wave_cycles.values())) or 0.0
    if waited < _LEAST or timing.bound in ("L2", "fabric", "HBM"):
        return None
    share = remedies.gain(kernel, remedies.without_l1_misses)
    inst = remedies.worst(kernel, lambda i: i.modelled_cycles.get("vmcnt", 0))
    if inst is None:
        return None
    wait = next((wait for wait in inst.waits if wait.counter == "vmcnt"), None)
    between = f"{wait.distance / wait.waves:.0f} instructions" if wait else "soon"
    memory = kernel.global_memory
    latency = MACHINES[kernel.target].l2_latency
    return Cause(
        "Waits for global memory",
        share,
        f"waves wait for loads in {waited:.0%} of their cycles; if all loads hit in vL1D, the "
        f"modelled time would be {share:.0%} shorter. The longest wait is {place(inst)}, "
        f"{between} after the youngest load that it waits for; a load takes {latency} cycles from "
        f"L2 and more from memory. {misses.causes_sentence(memory.traffic, kernel.target)}",
        "issue the loads of the next iteration before the work of this one (two LDS or register "
        "stages), and wait with vmcnt(n) for the older ones only; or raise the occupancy "
        f"({kernel.occupancy.waves_per_simd:g} of 8 waves per SIMD, limited by "
        f"{kernel.occupancy.limited_by}).",
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
    if not kernel.mix["LDS"]:
        return _waiting(
            kernel,
            timing,
            "lgkmcnt",
            "Waits for scalar loads",
            "give each wave more work, so that it loads its arguments once for all of it.",
        )
    return _waiting(
        kernel,
        timing,
        "lgkmcnt",
        "Waits for LDS and scalar loads",
        "read the fragments of the next MFMA while this one runs, and wait with lgkmcnt(n) for the "
        "older ones only.",
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
    kernel: KernelCounts, timing: Timing, reason: str, name: str, remedy: str
) -> Cause | None:
    """Return a wait as a cause, by its share of the waves' cycles."""
    share = ratio(timing.wave_cycles.get(reason, 0), sum(timing.wave_cycles.values())) or 0.0
    inst = remedies.worst(kernel, lambda i: i.modelled_cycles.get(reason, 0))
    if share < 0.1 or inst is None:
        return None
    mine = inst.modelled_cycles[reason] / max(timing.wave_cycles[reason], 1)
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
    return Cause(
        "Low occupancy",
        share,
        f"a SIMD holds {room.waves_per_simd:g} of 8 waves, limited by {room.limited_by} "
        f"({kernel.registers['allocated']} registers, {kernel.lds_bytes:,} bytes of LDS); with "
        f"twice as many workgroups on a CU, the modelled time would be {share:.0%} shorter.",
        f"use fewer {room.limited_by.replace('registers', 'registers (a smaller tile of sums)')}.",
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
        "unroll the loops that index local arrays, or use smaller tiles.",
    )


_CAUSES: tuple[Callable[[KernelCounts, Timing], Cause | None], ...] = (
    _conflict_misses,
    _bank_conflicts,
    _flat_lds,
    _uncoalesced,
    _memory_latency,
    _barriers,
    _lds_waits,
    _dependencies,
    _occupancy,
    _spills,
)


def _traffic(inst: InstructionProfile, name: str) -> int:
    return 0 if inst.global_memory is None else int(getattr(inst.global_memory.traffic, name))
