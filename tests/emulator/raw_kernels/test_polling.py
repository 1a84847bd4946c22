"""Loops of HIP source that wait for a flag by plain loads are reported, and no others."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import KernelWarning
from cupygemm.emulator.raw_kernels.polling import loops
from cupygemm.emulator.runtime.compile import compile_program

KERNEL = """
__device__ int of_the_module;
extern "C" __global__ void k(int* flag, volatile int* seen,
        unsigned const* __restrict__ word, int n) {{
    __shared__ int ready;
    __shared__ float tile[64];
    auto own = (volatile int*)flag + 1;
    {loop}
}}
"""
WAITS = (
    "while (flag[0] == 0) {}",
    "while (!*word);",
    "while (flag[threadIdx.x / 64] != n) { __builtin_amdgcn_s_sleep(1); }",
    "if (n) while (*flag < n) __builtin_amdgcn_s_sleep(1);",
    "while (flag[0] == 0 && word[1] != 3) { /* wait */ }",
    "for (; !flag[n];) { continue; }",
    "do {} while (*word == 0);",
    "while (!ready);",
    "while (tile[0] == 0) {}",
    "while (of_the_module != n) {}",
    "for (int i = n; i >= 0;) { int s = flag[i]; if ((s >> 2) == 0) continue; n += s; --i; }",
    "while (true) { const unsigned s = *word; if (s == 0) { continue; } break; }",
    "for (;;) { int s = flag[0]; int t = s >> 8; if (!t) continue; return; }",
    "int s; do { s = flag[n]; } while (s == 0);",
    "int s = 0; while (s < n) { s = flag[0]; __builtin_amdgcn_s_sleep(1); }",
)
RIGHT = (
    "while (seen[0] == 0) {}",
    "while (*seen != n);",
    "while (((volatile int*)flag)[0] == 0) {}",
    "while (own[0] == 0) {}",
    "while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {}",
    "while (atomicAdd(&flag[0], 0) == 0) {}",
    "while (flag[0] == 0) { __threadfence(); }",
    "while (flag[n++] == 0) {}",
    "do { n += flag[1]; if (n > 9) { n = 0; } } while (flag[n] != 0);",
    "do n += 1; while (flag[n]);",
    "while (n * n < 9) {}",
    "int i = 0; while (flag[i] == 0) ++i;",
    "for (int i = 0; flag[i]; ++i) {}",
    "// while (flag[0] == 0) {}",
    "for (int i = 0; i < n; ++i) { int s = flag[i]; if (s == 0) continue; n += s; }",
    "for (int i = n; i >= 0;) { int s = flag[i--]; if (s == 0) continue; n += s; }",
    "while (n) { int s = seen[0]; if (s == 0) continue; break; }",
    "while (n) { int s = ((volatile int*)flag)[0]; if (s == 0) continue; break; }",
    "while (n) { volatile int s = flag[0]; if (s == 0) continue; break; }",
    "while (n) { int s = atomicAdd(&flag[0], 0); if (s == 0) continue; break; }",
    "int s = 0; do { s = flag[s]; } while (s != 0);",
    "int s = 0, t = 0; while (t != n) { t = flag[s]; s = t; }",
    "int s; do { s = flag[0]; n -= s; } while (n > 0);",
    "do { int s = flag[n]; if (s == 0) continue; n = s; } while (--n);",
)


@pytest.mark.parametrize("loop", WAITS)
def test_a_loop_that_waits_by_plain_loads_is_found(loop: str) -> None:
    assert [line for line, _ in loops(KERNEL.format(loop=loop))] == [8]


@pytest.mark.parametrize("loop", RIGHT)
def test_other_loops_are_not(loop: str) -> None:
    assert not list(loops(KERNEL.format(loop=loop)))


def test_a_variable_that_is_not_declared_in_the_source_is_left_out() -> None:
    assert not list(loops("__global__ void k(Flags flags) { while (flags[0] == 0) {} }"))
    assert not list(loops("struct S { volatile int f[2]; };\nvoid k(int* f) { while (f[0]) {} }"))


def test_a_launch_reports_it_once() -> None:
    source = KERNEL.format(loop="while (flag[0] != 0) {}")
    code = compile_program(source, "a.hip", target_name="gfx942").code
    flags = [np.zeros(64, np.int32) for _ in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KernelWarning)
        emulator.launch(code, 1, 64, [*flags, 1])
    (report,) = (str(each.message) for each in caught)
    assert "a.hip:8: the compiler reads flag once, before the loop" in report
    assert "check: polling" in report
    with emulator.checks(polling="off"), warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        emulator.launch(code, 1, 64, [*flags, 1])
