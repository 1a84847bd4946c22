"""Errors of the compiler that name neither the line nor a remedy get a note."""

from __future__ import annotations

import pytest

from cupygemm._build.toolchain import CompileError
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.compiler_notes import with_notes

STAGES = """extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float tile[512];
    // float* other[2] = {x, y};
    float* stage[2] = {tile, tile + 256};
    for (int i = 0; i < n; i++) {
        stage[i & 1][threadIdx.x] = x[i * 256 + threadIdx.x];
        __syncthreads();
        y[i * 256 + threadIdx.x] = stage[i & 1][threadIdx.x ^ 1];
    }
}
"""


def test_an_array_of_pointers_to_lds_is_named_with_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_program(STAGES, "stages.hip", target_name="gfx942")
    note, _, rest = caught.value.log.partition("error: ")
    assert note.startswith("note: the compiler makes a constant table of an array of pointers")
    assert note.endswith("\n  stages.hip:4: stage\n")
    assert rest.startswith("unsupported expression in static initializer")


def test_other_errors_stay_as_they_are() -> None:
    assert with_notes("error: expected ';'", STAGES, "stages.hip") == "error: expected ';'"
