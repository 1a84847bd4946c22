"""Barriers that a part of a wave's lanes reach."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = r"""
#define KERNEL extern "C" __global__ void
#define T threadIdx.x
// -- faults: the barrier that lanes miss is marked --
KERNEL waits_in_a_condition(int* x) {
    __shared__ int s[128];
    s[T] = T;
    if (T < 96)
        __syncthreads();  // missed
    x[T] = s[127 - T];
}
KERNEL waits_on_both_ways(int* x) {
    __shared__ int s[64];
    if (T % 64 < 32) {
        s[T % 64] = 1;
        __syncthreads();  // first
        x[T] = s[T % 32];
    } else {
        __syncthreads();  // missed
        x[T] = 5;
    }
}
KERNEL waits_in_a_loop_of_lanes(int* x) {
    __shared__ int s[128];
    for (int i = T; i < 200; i += 128) {
        s[T] = i;
        __syncthreads();  // missed
        x[T] = s[T ^ 1];
        __syncthreads();
    }
    atomicAdd(x + T, 5);
}
KERNEL waits_again(int* x) {
    if (T % 64 < 60)
        __syncthreads();  // missed
    __syncthreads();
}

// -- right --
KERNEL returns_early(int* x) {
    __shared__ int s[128];
    if (T >= 100)
        return;
    for (int i = 0; i < 3; i++) {
        s[T] = T + i;
        __syncthreads();
        if (T < 20)
            x[T] = s[99 - T];
        __syncthreads();
    }
    x[T] = s[99 - T];
}
KERNEL waits_with_waves(int* x) {
    __shared__ int s[128];
    s[T] = T;
    if (x[500] == 500)
        __syncthreads();
    x[T] = s[T];
}
KERNEL waits_behind_a_condition(int* x) {
    __shared__ int s[128];
    if (T % 64 < 60)
        s[T] = T;
    __syncthreads();
    if (T % 64 < 60)
        x[T] = s[T];
}
"""
FAULTS = ("waits_in_a_condition", "waits_on_both_ways", "waits_in_a_loop_of_lanes", "waits_again")


@functools.cache
def compiled() -> bytes:
    return compile_program(SOURCE, "barriers.hip", target_name="gfx942").code


def launch(name: str) -> None:
    emulator.launch(compiled(), 2, 128, [np.arange(1024, dtype=np.int32)], kernel=name)


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", FAULTS)
def test_lanes_that_miss_a_barrier_are_named_with_its_line(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    # What the barrier should have ordered may race, too.
    checks = emulator.checks(races="off", partial_barriers="error")
    with checks, pytest.raises(emulator.KernelFault) as caught:
        launch(name)
    fault, lines = caught.value, SOURCE.splitlines()
    assert fault.kind == "barrier in a part of a wave"
    start = next(i for i, line in enumerate(lines) if f"KERNEL {name}(" in line)
    at = next(i + 1 for i in range(start, len(lines)) if "// missed" in lines[i])
    first = [i + 1 for i in range(start, at) if "// first" in lines[i]]
    assert any(f"barriers.hip:{line}: __syncthreads();" in fault.detail for line in [at, *first])
    lanes = f"lanes {emulator.errors.spans(fault.lanes)} of the wave have not reached"
    assert lanes in fault.detail
    assert fault.check == "partial_barriers"


def test_the_lanes_are_those_behind_the_condition() -> None:
    checks = emulator.checks(races="off", partial_barriers="error")
    with checks, pytest.raises(emulator.KernelFault) as caught:
        launch("waits_in_a_condition")
    assert (caught.value.wave, caught.value.lanes) == (1, tuple(range(32, 64)))


def test_one_warning_is_enough() -> None:
    with pytest.warns(emulator.KernelWarning, match="1 finding in kernel waits_in_a_condition"):
        launch("waits_in_a_condition")


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", ["returns_early", "waits_with_waves", "waits_behind_a_condition"])
def test_barriers_of_whole_waves_and_lanes_that_return_are_right(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with warnings.catch_warnings(), emulator.checks(races="off"):
        warnings.simplefilter("error")
        launch(name)
