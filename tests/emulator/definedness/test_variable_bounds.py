"""Indices beyond arrays of a module, in constant memory and in device memory."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program
from tests.emulator.elementwise import Array

TARGETS = ("gfx90a", "gfx942", "gfx950")
A = (np.arange(64) % 4).astype(np.uint32)
N = np.int32(4)
DECLARATIONS = """
struct Limits { int low[4]; int high[4]; };
__constant__ unsigned weights[4] = {1, 2, 3, 4};
__constant__ unsigned table[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
__constant__ Limits limits = {{1, 2, 3, 4}, {5, 6, 7, 8}};
__constant__ unsigned behind = 9;
__device__ unsigned counts[4] = {};
__device__ unsigned others[4] = {};
"""
# What a thread computes from a = 0 to 3 and n = 4, and what it gives or where its index is wrong.
RIGHT = {
    "reads_an_element": ("out = weights[a];", A + 1),
    "sums": ("out = 0; for (int j = 0; j < n; j++) out += weights[j];", 10 + 0 * A),
    "reads_ahead": (
        "out = 0; for (int j = 0, next = 1; j < n; j++) { out += next; next = weights[j + 1]; }",
        10 + 0 * A,
    ),
    "walks_a_row_on": ("out = table[0][a + n];", A + 5),
    "reads_a_member": ("out = limits.low[a] + limits.high[a];", 2 * A + 6),
    "takes_an_address": ("atomicAdd(&counts[a], 0u); out = a;", A),
    "stores": ("others[a] = a; out = a;", A),
}
WRONG = {
    "one_behind": "out = weights[a + 1];",
    "one_in_front": "out = weights[(int)a - 1];",
    "a_round_too_many": "out = 0; for (int j = 0; j <= n; j++) out += weights[j];",
    "the_same_in_all_lanes": "out = weights[n];",
    "behind_the_last_row": "out = table[1][a + 1];",
    "a_members_end": "out = limits.high[a + 1];",
    "a_first_members_end": "out = limits.low[a + 1];",
    "a_device_array": "out = counts[a + 1];",
}


@functools.cache
def compiled(body: str, target: str) -> bytes:
    source = f"""{DECLARATIONS}
    extern "C" __global__ void k(const unsigned* x, unsigned* y, int n) {{
        unsigned a = x[threadIdx.x], out;
        {body}
        y[threadIdx.x] = out;  // stored
    }}
    """
    return compile_program(source, "a.hip", target_name=target).code


def launch(body: str, target: str) -> Array:
    y = np.zeros(64, np.uint32)
    emulator.launch(compiled(body, target), 1, 64, [A, y, N])
    return y


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RIGHT)
def test_right_indices_are_no_finding(name: str, target: str) -> None:
    body, expected = RIGHT[name]
    np.testing.assert_array_equal(launch(body, target), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_named_with_its_line(name: str, target: str) -> None:
    with pytest.raises(emulator.KernelFault) as caught:
        launch(WRONG[name], target)
    report = str(caught.value)
    assert report.startswith("index outside an array of the module")
    assert "y[threadIdx.x] = out;  // stored" in report
    assert WRONG[name] in caught.value.detail
    assert "__constant__ or __device__" in report
    assert caught.value.check == "bounds"


def test_a_wrong_store_is_found() -> None:
    with pytest.raises(emulator.KernelFault, match="index outside an array of the module"):
        launch("others[a + 1] = a; out = a;", "gfx942")


def test_without_optimisation_it_is_found() -> None:
    source = f"""{DECLARATIONS}
    extern "C" __global__ void k(const unsigned* x, unsigned* y, int n) {{
        y[threadIdx.x] = weights[x[threadIdx.x] + 1];
    }}
    """
    code = compile_program(source, "a.hip", target_name="gfx942", options=["-O0"]).code
    with pytest.raises(emulator.KernelFault, match="index outside an array of the module"):
        emulator.launch(code, 1, 64, [A, np.zeros(64, np.uint32), N])
