"""Four waves that interleave against eight, and eight that take turns: the page's second table.

Kernels of four waves with tiles this large are not among the configurations: they are counted here,
and must multiply, but are never selected (docs/explanation/naive_to_ping_pong.rst says why).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.mainloops import MAINLOOPS
from cupygemm.emulator import profile_loop
from cupygemm.emulator.calibration.turns import efficiency
from tests.kernels.gemm import Case
from tests.problems import problem_of

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "naive_to_ping_pong.rst"
PROBLEM = problem_of(4096, 4096, 4096, out_dtype="f32", majors="kk")
TILE_K = 64


@dataclass(frozen=True)
class Row:
    """A kernel of the table, and its figures."""

    mainloop: str
    target: str
    tile_m: int
    tile_n: int
    waves: int
    registers: int
    counted: float
    modelled: float

    @property
    def config(self) -> GemmConfig:
        """Return the configuration: that which is built, or the same on four waves."""
        if self.waves == 8:
            return next(
                c
                for c in MAINLOOPS[self.mainloop].configs("bf16", self.target)
                if (c.tile_m, c.tile_n, c.mma_m) == (self.tile_m, self.tile_n, 16)
            )
        mma_k, num_stages = (16, 1) if self.target == "gfx942" else (32, 2)
        return GemmConfig(
            mainloop=self.mainloop,
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=TILE_K,
            waves_m=2,
            waves_n=2,
            mma_m=16,
            mma_n=16,
            mma_k=mma_k,
            num_stages=num_stages,
            waves_per_simd=1,
        )


def rows() -> list[Row]:
    """Return the rows of the page's table."""
    pattern = r"^   \* - ``(\w+)``\n     - (gfx\w+)\n     - (\d+)x(\d+)\n((?:     - .*\n){4})"
    found = re.findall(pattern, PAGE.read_text(), re.MULTILINE)
    made = []
    for mainloop, target, tile_m, tile_n, cells in found:
        waves, registers, counted, modelled = map(float, re.findall(r"- ([\d.]+)", cells))
        made.append(
            Row(
                mainloop,
                target,
                tile_m=int(tile_m),
                tile_n=int(tile_n),
                waves=int(waves),
                registers=int(registers),
                counted=counted,
                modelled=modelled,
            )
        )
    return made


def names(row: Row) -> str:
    return f"{row.target}-{row.mainloop}-{row.tile_m}x{row.tile_n}-{row.waves}"


@pytest.mark.slow
@pytest.mark.one_in(5)
@pytest.mark.parametrize("row", rows(), ids=names)
def test_what_the_loop_counts(row: Row) -> None:
    compiled = compile_kernel(PROBLEM, row.config, row.target)
    resources = compiled.resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs == pytest.approx(row.registers, abs=8)
    assert 100 * profile_loop(compiled.path, compiled.name).efficiency == pytest.approx(
        row.counted, abs=3
    )


# Of four waves, and of the smaller tiles. Twelve steps of 256x256 take the emulator some seconds.
TIMED = [
    pytest.param(row, id=names(row), marks=[pytest.mark.slow] if row.tile_m == row.tile_n else [])
    for row in rows()
    if row.waves == 4 or row.tile_m != row.tile_n
]


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.parametrize("row", TIMED)
def test_what_the_timing_model_gives(row: Row) -> None:
    profiles = []
    for steps in (6, 12):
        case = Case(
            row.config, row.target, m=row.tile_m, n=row.tile_n, k=TILE_K * steps, b_major="k"
        )
        result = case.run(profile=True)
        result.check_exact()
        assert result.stats.profile is not None
        profiles.append(result.stats.profile)
    assert 100 * efficiency((profiles[0], profiles[1])) == pytest.approx(row.modelled, abs=4)


def test_four_waves_win_nowhere() -> None:
    """For each target and tile size, the ping-pong kernel is first by either figure."""
    table = rows()
    assert len(table) == 8
    for row in table:
        if row.waves == 4:
            size = row.tile_m * row.tile_n
            others = [
                x
                for x in table
                if (x.target, x.tile_m * x.tile_n, x.waves) == (row.target, size, 8)
            ]
            assert max(x.counted for x in others) > row.counted
            assert min(x.modelled for x in others) >= row.modelled
