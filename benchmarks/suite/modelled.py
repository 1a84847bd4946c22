"""Modelled: cycles of the timing model. Deterministic; no GPU takes exactly as many."""

from __future__ import annotations

from suite.kernels import MAINLOOPS, SHAPES, TARGETS, TYPES, Case, Figures, KernelFigures


class Modelled(KernelFigures):
    """Cycles of a whole product at the boost clock, extrapolated from one workgroup."""

    version = "1"  # raise it if the meaning of a figure changes

    params = (TARGETS, TYPES, MAINLOOPS, SHAPES)
    param_names = (*KernelFigures.param_names, "product")

    def track_cycles(self, cache: dict[Case, Figures], *case: str) -> float:
        *kernel, shape = case
        found = cache.get(tuple(kernel))
        return float("nan") if found is None else found.cycles.get(shape, float("nan"))

    track_cycles.unit = "modelled cycles"
    track_cycles.pretty_name = "Modelled: cycles of a product"
