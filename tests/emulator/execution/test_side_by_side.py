"""Concurrent batches: neither results nor reports depend on the number of cores.

The launches have more workgroups than four batches, the last of which is smaller, and use LDS. The
reference path runs the batches in the same order, on one core.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.device import Memory
from cupygemm.emulator.diagnostics.table import CHECKS
from cupygemm.emulator.errors import KernelWarning
from cupygemm.emulator.execution import native_loop, side_by_side
from cupygemm.emulator.native import library
from cupygemm.emulator.programs.program import Program
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.execution.test_following import ADDRESS, CORRECT, FAULTS, STORE, execute, late
from tests.emulator.execution.test_interpreters import run_both


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "MEMBER_WAVES", 24)


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the launches whose batches have run side by side."""
    found: list[Any] = []
    inner = side_by_side.SideBySide.run

    def run(launch: side_by_side.SideBySide) -> None:
        inner(launch)
        found.append(launch)

    monkeypatch.setattr(side_by_side.SideBySide, "run", run)
    return found


def on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    """Return the result of `run`, which must be equal on both paths and on one to five cores."""
    result = run_both(monkeypatch, run)
    usual = native_loop.usable_cores()
    try:
        for cores in (1, 2, 3, 5):
            monkeypatch.setattr(native_loop, "usable_cores", lambda cores=cores: cores)
            library().set_threads(ctypes.c_int64(cores))
            assert run() == result
    finally:
        library().set_threads(ctypes.c_int64(usual))
    return result


SHARED = {
    **{name: body for name, body in CORRECT.items() if "atomic" not in body},
    "Python at an access": "v_mov_b32 v2, s2\n" + late("s_memtime s[10:11]") + STORE,
    "batches of different lengths": "s_and_b32 s8, s2, 63\nv_mov_b32 v2, 0\n.Lmore:\n"
    "v_add_u32 v2, v2, v1\nds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1\n"
    "s_waitcnt lgkmcnt(0)\ns_sub_u32 s8, s8, 1\ns_cmp_gt_i32 s8, 0\ns_cbranch_scc1 .Lmore\n"
    + STORE,
}


@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("name", SHARED)
def test_results_are_those_of_the_reference(
    name: str, checks: bool, monkeypatch: pytest.MonkeyPatch, split: list[Any]
) -> None:
    result = on_any_number_of_cores(monkeypatch, lambda: execute(SHARED[name], checks=checks))
    assert len(result) == 4, f"the kernel must not fail: {result}"
    assert split


def test_the_last_batch_has_fewer_workgroups_of_several_waves(
    monkeypatch: pytest.MonkeyPatch, split: list[Any]
) -> None:
    body = "v_mov_b32 v2, s2\nds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    body += "v_xor_b32 v3, 0x1fc, v1\nds_read_b32 v2, v3\ns_lshl_b32 s9, s2, 9\n"
    body += "s_waitcnt lgkmcnt(0)\nv_add_u32 v1, s9, v1\nglobal_store_dword v1, v2, s[6:7]"
    result = on_any_number_of_cores(monkeypatch, lambda: execute(body, threads=128))
    stored = np.frombuffer(result[0], np.uint32).reshape(400, 128)
    np.testing.assert_array_equal(stored, np.arange(400)[:, None] * np.ones(128))
    assert split


def test_arrays_may_grow_while_batches_follow(
    monkeypatch: pytest.MonkeyPatch, split: list[Any]
) -> None:
    """A block that one workgroup decodes has more loads than the arrays of all members hold."""
    body = "v_mov_b32 v2, s2\ns_cmp_eq_u32 s2, 150\ns_cbranch_scc1 .Lrare\n.Lusual:\n"
    body += "s_load_dword s12, s[4:5], 0x0\n" + STORE
    body += "\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v4, s12\ns_endpgm\n.Lrare:\nds_write_b32 v1, v1\n"
    body += "ds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)\n" * 100 + "s_branch .Lusual"

    def run() -> Any:
        return execute(body, before=(120, 120))

    first = run()  # later ones find the code decoded
    assert len(first) == 4, f"the kernel must not fail: {first}"
    assert first == on_any_number_of_cores(monkeypatch, run)
    assert split


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = on_any_number_of_cores(monkeypatch, lambda: execute(FAULTS[name], launches=1))
    assert len(result) == 3, "the kernel has no fault"


NEIGHBOUR = "v_mov_b32 v2, s2\ns_add_u32 s9, s2, 1\ns_lshl_b32 s9, s9, 8\nv_add_u32 v3, s9, v1\n"
EVERYWHERE = {
    "race with the next workgroup": NEIGHBOUR
    + "s_cmp_lt_u32 s2, 399\ns_cbranch_scc0 .Lskip\nglobal_store_dword v3, v2, s[6:7]\n.Lskip:\n"
    + STORE,
    "undefined LDS": "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n" + STORE,
    "race in LDS": "v_mov_b32 v4, 0\nv_mov_b32 v5, v0\nds_write_b32 v4, v5\n"
    "v_mov_b32 v2, s2\n" + STORE,
    "no wait": ADDRESS + "global_load_dword v2, v1, s[4:5]\nv_add_u32 v2, 1, v2\n"
    "global_store_dword v1, v2, s[6:7]",
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_warnings_of_all_batches_are_listed_alike(
    name: str, monkeypatch: pytest.MonkeyPatch, split: list[Any]
) -> None:
    def run() -> Any:
        everything = dict.fromkeys(CHECKS, "warn")
        with emulator.checks(None, **everything), pytest.warns(KernelWarning):
            return execute(EVERYWHERE[name])

    result = on_any_number_of_cores(monkeypatch, run)
    assert result[3], "nothing was found"
    assert split


ACCESS = "global_load_dword v2, v1, s[4:5]\n"


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ("s_nop 0\n" * 15 + "s_waitcnt vmcnt(0)\n", [False, True]),
        ("s_nop 0\n" * 17, [True, True]),
        ("s_barrier\n", [True, True]),
        ("s_cbranch_scc1 .Lover\n.Lover:\n", [True, True]),
        ("ds_read_b32 v3, v1\n", [False, True]),
    ],
    ids=["close", "far", "barrier", "branch", "LDS"],
)
def test_accesses_that_follow_closely_share_a_turn(between: str, expected: list[bool]) -> None:
    kernel = load_kernel(ACCESS + between + ACCESS + "s_endpgm", Memory())
    program = Program(bytes(kernel.code_object.image), TARGETS["gfx942"])
    ends, pc = [], kernel.entry
    while (entry := program.entry(pc)).control != "end":
        ends += [entry.ends_turn] if entry.counter == "vm" else []
        assert entry.counter == "vm" or not entry.ends_turn
        pc = entry.next_pc
    assert ends == expected


def test_the_last_of_racing_stores_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "v_mov_b32 v2, s2\ns_and_b32 s9, s2, 7\ns_lshl_b32 s9, s9, 8\nv_add_u32 v1, s9, v1\n"
    body += "ds_write_b32 v0, v2\nglobal_store_dword v1, v2, s[6:7]"
    on_any_number_of_cores(monkeypatch, lambda: execute(body, checks=False))


@pytest.mark.parametrize(
    "body",
    [
        CORRECT["a sum in order"],
        "global_load_dword v2, v1, s[4:5] sc0 sc1\ns_waitcnt vmcnt(0)\n" + STORE,
        f"v_mov_b32 v2, s2\n{STORE}\ns_branch .Lover\ns_swappc_b64 s[20:21], s[22:23]\n.Lover:",
    ],
    ids=["atomic", "load past the caches", "call"],
)
def test_workgroups_that_may_wait_for_each_other_are_not_split(body: str, split: list[Any]) -> None:
    execute(body)
    assert not split


def test_python_handles_signals_in_between(
    monkeypatch: pytest.MonkeyPatch, split: list[Any]
) -> None:
    monkeypatch.setattr(side_by_side, "WORK", 1000)
    calls: list[int] = []
    inner = side_by_side.SideBySide._serve

    def serve(launch: side_by_side.SideBySide, number: int) -> bool:
        calls.append(number)
        return inner(launch, number)

    execute(SHARED["elements"])
    monkeypatch.setattr(side_by_side.SideBySide, "_serve", serve)
    execute(SHARED["elements"], launches=1)
    assert len(calls) > 1
    assert len(split) == 3
