"""Each check can be an error, a warning or off; how execution then continues is documented."""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.diagnostics.checking import Policy, policy
from cupygemm.emulator.diagnostics.findings import observing
from cupygemm.emulator.diagnostics.table import CHECKS
from cupygemm.emulator.errors import KernelFault, KernelWarning
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.run import LaunchStats, launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

ROOT = Path(__file__).resolve().parents[3]
WORDS = 64  # of the allocation that each kernel gets, which holds 0, 1, 2, ...
START = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 7
s_waitcnt lgkmcnt(0)
"""
STORE = """
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


def case(check: str, body: str, expected: Any, **options: Any) -> Any:
    """Return a kernel with one mistake, and the values that its 64 threads store if it goes on."""
    words = np.broadcast_to(np.asarray(expected), WORDS).tolist()
    return pytest.param(check, START + body + STORE, words, options, id=options.pop("id", check))


THREADS = np.arange(WORDS)
CASES = [
    case(
        "bounds",
        "v_lshlrev_b32 v8, 3, v0\nglobal_load_dword v2, v8, s[4:5]",
        np.where(THREADS < 32, 2 * THREADS, 0),
        id="global load",
    ),
    case(
        "bounds",
        "s_mov_b32 s6, s4\ns_add_u32 s7, s5, 0x100\nglobal_load_dword v2, v1, s[6:7]",
        0,
        id="global load of a line that is not mapped",
    ),
    case(
        "bounds",
        "s_mov_b32 s6, s4\ns_add_u32 s7, s5, 0x100\nglobal_store_dword v1, v0, s[6:7]",
        7,
        id="global store to a line that is not mapped",
    ),
    case(
        "bounds",
        "v_lshlrev_b32 v8, 3, v0\nv_mov_b32 v3, 5\nglobal_store_dword v8, v3, s[4:5]\n"
        "s_waitcnt vmcnt(0)\nv_sub_u32 v2, v3, v0",
        (5 - THREADS) & 0xFFFFFFFF,
        id="global store",
    ),
    case(
        "bounds",
        "v_lshlrev_b32 v8, 3, v0\nv_mov_b32 v3, 5\n"
        "global_atomic_add v2, v8, v3, s[4:5] sc0\ns_waitcnt vmcnt(0)",
        np.where(THREADS < 32, 2 * THREADS, 0),
        id="global atomic",
    ),
    case(
        "bounds",
        "s_load_dword s6, s[4:5], 0x100\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s6",
        0,
        id="scalar load",
    ),
    case(
        "bounds",
        "v_lshlrev_b32 v8, 3, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n"
        "ds_read2_b32 v[2:3], v8 offset1:1\ns_waitcnt lgkmcnt(0)\nv_add_u32 v2, v2, v3",
        np.where(THREADS < 32, 4 * THREADS + 1, 0),
        lds=256,
        id="LDS read",
    ),
    case(
        "bounds",
        "v_lshlrev_b32 v8, 3, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n"
        "ds_add_rtn_u32 v2, v8, v2",
        np.where(THREADS < 32, 2 * THREADS, 0),
        lds=256,
        id="LDS atomic",
    ),
    case("bounds", "scratch_load_dword v2, v1, off", 0, id="private load"),
    case(
        "bounds",
        "s_mov_b32 m0, 0xf0\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n"
        "s_waitcnt vmcnt(0)\nv_mov_b32 v8, 0xfc\nds_read_b32 v2, v8",
        3,
        lds=256,
        id="direct-to-LDS load",
    ),
    case(
        "bounds",
        "v_lshlrev_b32 v8, 6, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n"
        "ds_read_b64_tr_b16 v[8:9], v8",
        7,
        lds=256,
        target="gfx950",
        id="transposing read",
    ),
    case("bounds", "s_mov_b32 m0, 0x1000\ns_nop 0\nds_append v2", 0, lds=256, id="append"),
    case(
        "required_alignment",
        "s_mov_b32 m0, 6\ns_nop 0\nglobal_load_lds_dword v1, s[4:5]\n"
        "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1 offset:4",
        THREADS,
        lds=512,
        id="direct-to-LDS address",
    ),
    case(
        "required_alignment",
        "ds_write_b32 v1, v0\nds_write_b32 v1, v0 offset:256\ns_waitcnt lgkmcnt(0)\n"
        "s_mov_b64 exec, 15\nv_lshlrev_b32 v8, 3, v0\nds_read_b64_tr_b16 v[8:9], v8\n"
        "s_waitcnt lgkmcnt(0)\ns_mov_b64 exec, -1",
        7,
        lds=4096,
        target="gfx950",
        id="transposing read in some lanes",
    ),
    case(
        "required_alignment",
        "s_add_u32 s4, s4, 2\ns_addc_u32 s5, s5, 0\ns_load_dword s6, s[4:5], 0x4\n"
        "s_sub_u32 s4, s4, 2\ns_subb_u32 s5, s5, 0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s6",
        1,
        id="scalar address",
    ),
    case(
        "required_alignment",
        "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nv_add_u32 v8, 2, v1\n"
        "v_min_u32 v8, 0xf8, v8\nds_or_rtn_b32 v2, v8, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v2, 9",
        9,
        lds=256,
        id="LDS atomic address",
    ),
    case(
        "alignment",
        "v_min_u32 v8, 0xf0, v1\nglobal_load_dword v2, v8, s[4:5] offset:2",
        np.minimum(THREADS, 60) >> 16 | np.minimum(THREADS + 1, 61) << 16,
    ),
    case("uninitialised", "global_store_dword v1, v77, s[4:5]", 7, id="stored"),
    case(
        "uninitialised",
        "v_cmp_eq_u32 vcc, 0, v77\ns_nop 4\ns_cbranch_vccz 1\ns_nop 0\nv_mov_b32 v2, 8",
        8,
        id="branch",
    ),
    case(
        "uninitialised",
        "v_and_b32 v8, 0xfc, v77\nglobal_load_dword v3, v8, s[4:5]\nv_mov_b32 v2, 6",
        6,
        id="address",
    ),
    case(
        "uninitialised",
        "v_mov_b32 v8, 0\nv_mov_b32 v9, 1\nds_add_u32 v8, v9\ns_waitcnt lgkmcnt(0)\n"
        "ds_read_b32 v2, v8",
        64,
        lds=256,
        id="LDS atomic on nothing",
    ),
    case("waits", "global_load_dword v2, v1, s[4:5]\nv_add_u32 v2, v2, 1", THREADS + 1, id="load"),
    case(
        "waits",
        "s_load_dword s6, s[4:5], 0x8\nv_mov_b32 v2, s6",
        2,
        id="scalar load in flight",
    ),
    case(
        "wait_states_lane_data",
        "v_mov_b32 v2, 9\nv_readfirstlane_b32 s6, v2\ns_nop 4\nv_mov_b32 v2, s6",
        9,
    ),
    case(
        "wait_states_sgpr_constant",
        "v_readfirstlane_b32 s6, v1\nv_mov_b32 v2, s6",
        0,
    ),
    case("wait_states_vskip", "s_setvskip -1, 0\nv_mov_b32 v2, 8\ns_setvskip 0, 0\ns_nop 1", 7),
    case(
        "wait_states_hwreg",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5\n"
        "s_getreg_b32 s6, hwreg(HW_REG_MODE, 0, 4)\nv_mov_b32 v2, s6",
        5,
    ),
]


def run(
    memory: Memory, body: str, severities: dict[str, str], *, profile: bool = False, **options: Any
) -> tuple[LaunchStats, list[int]]:
    target = options.setdefault("target", "gfx942")
    kernel = load_kernel(body, memory, arguments=[8], **options)
    place = memory.malloc(4 * WORDS)
    memory.write(place, np.arange(WORDS, dtype=np.uint32).tobytes())
    others = dict.fromkeys(CHECKS, "error") | {"alignment": "off"}
    stats = launch(
        kernel,
        (1, 1, 1),
        (WORDS, 1, 1),
        0,
        [struct.pack("<Q", place)],
        memory,
        TARGETS[target],
        checks=Policy(others | severities),
        profile=profile,
    )
    return stats, np.frombuffer(memory.read(place, 4 * WORDS), np.uint32).tolist()


@pytest.mark.parametrize(("check", "body", "expected", "options"), CASES)
def test_a_check_is_an_error_a_warning_or_off(
    memory: Memory, check: str, body: str, expected: list[int], options: dict[str, Any]
) -> None:
    with pytest.raises(KernelFault) as caught:
        run(memory, body, {check: "error"}, **options)
    assert caught.value.check == check
    for profile in (False, True):
        with pytest.warns(KernelWarning, match=re.escape(caught.value.kind)):
            stats, found = run(memory, body, {check: "warn"}, profile=profile, **options)
        assert found == expected
        assert {fault.check for fault in stats.warnings} == {check}
        first = stats.warnings[0]
        assert (first.pc, first.instruction, first.kind, first.lanes) == (
            caught.value.pc,
            caught.value.instruction,
            caught.value.kind,
            caught.value.lanes,
        )
    stats, found = run(memory, body, {check: "off"}, **options)
    assert (stats.warnings, found) == ((), expected)


RACES = {
    "lds_races": """
v_mov_b32 v8, 0
ds_write_b32 v8, v0
s_waitcnt lgkmcnt(0)
ds_read_b32 v2, v8
""",
    "global_races": """
v_mov_b32 v8, 0
global_store_dword v8, v0, s[4:5]
s_waitcnt vmcnt(0)
global_load_dword v2, v8, s[4:5] offset:64
""",
}


@pytest.mark.parametrize("check", RACES)
def test_races(memory: Memory, check: str) -> None:
    kernel = load_kernel(START + RACES[check] + STORE, memory, arguments=[8], lds=64)
    place = memory.malloc(1024)
    memory.write(place, bytes(1024))

    def start(severity: str) -> LaunchStats:
        arguments = [struct.pack("<Q", place)]
        chosen = policy(True).changed({"races": "off", check: severity})
        size = (128, 1, 1)
        return launch(
            kernel, (1, 1, 1), size, 0, arguments, memory, TARGETS["gfx942"], checks=chosen
        )

    with pytest.raises(KernelFault, match="race") as caught:
        start("error")
    assert caught.value.check == check
    with pytest.warns(KernelWarning, match="race"):
        assert {fault.check for fault in start("warn").warnings} == {check}
    assert not start("off").warnings


def test_a_barrier_that_some_waves_skipped(memory: Memory) -> None:
    body = """
s_barrier
v_readfirstlane_b32 s6, v0
s_nop 4
s_cmp_eq_u32 s6, 0
s_cbranch_scc1 1
s_endpgm
s_barrier
s_endpgm
"""
    kernel = load_kernel(body, memory)

    def start(severity: str) -> LaunchStats:
        chosen = policy(True).changed({"barriers": severity})
        size = (128, 1, 1)
        return launch(kernel, (1, 1, 1), size, 0, [], memory, TARGETS["gfx942"], checks=chosen)

    with pytest.raises(KernelFault, match="divergent barrier"):
        start("error")
    with pytest.warns(KernelWarning, match="waves \\[0\\] .* wait at the barrier"):
        assert start("warn").instructions
    assert start("off").instructions


def test_an_instruction_is_listed_once_for_each_kind(memory: Memory) -> None:
    body = START + "s_mov_b32 s6, 50\n.Lagain:\nglobal_load_dword v2, v1, s[4:5] offset:252\n"
    body += "s_waitcnt vmcnt(0)\ns_sub_u32 s6, s6, 1\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc0 .Lagain"
    body += "\nglobal_load_dword v3, v1, s[4:5] offset:248" * 12
    with pytest.warns(KernelWarning, match="13 findings in kernel k:") as caught:
        stats, _ = run(memory, body + STORE, {"bounds": "warn"})
    assert [fault.lanes for fault in stats.warnings] == [tuple(range(1, 64))] + [
        tuple(range(2, 64))
    ] * 12
    assert "and 3 more: see cupygemm.emulator.last_launch().warnings" in str(caught[0].message)
    assert Path(caught[0].filename).name == "test_checks.py"


def test_warnings_are_shown_although_the_launch_fails(memory: Memory) -> None:
    body = START + "global_load_dword v2, v1, s[4:5] offset:252\nv_add_u32 v2, v2, 1" + STORE
    with (
        pytest.warns(KernelWarning, match="out-of-bounds global read"),
        pytest.raises(KernelFault, match="read before wait"),
        observing() as seen,
    ):
        run(memory, body, {"bounds": "warn"})
    checks = [[fault.check for fault in found] for found in (seen.warnings, seen.errors)]
    assert checks == [["bounds"], ["waits"]]


def test_warnings_can_be_errors_in_cupy(cp: ModuleType) -> None:
    kernel = cp.RawKernel('extern "C" __global__ void k(int* x) { x[threadIdx.x + 8] = 3; }', "k")
    x = cp.zeros(64, "i4")
    with warnings.catch_warnings(), emulator.checks(bounds="warn"):
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="1 finding in kernel k"):
            kernel((1,), (64,), (x,))
    with pytest.warns(KernelWarning, match="lanes 56-63") as caught, emulator.checks(bounds="warn"):
        kernel((1,), (64,), (x,))
    assert Path(caught[0].filename).name == "test_checks.py"
    assert (x.get() == np.where(np.arange(64) < 8, 0, 3)).all()
    stats = emulator.last_launch()
    assert stats is not None
    assert [fault.check for fault in stats.warnings] == ["bounds"]
