"""Elements of private arrays that nothing has written, in kernels compiled with -O0."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = r"""
#define KERNEL extern "C" __global__ void
KERNEL clears_three_of_four(const float* x, float* y) {
    float sum[4];
    for (int j = 0; j < 3; j++)
        sum[j] = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            sum[j] += x[i * 64 + threadIdx.x];  // read
    y[threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];  // stored
}
KERNEL clears_three_columns(const float* x, float* y) {
    float c[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            c[i][j] = 0;
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                c[i][j] += x[k * 4 + i] * x[k * 8 + j];  // read
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            y[(threadIdx.x * 4 + i) * 4 + j] = c[i][j];  // stored
}
KERNEL looks_up_what_is_missing(const float* x, float* y) {
    float table[8];
    for (int j = 0; j < 7; j++)
        table[j] = x[j];
    y[threadIdx.x] = table[(int)x[threadIdx.x] & 7];  // read, stored
}
KERNEL fills_what_it_uses(const float* x, float* y) {
    float table[8];
    for (int j = 0; j < 7; j++)
        table[j] = x[j];
    y[threadIdx.x] = table[(int)x[threadIdx.x] % 7];
}
"""
FAULTS = ("clears_three_of_four", "clears_three_columns", "looks_up_what_is_missing")


@functools.cache
def compiled() -> bytes:
    return compile_program(SOURCE, "arrays.hip", options=("-O0",), target_name="gfx942").code


def launch(name: str) -> None:
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    emulator.launch(compiled(), 1, 64, [x, y], kernel=name)


@pytest.mark.parametrize("name", FAULTS)
def test_an_element_is_named_with_its_lines(name: str) -> None:
    with pytest.raises(emulator.KernelFault, match=r"^uninitialised private memory") as caught:
        launch(name)
    lines = SOURCE.splitlines()
    start = next(i for i, line in enumerate(lines) if f"KERNEL {name}(" in line)
    read, stored = (
        next(i + 1 for i in range(start, len(lines)) if mark in lines[i].partition("//")[2])
        for mark in ("read", "stored")
    )
    assert caught.value.source == ("arrays.hip", stored)
    assert f"arrays.hip:{read}:" in caught.value.detail


def test_elements_that_are_not_used_are_no_fault() -> None:
    launch("fills_what_it_uses")
