"""Computed: read from the code objects. Deterministic; a GPU would report the same."""

from __future__ import annotations

from suite.kernels import Case, Figures, KernelFigures, figure


class Computed(KernelFigures):
    """Resources and main loop of the kernel of each architecture, type and mainloop."""

    version = "1"  # raise it if the meaning of a figure changes

    def track_registers(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "registers")

    def track_spills(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "spills")

    def track_lds(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "lds")

    def track_code_size(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "code_size")

    def track_mfma_issue(self, cache: dict[Case, Figures], *case: str) -> float:
        return figure(cache, case, "loop")

    track_registers.unit = "registers of a lane"
    track_registers.pretty_name = "Computed: registers (VGPR and AGPR)"
    track_spills.unit = "registers"
    track_spills.pretty_name = "Computed: spilled registers"
    track_lds.unit = "bytes"
    track_lds.pretty_name = "Computed: LDS of a workgroup"
    track_code_size.unit = "bytes"
    track_code_size.pretty_name = "Computed: size of the machine code"
    track_mfma_issue.unit = "issue cycles per MFMA cycle"
    track_mfma_issue.pretty_name = "Computed: main loop, 1 / MFMA issue efficiency"
