"""Emulated: counted while the emulated device executes the machine code. Deterministic.

The figures are those of the main loop alone: the difference between a product of eight steps of
tile_k and one of four, so that prologue and epilogue cancel.
"""

from __future__ import annotations

from suite.kernels import Case, Figures, KernelFigures, figure


class Emulated(KernelFigures):
    """Counts of one workgroup in a step of tile_k, by architecture, type and mainloop."""

    version = "1"  # raise it if the meaning of a figure changes

    def track_instructions(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "instructions")

    def track_bank_conflicts(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "conflicts")

    track_instructions.unit = "wave-instructions per step"
    track_instructions.pretty_name = "Emulated: instructions of the main loop"
    track_bank_conflicts.unit = "LDS cycles per step"
    track_bank_conflicts.pretty_name = "Emulated: bank conflicts of the main loop"
