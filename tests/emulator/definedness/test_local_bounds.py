"""Out-of-bounds indices of local arrays, which the optimiser keeps in registers."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.local_bounds import may_index
from cupygemm.emulator.runtime.unwritten import has_markers
from tests.emulator.elementwise import Array

A = (np.arange(64) % 4).astype(np.uint32)
THREE, N = np.int32(3), np.int32(4)

# What a thread computes from a = 0 to 3, n = 4 and three = 3, and whether an index is wrong.
RIGHT = {
    "gathers": "unsigned q[4]; FOR(4) q[j] = a + j; out = q[a];",
    "counts": "unsigned q[4] = {}; for (int j = 0; j < n; j++) q[j] += a; out = q[0] + q[3];",
    "walks_a_row_on": (
        "unsigned c[4][4]; for (int j = 0; j < 16; j++) c[0][j] = j;\n"
        "out = c[0][a * 4] + c[1][three];"
    ),
    "reads_ahead": (
        "unsigned q[4] = {1, 2, 3, 4}, sum = 0, next = q[0];\n"
        "for (int j = 0; j < n; j++) { sum += next; next = q[j + 1]; } out = sum + a;"
    ),
    "takes_the_end": (
        "unsigned q[4], sum = 0; FOR(4) q[j] = a;\n"
        "for (unsigned* p = q; p != &q[4]; p++) sum += *p; out = sum;"
    ),
}
EXPECTED = {
    "gathers": 2 * A,
    "counts": 2 * A,
    "walks_a_row_on": 4 * A + 7,
    "reads_ahead": 10 + A,
    "takes_the_end": 4 * A,
}
WRONG = {
    "one_behind": "unsigned q[4]; FOR(4) q[j] = a + j; out = q[a + 1];",
    "one_in_front": "unsigned q[4]; FOR(4) q[j] = a + j; out = q[(int)a - 1];",
    "a_round_too_many": ("unsigned q[4] = {a, 1, 2, 3}, sum = 0; FOR(5) sum += q[j]; out = sum;"),
    "a_store_too_many": (
        "unsigned q[4] = {}; for (int j = 0; j <= n; j++) q[j] += a; out = q[0] + q[3];"
    ),
    "behind_the_last_row": (
        "unsigned c[4][4]; FOR(4) for (int k = 0; k < 4; k++) c[j][k] = j + k;\n"
        "unsigned sum = 0; for (int k = 0; k < n; k++) sum += c[a + 1][k]; out = sum;"
    ),
    "a_structures_array": (
        "struct { unsigned d[4]; short w[4]; } s; FOR(4) { s.d[j] = a; s.w[j] = j; }\n"
        "out = s.d[a] + s.w[a + 1];"
    ),
    "a_table": "const unsigned t[4] = {5, 6, 7, 8}; out = t[a + 1];",
    "wide_elements": (
        "typedef float four __attribute__((ext_vector_type(4)));\n"
        "four q[4]; FOR(4) q[j] = four{(float)j, 1, 2, 3}; out = (unsigned)q[a + 1].y;"
    ),
}


@functools.cache
def compiled(name: str) -> bytes:
    body = WRONG[name] if name in WRONG else RIGHT[name]
    source = f"""
    #define FOR(n) for (int j = 0; j < n; j++)
    extern "C" __global__ void k(const unsigned* x, unsigned* y, int n, int three) {{
        unsigned a = x[threadIdx.x], out;
        {body}
        y[threadIdx.x] = out;  // stored
    }}
    """
    return compile_program(source, "a.hip", target_name="gfx942").code


def launch(name: str) -> Array:
    y = np.zeros(64, np.uint32)
    emulator.launch(compiled(name), 1, 64, [A, y, N, THREE])
    return y


@pytest.mark.parametrize("name", RIGHT)
def test_right_indices_are_no_finding(name: str) -> None:
    np.testing.assert_array_equal(launch(name), EXPECTED[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_named_with_its_line(name: str) -> None:
    with pytest.raises(emulator.KernelFault, match=r"^index outside a local array") as caught:
        launch(name)
    line = "y[threadIdx.x] = out;  // stored"
    assert line in str(caught.value)
    last = WRONG[name].splitlines()[-1]
    assert (last if len(last) < 90 else last[:60]) in caught.value.detail
    assert caught.value.check == "bounds"


def test_lanes_with_wrong_indices_alone_are_named() -> None:
    with pytest.raises(emulator.KernelFault) as caught:
        launch("one_behind")
    assert caught.value.lanes == tuple(range(3, 64, 4))


def test_what_the_compiler_sees_is_compiled_as_before() -> None:
    """The code has no marker: the index is masked, or the loop is unrolled."""
    source = """
    extern "C" __global__ void k(const unsigned* x, float* y) {
        float q[4], c[4][4] = {};
        for (int j = 0; j < 4; j++)
            q[j] = j * 2;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                c[i][j] += q[i] * q[j];
        y[threadIdx.x] = q[x[threadIdx.x] & 3] + c[1][2] + c[3][3];
    }
    """
    assert may_index(source)
    code = compile_program(source, "a.hip", target_name="gfx942").code
    assert not has_markers(code)
    assert has_markers(compiled("gathers"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("float q[4];", True),
        ("const unsigned t[2][2] = {1};", True),
        ("__shared__ float tile[64][65];", False),
        ("__constant__ float weights[9] = {};", True),
        ("__device__ int counts[9];", True),
        ("extern __shared__ float tile[];", False),
        ("y[i] = x[i];", False),
        ("// int q[4];", False),
    ],
)
def test_which_programs_may_have_local_arrays(source: str, expected: bool) -> None:
    assert may_index(source) is expected
