"""Computed: the resources of the solvers' panel kernels, read from their code objects."""

from __future__ import annotations

import numpy as np

TARGETS = ("gfx90a", "gfx942", "gfx950")
KINDS = ("lu_panel", "qr_panel", "cholesky_panel", "triangular_solve")


class ComputedSolvers:
    """Registers and code of the kernels, float64, 32 columns or rows."""

    params = (TARGETS, KINDS)
    param_names = ("architecture", "kernel")
    timeout = 300
    version = "1"  # raise it if the meaning of a figure changes

    def setup(self, target: str, kind: str) -> None:
        from cupygemm._backends.cdna.compile import compile_source
        from cupygemm._solvers.common import kernels

        panel = {"threads": 256, "width": 32, "rows": 2, "team": 1}
        solve = {
            "threads": 64,
            "block": 32,
            "unit": False,
            "conjugate": False,
            "rows_adjacent": False,
            "b_rows_adjacent": False,
        }
        constants = solve if kind == "triangular_solve" else panel
        if kind == "qr_panel":
            constants = constants | {"by_products": False}
        described = getattr(kernels, kind.upper())
        text = kernels.source(described, np.dtype("d").char, constants)
        self.resources = compile_source(text, target, described.entry).resources

    def track_registers(self, target: str, kind: str) -> int:
        return self.resources.vgprs

    def track_scratch(self, target: str, kind: str) -> int:
        return self.resources.scratch_bytes

    def track_code_size(self, target: str, kind: str) -> int:
        return self.resources.code_bytes

    track_registers.unit = "registers of a lane"
    track_registers.pretty_name = "Computed: registers of a panel's kernel (VGPR)"
    track_scratch.unit = "bytes"
    track_scratch.pretty_name = "Computed: private memory of a panel's kernel, per lane"
    track_code_size.unit = "bytes"
    track_code_size.pretty_name = "Computed: size of the machine code of a panel's kernel"
