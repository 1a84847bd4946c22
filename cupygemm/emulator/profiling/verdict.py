"""The verdict on a kernel: what bounds it, by how much, why, and what to try.

    bound (timing.bound) ─► launch too small? ─► causes, ranked by modelled gain

Each sentence contains the figure that supports it. A cause's share is the part of the modelled time
that its removal would save (`remedies`), or the part of the waves' cycles that is spent on it.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from cupygemm.emulator.profiling.causes import CAUSES, CONFLICTS, FLAT, Cause
from cupygemm.emulator.profiling.kernel_counts import KernelCounts
from cupygemm.emulator.profiling.timing.model import ISSUE, Timing, shared_cycles
from cupygemm.emulator.targets import TARGETS

_LEAST = 0.03  # causes with a smaller share of the time are not named
_CLOSE = 0.7  # the next bound is named if it has this share of the modelled time
_MOST_CAUSES = 4
_ALWAYS = (CONFLICTS, FLAT)
_UNITS = {
    "MFMA": "the matrix units are",
    "VALU": "the vector ALUs are",
    "LDS": "LDS is",
    "VMEM": "the path to vL1D (addresses and lines) is",
}


@dataclass(frozen=True)
class Verdict:
    """The bound of a kernel, and its causes.

    Attributes
    ----------
    bound : str
        `Timing.bound`, or ``"unknown"`` without a modelled time.
    summary : str
        The bound and its share.
    warning : str
        Why the modelled time may mislead; empty if it should not.
    causes : tuple of Cause
        The most expensive first.
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

    def _repr_html_(self) -> str:
        parts = [f"<p><b>Verdict</b> (modelled): {html.escape(self.summary)}</p>"]
        if self.warning:
            warning = html.escape(self.warning)
            parts.append(f'<p style="color:#a15c00"><b>Warning</b>: {warning}</p>')
        if self.causes:
            causes = "".join(
                f"<li><b>{html.escape(cause.name)}</b>: {html.escape(cause.why)}<br>"
                f"<i>Try</i>: {html.escape(cause.remedy)}</li>"
                for cause in self.causes
            )
            parts.append(f"<ol>{causes}</ol>")
        return "".join(parts)


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
    found = [cause for find in CAUSES if (cause := find(kernel, timing)) is not None]
    found.sort(key=lambda cause: -cause.share)
    named = [cause for cause in found if cause.share >= _LEAST][:_MOST_CAUSES]
    # These are always listed, because the hit rate and the LDS figures raise the question.
    named += [cause for cause in found if cause.name in _ALWAYS and cause not in named]
    summary = _summary(timing, kernel.launches)
    return Verdict(timing.bound, summary, _warning(kernel, timing), tuple(named))


def _summary(timing: Timing, launches: int) -> str:
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
            f"modelled cycles ({others}).{waited}{_nearly(timing, launches)}"
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


def _nearly(timing: Timing, launches: int) -> str:
    """Return a sentence on the shared resource that is the next bound, if it is close."""
    shared = shared_cycles(timing.workload, timing.clock_mhz)
    name, least = max(shared.items(), key=lambda item: item[1])
    share = least * launches / timing.cycles
    return f" {name} alone would take {share:.0%} of the time." if share >= _CLOSE else ""


def _warning(kernel: KernelCounts, timing: Timing) -> str:
    """Return a warning if a launch is too small to be representative, or was sampled."""
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
