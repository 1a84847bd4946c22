"""Epilogues in the largest kernels: what they take from a CU, read from their code objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._backends.cdna.source import generate
from cupygemm._records.problem import Epilogue, Source
from tests.problems import problem_of

PROBLEM = problem_of(512, 512, 512)
BIAS = Epilogue(bias=Source("bf16", "column"), activation="gelu")
EVERYTHING = Epilogue(
    alpha=True,
    scale_a=Source("f32", "row"),
    scale_b=Source("f32", "column"),
    c=Source("f32", "matrix"),
    bias=Source("f32", "column"),
    activation="gelu_tanh",
    scale_out=Source("f32", "one"),
    clamp=True,
)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("epilogue", [BIAS, EVERYTHING], ids=["bias", "everything"])
@pytest.mark.parametrize(
    ("arch", "dtype", "align"),
    [("gfx942", "bf16", 16), ("gfx942", "bf16", 2), ("gfx942", "f64", 16), ("gfx950", "bf16", 2)],
)
def test_an_epilogue_does_not_make_the_largest_tiles_spill(
    arch: str, dtype: str, align: int, epilogue: Epilogue
) -> None:
    problem = replace(
        PROBLEM,
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=dtype,
        epilogue=epilogue,
        a_align=align,
        c_align=align,
    )
    able = [c for c in configs_for(dtype, arch) if check(c, problem, ARCHS[arch]) is None]
    config = max(able, key=lambda c: c.tile_m * c.tile_n / c.num_threads)
    resources = compile_kernel(problem, config, arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == 0
    assert resources.vgprs <= ARCHS[arch].registers_per_simd // config.waves_per_simd


def test_only_what_there_is_enters_the_source() -> None:
    """Kernels are shared by all numbers, strides and extents, and by alignments that load alike."""
    config = configs_for("bf16", "gfx942")[0]
    aligned, odd = (
        replace(PROBLEM, epilogue=replace(BIAS, bias=Source("bf16", "column", align)))
        for align in (8, 2)
    )
    texts = [generate(problem, config, "gfx942") for problem in (PROBLEM, aligned, odd)]
    assert len(set(texts)) == 3
    assert "using Bias = Source<bf16, Along::column, true>;" in texts[1]
    four = replace(PROBLEM, epilogue=replace(BIAS, bias=Source("bf16", "column", 4)))
    assert generate(four, config, "gfx942") == texts[1]
