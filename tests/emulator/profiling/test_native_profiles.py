"""Profiles of the native loop against those of the reference path: all counts, trace and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.execution import native_loop
from cupygemm.emulator.profiling import native_recorder
from cupygemm.emulator.profiling.export import kernel_to_dict
from cupygemm.emulator.profiling.timing import trace
from cupygemm.emulator.run import last_launch
from tests.emulator.definedness import test_undefined_registers
from tests.emulator.execution.test_interpreters import (
    DIVERGENT,
    ORDERS,
    PROGRAMS,
    START,
    execute,
    random_body,
    run_both,
)

# A granule of the records of LDS becomes smaller in the middle.
NARROW_LDS = (
    START + "ds_write_b32 v1, v0\nv_lshlrev_b32 v2, 1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    "v_and_b32 v3, 63, v0\nv_lshlrev_b32 v3, 6, v3\nv_and_b32 v3, 0x3fc, v3\nds_read_b32 v4, v3\n"
    "s_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b16 v2, v4\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    "ds_add_u32 v3, v4\nv_mov_b32 v6, s4\nv_mov_b32 v7, s5\nflat_load_dword v5, v[6:7]\n"
    "s_waitcnt vmcnt(0) lgkmcnt(0)"
)


def figures() -> Any:
    """Return all counts of the latest launch."""
    stats = last_launch()
    assert stats is not None
    assert stats.profile is not None
    assert stats.profile.instructions
    return kernel_to_dict(stats.profile), stats.profile, stats.lds_conflicts, stats.global_lines


def profile_both(
    monkeypatch: pytest.MonkeyPatch, body: str, events: list[int], **options: Any
) -> Any:
    """Return the profile of a kernel, after a check that both paths agree and C was used."""

    def run() -> Any:
        result = execute(body, profile=True, **options)
        assert len(result) == 4, f"the kernel must not fail: {result}"
        return result, figures()

    _, found = run_both(monkeypatch, run)
    assert events, "the native loop did not run"
    return found[1]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the native loop's events."""
    found: list[int] = []
    inner = native_loop.NativeLoop.run

    def run(loop: native_loop.NativeLoop) -> int:
        found.append(inner(loop))
        return found[-1]

    monkeypatch.setattr(native_loop.NativeLoop, "run", run)
    return found


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
def test_divergent_waves(
    order: Any, checks: bool, events: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profile_both(monkeypatch, DIVERGENT, events, groups=4, order=order, checks=checks)
    assert any(inst.waits for inst in profile.instructions), "nothing was waited for"


def test_lds(events: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_both(monkeypatch, NARROW_LDS, events, lds=4096)
    conflicts = [inst.lds.conflict_cycles for inst in profile.instructions if inst.lds]
    assert any(conflicts), "LDS has no conflicts to count"


def test_flat_accesses_to_lds(events: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes 0 to 31 are in LDS, 128 bytes apart, so that they share a bank; the others are not."""
    body = (
        START + "s_mov_b64 s[8:9], src_shared_base\nv_lshlrev_b32 v2, 7, v0\nv_mov_b32 v3, s9\n"
        "v_and_b32 v4, 63, v0\nv_cmp_gt_u32 vcc, 32, v4\nv_and_b32 v2, 0xf80, v2\n"
        "v_mov_b32 v5, s4\nv_mov_b32 v6, s5\ns_nop 4\ns_mov_b64 s[10:11], exec\n"
        "s_and_b64 exec, exec, vcc\nds_write_b32 v2, v0\ns_mov_b64 exec, s[10:11]\n"
        "s_waitcnt lgkmcnt(0)\nv_cndmask_b32 v2, v5, v2, vcc\nv_cndmask_b32 v3, v6, v3, vcc\n"
        "flat_load_dword v7, v[2:3]\ns_waitcnt vmcnt(0) lgkmcnt(0)"
    )
    profile = profile_both(monkeypatch, body, events, lds=4096, waves=1)
    (inst,) = (i for i in profile.instructions if i.text.startswith("flat_load"))
    assert (inst.lds.bytes, inst.lds.cycles, inst.lds.conflict_cycles) == (
        4 * 32 * inst.executions,
        33 * inst.executions,
        31 * inst.executions,
    )
    assert inst.global_memory.lanes == 32 * inst.executions


@pytest.mark.parametrize("name", test_undefined_registers.UNUSED)
def test_undefined_values(name: str, events: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    case: Any = test_undefined_registers.UNUSED[name]
    profile_both(monkeypatch, case if isinstance(case, str) else case[0], events, waves=1)


@pytest.mark.parametrize("seed", range(8))
def test_random_sequences(seed: int, events: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    profile_both(monkeypatch, random_body(seed), events)


@pytest.mark.parametrize("room", ["trace", "waits"])
def test_c_and_python_take_turns(
    room: str, events: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile_both(monkeypatch, DIVERGENT, events, groups=4)
    usual = len(events)
    events.clear()
    monkeypatch.setattr(native_recorder, {"trace": "_TRACED", "waits": "_WAITS"}[room], 1)
    profile_both(monkeypatch, DIVERGENT, events, groups=4)
    assert len(events) > usual, "there was room for everything"


def test_a_trace_that_is_too_long(events: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LIMIT", 100)
    profile = profile_both(monkeypatch, DIVERGENT, events)
    assert profile.timing is None, "the trace was not too long"


SHORT = ("elementwise", "sum", "matmul", "several batches")


@pytest.mark.parametrize(
    "name",
    [
        *SHORT,
        *(pytest.param(name, marks=pytest.mark.sweep) for name in PROGRAMS if name not in SHORT),
    ],
)
def test_cupy(name: str, cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 160_000 if name == "several batches" else 3000
    x = cp.asarray(np.random.default_rng(0).standard_normal(count, np.float32))
    program: Callable[[Any, Any], Any] = PROGRAMS.get(name, PROGRAMS["elementwise"])
    program(cp, x)

    def run() -> Any:
        with emulator.profile() as profile:
            result = cp.asnumpy(program(cp, x))
        return result.tobytes(), profile.to_dict(), figures()

    run_both(monkeypatch, run)
