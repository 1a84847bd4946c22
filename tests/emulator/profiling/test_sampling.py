"""A whole grid is modelled from a sample of its workgroups."""

from __future__ import annotations

import cupy as cp
import pytest

from cupygemm import emulator
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from tests.emulator import profiled as harness

GRID, BLOCK = 38 * 16, 256

# Each workgroup reads the same 64 KiB. One load at a time, coalesced ...
WAITS = "v_lshlrev_b32 v1, 4, v0\n" + 16 * (
    "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_add_u32 v1, 0x1000, v1\n"
)
# ... or eight at a time, with 256 bytes between lanes.
SCATTERS = "v_lshlrev_b32 v1, 8, v0\n" + "".join(
    f"global_load_dwordx4 v[{4 + 4 * (i % 8)}:{7 + 4 * (i % 8)}], v1, s[4:5] offset:{16 * i}\n"
    + ("s_waitcnt vmcnt(0)\n" if i % 8 == 7 else "")
    for i in range(16)
)


def profiled(body: str, grid: int = GRID, sample: int | None = None) -> KernelProfile:
    """Profile a body with so few registers that eight workgroups share a compute unit."""
    return harness.profiled(body, grid=grid, block=BLOCK, sample=sample, registers=64)


def cycles(profile: KernelProfile) -> float:
    assert profile.timing is not None
    return profile.timing.cycles


@pytest.fixture(scope="module")
def whole() -> dict[str, KernelProfile]:
    return {body: profiled(body) for body in (WAITS, SCATTERS)}


def test_one_workgroup_ranks_two_versions_the_wrong_way(whole: dict[str, KernelProfile]) -> None:
    assert cycles(profiled(SCATTERS, 1)) < 0.8 * cycles(profiled(WAITS, 1))
    assert cycles(whole[WAITS]) < 0.8 * cycles(whole[SCATTERS])


@pytest.mark.parametrize(("sample", "error"), [(8, 0.1), (16, 0.03)])
def test_a_sample_ranks_them_as_the_grid_does(
    whole: dict[str, KernelProfile], sample: int, error: float
) -> None:
    found = {body: cycles(profiled(body, sample=sample)) for body in whole}
    assert found[WAITS] < 0.8 * found[SCATTERS]
    assert found == pytest.approx({body: cycles(p) for body, p in whole.items()}, rel=error)


def test_counts_are_those_of_the_grid(whole: dict[str, KernelProfile]) -> None:
    full, part = whole[WAITS], profiled(WAITS, sample=8)
    assert (full.sampled, part.sampled) == (0, 8)
    assert part.workgroups == full.workgroups == GRID
    assert part.mix == full.mix
    assert part.global_memory.bytes == full.global_memory.bytes
    assert part.global_memory.traffic.requests == full.global_memory.traffic.requests
    assert part.global_memory.traffic.stride == full.global_memory.traffic.stride
    assert part.hbm_read >= full.hbm_read
    assert part.waits[0].waves == full.waits[0].waves
    assert part.timing is not None
    assert part.timing.resident == full.timing.resident == 2
    assert part.to_dict()["sampled_workgroups"] == 8
    assert "8 of 608 workgroups ran" in part.verdict.warning
    assert part.merged(full).sampled == 8 + GRID


def test_a_sample_shows_what_an_xcd_shares() -> None:
    """The workgroups that follow on one XCD find the table in its L2."""
    part = profiled(WAITS, sample=38)
    assert part.global_memory.l2_hit_rate > 0.95


def test_a_sample_of_a_small_grid_is_the_grid() -> None:
    assert profiled(WAITS, grid=3, sample=5).sampled == 0


def test_launches_of_cupy() -> None:
    x = cp.arange(1 << 16, dtype=cp.float32)
    with emulator.profile(sample=2) as p:
        x += 1
    (kernel,) = p.kernels
    assert kernel.sampled == 2 < kernel.workgroups
    changed = int((x != cp.arange(1 << 16)).sum())
    assert changed == 2 * (1 << 16) // kernel.workgroups
    assert kernel.global_memory.bytes == 2 * x.nbytes


def test_wrong_samples() -> None:
    with (
        pytest.raises(ValueError, match="sample=0: the sample must be at least 1 workgroup"),
        emulator.profile(sample=0),
    ):
        pass
    with pytest.raises(ValueError, match="sample=-1"):
        emulator.launch(b"", 1, 1, sample=-1, profile=True)
