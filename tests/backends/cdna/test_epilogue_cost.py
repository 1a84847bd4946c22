"""What the cost model counts of an epilogue: its bytes, its instructions, and what follows."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.epilogue_cost import instructions, read_bytes
from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm._backends.cdna.select import estimate, partitions, select
from cupygemm._backends.cdna.source import generate
from cupygemm._build.toolchain import find_toolchain
from cupygemm._epilogue.activations import ACTIVATIONS
from cupygemm._records.dtypes import DType
from cupygemm._records.problem import Epilogue, Source
from tests.problems import problem_of

MI300X = ARCHS["gfx942"]
PROBLEM = problem_of(4096, 4096, 4096)
MATRIX, COLUMN = Source("f32", "matrix"), Source("bf16", "column")
QUARTER_RATE = re.compile(r"\tv_(exp|log|rcp|rsq|sqrt|sin|cos)_")


@functools.cache
def vector_instructions(epilogue: Epilogue, folder: Path, out_dtype: DType = "bf16") -> float:
    """Return those of a kernel for gfx942, for each element that a lane stores."""
    config = next(
        c
        for c in register_double_buffer.configs("bf16", "gfx942")
        if (c.tile_m, c.tile_n, c.mma_m) == (64, 64, 16)
    )
    source, assembly = folder / "kernel.hip", folder / "kernel.s"
    problem = replace(PROBLEM, epilogue=epilogue, out_dtype=out_dtype)
    source.write_text(generate(problem, config, "gfx942"))
    find_toolchain().compile_to_assembly(source, assembly, target="gfx942")
    lines = re.findall(r"\tv_(?!mfma|accvgpr).*", assembly.read_text())
    slots = sum(4 if QUARTER_RATE.match(line) else 1 for line in lines)
    return slots / (config.tile_m * config.tile_n / config.num_threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("epilogue")


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("out_dtype", ["bf16", "f32"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_instructions_of_an_activation(activation: str, out_dtype: DType, folder: Path) -> None:
    """Within what another release of the compiler may change: a fifth, and one."""
    base = Epilogue(alpha=True)
    more = vector_instructions(replace(base, activation=activation), folder, out_dtype)
    counted = more - vector_instructions(base, folder, out_dtype)
    expected = ACTIVATIONS[activation].instructions[out_dtype == "f32"]
    assert counted == pytest.approx(expected, rel=0.2, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"c": MATRIX}, {"bias": COLUMN}, {"clamp": True}], ids="".join)
def test_the_instructions_of_other_parts(changes: dict[str, object], folder: Path) -> None:
    base = Epilogue(alpha=True)
    more = replace(base, **changes)  # type: ignore[arg-type]
    counted = vector_instructions(more, folder) - vector_instructions(base, folder)
    assert counted == pytest.approx(instructions(more, "bf16") - instructions(base, "bf16"), abs=2)


def test_what_is_read() -> None:
    assert read_bytes(None, 64, 32) == 0
    everything = Epilogue(
        alpha=True,
        scale_a=Source("f32", "row"),
        scale_b=Source("f32", "one"),
        c=MATRIX,
        bias=COLUMN,
    )
    assert read_bytes(everything, 64, 32) == 64 * 4 + 4 + 64 * 32 * 4 + 32 * 2
    assert instructions(None, "f32") == instructions(Epilogue(), "f32") == 0


def test_an_epilogue_costs_what_it_moves_and_computes() -> None:
    """A product that memory holds takes longer by what c is; one that computes, by its gelu."""
    shallow = replace(PROBLEM, m=8192, n=8192, k=64)
    config = select(shallow, MI300X).config
    plain, with_c = (
        estimate(config, replace(shallow, epilogue=epilogue), MI300X)
        for epilogue in (None, Epilogue(c=MATRIX))
    )
    least = 8192 * 8192 * 4 / (5300e9 / 2.1e9)
    assert with_c.bound == "memory"
    assert with_c.cycles - plain.cycles >= 0.9 * least
    config = select(PROBLEM, MI300X).config
    plain, gelu = (
        estimate(config, replace(PROBLEM, epilogue=epilogue), MI300X)
        for epilogue in (None, Epilogue(activation="gelu"))
    )
    assert gelu.cycles - plain.cycles == pytest.approx(1.05 * 256 * 256 * 18 / 64)


def test_a_shared_tile_has_its_epilogue_in_the_second_kernel() -> None:
    """All compute units run that kernel, so the epilogue costs less than in a few tiles."""
    deep = replace(PROBLEM, m=256, n=256, k=65536)
    whole = select(replace(deep, k=1024), MI300X).config
    parted = next(c for c in partitions(whole, deep, MI300X) if c.split_k > 1)
    costs = {
        (config.split_k > 1, epilogue is not None): estimate(
            config, replace(deep, epilogue=epilogue), MI300X
        ).cycles
        for config in (whole, parted)
        for epilogue in (None, Epilogue(activation="gelu", c=MATRIX))
    }
    more_whole = costs[False, True] - costs[False, False]
    more_parted = costs[True, True] - costs[True, False]
    assert 0 < more_parted < more_whole / 2


def test_an_epilogue_may_change_the_choice() -> None:
    """144 tiles of 256x256 would leave 112 of 256 CUs without a share of the gelu."""
    problem = replace(PROBLEM, m=3072, n=3072, k=512)
    arch = ARCHS["gfx950"]
    heavy = replace(problem, epilogue=Epilogue(activation="gelu", c=MATRIX))
    plain, chosen = select(problem, arch).config, select(heavy, arch).config
    assert plain.tile_m * plain.tile_n > chosen.tile_m * chosen.tile_n
    assert estimate(plain, heavy, arch).cycles > 1.05 * estimate(chosen, heavy, arch).cycles
