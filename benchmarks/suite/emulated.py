"""Emulated: counted while the emulated device executes the machine code. Deterministic.

The figures are those of the mainloop alone: the difference between a product of eight steps of
tile_k and one of four, so that prologue and epilogue cancel.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from cupygemm.emulator.run import LaunchStats
from suite.products import LABELS, MAJORS, TARGETS, product, run

SHORT, LONG = 4, 8


@dataclass(frozen=True)
class Figures:
    """What one workgroup executes in one step of tile_k."""

    instructions: int
    mfma: int
    lds_cycles: int
    conflict_cycles: int


def mainloop_figures(target: str, label: str, layout: str) -> Figures:
    """Return the figures of one step."""
    totals = [_totals(run(product(target, label, layout, steps=n))) for n in (SHORT, LONG)]
    return Figures(*((b - a) // (LONG - SHORT) for a, b in zip(*totals, strict=True)))


def _totals(stats: LaunchStats) -> tuple[int, int, int, int]:
    conflicts = stats.lds_conflicts.values()  # (wave-instructions, cycles, cycles lost) each
    cycles, lost = sum(c[1] for c in conflicts), sum(c[2] for c in conflicts)
    return stats.instructions, stats.mfma, cycles, lost


class Mainloop:
    """The bf16 kernel, one workgroup, for C- and F-ordered operands (N: C order, T: F order)."""

    params = (TARGETS, LABELS, tuple(MAJORS))
    param_names = ("target", "tile", "layout")
    timeout = 300

    def setup_cache(self) -> dict[tuple[str, str, str], Figures]:
        return {case: mainloop_figures(*case) for case in itertools.product(*self.params)}

    def track_instructions_per_mfma(
        self, cache: dict, target: str, label: str, layout: str
    ) -> float:
        figures = cache[target, label, layout]
        return figures.instructions / figures.mfma

    def track_lds_cycles_per_mfma(self, cache: dict, target: str, label: str, layout: str) -> float:
        figures = cache[target, label, layout]
        return figures.lds_cycles / figures.mfma

    def track_bank_conflicts(self, cache: dict, target: str, label: str, layout: str) -> int:
        return cache[target, label, layout].conflict_cycles

    track_instructions_per_mfma.unit = "instructions"
    track_lds_cycles_per_mfma.unit = "cycles"
    track_bank_conflicts.unit = "cycles per step"
