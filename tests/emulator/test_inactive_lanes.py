"""Lane exchanges that read lanes which are switched off."""

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

// -- faults: what reads the lane, and what uses it --
KERNEL reads_the_other_half(int* x) {
    int v = x[T], w = 0;
    if (T < 32)
        w = __shfl(v, T + 32);  // read
    x[T] = w;  // used
}
KERNEL sums_behind_a_return(int* x, int n) {
    if (T >= n)
        return;
    int v = x[T];
    for (int o = 32; o; o >>= 1)
        v += __shfl_down(v, o);  // read
    if (T == 0)
        x[0] = v;  // used
}
KERNEL finds_an_index(int* x, int n) {
    if (T < n) {
        int i = __shfl_xor((int)T, 32);  // read
        x[i] = T;  // used
    }
}

// -- right: nothing uses the value --
KERNEL scans_a_part(int* x) {
    int v = x[T];
    for (int o = 1; o < 64; o *= 2) {
        int w = __shfl_up(v, o);
        if ((T & 63) >= o)
            v += w;
    }
    x[T] = v;
}
KERNEL looks_ahead(int* x, int n) {
    int v = x[T], w = __shfl_down(v, 1);
    x[T] = T < n - 1 ? w : v;
}
KERNEL swaps_pairs(int* x, int n) {
    if (T < n)
        x[T] = __shfl_xor(x[T], 1);
}
KERNEL sums_all_lanes(int* x, int n) {
    int v = T < n ? x[T] : 0;
    for (int o = 32; o; o >>= 1)
        v += __shfl_down(v, o);
    if (T == 0)
        x[0] = v;
}
"""
FAULTS = {"reads_the_other_half": 64, "sums_behind_a_return": 64, "finds_an_index": 64}
RIGHT = {"scans_a_part": 100, "looks_ahead": 40, "swaps_pairs": 64, "sums_all_lanes": 64}
LANES = 40  # that take part


@functools.cache
def compiled() -> bytes:
    return compile_program(SOURCE, "lanes.hip", target_name="gfx942").code


def launch(name: str, threads: int) -> None:
    takes_n = f"KERNEL {name}(int* x, int n)" in SOURCE
    arguments = [np.arange(1024, dtype=np.int32)] + [LANES] * takes_n
    emulator.launch(compiled(), 1, threads, arguments, kernel=name)


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_report_names_the_exchange_and_the_use(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with emulator.checks(inactive_lanes="error"), pytest.raises(emulator.KernelFault) as caught:
        launch(name, FAULTS[name])
    fault, lines = caught.value, SOURCE.splitlines()
    start = next(i for i, line in enumerate(lines) if f"KERNEL {name}(" in line)
    read, used = (
        next(i + 1 for i in range(start, len(lines)) if f"// {mark}" in lines[i])
        for mark in ("read", "used")
    )
    assert fault.kind == "value of a lane that is switched off"
    assert fault.check == "inactive_lanes"
    assert fault.source == ("lanes.hip", used)
    assert f"lanes.hip:{read}:" in fault.detail
    assert "ds_bpermute_b32" in fault.detail


def test_by_default_it_is_a_warning_and_the_value_is_0() -> None:
    x = np.arange(64, dtype=np.int32)
    with pytest.warns(emulator.KernelWarning, match="a lane that is switched off"):
        emulator.launch(compiled(), 1, 64, [x, LANES], kernel="sums_behind_a_return")
    assert x[0] == LANES * (LANES - 1) // 2


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_value_that_nothing_uses_is_no_fault(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(name, RIGHT[name])
