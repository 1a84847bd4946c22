"""Profiles as tables, under the names that AMD's ROCm Compute Profiler gives its metrics."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from cupygemm.emulator.profiling.caches import Traffic
from cupygemm.emulator.profiling.console import WIDTH, plain_console, text_of
from cupygemm.emulator.profiling.counts import counted, percent, ratio
from cupygemm.emulator.profiling.kernel_counts import KernelCounts
from cupygemm.emulator.profiling.modelled import rows, seconds
from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.profiling.verdict import verdict

KINDS = (
    "computed: registers, LDS of a workgroup, occupancy; modelled: figures so labelled, by a timing"
    " model; emulated: everything else, hit rates and HBM bytes by a cache model from cold caches; "
    "nothing is measured"
)
Row = tuple[str, str, str]


def render(kernels: Sequence[KernelCounts], width: int = WIDTH) -> str:
    """Return the tables of some kernels as text, in lines of `width` columns."""
    if not kernels:
        return "no launches"
    console, names = plain_console(width), names_of(kernels)
    if len(kernels) > 1:
        wide = console.options.update(max_width=10 * WIDTH)
        for columns, name_width in ((_OVERVIEW, 32), (_OVERVIEW, 18), (_NARROW_OVERVIEW, 32)):
            table = _overview(kernels, names, columns, name_width)
            if console.measure(table, options=wide).maximum <= width:
                break
        console.print(table)
    for kernel, name in zip(kernels, names, strict=True):
        console.print(Text(f"{title(kernel, name)}\nVerdict (modelled): {verdict(kernel)}"))
        console.print(_details(kernel))
    console.print(KINDS)
    return text_of(console)


_OVERVIEW: Mapping[str, Callable[[KernelCounts], str]] = {
    "launches": lambda kernel: str(kernel.launches),
    "VGPRs": lambda kernel: str(kernel.registers["allocated"]),
    "waves/SIMD": lambda kernel: f"{kernel.occupancy.waves_per_simd:g}",
    "MFMA": lambda kernel: f"{kernel.mix['MFMA']:,}",
    "FLOP": lambda kernel: count(kernel.flop),
    "vL1D req": lambda kernel: f"{kernel.global_memory.traffic.requests:,}",
    "hit": lambda kernel: percent(kernel.global_memory.l1_hit_rate),
    "coalesc.": lambda kernel: percent(kernel.global_memory.coalescing),
    "L2 hit": lambda kernel: percent(kernel.global_memory.l2_hit_rate),
    "HBM": lambda kernel: size(kernel.hbm_bytes),
    "LDS confl.": lambda kernel: percent(kernel.lds.conflict_rate),
    "modelled": lambda k: "-" if k.timing is None else seconds(k.timing.seconds),
}
_NARROW_OVERVIEW = ("launches", "FLOP", "HBM", "modelled")


def names_of(kernels: Sequence[KernelCounts]) -> list[str]:
    """Return the kernels' names, numbered if several kernels share one.

    Kernels with the same name differ in code, block or LDS.
    """
    shared = collections.Counter(kernel.kernel for kernel in kernels)
    seen: collections.Counter[str] = collections.Counter()
    names = []
    for kernel in kernels:
        name = kernel.kernel
        seen[name] += 1
        names.append(f"{name} ({seen[name]} of {shared[name]})" if shared[name] > 1 else name)
    return names


def _overview(
    kernels: Sequence[KernelCounts], names: Sequence[str], columns: Iterable[str], name_width: int
) -> Table:
    """Return one row for each kernel; longer names take several lines."""
    table = Table(box=None, pad_edge=False, title="Kernels", title_justify="left")
    table.add_column("kernel", overflow="fold", max_width=name_width)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for kernel, name in zip(kernels, names, strict=True):
        table.add_row(name, *(_OVERVIEW[heading](kernel) for heading in columns))
    return table


def title(kernel: KernelCounts, name: str) -> str:
    """Return a kernel's name, one of `names_of`, and its target and launch as text."""
    grid, block = ("x".join(map(str, extent)) for extent in (kernel.grid, kernel.block))
    launches = f", {kernel.launches} launches" if kernel.launches > 1 else ""
    return f"{name} on emulated {kernel.target}: grid {grid}, block {block}{launches}"


def _details(kernel: KernelCounts) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    sections = (_wavefront, _instructions, _l1, _l2, _lds, _waits, rows)
    for section in sections:
        for name, value, note in section(kernel):
            table.add_row(name, value, note)
    return table


def _wavefront(kernel: KernelCounts) -> list[Row]:
    registers, room = kernel.registers, kernel.occupancy
    ran = f"; {kernel.sampled:,} ran, and all counts are scaled from them" if kernel.sampled else ""
    limits = ", ".join(f"{name} {n}" for name, n in room.limits.items())
    used = ", ".join(f"{registers[name]} {name.upper()}s" for name in ("vgpr", "agpr", "sgpr"))
    return [
        (
            "VGPRs per wave",
            str(registers["allocated"]),
            f"{used} used; {registers['scratch']} bytes of scratch",
        ),
        ("LDS per workgroup", size(kernel.lds_bytes), ""),
        (
            "Wave occupancy",
            f"{room.waves_per_simd:g} of 8",
            f"waves per SIMD, limited by {room.limited_by} (workgroups per CU: {limits})",
        ),
        (
            "Workgroups",
            f"{kernel.workgroups:,}",
            f"{kernel.waves:,} waves; a launch fills the device {room.fills:.2f} times{ran}",
        ),
    ]


def _instructions(kernel: KernelCounts) -> list[Row]:
    total = max(kernel.executed, 1)
    mix = ", ".join(f"{name} {n / total:.1%}" for name, n in kernel.mix.items() if n)
    rows = [
        ("Instructions", f"{kernel.executed:,}", mix),
        ("MFMA count", f"{kernel.mix['MFMA']:,}", ""),
    ]
    rows += [(f"MFMA FLOP, {kind}", count(n), "") for kind, n in kernel.matrix_flop.items()]
    rows += [(f"VALU FLOP, {kind}", count(n), "") for kind, n in kernel.vector_flop.items()]
    if kernel.flop_per_byte is not None and kernel.flop:
        per_request = kernel.flop / max(kernel.global_memory.bytes, 1)
        note = f"of HBM; {per_request:.1f} per byte requested"
        rows.append(("FLOP per byte", f"{kernel.flop_per_byte:.1f}", note))
    return rows


def _l1(kernel: KernelCounts) -> list[Row]:
    memory, line = kernel.global_memory, PARTS[kernel.target].l1.line
    if not memory.instructions:
        return []
    traffic = memory.traffic
    kinds = f"{size(memory.bytes_read)} read, {size(memory.bytes_written)} written, "
    kinds += f"{size(memory.bytes_atomic)} atomic"
    touched = f"{memory.lines_64:,} lines of 64 bytes, {memory.lines_128:,} of 128"
    return [
        (
            "Global memory",
            size(memory.bytes),
            f"requested by {memory.instructions:,} wave-instructions: {kinds}; {touched}",
        ),
        ("vL1D requests", f"{traffic.requests:,}", f"lines of {line} bytes"),
        (
            "vL1D hit",
            percent(memory.l1_hit_rate),
            f"{traffic.l1_hits:,} of {traffic.l1_reads:,} load requests",
        ),
        *_misses(traffic),
        (
            "vL1D coalescing",
            percent(memory.coalescing),
            f"{traffic.ideal_requests:,} requests if contiguous",
        ),
    ]


def _misses(traffic: Traffic) -> list[Row]:
    """Return the misses in vL1D by cause, and how evenly the loads use its sets."""
    missed = traffic.l1_reads - traffic.l1_hits
    if not missed:
        return []
    causes = f"{traffic.l1_compulsory:,} compulsory, {traffic.l1_capacity:,} capacity, "
    causes += f"{traffic.l1_conflict:,} conflict"
    used = percent(ratio(traffic.l1_sets_used, traffic.l1_sets_possible))
    return [
        ("vL1D misses", f"{missed:,}", causes),
        ("vL1D sets used", used, "sets that a wave's load uses, of those that it could"),
    ]


def _l2(kernel: KernelCounts) -> list[Row]:
    memory = kernel.global_memory
    traffic = memory.traffic
    if not traffic.l2_requests:
        return []
    last = "" if PARTS[kernel.target].last is None else ", past the last-level cache"
    return [
        (
            "L2 hit",
            percent(memory.l2_hit_rate),
            f"{traffic.l2_hits:,} of {traffic.l2_requests:,} requests, each XCD its own L2",
        ),
        (
            "L2-fabric",
            size(traffic.fabric_read + kernel.fabric_written),
            f"{size(traffic.fabric_read)} read, {size(kernel.fabric_written)} written",
        ),
        (
            "HBM",
            size(kernel.hbm_bytes),
            f"{size(kernel.hbm_read)} read, {size(kernel.hbm_written)} written{last}",
        ),
    ]


def _lds(kernel: KernelCounts) -> list[Row]:
    lds = kernel.lds
    if not lds.instructions:
        return []
    return [
        ("LDS", size(lds.bytes), f"by {lds.instructions:,} wave-instructions"),
        (
            "LDS cycles",
            f"{lds.cycles:,}",
            f"{lds.conflict_cycles:,} of them bank conflicts ({percent(lds.conflict_rate)})",
        ),
        (
            "LDS utilisation",
            percent(lds.utilisation),
            "of the bytes that the banks could move in these cycles",
        ),
    ]


def _waits(kernel: KernelCounts) -> list[Row]:
    texts = {inst.offset: inst.text.partition(" ")[0] for inst in kernel.instructions}
    rows = []
    for wait in kernel.waits:
        kinds: dict[str, int] = {}
        for offset, times in wait.operations.items():
            name = texts.get(offset, "?")
            kinds[name] = kinds.get(name, 0) + times
        named = ", ".join(f"{n:,} {name}" for name, n in sorted(kinds.items(), key=lambda x: -x[1]))
        between = counted(round(wait.distance / wait.waves), "instruction")
        rows.append(
            (
                f"Waits, {wait.counter}",
                f"{wait.waves:,}",
                f"for {named}; {between} after the youngest of them",
            )
        )
    return rows


def size(number: int) -> str:
    """Return a number of bytes as text."""
    for unit, scale in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if number >= 1 << scale:
            return f"{number / (1 << scale):.1f} {unit}"
    return f"{number} B"


def count(number: int) -> str:
    """Return a large number as text."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= scale:
            return f"{number / scale:.2f} {unit}"
    return f"{number:,}"
