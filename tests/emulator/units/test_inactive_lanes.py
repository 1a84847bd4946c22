"""Lane exchanges that read inactive lanes."""

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
#define QUAD_SWAP 0xB1
#define ROW_MIRROR 0x140
#define ROW_SHR(n) (0x110 + n)

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
KERNEL takes_a_neighbour(int* x) {
    int v = x[T], w = -1;
    if (T & 1)
        w = __builtin_amdgcn_mov_dpp(v, QUAD_SWAP, 15, 15, true);  // read
    x[T] = w;  // used
}
KERNEL takes_the_smaller(int* x, int n) {
    if (T < n) {
        int v = x[T];
        x[T] = min(v, __builtin_amdgcn_mov_dpp(v, ROW_MIRROR, 15, 15, true));  // read used
    }
}
KERNEL takes_the_last_lane(int* x, int n) {
    if (T < n) {
        int last = __builtin_amdgcn_readlane(x[T], 63);  // read
        x[T] = last;  // used
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

// -- right: what DPP and v_readlane are for --
KERNEL adds_lanes_that_give_0(int* x, int n) {
    if (T < n) {
        int v = x[T];
        v += __builtin_amdgcn_mov_dpp(v, ROW_SHR(1), 15, 15, true);
        v += __builtin_amdgcn_mov_dpp(v, ROW_SHR(2), 15, 15, true);
        x[T] = v;
    }
}
KERNEL has_another_value_for_them(int* x, int n) {
    if (T < n)
        x[T] = max(x[T], __builtin_amdgcn_update_dpp(-1, x[T], ROW_MIRROR, 15, 15, false));
}
KERNEL shifts_in_zeros(int* x) {
    x[T] = __builtin_amdgcn_mov_dpp(x[T], ROW_SHR(1), 15, 15, true);
}
KERNEL reads_a_lane_that_is_on(int* x, int n) {
    if (T < n)
        x[T] -= __builtin_amdgcn_readlane(x[T], n - 1);
}
KERNEL keeps_scalars_in_lanes(int* x, int n) {
    int spilled = 0;
    asm volatile("v_writelane_b32 %0, %1, 63" : "+v"(spilled) : "s"(n));
    if (T < n) {
        int again;
        asm volatile("v_readlane_b32 %0, %1, 63\n\ts_nop 1" : "=s"(again) : "v"(spilled));
        x[T] = again;
    }
}
"""
FAULTS = {
    "reads_the_other_half": "ds_bpermute_b32",
    "sums_behind_a_return": "ds_bpermute_b32",
    "finds_an_index": "ds_bpermute_b32",
    "takes_a_neighbour": "v_mov_b32_dpp",
    "takes_the_smaller": "v_min_i32_dpp",
    "takes_the_last_lane": "v_readlane_b32",
}
RIGHT = {
    "scans_a_part": 100,
    "looks_ahead": 40,
    "swaps_pairs": 64,
    "sums_all_lanes": 64,
    "adds_lanes_that_give_0": 64,
    "has_another_value_for_them": 64,
    "shifts_in_zeros": 64,
    "reads_a_lane_that_is_on": 64,
    "keeps_scalars_in_lanes": 64,
}
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
        launch(name, 64)
    fault, lines = caught.value, SOURCE.splitlines()
    start = next(i for i, line in enumerate(lines) if f"KERNEL {name}(" in line)
    marked = [line.partition("// ")[2].split() for line in lines]
    read, used = (
        next(i + 1 for i in range(start, len(lines)) if mark in marked[i])
        for mark in ("read", "used")
    )
    assert fault.kind == "value of a lane that is switched off"
    assert fault.check == "inactive_lanes"
    assert fault.source == ("lanes.hip", used)
    assert f"lanes.hip:{read}:" in fault.detail
    assert FAULTS[name] in fault.detail + fault.instruction


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
