"""The modelled figures of a profile as table rows, notes and numbers; each is named as modelled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cupygemm.emulator.profiling.counts import counted, percent
from cupygemm.emulator.profiling.kernel_counts import InstructionProfile, KernelCounts, sum_cycles
from cupygemm.emulator.profiling.roofline import roof
from cupygemm.emulator.profiling.timing.model import ISSUE, Timing

_HOT = 5  # instructions in the table
_LEAST = 0.001  # reasons and instructions with a smaller share of the cycles are omitted
_NOTED = 0.005  # instructions with a smaller share of the cycles get no note


def seconds(time: float) -> str:
    """Return a time as text."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time >= scale:
            return f"{time / scale:.3g} {unit}"
    return f"{time * 1e9:.3g} ns"


def rows(kernel: KernelCounts) -> list[tuple[str, str, str]]:
    """Return the rows of a kernel's table."""
    timing = kernel.timing
    if timing is None:
        return [("Modelled time", "-", "the launch was too long for the timing model to keep")]
    result = [
        (
            "Modelled time",
            seconds(timing.seconds),
            f"{timing.cycles:,.0f} cycles at {timing.clock_mhz:.0f} MHz{_sustained(timing)}",
        )
    ]
    if kernel.flop and kernel.matrix_flop | kernel.vector_flop:
        rate = kernel.flop / timing.seconds
        unit, _ = roof(kernel)
        result.append(("Modelled rate", f"{rate / 1e12:.3g} TFLOP/s", f"mostly {unit}"))
    busy = ", ".join(f"{name} {share:.0%}" for name, share in timing.utilisation.items())
    workgroups = counted(timing.resident, "workgroup")
    rounds = f"{timing.rounds:.2f} rounds of {workgroups} to a CU, which take "
    rounds += f"{timing.cu_cycles:,} cycles: {busy} busy"
    result.append(("Modelled bound", timing.bound, rounds))
    total = max(sum(timing.wave_cycles.values()), 1)
    result.append(
        (
            "Modelled waits",
            percent(1 - timing.wave_cycles[ISSUE] / total),
            f"of the waves' cycles: {shares(waits(timing.wave_cycles), total)}",
        )
    )
    for inst in hottest(kernel):
        place = f"{'-' if inst.offset < 0 else '+'}0x{abs(inst.offset):04x}"
        waited = waits(inst.modelled_cycles)
        where = f", {inst.place}" if inst.place else ""
        result.append(
            (
                f"  at {place}",
                percent(sum(waited.values()) / total),
                f"{inst.text.partition(' ')[0]}: {shares(waited, total)}{where}",
            )
        )
    return result


def _sustained(timing: Timing) -> str:
    clock = timing.sustained_clock_mhz
    if clock is None or clock >= timing.clock_mhz:
        return ""
    return f"; power may hold it to about {clock:.0f} MHz (fitted)"


def waits(cycles: dict[str, int]) -> dict[str, int]:
    """Return the modelled cycles except those of issuing."""
    return {name: n for name, n in cycles.items() if name != ISSUE}


def hottest(kernel: KernelCounts) -> list[InstructionProfile]:
    """Return the instructions with the most modelled waiting, the worst first."""
    least = _LEAST * sum(kernel.timing.wave_cycles.values()) if kernel.timing else 0.0
    waiting = [
        inst
        for inst in kernel.instructions
        if max(waits(inst.modelled_cycles).values(), default=0) > least
    ]
    return sorted(waiting, key=lambda inst: -sum(waits(inst.modelled_cycles).values()))[:_HOT]


def shares(cycles: dict[str, int], total: int) -> str:
    """Return the uses of cycles as shares of a total, the largest first."""
    ordered = sorted(cycles.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {n / total:.1%}" for name, n in ordered if n / total >= _LEAST)


def note(instructions: Iterable[InstructionProfile], kernel: KernelCounts) -> str:
    """Return the share of the modelled cycles that some instructions take; empty if it is small."""
    if kernel.timing is None:
        return ""
    total = max(sum(kernel.timing.wave_cycles.values()), 1)
    cycles = sum_cycles(inst.modelled_cycles for inst in instructions)
    if sum(cycles.values()) < _NOTED * total:
        return ""
    return f"modelled {sum(cycles.values()) / total:.1%} of cycles ({shares(cycles, total)})"


def timing_to_dict(timing: Timing | None) -> dict[str, Any] | None:
    """Return a modelled time for JSON."""
    if timing is None:
        return None
    return {
        "clock_mhz": timing.clock_mhz,
        "cycles": timing.cycles,
        "seconds": timing.seconds,
        "sustained_clock_mhz": timing.sustained_clock_mhz,
        "bound": timing.bound,
        "rounds": timing.rounds,
        "workgroups_per_cu": timing.resident,
        "cu_cycles": timing.cu_cycles,
        "utilisation": dict(timing.utilisation),
        "device_matrix_utilisation": timing.matrix_share,
        "wave_cycles": dict(timing.wave_cycles),
    }
