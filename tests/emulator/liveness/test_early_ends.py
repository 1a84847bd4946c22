"""Waves that end before a barrier at which others of their workgroup wait."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cupygemm.emulator.code_object import load
from cupygemm.emulator.diagnostics.checking import policy
from cupygemm.emulator.errors import KernelWarning
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.run import launch
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel


@pytest.fixture
def memory() -> Memory:
    return Memory()


EARLY = """
extern "C" __global__ void k(const unsigned* x, unsigned* y, int first, int n) {
    __shared__ unsigned tile[256];
    int i = threadIdx.x;
    if (i < first || i >= n) return;
    tile[i] = x[i];
    __syncthreads();
    y[blockIdx.x * 256 + i] = tile[READ];
}
"""


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize(
    ("first", "n", "grid", "read", "waiting", "ended"),
    [
        (0, 100, 2, "i ^ 1", "", ""),  # the last waves: the end of the data
        (64, 256, 1, "i ^ 1", "waves 1-3", "wave 0 has"),
        (64, 128, 3, "i ^ 1", "wave 1", "waves 0, 2-3 have"),
        (128, 256, 2, "i ^ 1", "waves 2-3", "waves 0-1 have"),
        (0, 255, 2, "i", "", ""),  # part of a wave
        (0, 0, 2, "i", "", ""),  # all waves
    ],
)
def test_waves_that_end_before_a_barrier(
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    interpreter: str,
    first: int,
    n: int,
    grid: int,
    read: str,
    waiting: str,
    ended: str,
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    source = EARLY.replace("READ", read)
    code = compile_program(source, "early.hip", target_name="gfx942", options=["-g"]).code
    kernel = load(code, memory, "gfx942").kernels["k"]
    x, y = memory.malloc(1024), memory.malloc(1024 * grid)
    memory.view(x, 1024)[:] = np.arange(256, dtype=np.uint32).view(np.uint8)
    memory.define(x, 1024)
    arguments = [
        np.uint64(x).tobytes(),
        np.uint64(y).tobytes(),
        np.int32(first).tobytes(),
        np.int32(n).tobytes(),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)
        stats = launch(kernel, (grid, 1, 1), (256, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
    out = np.frombuffer(memory.view(y, 4 * 256), np.uint32)[first:n]
    assert (out == np.arange(first, n) ^ (read == "i ^ 1")).all()
    assert [fault.check for fault in stats.warnings] == ["early_ends"] * bool(ended)
    for fault in stats.warnings:
        assert fault.instruction == "s_barrier"
        assert fault.source
        file, line = (fault.source, *fault.call_sites)[-1]
        assert (file.rpartition("/")[2], line) == ("early.hip", 7)
        assert f"{waiting} of the workgroup wait" in fault.detail
        assert f"{ended} ended without reaching it" in fault.detail
        assert "early.hip:5" in fault.detail, "the place of the early return"
        assert "Put the work under a condition" in fault.detail


def test_an_early_end_is_harmless_where_nobody_reads_lds(memory: Memory) -> None:
    body = """
v_readfirstlane_b32 s6, v0
s_nop 4
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 out
v_lshlrev_b32 v1, 2, v0
ds_write_b32 v1, v0
s_barrier
out:
s_endpgm
"""
    kernel = load_kernel(body, memory, lds=1024)
    for severity in ("warn", "error"):
        chosen = policy(True).changed({"early_ends": severity})
        size = (128, 1, 1)
        stats = launch(kernel, (2, 1, 1), size, 0, [], memory, TARGETS["gfx942"], checks=chosen)
        assert not stats.warnings
