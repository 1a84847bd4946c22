"""The verdict of a profile names the problem that was put into a kernel, with its figures."""

from __future__ import annotations

import dataclasses

import pytest

from cupygemm.emulator.profiling import remedies
from tests.emulator.profiled import profiled

LDS = """
v_mul_u32_u24 v1, {stride}, v0
s_movk_i32 s7, 200
again:
ds_read_b32 v2, v1
ds_read_b32 v3, v1
ds_read_b32 v4, v1
ds_read_b32 v5, v1
s_waitcnt lgkmcnt(0)
s_sub_u32 s7, s7, 1
s_cmp_eq_u32 s7, 0
s_cbranch_scc0 again
"""
FILL = "v_lshlrev_b32 v1, 2, v0\n" + "".join(
    f"ds_write_b32 v1, v1 offset:{256 * i}\n" for i in range(33)
)


def test_bank_conflicts_are_named_with_their_cost() -> None:
    """64 lanes that read one bank, and 64 that read all banks."""
    ready = FILL + "s_waitcnt lgkmcnt(0)\n"
    bad = profiled(ready + LDS.format(stride=128), lds=64 * 132)
    good = profiled(ready + LDS.format(stride=4), lds=64 * 132)
    (cause, *_) = bad.verdict.causes
    assert cause.name == "Bank conflicts in LDS"
    assert f"up to {cause.share:.0%} of the modelled time" in cause.why
    assert "ds_read_b32 at +" in cause.why
    assert not any("conflicts" in cause.name for cause in good.verdict.causes)
    assert bad.timing is not None
    assert good.timing is not None
    gained = 1 - good.timing.cycles / bad.timing.cycles
    assert cause.share == pytest.approx(gained, abs=0.02), "what the cure really gains"
    assert remedies.gain(good, remedies.without_bank_conflicts) == 0.0
    assert bad.verdict.bound == bad.timing.bound
    assert "LDS" in bad.verdict.summary


FLAT_LDS = """
s_mov_b64 s[8:9], src_shared_base
v_lshlrev_b32 v2, 2, v0
v_mov_b32 v3, s9
flat_store_dword v[2:3], v0
s_waitcnt vmcnt(0) lgkmcnt(0)
flat_load_dword v4, v[2:3]
s_waitcnt vmcnt(0) lgkmcnt(0)
"""


def test_flat_instructions_that_access_lds_are_named() -> None:
    flat = profiled(FLAT_LDS, lds=256)
    (cause,) = (c for c in flat.verdict.causes if c.name == "LDS accessed by FLAT instructions")
    assert cause.why.startswith("2 of 2 accesses to LDS are FLAT, and waves spend")
    assert "at +0x" in cause.why
    assert "Bank conflicts are 0.0 % of its cycles" in cause.why
    apart = profiled(FLAT_LDS.replace("v2, 2, v0", "v2, 7, v0"), lds=64 * 128)
    (cause,) = (c for c in apart.verdict.causes if c.name == "LDS accessed by FLAT instructions")
    assert "Bank conflicts are 96.9 % of its cycles" in cause.why
    to_memory = FLAT_LDS.replace("v_mov_b32 v3, s9", "v_mov_b32 v3, s5\nv_or_b32 v2, s4, v2")
    assert "Waits for scalar loads" not in str(flat.verdict), "it waits for LDS"
    for other in (FILL, to_memory):
        assert "accessed by FLAT" not in str(profiled(other, lds=64 * 132).verdict)


LOADS = """
v_mul_u32_u24 v1, {stride}, v0
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[4:5]
"""


def test_accesses_that_are_not_coalesced_are_named() -> None:
    bad = profiled(LOADS.format(stride=256))
    why = next(c.why for c in bad.verdict.causes if c.name == "Accesses that are not coalesced")
    assert "touches 64.0 lines per wave, where its bytes fill 2.0" in why
    assert "256 bytes apart" in why
    good = profiled(LOADS.format(stride=4))
    assert not any("coalesced" in cause.name for cause in good.verdict.causes)
    (cause, *_) = good.verdict.causes
    assert cause.name == "Waits for global memory"
    assert "Each CU asks for each line for the first time" in cause.why


def test_coalesced_accesses_fetch_no_bytes_that_no_lane_uses() -> None:
    """64 lanes that load a dword of each 256 bytes, which fetches 64 lines instead of 2."""
    bad = profiled("v_lshlrev_b32 v1, 8, v0\nglobal_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)")
    assert bad.timing is not None
    before = bad.timing.workload
    after = remedies.coalesced(bad, before)
    assert (before.memory_bytes, before.fabric_bytes) == (64 * 128, 64 * 128)
    assert (after.memory_bytes, after.fabric_bytes) == (2 * 128, 2 * 128)


def test_random_places_have_no_distance() -> None:
    scattered = "v_mul_u32_u24 v1, 0x9e35, v0\nv_mul_lo_u32 v1, v1, v1\nv_and_b32 v1, 0xffffc, v1\n"
    bad = profiled(
        scattered + "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\n", size=1 << 20
    )
    why = next(c.why for c in bad.verdict.causes if c.name == "Accesses that are not coalesced")
    assert why.endswith("Its lanes begin lines at no fixed distance.")


def test_low_occupancy_comes_before_the_waits_that_it_lets_show() -> None:
    """A wave on each CU, limited by LDS, that waits for each of its loads."""
    loads = "v_lshlrev_b32 v1, 2, v0\n" + "".join(
        f"global_load_dword v2, v1, s[4:5] offset:{256 * i}\ns_waitcnt vmcnt(0)\n" for i in range(8)
    )
    alone = profiled(loads, grid=304 * 16, lds=60_000, registers=16)
    causes = [cause.name for cause in alone.verdict.causes]
    assert causes[:2] == ["Low occupancy", "Waits for global memory"]
    cause = alone.verdict.causes[0]
    assert "a SIMD holds 0.25 of 8 waves, limited by LDS" in cause.why
    assert "with 8 times as many workgroups on a CU" in cause.why
    assert cause.remedy == "use less LDS."
    together = profiled(loads, grid=304 * 16, registers=16)
    assert "Low occupancy" not in [cause.name for cause in together.verdict.causes]


def test_waits_for_flat_loads_are_waits_for_memory() -> None:
    """An s_waitcnt lgkmcnt(0) in a kernel that uses LDS, too."""
    address = "v_lshlrev_b32 v2, 12, v0\nv_or_b32 v2, s4, v2\nv_mov_b32 v3, s5\n"
    loads = "flat_load_dword v4, v[2:3]\ns_waitcnt vmcnt(0) lgkmcnt(0)\n" * 50
    causes = profiled(FILL + address + loads, size=1 << 18, lds=64 * 132).verdict.causes
    (cause,) = (c for c in causes if c.name == "Waits for global memory")
    assert "right after the youngest load" in cause.why
    assert "Its loads are FLAT, which count in vmcnt and in lgkmcnt." in cause.why
    assert cause.remedy.startswith("load by global_load")
    assert not any("LDS and scalar" in c.name for c in causes)
    (cause,) = (c for c in profiled(LOADS.format(stride=4)).verdict.causes if "memory" in c.name)
    assert "FLAT" not in cause.why + cause.remedy


def test_waits_for_flags_in_lds_are_named() -> None:
    """Wave 1 waits while wave 0 works, and then for each other."""
    found = profiled(
        """
        v_mov_b32 v2, 0
        v_readfirstlane_b32 s6, v0
        ds_write_b32 v2, v2 offset:512
        s_waitcnt lgkmcnt(0)
        s_barrier
        s_lshr_b32 s6, s6, 6
        s_cmp_eq_u32 s6, 0
        s_cbranch_scc1 work
        spin:
        ds_read_b32 v3, v2 offset:512
        s_waitcnt lgkmcnt(0)
        v_readfirstlane_b32 s7, v3
        s_cmp_eq_u32 s7, 0
        s_cbranch_scc1 spin
        s_endpgm
        work:
        """
        + "v_sqrt_f32 v4, v0\n" * 300
        + "v_mov_b32 v3, 1\nds_write_b32 v2, v3 offset:512\n",
        block=128,
        lds=1024,
    )
    (cause,) = (c for c in found.verdict.causes if c.name == "Waits for flags in LDS")
    assert "s_waitcnt at +0x" in cause.why
    assert cause.share > 0.2


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (1, "the launch has 1 workgroup for 304 compute units: 303 are idle"),
        (200, "the launch has 200 workgroups for 304 compute units: 34% of the device is idle"),
        (304, ""),
    ],
)
def test_small_launches_are_warned_of(grid: int, words: str) -> None:
    found = profiled("v_mov_b32 v1, 1\n" * 8, grid=grid, block=1024).verdict
    assert words in found.warning
    assert not words or found.warning.startswith(words)
    assert ("does not rank kernels" in found.warning) == (grid == 1)


def test_the_verdict_as_json() -> None:
    found = profiled(LOADS.format(stride=256)).to_dict()["verdict"]
    assert found["bound"] in ("latency", "VMEM")
    assert {"name", "share", "why", "remedy"} == set(found["causes"][0])


def test_a_missing_launch_bound_is_named_where_registers_spill() -> None:
    plain = profiled("v_mov_b32 v1, 1\n", block=256)
    (first, *others) = plain.instructions
    spill = dataclasses.replace(first, text="scratch_store_dword off, v0, off", executions=4)
    found = dataclasses.replace(
        plain,
        registers={**plain.registers, "scratch": 512},
        instructions=(spill, *others),
    )
    (cause,) = (c for c in found.verdict.causes if c.name == "Private memory")
    assert "declare the kernel __launch_bounds__(256)" in cause.remedy
    assert "up to 1,024 work-items" in cause.remedy
    bound = dataclasses.replace(found, max_threads=256)
    assert "__launch_bounds__" not in str(bound.verdict)
