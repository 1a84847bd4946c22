"""Accesses to a ``__shared__`` array that land in another variable are reported, and no others."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import KernelFault, KernelWarning
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.units.lds.shared_arrays import _named

THREADS = 128
STENCIL = """
extern "C" __global__ void stencil(const float* x, float* y, int n) {
    __shared__ float tile[EXTENT];
    __shared__ float weight[128];
    int t = threadIdx.x;
    tile[t] = x[t];
    if (t < EXTENT - 128) tile[t + 128] = 0;
    weight[t] = 2;
    __syncthreads();
    ACCESS
    __syncthreads();
    y[t + 128] = tile[127 - t] * weight[127 - t];
}
"""
CHOICES = """
extern "C" __global__ void choices(const float* x, float* y, int n) {
    __shared__ float a[64];
    __shared__ float b[64];
    int t = threadIdx.x;
    a[t] = b[t] = 0;
    if (t % 64 < 32) a[t] = x[t]; else b[t - 32] = x[t];
    __syncthreads();
    float* p = t % 64 < 32 ? a : b - 32;
    if (t % 64 < n) p[t] += 1; else p[t] += 2;
    y[t] = (t < 32 ? a[t % 64] : b[t % 64]) + p[t] * a[t % 64] + b[t % 64];
}
"""


def found(source: str, name: str, threads: int = THREADS, n: int = 7) -> list[str]:
    """Launch a kernel; return the check's reports."""
    code = compile_program(source, "a.hip", target_name="gfx942").code
    x, y = np.ones(256, np.float32), np.zeros(256, np.float32)
    with warnings.catch_warnings(record=True) as seen, emulator.checks(races="off"):
        warnings.simplefilter("always", KernelWarning)
        emulator.launch(code, 1, threads, [x, y, n], kernel=name)
    return [str(each.message) for each in seen]


def stencil(access: str, extent: int = 128) -> list[str]:
    return found(STENCIL.replace("ACCESS", access).replace("EXTENT", str(extent)), "stencil")


@pytest.mark.parametrize(
    ("access", "says"),
    [
        ("y[t] = tile[t + 1];", "LDS read outside its array|tile[128] of float tile[128], 0 bytes"),
        ("y[t] = tile[t + 1] + weight[t];", "tile[128] of float tile[128], 0 bytes past its end"),
        ("y[t] = weight[t - 1];", "weight[-1] of float weight[128], 4 bytes before its start"),
        ("tile[t + 3] = 1; y[t] = tile[t];", "LDS write outside its array|tile[128] of float"),
        ("tile[t + 3] += x[t]; y[t] = tile[t];", "tile[128] of float tile[128]"),
        ("for (int i = 0; i < n; i++) y[t] += tile[t + 2 * i];", "tile[128] of float tile[128], 0"),
    ],
)  # fmt: skip
def test_an_access_beyond_an_array_is_named(access: str, says: str) -> None:
    (text,) = stencil(access)
    assert all(part in text for part in says.split("|"))
    assert "lies there: float" in text


@pytest.mark.parametrize(
    ("access", "extent"),
    [
        ("y[t] = tile[t + 1] + weight[t];", 132),
        ("tile[t + 3] += x[t]; y[t] = tile[t];", 132),
        ("y[t] = weight[(t + 127) % 128];", 128),
        ("for (int i = 0; i < n; i++) y[t] += tile[t * i % 128];", 128),
        ("{ float* tile = weight; y[t] = tile[t]; }", 128),
        ("auto f = [&](float* tile) { y[t] = tile[t]; }; f(weight);", 128),
        ("y[t] = ((float4*)&tile[t & ~3])->y;", 128),
    ],
)
def test_accesses_inside_arrays_are_no_finding(access: str, extent: int) -> None:
    assert stencil(access, extent) == []


def test_a_choice_between_arrays_is_no_finding() -> None:
    assert found(CHOICES, "choices", threads=64) == []


def test_a_fault_beyond_lds_names_the_element() -> None:
    with pytest.raises(KernelFault, match=r"this is weight\[200\] of float weight\[128\]"):
        stencil("y[t] = weight[t + 200];")


@pytest.mark.parametrize(
    ("text", "writes", "name"),
    [
        ("v += |s[i & 1][255 - t];", False, "s"),
        ("s[i][j[t]] |= x;", True, "s"),
        ("s[t] |+= 1;", True, "s"),
        ("s[t]|++;", False, "s"),
        ("s[t] |== x;", True, ""),
        ("p.s[t] |= 1;", True, ""),
        ("p->s[t] |= 1;", True, ""),
        ("f(a)[t] |= 1;", True, ""),
        ("(c ? a : b)[t] |= 1;", True, ""),
        ("x = |*p;", False, ""),
    ],
)
def test_the_array_at_a_place_in_a_line(text: str, writes: bool, name: str) -> None:
    before, _, behind = text.partition("|")
    assert _named(before, behind, writes=writes) == name


HISTOGRAM = """
__device__ void count(int* bins, int bin) { atomicAdd(&bins[bin], 1); }
extern "C" __global__ void histogram(const float* x, float* y, int n) {
    __shared__ int bins[16];
    __shared__ int others[16];
    int t = threadIdx.x;
    if (t < 16) bins[t] = others[t] = 0;
    __syncthreads();
    STATEMENT
    __syncthreads();
    if (t < 16) y[t] = bins[t] + others[t];
}
"""


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("atomicAdd(&bins[t % 17], 1);", "bins[16] of int bins[16], 0 bytes past its end"),
        ("y[t] = atomicMax(&others[t % 16 - 1], t);", "others[-1] of int others[16], 4 bytes"),
        ("atomicAdd(&bins[t % 16], 1); others[t % 16] = 1;", ""),
        ("atomicAdd(&bins[t % 16], 1); atomicAdd(&bins[t % 32], 1);", ""),  # which one?
        ("count(bins, t % 17);", ""),
    ],
)
def test_an_atomic_beyond_an_array_is_named(statement: str, says: str) -> None:
    messages = found(HISTOGRAM.replace("STATEMENT", statement), "histogram")
    assert len(messages) == bool(says)
    assert all("LDS atomic outside its array" in each and says in each for each in messages)


SHIFTED = """
extern "C" __global__ void shifted(const int* x, int* y) {
    __shared__ int keys[128];
    __shared__ int first[1];
    int t = threadIdx.x;
    if (t == 0) first[0] = x[0];
    __syncthreads();
    y[t] = first[0];
    STORE
    __syncthreads();
    y[t] += keys[127 - t];
}
"""


@pytest.mark.parametrize(
    ("store", "cause"),
    [
        (
            "keys[t + 1] = x[t];",
            "this is keys[128] of int keys[128], 0 bytes past its end:\nthe index is wrong",
        ),
        ("keys[t % 64] = t >> 6;", "must come between the two"),
    ],
)
def test_a_race_because_of_a_wrong_index_names_the_index(store: str, cause: str) -> None:
    """One access is to elements that other waves have read; the other is a race in the array."""
    code = compile_program(SHIFTED.replace("STORE", store), "a.hip", target_name="gfx942").code
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    with pytest.raises(KernelFault, match="LDS race") as caught:
        emulator.launch(code, 1, 128, [x, y])
    assert cause in caught.value.detail
