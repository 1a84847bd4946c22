"""Lanes of a wave that store to one place in one instruction."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program

# The line of each fault names the lost value.
SOURCE = r"""
#define KERNEL extern "C" __global__ void
#define T threadIdx.x

// -- faults --
KERNEL packs_pairs(int* x) {
    __shared__ int s[64];
    s[T / 2] = T;  // lost: two lanes
    __syncthreads();
    x[T] = s[T / 2];
}
KERNEL scatters(int* x) {
    int v = x[T];
    x[(T * 48) % 64] = v + 5;  // lost: lanes 0 and 60
}
KERNEL scatters_bytes(unsigned char* x) { x[(T * 5) % 61] = T; }  // lost: 1 byte
KERNEL has_a_wrong_stride(float4* x) {
    float4 v = {float(T), 1, 2, 3};
    *(float4*)((float*)x + T * 2) = v;  // lost: 16 bytes
}
KERNEL stores_beside_itself(int* x) {
    __shared__ int s[66];
    s[T] = T, s[T + 1] = 2 * T;  // lost: lanes 1 and 0
    __syncthreads();
    x[T] = s[T];
}
KERNEL transposes_without_extent(double* x, int rows) { x[T % 8 * rows + T / 8] = T; }  // lost: 8
KERNEL counts_without_atomics(int* x) {
    __shared__ int h[16];
    if (T < 16)
        h[T] = 0;
    __syncthreads();
    h[x[T] % 16]++;  // lost: lanes 0 and 16 of the wave add to 4 bytes of LDS
    __syncthreads();
    x[T] = h[T % 16];
}
KERNEL adds_without_atomics(float* x, const int* i) {
    x[i[T] % 32] += 2;  // lost: lanes 0 and 32 of the wave add to 4 bytes
}

// -- right --
KERNEL adds_to_its_own(int* x) { x[T ^ 5] += T; }
KERNEL adds_once_for_all(int* x) { x[x[500] - 500] += 3; }
KERNEL lowers(int* x) { x[T / 4] = min(x[T / 4], 3); }
KERNEL stores_one_value(int* x) { x[T / 4] = 7; }
KERNEL stores_equal_values(int* x) {
    __shared__ int s[16];
    s[T / 4] = T / 4;
    __syncthreads();
    x[T] = s[T / 4];
}
KERNEL adds(int* x) { atomicAdd(x + T / 4, (int)T); }
KERNEL exchanges(int* x) { atomicExch(x + T / 4, (int)T); }
KERNEL lets_one_lane_store(int* x) { if (T % 4 == 0) x[T / 4] = T; }
KERNEL overlaps_alike(int2* x) { int2 v = {int(T), int(T) + 1}; *(int2*)((int*)x + T) = v; }
KERNEL keeps_to_itself(int* x) {
    int own[8];
    for (int i = 0; i < 8; i++)
        own[i] = T + i;
    asm volatile("" :: "v"(own) : "memory");
    x[T] = own[x[T] & 7];
}
"""
FAULTS = {
    "packs_pairs": "LDS",
    "scatters": "global",
    "scatters_bytes": "global",
    "has_a_wrong_stride": "global",
    "stores_beside_itself": "LDS",
    "transposes_without_extent": "global",
    "counts_without_atomics": "LDS",
    "adds_without_atomics": "global",
}
UPDATES = ("counts_without_atomics", "adds_without_atomics")
RIGHT = (
    *("stores_one_value", "stores_equal_values", "adds", "exchanges", "lets_one_lane_store"),
    *("overlaps_alike", "keeps_to_itself", "adds_to_its_own", "adds_once_for_all", "lowers"),
)


@functools.cache
def compiled() -> bytes:
    return compile_program(SOURCE, "lanes.hip", target_name="gfx942").code


def launch(name: str) -> None:
    arguments: list[Any] = [np.arange(1024, dtype=np.int32)]
    if name == "transposes_without_extent":
        arguments.append(4)
    if name == "adds_without_atomics":
        arguments.append(np.arange(64, dtype=np.int32))
    emulator.launch(compiled(), 1, 64, arguments, kernel=name)


def line_of(name: str) -> tuple[int, str]:
    """Return the line number of a kernel's fault, and the report's text about it."""
    lines = SOURCE.splitlines()
    start = next(i for i, line in enumerate(lines) if f"KERNEL {name}(" in line)
    at = next(i for i in range(start, len(lines)) if "// lost: " in lines[i])
    return at + 1, lines[at].partition("// lost: ")[2]


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_report_names_the_line_the_lanes_and_the_values(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with pytest.raises(emulator.KernelFault) as caught:
        launch(name)
    fault, (line, said) = caught.value, line_of(name)
    does = "add" if name in UPDATES else "store"
    assert fault.kind == f"{FAULTS[name]} race: two lanes {does} to one place"
    assert fault.check == "lane_races"
    assert fault.source == ("lanes.hip", line)
    assert name in UPDATES or "of the wave store different values to" in fault.detail
    assert said in fault.report()
    assert "atomic" in fault.detail


def test_a_report_has_the_values() -> None:
    with pytest.raises(emulator.KernelFault, match="in one instruction: 0x5 and 0x41"):
        launch("scatters")


@pytest.mark.parametrize("name", RIGHT)
def test_lanes_may_store_one_value_or_take_turns(name: str) -> None:
    launch(name)


def test_the_last_lane_stays_where_that_is_a_warning() -> None:
    x = np.arange(64, dtype=np.int32)
    warned = pytest.warns(emulator.KernelWarning, match="two lanes")
    with emulator.checks(lane_races="warn"), warned:
        emulator.launch(compiled(), 1, 64, [x], kernel="packs_pairs")
    np.testing.assert_array_equal(x, 2 * (np.arange(64) // 2) + 1)


# -- code that may mean it -------------------------------------------------------------------------


def test_an_index_that_cupy_has_twice_is_a_warning(cp: Any) -> None:
    x = cp.zeros(4)
    with pytest.warns(emulator.KernelWarning, match="lanes 0 and 1 of the wave store different"):
        x[cp.asarray([1, 1])] = cp.asarray([2.0, 3.0])
    assert x.get().tolist() == [0, 3, 0, 0]
    with emulator.checks(lane_races="error"), pytest.raises(cp.cuda.driver.CUDADriverError):
        x[cp.asarray([1, 1])] = cp.asarray([2.0, 3.0])


def test_code_without_source_lines_may_mean_it() -> None:
    code = compile_program(SOURCE, "lanes.hip", options=["-g0"], target_name="gfx942").code
    values = np.zeros(64, np.int32)
    with pytest.warns(emulator.KernelWarning, match="two lanes store to one place"):
        emulator.launch(code, 1, 64, [values], kernel="packs_pairs")
    assert (values == np.arange(64) // 2 * 2 + 1).all()
