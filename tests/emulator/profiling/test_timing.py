"""The timing model of a compute unit, on instructions whose cycles are computed by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.timing.machine import MACHINES
from cupygemm.emulator.profiling.timing.operations import Unit, mfma_passes
from cupygemm.emulator.targets import TARGETS
from tests.emulator.harness import assemble_all
from tests.emulator.profiled import at, profiled

ZEROS = "\n".join(f"v_mov_b32 v{n}, 0" for n in range(2, 30))
MFMA = "v_mfma_f32_16x16x16_f16 v[{d}:{d3}], v[2:3], v[4:5], v[{d}:{d3}]"


def mfma(accumulator: int) -> str:
    return MFMA.format(d=accumulator, d3=accumulator + 3)


def issued(profile: KernelProfile, start: str, wave: int = 0) -> list[int]:
    """Return the cycles at which a wave issues the instructions whose text has a prefix."""
    assert profile.timing is not None
    schedule, workload = profile.timing.schedule(), profile.timing.workload
    offsets = {inst.offset for inst in at(profile, start)}
    chosen = {place for place, offset in enumerate(workload.offsets) if offset in offsets}
    first, count = (int(schedule.waves[name][wave]) for name in ("first", "count"))
    part = range(first, first + count)
    return [int(schedule.issue[n]) for n in part if int(schedule.places[n]) in chosen]


def gaps(profile: KernelProfile, start: str, wave: int = 0) -> list[int]:
    return [b - a for a, b in pairwise(issued(profile, start, wave))]


# -- matrix and vector unit ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "text", "passes"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", 4),
        ("gfx942", "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", 8),
        ("gfx942", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", 2),
        ("gfx942", "v_mfma_f32_16x16x4_4b_f16 a[0:15], v[0:1], v[2:3], a[0:15]", 8),
        ("gfx942", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v1, a[0:3]", 8),
        ("gfx942", "v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", 16),
        ("gfx942", "v_mfma_f32_16x16x8_xf32 a[0:3], v[0:1], v[2:3], a[0:3]", 4),
        ("gfx942", "v_mfma_f64_16x16x4_f64 a[0:7], v[0:1], v[2:3], a[0:7]", 8),
        ("gfx950", "v_mfma_f64_16x16x4_f64 a[0:7], v[0:1], v[2:3], a[0:7]", 16),
        ("gfx950", "v_mfma_f32_16x16x32_f16 a[0:3], v[0:3], v[4:7], a[0:3]", 4),
        ("gfx950", "v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3]", 8),
        ("gfx950", "v_mfma_f32_32x32x64_f8f6f4 a[0:15], v[0:3], v[4:7], a[0:15] cbsz:4 blgp:4", 8),
        ("gfx90a", "v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]", 8),
        ("gfx90a", "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]", 16),
    ],
)
def test_passes(target: str, text: str, passes: int) -> None:
    (inst,) = assemble_all([text], target)
    assert mfma_passes(inst, TARGETS[target]) == passes


def test_mfma_issue_every_16_cycles_whatever_their_accumulators() -> None:
    """GT's trace: independent 16x16x16 issue every 16 cycles; LLVM: so do dependent ones."""
    for accumulators in ((8, 12, 16, 20), (8, 8, 8, 8)):
        body = "\n".join([ZEROS, *map(mfma, accumulators)])
        assert gaps(profiled(body), "v_mfma") == [16, 16, 16]


@pytest.mark.parametrize(
    ("use", "states"),
    [
        ("v_add_f32 v1, v8, v8", 7),  # any other instruction: N + 3
        ("v_mfma_f32_16x16x16_f16 v[12:15], v[8:9], v[4:5], v[12:15]", 7),  # as A
        ("v_mfma_f32_16x16x16_f16 v[12:15], v[2:3], v[4:5], v[10:13]", 5),  # part of C: N + 1
    ],
)
def test_wait_states_behind_an_mfma(use: str, states: int) -> None:
    """The model inserts the waits itself: the code needs s_nop, and is simulated without them."""
    profile = profiled("\n".join([ZEROS, "s_nop 1", mfma(8), "s_nop 7", "s_nop 7", use]))
    assert profile.timing is not None
    workload = profile.timing.workload
    texts = {inst.offset: inst.text for inst in profile.instructions}
    names = [texts[workload.offsets[place]].split()[0] for place in workload.places]
    kept = np.array([name != "s_nop" for name in names])
    waves = workload.waves.copy()
    waves["count"] = kept.sum()
    without = replace(workload, places=workload.places[kept], cost=workload.cost[kept], waves=waves)
    issue = without.schedule(2100, 1, 1).issue.tolist()
    kept_names = [name for name in names if name != "s_nop"]
    first = kept_names.index("v_mfma_f32_16x16x16_f16")
    assert kept_names[first + 1].startswith(use.split(maxsplit=1)[0])
    assert issue[first + 1] - issue[first] == 4 * (1 + states)


def test_the_vector_unit_works_under_an_mfma_unless_it_is_of_f64() -> None:
    moves = "\n".join("v_add_f32 v30, v2, v2" for _ in range(3))
    under = profiled("\n".join([ZEROS, mfma(8), moves, mfma(12)]))
    assert gaps(under, "v_mfma") == [16]
    double = "v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], v[8:15]"
    after = profiled(f"{ZEROS}\n{double}\n{moves}")
    assert issued(after, "v_add")[0] - issued(after, "v_mfma")[0] == 32
    assert at(after, "v_add")[0].modelled_cycles["VALU busy"] == 28


def test_quarter_rate() -> None:
    profile = profiled(
        "v_mov_b32 v1, 1.0\nv_rcp_f32 v2, v1\nv_rcp_f32 v3, v1\nv_add_f32 v4, v1, v1"
    )
    assert gaps(profile, "v_rcp") == [16]
    assert issued(profile, "v_add")[0] - issued(profile, "v_rcp")[1] == 16


def test_waves_of_a_simd_share_the_matrix_unit_and_those_of_others_do_not() -> None:
    body = "\n".join([ZEROS, "s_barrier", *map(mfma, (8, 12, 16, 20))])
    alone, four, five = (profiled(body, block=64 * waves) for waves in (1, 4, 5))
    ends = [issued(p, "v_mfma")[-1] - issued(p, "v_mfma")[0] for p in (alone, four)]
    assert ends == [48, 48]
    both = sorted(issued(five, "v_mfma", wave=0) + issued(five, "v_mfma", wave=4))
    assert all(b - a >= 16 for a, b in pairwise(both))
    assert both[-1] - both[0] == 7 * 16
    assert any(inst.modelled_cycles.get("MFMA busy") for inst in at(five, "v_mfma"))


def test_priority_decides_who_goes_first() -> None:
    """The second of the two waves of a SIMD has priority and multiplies first."""
    chain = "\n".join(map(mfma, (8, 12) * 8))
    body = f"""
    {ZEROS}
    v_readfirstlane_b32 s8, v0
    s_barrier
    s_cmp_lt_u32 s8, 256
    s_cbranch_scc1 low
    s_setprio 3
    low:
    s_sleep 1
    {chain}
    """
    profile = profiled(body, block=320)
    assert issued(profile, "v_mfma", wave=4)[-1] < issued(profile, "v_mfma", wave=0)[-1]
    same = profiled(body.replace("s_setprio 3", "s_setprio 0"), block=320)
    assert issued(same, "v_mfma", wave=4)[-1] > issued(same, "v_mfma", wave=0)[-1]


def test_nops_and_sleep() -> None:
    profile = profiled("s_nop 3\ns_sleep 2\ns_nop 0")
    assert gaps(profile, "s_nop") == [16 + 128]
    assert at(profile, "s_sleep")[0].modelled_cycles == {"issue": 128}


# -- LDS -------------------------------------------------------------------------------------------

WRITE = "v_lshlrev_b32 v1, 4, v0\nds_write_b128 v1, v[4:7]\ns_waitcnt lgkmcnt(0)\n"


@pytest.mark.parametrize(("width", "each"), [("b32", 8), ("b64", 12), ("b128", 20)])
def test_reads_of_one_wave_go_at_the_rate_of_its_simd(width: str, each: int) -> None:
    last = {"b32": "v8", "b64": "v[8:9]", "b128": "v[8:11]"}[width]
    body = f"{ZEROS}\n{WRITE}" + f"ds_read_{width} {last}, v1\n" * 8 + "s_waitcnt lgkmcnt(0)"
    assert gaps(profiled(body, lds=1024), "ds_read") == [each] * 7


def test_reads_of_four_simds_go_at_the_rate_of_lds() -> None:
    """Eight cycles for 1024 bytes, so each of four SIMDs gets a read every 32."""
    body = f"{ZEROS}\n{WRITE}s_barrier\n" + "ds_read_b128 v[8:11], v1\n" * 16
    profile = profiled(body + "s_waitcnt lgkmcnt(0)", lds=4096, block=256)
    times = issued(profile, "ds_read")
    assert (times[-1] - times[3]) / 12 == pytest.approx(32, abs=2)
    assert profile.timing is not None
    assert profile.timing.schedule().busy[Unit.LDS] == (4 + 4 * 16) * 8


def test_conflicts_take_time() -> None:
    body = ZEROS + "\nv_lshlrev_b32 v1, {}, v0\nds_write_b32 v1, v4\n" * 1
    body += "s_waitcnt lgkmcnt(0)\n" + "ds_read_b32 v8, v1\n" * 4 + "s_waitcnt lgkmcnt(0)"
    free, conflicted = (profiled(body.format(shift), lds=8192) for shift in (2, 7))
    # All 32 lanes of a phase want one bank: 64 cycles a read.
    assert gaps(conflicted, "ds_read")[-1] == 64
    assert gaps(free, "ds_read")[-1] == 8
    assert at(conflicted, "ds_read")[3].modelled_cycles["LDS busy"] > 50


def test_at_most_fifteen_operations_are_counted_by_lgkmcnt() -> None:
    body = "v_lshlrev_b32 v1, 7, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    body += "ds_read_b32 v8, v1\n" * 40 + "s_waitcnt lgkmcnt(0)"
    profile = profiled(body, lds=8192 * 4, block=256)
    total = profile.timing.wave_cycles if profile.timing else {}
    assert total["counter full"] + total["LDS busy"] > total["lgkmcnt"]


# -- memory, waits, barriers -----------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_a_wait_takes_as_long_as_the_level_that_answers(target: str) -> None:
    body = """
    v_lshlrev_b32 v1, 2, v0
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    global_load_dword v3, v1, s[4:5]
    s_waitcnt vmcnt(0)
    """
    profile = profiled(body, target=target)
    cold, warm = (inst.modelled_cycles["vmcnt"] for inst in at(profile, "s_waitcnt vmcnt"))
    machine = MACHINES[target]
    assert warm == pytest.approx(machine.l1_latency, abs=8)
    assert profile.timing is not None
    beyond = machine.memory_ns * profile.timing.clock_mhz / 1000
    assert cold == pytest.approx(machine.l2_latency + beyond, rel=0.05)


def test_waits_let_younger_operations_stay_in_flight() -> None:
    body = """
    v_lshlrev_b32 v1, 2, v0
    global_load_dword v2, v1, s[4:5]
    s_sleep 12
    global_load_dword v3, v1, s[4:5] offset:1024
    s_waitcnt vmcnt(1)
    s_waitcnt vmcnt(0)
    """
    older, all_of_them = at(profiled(body), "s_waitcnt vmcnt")
    assert older.modelled_cycles.get("vmcnt", 0) < 200
    assert all_of_them.modelled_cycles["vmcnt"] > 600


def test_who_comes_early_waits_at_a_barrier() -> None:
    body = """
    v_readfirstlane_b32 s8, v0
    s_cmp_lt_u32 s8, 64
    s_cbranch_scc0 quick
    s_sleep 10
    quick:
    s_barrier
    s_nop 0
    """
    profile = profiled(body, block=128)
    (barrier,) = at(profile, "s_barrier")
    assert barrier.modelled_cycles["barrier"] == pytest.approx(640, abs=40)
    late, early = (issued(profile, "s_nop", wave)[-1] for wave in (0, 1))
    assert abs(late - early) <= 4


def test_every_cycle_of_a_wave_is_accounted_for() -> None:
    body = f"{ZEROS}\n{WRITE}ds_read_b128 v[8:11], v1\ns_waitcnt lgkmcnt(0)\ns_barrier\n{mfma(8)}"
    profile = profiled(body, lds=4096, block=256)
    assert profile.timing is not None
    schedule = profile.timing.schedule()
    ends = [int(schedule.issue[w["first"] + w["count"] - 1]) + 4 for w in schedule.waves]
    assert sum(profile.timing.wave_cycles.values()) == sum(ends)
    by_instruction = [sum(inst.modelled_cycles.values()) for inst in profile.instructions]
    assert sum(by_instruction) == sum(ends)
