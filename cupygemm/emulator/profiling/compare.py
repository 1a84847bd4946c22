"""Compare the profiles of two kernels: the differences in modelled cycles and in counts.

The first table splits the modelled cycles of each launch in proportion to the waves' cycles: by the
reason of a wait, and by the kind of issued instruction. Its rows add up to the launches' cycles.
The largest difference comes first, with the counts that explain it. The second table has the counts
that differ.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from cupygemm.emulator.profiling.console import WIDTH, plain_console, text_of
from cupygemm.emulator.profiling.counts import percent
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.modelled import seconds
from cupygemm.emulator.profiling.notebook import preformatted
from cupygemm.emulator.profiling.tables import count, size
from cupygemm.emulator.profiling.timing.model import ISSUE
from cupygemm.emulator.profiling.verdict import verdict

_LEAST = 0.005  # of the longer launch's cycles; smaller differences are left out


@dataclass(frozen=True)
class Difference:
    """One use of the modelled cycles of two launches.

    Attributes
    ----------
    name : str
    first, second : float
        Cycles of each launch, in proportion to the waves' cycles.
    note : str
        The counts that explain it.
    """

    name: str
    first: float
    second: float
    note: str

    @property
    def cycles(self) -> float:
        """The additional cycles of the second launch."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """A comparison of two kernels.

    Attributes
    ----------
    first, second : KernelProfile
    differences : tuple of Difference
        Uses of the modelled cycles, the largest difference first.
    """

    first: KernelProfile
    second: KernelProfile
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = WIDTH) -> str:
        """Return the tables as text.

        Parameters
        ----------
        width : int, optional
            Columns of a line; at least 80.

        Returns
        -------
        str
            Lines of at most `width` columns.
        """
        console = plain_console(width)
        console.print(Text(_headline(self.first, self.second)))
        for letter, kernel in zip("ab", (self.first, self.second), strict=True):
            found = verdict(kernel)
            warning = f"\n   Warning: {found.warning}" if found.warning else ""
            console.print(Text(f"{letter}: {_name(kernel)}. {found.summary}{warning}"))
        if self.differences:
            console.print(_cycles_table(self.differences))
        console.print(_counts_table(self.first, self.second))
        return text_of(console)

    def _repr_html_(self) -> str:
        headline, _, rest = str(self).partition("\n")
        return f"<h4>{html.escape(headline)}</h4>{preformatted(rest)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as numbers, strings, lists and dictionaries, for JSON."""
        return {
            "kernels": [self.first.to_dict(), self.second.to_dict()],
            "differences": [
                asdict(difference) | {"cycles": difference.cycles}
                for difference in self.differences
            ],
        }


def compare(first: KernelProfile, second: KernelProfile) -> Comparison:
    """Compare two kernels.

    Parameters
    ----------
    first, second : KernelProfile

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        They were profiled on different targets.
    """
    if first.target != second.target:
        raise ValueError(
            f"{first.kernel} was profiled on {first.target} and {second.kernel} on "
            f"{second.target}: compare kernels on one target"
        )
    uses = [_uses(kernel) for kernel in (first, second)]
    longest = max((sum(use.values()) for use in uses), default=0.0)
    found = [
        Difference(name, uses[0].get(name, 0.0), uses[1].get(name, 0.0), _note(name, first, second))
        for name in dict.fromkeys([*uses[0], *uses[1]])
    ]
    found = [each for each in found if abs(each.cycles) >= _LEAST * longest]
    return Comparison(first, second, tuple(sorted(found, key=lambda each: -abs(each.cycles))))


def _uses(kernel: KernelProfile) -> dict[str, float]:
    """Return the launch's cycles by use, which add up to the modelled cycles."""
    timing = kernel.timing
    if timing is None:
        return {}
    total = max(sum(timing.wave_cycles.values()), 1)
    scale = timing.cycles / kernel.launches / total
    result: dict[str, float] = {}
    for inst in kernel.instructions:
        for reason, cycles in inst.modelled_cycles.items():
            name = f"issue of {inst.category}" if reason == ISSUE else f"wait: {reason}"
            result[name] = result.get(name, 0.0) + cycles * scale
    return result


def _note(name: str, first: KernelProfile, second: KernelProfile) -> str:
    """Return the counts of both kernels that explain a use of cycles."""
    found = [(label, get(first), get(second)) for label, get in _BEHIND.get(name, ())]
    if name.startswith("issue of "):
        category = name.removeprefix("issue of ")
        before, after = (k.mix[category] / max(k.waves, 1) for k in (first, second))
        found = [("per wave", f"{before:,.0f}", f"{after:,.0f}")]
    return "; ".join(f"{label} {a} → {b}" for label, a, b in found if a != b)


Get = Callable[[KernelProfile], str]
_L1: tuple[str, Get] = ("vL1D hit", lambda k: percent(k.global_memory.l1_hit_rate))
_CONFLICTING: tuple[str, Get] = (
    "conflict misses",
    lambda k: f"{k.global_memory.traffic.l1_conflict:,}",
)
_COALESCING: tuple[str, Get] = ("coalescing", lambda k: percent(k.global_memory.coalescing))
_L2: tuple[str, Get] = ("L2 hit", lambda k: percent(k.global_memory.l2_hit_rate))
_BANKS: tuple[str, Get] = ("bank conflicts", lambda k: percent(k.lds.conflict_rate))
_WAVES: tuple[str, Get] = ("waves per SIMD", lambda k: f"{k.occupancy.waves_per_simd:g}")
_BEHIND: dict[str, tuple[tuple[str, Get], ...]] = {
    "wait: vmcnt": (_L1, _CONFLICTING, _L2, _WAVES),
    "wait: VMEM busy": (_COALESCING, _L1),
    "wait: lgkmcnt": (_BANKS,),
    "wait: LDS busy": (_BANKS,),
    "wait: barrier": (_WAVES,),
}
_COUNTS: tuple[tuple[str, Get], ...] = (
    ("Registers per lane", lambda k: str(k.registers["allocated"])),
    ("Scratch per lane", lambda k: size(k.registers["scratch"])),
    ("LDS per workgroup", lambda k: size(k.lds_bytes)),
    _WAVES,
    ("Workgroups", lambda k: f"{k.workgroups:,}"),
    ("Instructions per wave", lambda k: f"{k.executed / max(k.waves, 1):,.0f}"),
    ("MFMA", lambda k: f"{k.mix['MFMA']:,}"),
    ("Global memory", lambda k: size(k.global_memory.bytes)),
    ("vL1D requests", lambda k: f"{k.global_memory.traffic.requests:,}"),
    _COALESCING,
    _L1,
    ("compulsory misses", lambda k: f"{k.global_memory.traffic.l1_compulsory:,}"),
    ("capacity misses", lambda k: f"{k.global_memory.traffic.l1_capacity:,}"),
    _CONFLICTING,
    _L2,
    ("HBM", lambda k: size(k.hbm_bytes)),
    ("LDS cycles", lambda k: f"{k.lds.cycles:,}"),
    _BANKS,
    ("FLOP", lambda k: count(k.flop)),
    ("Modelled bound", lambda k: "-" if k.timing is None else k.timing.bound),
)


def _name(kernel: KernelProfile) -> str:
    grid, block = ("x".join(map(str, extent)) for extent in (kernel.grid, kernel.block))
    return f"{kernel.kernel}, grid {grid}, block {block}"


def _headline(first: KernelProfile, second: KernelProfile) -> str:
    if first.timing is None or second.timing is None:
        return "one of the launches was too long for the timing model"
    times = [k.timing.seconds / k.launches for k in (first, second) if k.timing is not None]
    quicker, slower = ("b", "a") if times[1] < times[0] else ("a", "b")
    if max(times) < 1.005 * min(times):
        return f"a and b take the same modelled time: {seconds(times[0])} and {seconds(times[1])}"
    return (
        f"{quicker} is {max(times) / min(times):.2f} times as fast as {slower} (modelled): "
        f"{seconds(min(times))} against {seconds(max(times))}"
    )


def _cycles_table(differences: tuple[Difference, ...]) -> Table:
    table = Table(
        box=None, pad_edge=False, title="Modelled cycles of a launch", title_justify="left"
    )
    table.add_column("use", no_wrap=True)
    for heading in ("a", "b", "b - a"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("counts, a → b", overflow="fold")
    for each in differences:
        table.add_row(
            each.name,
            f"{each.first:,.0f}",
            f"{each.second:,.0f}",
            f"{each.cycles:+,.0f}",
            each.note,
        )
    return table


def _counts_table(first: KernelProfile, second: KernelProfile) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = "Counts that differ"
    table.add_column("count", no_wrap=True)
    for heading in ("a", "b"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, get in _COUNTS:
        if get(first) != get(second):
            table.add_row(name, get(first), get(second))
    return table
