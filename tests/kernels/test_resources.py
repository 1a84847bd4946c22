"""What the compiled kernels take from a CU, read from their code objects: computed, not emulated.

Every configuration of 16-bit operands on gfx942 is compiled, with layouts, types and alignments
dealt so that each meets each kind of tile; a sample of the other targets. Those of other types are
compiled once each, or every other one where two types share their tiles. Compiled kernels stay in
the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.mainloops import MAINLOOPS, configs_for, mainloop_of
from cupygemm._backends.cdna.source import generate
from cupygemm._build.toolchain import find_toolchain
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import Epilogue, GemmProblem
from tests.problems import problem_of
from tests.tables import rows_of

PROBLEM = problem_of(512, 512, 512)


def variants(arch: str) -> list[tuple[GemmConfig, GemmProblem]]:
    """Return each configuration with problems that cover layouts, types and alignments.

    Registers are scarcest with both operands misaligned, so every configuration that takes them
    meets that.
    """
    layouts = [("k", "k"), ("k", "n"), ("m", "k"), ("m", "n")]
    found = []
    for number, config in enumerate(configs_for("bf16", arch)):
        for turn, (a_major, b_major) in enumerate(layouts):
            dtype = ("bf16", "f16")[(number + turn) % 2]
            align = (16, 2)[turn % 2] if number % 2 else (2, 16)[turn % 2]
            problem = replace(
                PROBLEM,
                a_major=a_major,
                b_major=b_major,
                a_dtype=dtype,
                b_dtype=dtype,
                out_dtype=(dtype, "f32")[(number + turn // 2) % 2],
                a_align=align,
                b_align=align,
                c_align=max(align, 4) if turn // 2 else align,
            )
            if problem.out_dtype == "f32":
                problem = replace(problem, c_align=4)
            if check(config, problem, ARCHS[arch]) is not None:  # one that takes whole dwords only
                problem = replace(problem, a_align=4, b_align=4)
            if check(config, problem, ARCHS[arch]) is None:
                found.append((config, problem))
    return found


def cases() -> list[object]:
    """Return all variants of gfx942, and every third of the other architectures."""
    chosen = []
    for arch, step in (("gfx942", 1), ("gfx90a", 3), ("gfx950", 3)):
        for config, problem in variants(arch)[::step]:
            text = f"{problem.a_major}{problem.b_major}{problem.a_align}"
            chosen.append(pytest.param(arch, config, problem, id=f"{arch}-{config.name}-{text}"))
    return chosen


@dataclass(frozen=True)
class Loop:
    """The instructions of a kernel's main loop, by mnemonic, in order."""

    lines: tuple[str, ...]

    def count(self, prefix: str) -> int:
        """Return how many instructions start so."""
        return sum(line.startswith(prefix) for line in self.lines)


def main_loop(config: GemmConfig, problem: GemmProblem, arch: str, folder: Path) -> Loop:
    """Compile to assembly and return the loop that holds the most MFMA."""
    source, assembly = folder / "kernel.hip", folder / "kernel.s"
    source.write_text(generate(problem, config, arch))
    find_toolchain().compile_to_assembly(source, assembly, target=arch)
    lines = assembly.read_text().splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\.LBB\w+):", line))}
    best = Loop(())
    for end, line in enumerate(lines):
        match = re.match(r"\ts_c?branch\w* (\.LBB\w+)", line)
        if match and labels.get(match[1], end) < end:
            body = (text.strip() for text in lines[labels[match[1]] : end + 1])
            loop = Loop(tuple(text for text in body if text and text[0] not in ".;"))
            if loop.count("v_mfma") > best.count("v_mfma"):
                best = loop
    return best


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize(("arch", "config", "problem"), rows_of(cases, width=3))
def test_nothing_spills(arch: str, config: GemmConfig, problem: GemmProblem) -> None:
    """No scratch, no spills, and no more registers than the waves of a SIMD share."""
    assert check(config, problem, ARCHS[arch]) is None
    resources = compile_kernel(problem, config, arch).resources
    assert resources.scratch_bytes == 0
    assert resources.vgpr_spills == 0
    assert resources.sgpr_spills == 0
    assert resources.vgprs <= ARCHS[arch].registers_per_simd // config.waves_per_simd
    assert resources.lds_bytes == mainloop_of(config).lds_bytes(config, itemsize=2)
    assert resources.max_threads == config.num_threads


OTHER_TYPES = {  # and what they are rounded to
    "gfx90a": {"c128": "c128"},
    "gfx942": {"f32": "f32", "tf32": "f32", "i8": "i32", "e4m3fnuz": "bf16", "c64": "c64"},
    "gfx950": {"f64": "f64", "i8": "bf16", "e4m3fn": "f32"},
}


def mixed_majors(config: GemmConfig, arch: str, dtype: str, turn: int) -> GemmProblem | None:
    """Return a problem that a configuration takes, of mixed majors rather than of equal ones.

    The ragged tiles of K-major and of row-major operands have masks of different shapes.
    """
    out = OTHER_TYPES[arch][dtype]
    epilogue = Epilogue(alpha=True) if (dtype, out) == ("i8", "bf16") else None
    mixed = [("k", "n"), ("m", "k")]
    if turn % 2:
        mixed.reverse()
    for a_major, b_major in (*mixed, ("m", "n"), ("k", "k")):
        for m, n in ((999, 999), (9, 999), (999, 9)):
            problem = replace(
                PROBLEM,
                m=m,
                n=n,
                k=999,
                a_dtype=dtype,
                b_dtype=dtype,
                out_dtype=out,
                a_major=a_major,
                b_major=b_major,
                c_align=ITEMSIZE[out],
                epilogue=epilogue,
            )
            if check(config, problem, ARCHS[arch]) is None:
                return problem
    return None


def cases_of_other_types() -> Iterator[object]:
    """Yield every configuration of the other types, with its number in its mainloop's table."""
    for arch, dtypes in OTHER_TYPES.items():
        for dtype in dtypes:
            for mainloop in MAINLOOPS.values():
                for turn, config in enumerate(mainloop.configs(dtype, arch)):
                    name = f"{arch}-{dtype}-{config.name}"
                    yield pytest.param(arch, dtype, config, turn, id=name)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering(apart_from=("turn",))
@pytest.mark.parametrize(
    ("arch", "dtype", "config", "turn"), rows_of(cases_of_other_types, width=4)
)
def test_nothing_spills_with_other_types(
    arch: str, dtype: DType, config: GemmConfig, turn: int
) -> None:
    problem = mixed_majors(config, arch, dtype, turn)
    assert problem is not None
    resources = compile_kernel(problem, config, arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs <= ARCHS[arch].registers_per_simd // config.waves_per_simd


@pytest.fixture(scope="module", params=["kk", "kn", "mk", "mn"])
def loop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """The main loop of the 128x128x64 kernel for gfx942, in each layout."""
    config = next(
        c for c in configs_for("bf16", "gfx942") if (c.tile_m, c.tile_n, c.mma_m) == (128, 128, 16)
    )
    problem = replace(PROBLEM, a_major=request.param[0], b_major=request.param[1])
    return main_loop(config, problem, "gfx942", tmp_path_factory.mktemp("loop"))


@pytest.mark.slow
def test_the_main_loop_does_only_what_a_tile_needs(loop: Loop) -> None:
    """A wave's 64x64x64 takes 64 MFMA, 16 reads of 16 bytes, and 8 loads of 16 bytes."""
    assert loop.count("v_mfma_f32_16x16x16_bf16") == 64
    assert loop.count("ds_read_b128") == loop.count("ds_read") == 16
    assert loop.count("buffer_load_dwordx4") == loop.count("buffer_load") == 8
    assert loop.count("s_barrier") == 2
    assert loop.count("scratch_") == loop.count("global_") == loop.count("flat_") == 0


@pytest.mark.slow
def test_loads_stay_in_flight_across_the_barriers(loop: Loop) -> None:
    """What is loaded at the end of one round of the loop is waited for late in the next."""
    loads = [i for i, line in enumerate(loop.lines) if line.startswith("buffer_load")]
    mfma = [i for i, line in enumerate(loop.lines) if line.startswith("v_mfma")]
    waits = [
        i for i, line in enumerate(loop.lines) if line.startswith("s_waitcnt") and "vmcnt" in line
    ]
    after_load = sum(i > loads[-1] for i in mfma)
    before_wait = sum(i < waits[0] for i in mfma)
    assert waits[-1] < loads[0]
    assert after_load + before_wait >= len(mfma) // 2


def test_memory_instructions_stand_between_mfma(loop: Loop) -> None:
    """At most four memory instructions follow one another: the rest hide behind MFMA."""
    kinds = "".join(
        "m" if line.startswith("v_mfma") else "x" if line.startswith(("ds_", "buffer_")) else ""
        for line in loop.lines
    )
    assert max(len(run) for run in kinds.split("m")) <= 4
