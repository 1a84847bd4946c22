"""Modelled: cycles of the panel kernels of the solvers. Deterministic; GPUs take other times.

Each kernel factors, or solves for, one block of 32 columns of float64 that has 512 rows.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

TARGETS = ("gfx90a", "gfx942", "gfx950")
KINDS = ("lu_panel", "qr_panel", "cholesky_panel", "triangular_solve")
ROWS, WIDTH, SOLVED = 512, 32, 64


class ModelledSolvers:
    """Cycles of a launch at the boost clock."""

    params = (TARGETS, KINDS)
    param_names = ("architecture", "kernel")
    timeout = 600
    version = "1"  # raise it if the meaning of a figure changes

    def setup(self, target: str, kind: str) -> None:
        self.timing = profiled(target, kind).timing

    def track_cycles(self, target: str, kind: str) -> float:
        return float(self.timing.cycles)

    track_cycles.unit = "modelled cycles"
    track_cycles.pretty_name = "Modelled: cycles of a panel's kernel"


def profiled(target: str, kind: str) -> Any:
    """Return the profile of one launch."""
    from cupygemm._backends.cdna.compile import compile_source
    from cupygemm._solvers.common import kernels
    from cupygemm.emulator import code_object
    from cupygemm.emulator.device import Memory
    from cupygemm.emulator.run import launch
    from cupygemm.emulator.targets import TARGETS as DEVICES

    memory = Memory(1 << 26)
    grid, threads, constants, arguments = _launches(memory)[kind]
    described = getattr(kernels, kind.upper())
    text = kernels.source(described, "d", {"threads": threads, **constants})
    compiled = compile_source(text, target, described.entry)
    loaded = code_object.load(compiled.path.read_bytes(), memory)
    packed = struct.pack(described.arguments, *arguments)
    found = launch(
        loaded.kernels[described.entry],
        (grid, 1, 1),
        (threads, 1, 1),
        0,
        packed,
        memory,
        DEVICES[target],
        profile=True,
    )
    return found.profile


def _launches(memory: Any) -> dict[str, tuple[int, int, dict[str, Any], tuple[int, ...]]]:
    """Return the grid, the threads, the constants and the arguments of each kernel."""
    matrix = np.random.default_rng(1).standard_normal((ROWS, WIDTH)) / 64 + np.eye(ROWS, WIDTH)
    a, v, b = _copied(memory, matrix), _zeros(memory, matrix.size), _zeros(memory, WIDTH * SOLVED)
    tau, t = _zeros(memory, WIDTH), _zeros(memory, WIDTH * WIDTH)
    pivots, info, moves = (_zeros(memory, count) for count in (WIDTH, 1, 2 * WIDTH))
    stride, small = ROWS * WIDTH, WIDTH * WIDTH
    panel = {"width": WIDTH, "rows": 2, "team": 1}
    solve = {"block": WIDTH, "unit": False, "conjugate": False}
    solve |= {"rows_adjacent": False, "b_rows_adjacent": False}
    return {
        "lu_panel": (
            *(1, 256, panel),
            (a, WIDTH, stride, pivots, WIDTH, info, 0, 0, moves, ROWS, WIDTH, 0, 1, 1, 0),
        ),
        "qr_panel": (
            *(1, 256, panel | {"by_products": False}),
            (
                *(a, WIDTH, stride, v, WIDTH, stride, tau, WIDTH, t, WIDTH, small),
                *(0, 0, ROWS, WIDTH, 1, 1),
            ),
        ),
        "cholesky_panel": (
            *(-(-(ROWS - WIDTH) // 64), 64, {"width": WIDTH}),
            (a, WIDTH, stride, t, small, info, ROWS, WIDTH, 0, 0),
        ),
        "triangular_solve": (
            *(1, 64, solve),
            (a, b, WIDTH, 1, stride, SOLVED, 1, WIDTH * SOLVED, WIDTH, SOLVED),
        ),
    }


def _copied(memory: Any, array: np.ndarray[Any, Any]) -> int:
    address: int = memory.malloc(array.nbytes, "array")
    memory.write(address, array.tobytes())
    return address


def _zeros(memory: Any, count: int) -> int:
    return _copied(memory, np.zeros(count))
