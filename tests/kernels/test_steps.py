"""The kernels of the page naive_to_ping_pong: they multiply, and the page's figures hold.

The page (docs/explanation) has a table of counts by `profile_loop`; here it is computed again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.mainloops import ping_pong, register_double_buffer
from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator import profile_loop
from cupygemm.emulator.profiling.loop import LoopProfile
from tests.hip.harness import Program
from tests.problems import problem_of

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "naive_to_ping_pong.rst"
SOURCE = PAGE.with_name("steps.hip")
TARGET = "gfx942"
STEPS = {
    "naive": (16, 64),
    "lds_tile": (128, 256),
    "rotated_rows": (128, 256),
    "registers_ahead": (128, 256),
}  # tile and threads


def build() -> Path:
    toolchain = find_toolchain()
    options = ("-O3", "-Wall", "-Wextra", "-Werror")

    def compile_it(output: Path) -> None:
        toolchain.compile_hip(SOURCE, output, target=TARGET, options=options)

    key = (SOURCE.read_text(), *options, TARGET, toolchain.version)
    return get_or_build("test-steps", key, ".hsaco", compile_it)


@functools.cache
def conflicts(kernel: str) -> dict[int, float]:
    """Run a step, check its product, and return the LDS cycles that conflicts add, by offset."""
    m, n, k = 128, 128, 192
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    tile, threads = STEPS[kernel]
    stats = Program(build(), TARGET)(
        kernel,
        (n // tile, m // tile, 1),
        (threads, 1, 1),
        a.view(np.uint16),
        b.view(np.uint16),
        c,
        np.int32(n),
        np.int32(k),
        profile=True,
    )
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    return {
        offset: extra / count for offset, (count, _, extra) in stats.lds_conflicts.items() if extra
    }


def count(step: str) -> LoopProfile:
    """Return the count of a step, or of a kernel of the library in its place."""
    if step in STEPS:
        return profile_loop(build(), step, conflicts=conflicts(step))
    problem = problem_of(4096, 4096, 4096, out_dtype="f32", majors="kk")
    if step == "ping_pong":
        config = ping_pong.configs("bf16", TARGET)[0]
    else:
        config = next(
            config
            for config in register_double_buffer.configs("bf16", TARGET)
            if (config.tile_m, config.tile_n, config.mma_m) == (128, 128, 16)
        )
    compiled = compile_kernel(problem, config, TARGET)
    return profile_loop(compiled.path, compiled.name)


FIGURES: dict[str, Callable[[LoopProfile], float]] = {
    "MFMA cycles": lambda loop: loop.waves_per_simd * loop.mfma_cycles,
    "cycles": lambda loop: loop.cycles,
    "exposed": lambda loop: loop.exposed_cycles,
    "LDS cycles": lambda loop: loop.lds_cycles * loop.threads / 64,
    "conflicts": lambda loop: loop.lds_conflict_cycles * loop.threads / 64,
    "bytes": lambda loop: loop.global_bytes / loop.mfma,
    "efficiency": lambda loop: 100 * loop.efficiency,
}


def table() -> dict[str, dict[str, float]]:
    """Return the figures of the page's table, by step."""
    first, _ = PAGE.read_text().split("1. Every wave for itself")
    rows = re.findall(r"^   \* - ``(\w+)``\n((?:     - .*\n)+)", first, re.MULTILINE)
    return {
        step: dict(
            zip(
                FIGURES,
                (float(cell.strip("% \n").replace(",", "")) for cell in cells.split("- ")[1:]),
                strict=True,
            )
        )
        for step, cells in rows
    }


@pytest.mark.slow
@pytest.mark.parametrize("step", [*STEPS, "register_double_buffer", "ping_pong"])
def test_the_figures_of_the_page(step: str) -> None:
    """Within what another release of the compiler may change: 3 % and 3 points."""
    loop, figures = count(step), table()[step]
    for name, figure in FIGURES.items():
        assert figure(loop) == pytest.approx(figures[name], rel=0.03, abs=3), name


def test_each_step_gets_further() -> None:
    efficiencies = [figures["efficiency"] for figures in table().values()]
    assert len(efficiencies) == 6
    assert efficiencies == sorted(efficiencies)
