"""Modelled: cycles of the timing model. Deterministic; no GPU takes exactly as many.

The figures are those of the mainloop alone, as in `suite.emulated`: a workgroup alone on its
compute unit, eight steps of tile_k less four.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from suite.products import LABELS, MAJORS, TARGETS, product, run

SHORT, LONG = 4, 8
MFMA = "MFMA"


@dataclass(frozen=True)
class Figures:
    """What one step of tile_k takes a workgroup."""

    cycles: float
    matrix_cycles: float


def mainloop_figures(target: str, label: str, layout: str) -> Figures:
    """Return the figures of one step."""
    found = []
    for steps in (SHORT, LONG):
        timing = run(product(target, label, layout, steps=steps)).profile.timing
        found.append((timing.cu_cycles, timing.cu_cycles * timing.utilisation[MFMA]))
    return Figures(*((b - a) / (LONG - SHORT) for a, b in zip(*found, strict=True)))


class ModelledMainloop:
    """The bf16 kernel, one workgroup, for C- and F-ordered operands (N: C order, T: F order)."""

    params = (TARGETS, LABELS, tuple(MAJORS))
    param_names = ("target", "tile", "layout")
    timeout = 300

    def setup_cache(self) -> dict[tuple[str, str, str], Figures]:
        return {case: mainloop_figures(*case) for case in itertools.product(*self.params)}

    def track_cycles_per_step(self, cache: dict, target: str, label: str, layout: str) -> float:
        return cache[target, label, layout].cycles

    def track_idle_matrix_units(self, cache: dict, target: str, label: str, layout: str) -> float:
        figures = cache[target, label, layout]
        return 1 - figures.matrix_cycles / figures.cycles

    track_cycles_per_step.unit = "modelled cycles"
    track_idle_matrix_units.unit = "share of cycles"


class Calibration:
    """Mean absolute error of the model on each group of published figures."""

    params = ("LDS, gfx942", "LDS, gfx950", "ladder", "turns")
    param_names = ("group",)
    timeout = 300

    def setup_cache(self) -> dict[str, float]:
        from cupygemm.emulator.calibration import ladder, lds, turns

        groups: dict[str, list[float]] = {}
        for figure in lds.figures():
            groups.setdefault(f"LDS, {figure.group[-6:]}", []).append(abs(figure.error))
        for name, module in (("ladder", ladder), ("turns", turns)):
            groups[name] = [abs(figure.error) for figure in module.figures()]
        return {name: sum(errors) / len(errors) for name, errors in groups.items()}

    def track_error(self, cache: dict, group: str) -> float:
        return cache[group]

    track_error.unit = "share"
