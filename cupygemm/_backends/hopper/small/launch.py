"""Compile and launch the kernel for batches of small matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm._backends.hopper.compilation.compile import Cubin, compile_cubin, load
from cupygemm._backends.hopper.compilation.source import small_text
from cupygemm._backends.hopper.cuda.enqueue import Enqueue, Parameters, offsets
from cupygemm._backends.hopper.product import moved_launches
from cupygemm._backends.hopper.small_config import SmallConfig
from cupygemm._request.layout import Layout

SMALL_ENTRY = "cupygemm_small_gemm"
MAX_GRID = (1 << 31) - 1
SMALL_ARGS = np.dtype(
    [(name, np.uint64) for name in "abc"]
    + [(f"ld{name}", np.int64) for name in "abc"]
    + [(f"{name}_stride", np.int64, 3) for name in "abc"]
    + [
        (name, np.uint32)
        for name in ("m", "n", "k", "batch1", "batch2", "tiles_m", "tiles_n", "units")
    ]
)
"""The struct ``SmallArgs``."""


def small_cubin(layout: Layout, config: SmallConfig) -> Cubin:
    """Return the compiled kernel."""
    return compile_cubin(small_text(layout.problem, config), SMALL_ENTRY)


def small_launches(layout: Layout, config: SmallConfig) -> list[Callable[..., None]]:
    """Load the kernel and return the launches of a layout, which take the addresses of A, B, C."""
    return moved_launches(layout, SmallLaunch(load(small_cubin(layout, config)), layout, config))


def small_grid(layout: Layout, config: SmallConfig) -> tuple[int, int, int]:
    """Return the grid: a team for each unit, up to the limit of a grid."""
    return min(-(-config.num_units(layout.problem) // config.num_teams), MAX_GRID), 1, 1


class SmallLaunch:
    """The launch of the kernel; calling it with three addresses enqueues it.

    Parameters
    ----------
    kernel : cupy.RawKernel
    layout : Layout
    config : SmallConfig
    """

    __slots__ = ("_enqueue", "_parameters")

    def __init__(self, kernel: Any, layout: Layout, config: SmallConfig) -> None:
        problem = layout.problem
        arguments = np.zeros(1, SMALL_ARGS)
        for name in ("lda", "ldb", "ldc", "a_stride", "b_stride", "c_stride"):
            arguments[name] = getattr(layout, name)
        arguments["m"], arguments["n"], arguments["k"] = problem.m, problem.n, problem.k
        extents = (1, 1, *problem.batch)
        arguments["batch1"], arguments["batch2"] = extents[-2:]
        arguments["tiles_m"] = -(-problem.m // config.tile_m)
        arguments["tiles_n"] = -(-problem.n // config.tile_n)
        arguments["units"] = config.num_units(problem)
        self._parameters = Parameters(arguments, *offsets(SMALL_ARGS, "a", "b", "c"))
        shared, grid = config.shared_bytes(problem), small_grid(layout, config)
        self._enqueue = Enqueue(kernel, grid, config.num_threads, shared)

    def __call__(self, a: int, b: int, c: int, epilogue: bytes = b"") -> None:
        """Enqueue the launch; `epilogue` holds its packed arguments, if present."""
        self._enqueue(self._parameters[a, b, c, epilogue])
