"""Modelled: cycles of the kernels of the solvers. Deterministic; GPUs take other times.

Each panel kernel factors, or solves for, one block of 32 columns of float64 that has 512 rows. Each
kernel of a stack factors one matrix of 64 rows, and solves for a right-hand side or inverts it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

TARGETS = ("gfx90a", "gfx942", "gfx950")
PANELS = ("lu_panel", "qr_panel", "cholesky_panel", "triangular_solve")
OF_STACKS = ("small_lu", "small_inverse", "small_cholesky", "determinant")
KINDS = (*PANELS, *OF_STACKS)
ROWS, WIDTH, SOLVED, SMALL = 512, 32, 64, 64


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
    track_cycles.pretty_name = "Modelled: cycles of a kernel of the solvers"


def profiled(target: str, kind: str) -> Any:
    """Return the profile of one launch."""
    from cupygemm._backends.cdna.compile import compile_source
    from cupygemm._solvers.common import kernels
    from cupygemm.emulator import code_object
    from cupygemm.emulator.device import Memory
    from cupygemm.emulator.run import launch
    from cupygemm.emulator.targets import TARGETS as DEVICES

    memory = Memory(1 << 26)
    launches = _launches(memory) if kind in PANELS else _launches_of_stacks(memory)
    grid, threads, constants, arguments = launches[kind]
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


def _launches_of_stacks(memory: Any) -> dict[str, tuple[int, int, dict[str, Any], tuple[int, ...]]]:
    """Do as `_launches`, for one definite matrix of `SMALL` rows."""
    drawn = np.random.default_rng(1).standard_normal((SMALL, SMALL))
    a = _copied(memory, drawn @ drawn.T / SMALL + np.eye(SMALL))
    x, b, info, pivots = (_zeros(memory, count) for count in (SMALL * SMALL, SMALL, 1, SMALL))
    place = SMALL, SMALL * SMALL
    shape = {"rows": 2, "groups": 8}
    return {
        "small_lu": (
            *(1, 256, shape | {"right_sides": 1}),
            (a, *place, 0, 0, 0, 0, b, b, info, SMALL, 1, 1, 0),
        ),
        "small_inverse": (1, 256, shape, (a, x, info, SMALL, 1)),
        "small_cholesky": (1, 256, shape, (a, *place, x, *place, info, SMALL, 1, 0, 0)),
        "determinant": (
            *(1, 128, {"logarithms": True}),
            (a, SMALL + 1, SMALL * SMALL, pivots, b, x, SMALL, 1),
        ),
    }


def _copied(memory: Any, array: np.ndarray[Any, Any]) -> int:
    address: int = memory.malloc(array.nbytes, "array")
    memory.write(address, array.tobytes())
    return address


def _zeros(memory: Any, count: int) -> int:
    return _copied(memory, np.zeros(count))
