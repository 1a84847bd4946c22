"""Out-of-bounds indices of a module's arrays, in constant memory and in device memory."""

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
__device__ unsigned grid[2][4] = {};
__constant__ Limits both[2] = {};
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
WEIGHTS, TABLE = "unsigned weights[4], which has 4", "unsigned table[2][4], which has 8"
WRONG = {  # and the element that is named
    "one_behind": ("out = weights[a + 1];", f"weights[4] in {WEIGHTS}"),
    "one_in_front": ("out = weights[(int)a - 1];", f"weights[-1] in {WEIGHTS}"),
    "a_round_too_many": (
        "out = 0; for (int j = 0; j <= n; j++) out += weights[j];",
        f"weights[4] in {WEIGHTS}",
    ),
    "the_same_in_all_lanes": ("out = weights[n];", f"weights[4] in {WEIGHTS}"),
    "behind_the_last_row": ("out = table[1][a + 1];", f"table[2][0] in {TABLE}"),
    "a_row_too_many": ("out = table[a][1];", f"table[2][1] in {TABLE}"),
    "a_members_end": ("out = limits.high[a + 1];", "high[4] in int high[4], which has 4"),
    "a_first_members_end": ("out = limits.low[a + 1];", "low[4] in int low[4], which has 4"),
    "a_member_of_an_element": ("out = both[1].low[a + 1];", "low[4] in int low[4], which has 4"),
    "a_device_array": ("out = counts[a + 1];", "counts[4] in unsigned counts[4], which has 4"),
}
WRONG_STORES = {
    "one_behind": ("others[a + 1] = a; out = a;", "others[4] in unsigned others[4]"),
    "a_sum": ("if (a) others[a + n] += a; out = a;", "others[{}] in unsigned others[4]"),
    "a_row_too_many": ("grid[a][n - 1] = a; out = a;", "grid[2][3] in unsigned grid[2][4]"),
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
    body, element = WRONG[name]
    with pytest.raises(emulator.KernelFault) as caught:
        launch(body, target)
    report = str(caught.value)
    assert report.startswith("index outside an array of the module")
    assert "y[threadIdx.x] = out;  // stored" in report
    assert body in caught.value.detail
    assert f"there is no {element} elements\n" in caught.value.detail
    assert "__constant__ or __device__" in report
    assert caught.value.check == "bounds"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WRONG_STORES)
def test_a_wrong_store_is_blamed_and_not_its_value(name: str, target: str) -> None:
    body, element = WRONG_STORES[name]
    with pytest.raises(emulator.KernelFault, match="index outside an array of the module") as found:
        launch(body, target)
    detail = found.value.detail
    assert detail.startswith("the store is meant for a place outside an array of the module"), (
        detail
    )
    assert body in detail
    assert f"there is no {element.format(5 + (found.value.lane - 1) % 4)}, which" in detail


def test_what_a_wrong_store_leaves_is_named_where_it_is_used() -> None:
    """The optimiser forwards the stored value to a load of the first element."""
    body = "grid[0][n * 2 + a] = a; out = grid[0][0];"
    with pytest.raises(emulator.KernelFault) as found:
        launch(body, "gfx942")
    assert "grid[2][0] in unsigned grid[2][4], which has 8 elements" in found.value.detail


def test_without_optimisation_it_is_found() -> None:
    source = f"""{DECLARATIONS}
    extern "C" __global__ void k(const unsigned* x, unsigned* y, int n) {{
        y[threadIdx.x] = weights[x[threadIdx.x] + 1];
    }}
    """
    code = compile_program(source, "a.hip", target_name="gfx942", options=["-O0"]).code
    with pytest.raises(emulator.KernelFault, match="index outside an array of the module"):
        emulator.launch(code, 1, 64, [A, np.zeros(64, np.uint32), N])
