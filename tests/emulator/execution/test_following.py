"""Batches that C starts without Python: results, counts and reports equal the reference path's.

The launches have more workgroups than the device has compute units, in small batches.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.execution import batch, native_loop, side_by_side
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.waves import dispatch
from tests.emulator.assembly import load_kernel
from tests.emulator.execution.test_interpreters import START, run_both

GROUPS, LATE = 400, 0x18B  # LATE is in the last batch, which is smaller
ADDRESS = "s_lshl_b32 s9, s2, 8\nv_add_u32 v1, s9, v1\n"  # of a lane's own word
STORE = ADDRESS + "global_store_dword v1, v2, s[6:7]"
ONLY_LATE = f"s_cmp_lg_u32 s2, {LATE}\ns_cbranch_scc1 .L{{label}}\n{{body}}\n.L{{label}}:\n"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches small, so that several run one after another."""
    monkeypatch.setattr(batch, "BATCH_WAVES", 96)
    monkeypatch.setattr(side_by_side, "MEMBER_WAVES", 1 << 30)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the first workgroups of batches that C has started, as Python sees them."""
    places: list[int] = []
    inner = dispatch.Dispatch.place

    def place(self: dispatch.Dispatch, state: Any, first: int) -> None:
        places.append(first)
        inner(self, state, first)

    monkeypatch.setattr(dispatch.Dispatch, "place", place)
    return places


def late(body: str, label: str = "skip") -> str:
    """Return a body that only one of the last workgroups executes."""
    return ONLY_LATE.format(label=label, body=body)


def _without_addresses(report: object) -> str:
    """Return the text of a report, in which nothing depends on where the buffers are."""
    return re.sub(r"0x[0-9a-f]{9,}", "ADDRESS", str(report))


def execute(
    body: str, launches: int = 2, before: tuple[int, ...] = (), threads: int = 64, **options: Any
) -> Any:
    """Run a kernel several times; return its results, or the text of its fault.

    Launches of `before` workgroups precede those of `GROUPS`.
    """
    memory = Memory()
    kernel = load_kernel(START + body + "\ns_endpgm", memory, arguments=[8, 8], lds=1024)
    size = 4 * threads * GROUPS
    source, target = memory.malloc(size), memory.malloc(size)
    memory.view(source, size).view(np.uint32)[:] = np.arange(size // 4) * 2654435761
    arguments, stats = struct.pack("<QQ", source, target), None
    try:
        for groups in [*before, *[GROUPS] * launches]:
            stats = run.launch(
                kernel, (groups, 1, 1), (threads, 1, 1), 0, arguments, memory, TARGETS["gfx942"],
                **options,
            )  # fmt: skip
    except KernelFault as fault:
        return _without_addresses(fault), fault.workgroup, fault.lanes
    assert stats is not None
    warnings = [_without_addresses(each) for each in stats.warnings]
    return memory.view(target, size).tobytes(), stats.executions, stats.num_waves, warnings


CORRECT = {
    "elements": ADDRESS + "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
    "v_add_u32 v2, s2, v2\nglobal_store_dword v1, v2, s[6:7]",
    "LDS": "v_mov_b32 v2, s2\nds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    "v_xor_b32 v3, 0xfc, v1\nds_read_b32 v2, v3\ns_waitcnt lgkmcnt(0)\n" + STORE,
    "a sum in order": "v_cvt_f32_u32 v2, v0\nv_mov_b32 v3, 0\n"
    "global_atomic_add_f32 v2, v3, v2, s[4:5] sc0\ns_waitcnt vmcnt(0)\n" + STORE,
    "lanes that are switched off": "v_mov_b32 v2, 7\nv_cmp_gt_u32 vcc, 5, v0\n"
    "s_and_saveexec_b64 s[8:9], vcc\nv_mov_b32 v4, s2\ns_mov_b64 exec, s[8:9]\n"
    "v_add_u32 v2, v4, v2\n" + STORE,
    "an address of the code": "s_getpc_b64 s[10:11]\ns_load_dword s12, s[10:11], 0x0\n"
    "s_getpc_b64 s[8:9]\ns_sub_u32 s8, s8, s10\ns_waitcnt lgkmcnt(0)\ns_add_u32 s12, s12, s8\n"
    "v_mov_b32 v2, s12\n" + STORE,
    "Python in each batch": "s_getreg_b32 s10, hwreg(HW_REG_XCC_ID)\nv_mov_b32 v2, s10\n" + STORE,
    "Python in a late batch": "v_mov_b32 v2, s2\n"
    + late("s_getreg_b32 s10, hwreg(HW_REG_XCC_ID)\nv_mov_b32 v2, s10")
    + STORE,
}


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
def test_results_are_those_of_the_reference(
    name: str, checks: bool, monkeypatch: pytest.MonkeyPatch, followed: list[int]
) -> None:
    result = run_both(monkeypatch, lambda: execute(CORRECT[name], checks=checks))
    assert len(result) == 4, f"the kernel must not fail: {result}"
    assert bool(followed) == (name != "Python in each batch")


FAULTS = {
    "out of bounds": late("v_add_u32 v1, 0x100000, v1\nglobal_load_dword v2, v1, s[4:5]"),
    "undefined register": f"s_cmp_eq_u32 s2, {LATE}\ns_cbranch_scc1 .Lskip\nv_mov_b32 v2, v1\n"
    ".Lskip:\nglobal_load_dword v3, v2, s[4:5]",
    "undefined scalar": f"s_cmp_eq_u32 s2, {LATE}\ns_cbranch_scc1 .Lskip\ns_mov_b32 s12, 0\n"
    ".Lskip:\nv_add_u32 v2, s12, v1\nglobal_load_dword v3, v2, s[4:5]",
    "undefined LDS": f"s_cmp_eq_u32 s2, {LATE}\ns_cbranch_scc1 .Lskip\nds_write_b32 v1, v1\n"
    ".Lskip:\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n"
    "global_load_dword v3, v2, s[4:5]",
    "no wait": ADDRESS + f"global_load_dword v2, v1, s[4:5]\ns_cmp_eq_u32 s2, {LATE}\n"
    "s_cbranch_scc1 .Lskip\ns_waitcnt vmcnt(0)\n.Lskip:\nv_add_u32 v2, 1, v2",
    "race with another workgroup": "v_mov_b32 v2, s2\n"
    + late("v_subrev_u32 v1, 0x100, v1")
    + STORE,
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_both(monkeypatch, lambda: execute(FAULTS[name], launches=1))
    assert len(result) == 3, "the kernel has no fault"
    assert result[1] == (LATE, 0, 0)


@pytest.mark.parametrize("order", ["forward", ("random", 7)], ids=str)
def test_other_orders_start_each_batch_in_python(order: Any, followed: list[int]) -> None:
    execute(CORRECT["LDS"], order=order)
    assert not followed


def test_python_handles_signals_in_between(
    monkeypatch: pytest.MonkeyPatch, followed: list[int]
) -> None:
    monkeypatch.setattr("cupygemm.emulator.execution.following.WORK", 1000)
    events: list[int] = []
    inner = native_loop.NativeLoop.run

    def loop_run(loop: native_loop.NativeLoop) -> int:
        events.append(inner(loop))
        return events[-1]

    monkeypatch.setattr(native_loop.NativeLoop, "run", loop_run)
    run_both(monkeypatch, lambda: execute(CORRECT["elements"]))
    assert events.count(native_loop.FOLLOWED) > 1
    assert len(followed) > 1


IDS = """
extern "C" __global__ void ids(unsigned *out) {
  unsigned group = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[group * blockDim.x + threadIdx.x] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
}"""


def test_ids_of_three_axes(cp: Any, followed: list[int]) -> None:
    grid, kernel = (7, 11, 13), cp.RawKernel(IDS, "ids")
    z, y, x = np.indices(grid[::-1])
    expected = np.repeat((x | y << 8 | z << 16).ravel(), 64)
    for _ in range(2):
        out = cp.zeros(expected.size, np.uint32)
        kernel(grid, (64,), (out,))
        np.testing.assert_array_equal(cp.asnumpy(out), expected)
    assert followed
