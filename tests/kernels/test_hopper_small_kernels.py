"""The smaller kernels for Hopper as NVRTC compiles them, and what a log and a cubin say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS
from cupygemm._backends.hopper.compilation.compile import OPTIONS, read_cubin
from cupygemm._backends.hopper.compilation.source import (
    add_text,
    finish_text,
    generate,
    mirror_text,
    pad_text,
    split_text,
    transpose_text,
)
from cupygemm._backends.hopper.cuda.nvrtc import find_nvrtc
from cupygemm._build.toolchain import CompileError
from cupygemm._records.problem import Epilogue, Source
from tests.kernels.hopper_cubins import EVERYTHING, PROBLEM, compiled


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_the_mirror(itemsize: int) -> None:
    text = mirror_text(itemsize, vectors=itemsize % 3 != 1)
    registers, local = compiled(text, "cupygemm_mirror")
    assert local == 0
    assert registers <= 32  # eight blocks of 256 threads in an SM


@pytest.mark.parametrize("vectors", [True, False])
def test_the_end_of_a_triangle(vectors: bool) -> None:
    epilogue = Epilogue(alpha=True, c=Source("bf16", "matrix", 16 if vectors else 2))
    text = finish_text(replace(PROBLEM, epilogue=epilogue), vectors=vectors)
    registers, local = compiled(text, "cupygemm_finish_triangle")
    assert local == 0
    assert registers <= 64


@pytest.mark.parametrize("out_dtype", ["bf16", "f16", "f32", "f64", "e4m3fn"])
@pytest.mark.parametrize("vectors", [True, False])
def test_the_sum_of_parts(out_dtype: str, vectors: bool) -> None:
    operand = "f64" if out_dtype == "f64" else "bf16"
    text = add_text(
        replace(PROBLEM, a_dtype=operand, b_dtype=operand, out_dtype=out_dtype), vectors=vectors
    )
    registers, local = compiled(text, "cupygemm_add_parts")
    assert local == 0
    assert registers <= 64


def test_the_transposing_copy() -> None:
    registers, local = compiled(transpose_text(), "cupygemm_transpose_copy")
    assert local == 0
    assert registers <= 64


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_splitting_copy(turned: bool, parts: int) -> None:
    text = split_text(transposes=turned, num_terms=parts, low_term=1)
    registers, local = compiled(text, "cupygemm_split_copy")
    assert local == 0
    assert registers <= 64


def test_the_padding_copy() -> None:
    registers, local = compiled(pad_text(), "cupygemm_pad_copy")
    assert local == 0
    assert registers <= 64  # four blocks of 256 threads in an SM


def test_a_log_tells_that_wgmma_is_serialised() -> None:
    """What `compiled` looks for is what the compiler says: accumulators read too early."""
    text = generate(PROBLEM, CONFIGS[0], tma_store=True)
    early = text.replace("wgmma_wait<1>(); // ", "acc.value[0][0] += 1; // ")
    assert early != text
    _, log = find_nvrtc().compile(early, OPTIONS)
    assert "Potential Performance Loss" in log


def test_an_error_brings_the_log() -> None:
    with pytest.raises(CompileError, match="undeclared"):
        find_nvrtc().compile("int x = undeclared;", OPTIONS)


def test_read_cubin_refuses_other_files() -> None:
    with pytest.raises(ValueError, match="the cubin cannot be read"):
        read_cubin(b"text", "cupygemm_gemm")
    cubin, _ = find_nvrtc().compile(pad_text(), OPTIONS)
    with pytest.raises(ValueError, match="no kernel 'other'"):
        read_cubin(cubin, "other")


def test_the_sum_of_parts_has_the_epilogue_of_a_split_product() -> None:
    problem = replace(PROBLEM, epilogue=EVERYTHING)
    compiled(add_text(problem, vectors=True), "cupygemm_add_parts")
    split = generate(problem, replace(CONFIGS[0], split_k=2), tma_store=True)
    assert split == generate(PROBLEM, replace(CONFIGS[0], split_k=2), tma_store=True)
