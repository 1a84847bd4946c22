"""From a compute unit to a launch, and its presentation in a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling import Profile, timeline
from cupygemm.emulator.profiling.timing import trace
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.profiled import profiled

COMPUTE = "s_sleep 20\nv_mov_b32 v1, 0\n"
COPY = """
v_lshlrev_b32 v1, 4, v0
s_lshl_b32 s2, s2, 14
v_add_u32 v1, s2, v1
global_load_dwordx4 v[4:7], v1, s[4:5]
s_waitcnt vmcnt(0)
"""


def timing_of(body: str, **options: Any) -> Any:
    timing = profiled(body, **options).timing
    assert timing is not None
    return timing


def test_workgroups_that_the_device_holds_at_once_run_together() -> None:
    """512 registers: a CU holds four waves, so 304 x 4 workgroups of a wave are a round."""
    one, full, more = (timing_of(COMPUTE, grid=n) for n in (1, 304 * 4, 304 * 4 + 1))
    assert (one.resident, full.resident, more.resident) == (1, 4, 4)
    assert full.rounds == 1
    assert full.cycles == pytest.approx(one.cycles, abs=3)  # SIMD 3 starts three cycles later
    assert more.cycles == full.cycles + one.cycles
    assert full.seconds == full.cycles / 2.1e9


def test_the_last_round_is_modelled_with_what_is_left() -> None:
    """Five waves for each CU of four SIMDs: a full round, and one in which a SIMD has a wave."""
    body = "s_sleep 20\n" + "v_mov_b32 v1, 0\nv_add_f32 v2, v1, v1\n" * 16
    alone, full, five = (timing_of(body, grid=304 * n) for n in (1, 4, 5))
    assert five.resident == 4
    assert five.cycles == full.cycles + alone.cycles


def test_a_launch_takes_at_least_what_memory_needs_for_its_bytes() -> None:
    size = 256 << 14
    timing = timing_of(COPY * 1, grid=256, block=1024, size=size)
    least = size / 5.3e12 / 0.75
    assert timing.seconds >= least
    assert timing.workload.memory_bytes == size


def test_the_share_of_a_cu_shrinks_when_more_are_active() -> None:
    loads = "".join(f"global_load_dwordx4 v[4:7], v1, s[4:5] offset:{n * 1024}\n" for n in range(4))
    body = "v_lshlrev_b32 v1, 4, v0\ns_lshl_b32 s2, s2, 12\nv_add_u32 v1, s2, v1\n" + loads * 4
    few, many = (timing_of(body, grid=n, size=304 << 12) for n in (8, 304))
    assert many.cycles > few.cycles


def test_another_clock() -> None:
    profile = profiled(COPY, size=1 << 15)
    slow = profile.at_clock(1000)
    assert profile.timing is not None
    assert slow.timing is not None
    assert (profile.timing.clock_mhz, slow.timing.clock_mhz) == (2100, 1000)
    # The latency of memory is the same in nanoseconds, hence fewer cycles; others are unchanged.
    assert slow.timing.cycles < profile.timing.cycles
    assert slow.timing.seconds > profile.timing.seconds
    with pytest.raises(ValueError, match="clock_mhz=0: the clock must be positive"):
        profile.at_clock(0)
    with pytest.raises(ValueError, match="the sum of 2 launches"):
        profile.merged(profile).at_clock(1000)
    with pytest.raises(ValueError, match="clock_mhz=-1"), emulator.profile(clock_mhz=-1):
        pass


def test_the_clock_of_a_collection() -> None:
    memory = Memory()
    kernel = load_kernel("s_sleep 10\ns_endpgm", memory)
    with emulator.profile(clock_mhz=1200) as collected:
        run.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [], memory, TARGETS["gfx942"])
    (launch,) = collected.launches
    assert launch.timing is not None
    assert launch.timing.clock_mhz == 1200


def test_power_holds_the_clock_down_where_mfma_keep_busy() -> None:
    idle = timing_of(COMPUTE)
    assert idle.matrix_share == 0
    assert idle.sustained_clock_mhz == 2100
    chain = "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]\n" * 200
    zeros = "\n".join(f"v_mov_b32 v{n}, 0" for n in range(2, 6)) + "\n"
    zeros += "\n".join(f"v_accvgpr_write_b32 a{n}, 0" for n in range(4)) + "\ns_nop 1\n"
    busy = timing_of(zeros + chain, grid=304, block=256)
    assert busy.matrix_share > 0.85
    assert 1000 < busy.sustained_clock_mhz < 1500
    assert (busy.bound, busy.utilisation["MFMA"]) == ("MFMA", pytest.approx(busy.matrix_share))
    assert timing_of(COMPUTE, target="gfx950").sustained_clock_mhz is None


def test_launches_of_one_kernel_add_up() -> None:
    profile = profiled(COMPUTE)
    twice = profile.merged(profile)
    assert profile.timing is not None
    assert twice.timing is not None
    assert twice.timing.cycles == 2 * profile.timing.cycles
    assert twice.timing.wave_cycles["issue"] == 2 * profile.timing.wave_cycles["issue"]


def test_only_the_workgroups_of_one_cu_are_traced() -> None:
    timing = timing_of(COMPUTE, grid=700, block=128)
    assert timing.resident == 2
    assert len(timing.workload.waves) == 4
    assert timing.workload.waves["simd"].tolist() == [0, 1, 2, 3]


def test_a_launch_that_is_too_long_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LIMIT", 3)
    profile = profiled(COMPUTE * 4)
    assert profile.timing is None
    collected = Profile()
    collected.add(profile)
    assert "too long for the timing model to keep" in str(collected)
    assert collected.to_dict()["kernels"][0]["modelled"] is None
    with pytest.raises(ValueError, match="no kernel  with a modelled time; launched: k"):
        collected.timeline("nowhere.png")


# -- presentation ----------------------------------------------------------------------------------


def shown() -> Profile:
    collected = Profile()
    collected.add(profiled(COPY + "s_barrier\nv_mov_b32 v2, 0", block=512, size=1 << 15))
    return collected


def test_table_and_listing_name_modelled_figures() -> None:
    collected = shown()
    text = str(collected)
    assert "Modelled time" in text
    assert "at 2100 MHz" in text
    assert "modelled: figures so labelled" in text
    (hot,) = (line for line in text.splitlines() if "s_waitcnt: vmcnt" in line)
    assert hot.split()[0] == "at"
    (wait,) = (line for line in collected.listing().splitlines() if "s_waitcnt vmcnt(0)" in line)
    assert "modelled" in wait
    assert "% of cycles (vmcnt" in wait


def test_json_names_modelled_figures() -> None:
    (kernel,) = json.loads(json.dumps(shown().to_dict()))["kernels"]
    modelled = kernel["modelled"]
    assert kernel["kinds"]["modelled"] == ["modelled", "modelled_cycles"]
    assert modelled["seconds"] == modelled["cycles"] / (modelled["clock_mhz"] * 1e6)
    assert modelled["wave_cycles"]["vmcnt"] > 0
    waits = [inst for inst in kernel["instructions"] if inst["text"] == "s_waitcnt vmcnt(0)"]
    assert waits[0]["modelled_cycles"]["vmcnt"] == modelled["wave_cycles"]["vmcnt"]


def test_what_the_timeline_shows() -> None:
    (kernel,) = shown().kernels
    assert kernel.timing is not None
    schedule, workload = kernel.timing.schedule(), kernel.timing.workload
    categories = {inst.offset: inst.category for inst in kernel.instructions}
    image = timeline.states(
        schedule, workload, categories, np.arange(schedule.cycles, dtype=np.float64)
    )
    assert image.shape == (8, schedule.cycles)
    names = list(timeline.COLOURS)
    counts = {name: int((image == n).sum()) for n, name in enumerate(names)}
    spent = kernel.timing.wave_cycles
    assert counts["wait"] == pytest.approx(spent["vmcnt"] + spent["lgkmcnt"], rel=0.05)
    assert counts["barrier"] >= spent["barrier"]
    assert counts["MFMA"] == counts["LDS"] == 0
    assert counts["VMEM"] > 0


def test_timeline_picture(tmp_path: Path) -> None:
    collected = shown()
    whole, part = tmp_path / "whole.png", tmp_path / "part.png"
    collected.timeline(whole)
    collected.timeline(part, kernel="k", cycles=(100, 400))
    assert whole.read_bytes().startswith(b"\x89PNG")
    assert part.read_bytes() != whole.read_bytes()
    with pytest.raises(ValueError, match="cycles 5 to 5"):
        collected.timeline(part, cycles=(5, 5))
    with pytest.raises(ValueError, match="no kernel none"):
        collected.timeline(part, kernel="none")
