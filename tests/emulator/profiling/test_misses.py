"""The causes of misses in vL1D, against an independent model in Python."""

from __future__ import annotations

import importlib
from collections import OrderedDict

import numpy as np
import pytest

from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling import remedies
from cupygemm.emulator.profiling.caches import Traffic
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.profiled import profiled


class Lru:
    """A set-associative cache that evicts the least recently used line."""

    def __init__(self, sets: int, ways: int) -> None:
        self.ways = ways
        self.sets = [OrderedDict[int, None]() for _ in range(sets)]

    def holds(self, line: int) -> bool:
        lines = self.sets[line % len(self.sets)]
        held = line in lines
        lines[line] = None
        lines.move_to_end(line)
        if len(lines) > self.ways:
            lines.popitem(last=False)
        return held


def causes(lines: list[int], target: str) -> tuple[int, int, int, int]:
    """Return the hits and the compulsory, capacity and conflict misses."""
    geometry = PARTS[target].l1
    cache = Lru(geometry.sets, geometry.ways)
    full = Lru(1, geometry.sets * geometry.ways)
    seen: set[int] = set()
    counts = [0, 0, 0, 0]
    for line in lines:
        hit, held = cache.holds(line), full.holds(line)
        counts[0 if hit else 1 if line not in seen else 3 if held else 2] += 1
        seen.add(line)
    return counts[0], counts[1], counts[2], counts[3]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_random_gathers(target: str) -> None:
    rounds, data = 40, 96 << 10
    rng = np.random.default_rng(3)
    table = 256 * rounds
    # Half of the lanes access lines of one residue, so that conflicts occur.
    chosen = rng.integers(0, data // 4, (rounds, 64))
    alike = rng.integers(0, data // 2048, chosen.shape) * 512
    offsets = table + 4 * np.where(rng.random(chosen.shape) < 0.5, alike, chosen)
    body = (
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_load_dwordx2 s[8:9], s[0:1], 0x8\n"
        "v_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
        f"s_movk_i32 s10, {rounds}\n"
        """
        again:
        global_load_dword v2, v1, s[8:9]
        s_waitcnt vmcnt(0)
        global_load_dword v3, v2, s[4:5]
        s_waitcnt vmcnt(0)
        v_add_u32 v1, 0x100, v1
        s_sub_u32 s10, s10, 1
        s_cmp_eq_u32 s10, 0
        s_cbranch_scc0 again
        s_endpgm
        """
    )
    memory = Memory()
    kernel = load_kernel(body, memory, arguments=[8, 8], target=target)
    buffer = memory.malloc(table + data)
    memory.write(buffer, offsets.astype(np.uint32).tobytes() + bytes(data))
    pointer = buffer.to_bytes(8, "little")
    stats = run.launch(
        kernel, (1, 1, 1), (64, 1, 1), 0, [pointer, pointer], memory, TARGETS[target], profile=True
    )
    assert stats.profile is not None
    line = PARTS[target].l1.line
    requests = []
    for turn in range(rounds):
        requests += list(range(turn * 256 // line, (turn * 256 + 255) // line + 1))
        requests += sorted({int(offset) // line for offset in offsets[turn]})
    expected = causes(requests, target)
    traffic = stats.profile.global_memory.traffic
    found = traffic.l1_hits, traffic.l1_compulsory, traffic.l1_capacity, traffic.l1_conflict
    assert found == expected
    assert min(expected) > 0
    assert traffic.l2_compulsory <= traffic.l2_requests - traffic.l2_hits


def rows(stride: int, target: str = "gfx942") -> KernelProfile:
    """Profile one wave that reads 64 bytes each of 256 rows, and then the next 64 bytes of each."""
    load = f"v_add_u32 v2, {64 * stride}, v2\nglobal_load_dwordx4 v[4:7], v2, s[4:5]\n"
    start = f"s_mov_b32 s7, {stride}\nv_mul_lo_u32 v2, s7, v0\n"
    first = "global_load_dwordx4 v[4:7], v2, s[4:5]\n" + 3 * load
    again = f"v_mul_lo_u32 v2, s7, v0\nv_add_u32 v2, 64, v2\n{first}"
    return profiled(
        start + first + again + "s_waitcnt vmcnt(0)", size=256 * stride + 256, target=target
    )


def test_rows_at_a_power_of_two_share_a_set() -> None:
    """The rows of K = 8192 in bf16 never hit; with K = 8256, the second half of each line does."""
    bad, good = rows(2 * 8192), rows(2 * 8256)
    assert bad.global_memory.l1_hit_rate == 0.0
    assert good.global_memory.l1_hit_rate == 0.5
    traffic = bad.global_memory.traffic
    assert (traffic.l1_compulsory, traffic.l1_capacity, traffic.l1_conflict) == (256, 0, 256)
    assert (traffic.stride, traffic.l1_sets_used, traffic.l1_sets_possible) == (16384, 8, 32)
    assert good.global_memory.traffic.l1_sets_used == 32
    text = str(bad.verdict)
    assert "256 of 512 misses are conflicts: without them it would hit in 50.0 %" in text
    assert "rows are 16,384 bytes apart, which is 128 lines of 128 bytes, a multiple of 4" in text
    assert "fall into 1 of the 4 sets, and a set holds 64 lines" in text
    assert "pad the rows from 16,384 to 16,512 bytes" in text
    assert "Conflict" not in str(good.verdict)


def test_conflicts_without_an_effect_are_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a cause only if they cost time or change the hit rate."""
    monkeypatch.setattr(remedies, "gain", lambda *_: 0.004)
    assert "they cost none of the modelled time, but they change" in str(rows(2 * 8192).verdict)
    causes = importlib.import_module("cupygemm.emulator.profiling.causes")
    monkeypatch.setattr(causes, "_HITS_LOST", 0.51)
    assert "Conflict" not in str(rows(2 * 8192).verdict)
    monkeypatch.setattr(remedies, "gain", lambda *_: 0.006)
    assert "Conflict misses in vL1D: they cost up to 1% of" in str(rows(2 * 8192).verdict)


@pytest.mark.parametrize(("stride", "reached"), [(256, 2), (512, 1), (640, 4), (384, 4)])
def test_the_sets_that_a_stride_reaches(stride: int, reached: int) -> None:
    traffic = rows(stride).global_memory.traffic
    assert traffic.stride == stride
    assert traffic.l1_sets_used * 4 == reached * traffic.l1_sets_possible


def test_traffic_of_several_instructions_adds_up() -> None:
    one = Traffic(l1_conflict=3, stride=128, stride_votes=5)
    one.add(Traffic(l1_conflict=4, stride=256, stride_votes=9))
    assert (one.l1_conflict, one.stride, one.stride_votes) == (7, 256, 9)
