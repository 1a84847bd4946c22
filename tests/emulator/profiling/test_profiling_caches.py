"""The cache model against an independent one in Python, on random gathers and scatters."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

import numpy as np
import pytest

from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling.caches import Traffic
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel

WORKGROUPS, ROUNDS, DATA = 60, 4, 256 << 10
TABLE = WORKGROUPS * 64 * 4  # bytes of one round's offsets

# In each round, read this lane's offset, then load (rounds 0, 1 and 3) or store (2) a dword there.
BODY = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_lshl_b32 s6, s2, 8
v_add_u32 v1, s6, v1
s_waitcnt lgkmcnt(0)
""" + "".join(
    f"""
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
{"global_store_dword v2, v0, s[4:5]" if turn == 2 else "global_load_dword v3, v2, s[4:5]"}
s_waitcnt vmcnt(0)
v_add_u32 v1, {TABLE}, v1
"""
    for turn in range(ROUNDS)
)


class Reference:
    """L1s that evict; L2s and a last-level cache that are large enough never to evict."""

    def __init__(self, target: str) -> None:
        self.line = 64 if target == "gfx90a" else 128
        self.l1_sets, self.l1_ways = (64, 4) if target == "gfx90a" else (4, 64)
        self.xcds = TARGETS[target].num_xcds
        self.cus = TARGETS[target].num_cus // self.xcds
        self.has_last = target != "gfx90a"
        self.l1: dict[tuple[int, int], OrderedDict[int, None]] = defaultdict(OrderedDict)
        self.l2: dict[tuple[int, int], set[int]] = {}  # valid sectors
        self.dirty: set[tuple[int, int]] = set()
        self.fetched: set[int] = set()
        self.written: set[int] = set()

    def access(self, workgroup: int, offsets: np.ndarray, stores: bool) -> Traffic:
        """Send the dwords of a wave through the caches."""
        lines: dict[int, set[int]] = defaultdict(set)
        for offset in offsets.tolist():
            lines[offset // self.line].add(offset // 32)
        count = Traffic(requests=len(lines), ideal_requests=min(len(lines), 256 // self.line))
        xcd = workgroup % self.xcds
        for line in sorted(lines):
            if not stores:
                cu = xcd * self.cus + workgroup // self.xcds % self.cus
                ways = self.l1[cu, line % self.l1_sets]
                count.l1_reads += 1
                hit = line in ways
                ways[line] = None
                ways.move_to_end(line)
                if hit:
                    count.l1_hits += 1
                    continue
                if len(ways) > self.l1_ways:
                    ways.popitem(last=False)
                lines[line] = set(range(line * self.line // 32, (line + 1) * self.line // 32))
            self.reach_l2(xcd, line * self.line // 128, lines[line], stores, count)
        return count

    def reach_l2(
        self, xcd: int, line: int, sectors: set[int], stores: bool, count: Traffic
    ) -> None:
        count.l2_requests += 1
        there = (xcd, line) in self.l2
        valid = self.l2.setdefault((xcd, line), set())
        if stores:
            count.l2_hits += there
            valid |= sectors
            self.dirty |= {(xcd, sector) for sector in sectors}
            self.written |= sectors
        elif sectors <= valid:
            count.l2_hits += 1
        else:
            valid |= set(range(4 * line, 4 * line + 4))
            count.fabric_read += 128
            self.fetched.add(line)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_random_gathers(target: str) -> None:
    rng = np.random.default_rng(5)
    start = ROUNDS * TABLE  # of the data, after the tables; a multiple of 128
    assert start % 128 == 0
    # Half of the accesses go to a few lines, so that all caches have hits.
    spread = rng.integers(0, DATA // 4, (ROUNDS, WORKGROUPS, 64))
    few = rng.integers(0, 2048, spread.shape)
    chosen = np.where(rng.random(spread.shape) < 0.5, few, spread)
    # Loads take even dwords and each store an odd one of its own, so that nothing is a race.
    chosen &= ~1
    chosen[2] = 1 + 2 * rng.permutation(4096)[: chosen[2].size].reshape(chosen[2].shape)
    offsets = (start + 4 * chosen).astype(np.uint32)
    memory = Memory()
    kernel = load_kernel(BODY + "s_endpgm", memory, arguments=[8], target=target)
    buffer = memory.malloc(start + DATA)
    assert buffer % 128 == 0
    memory.write(buffer, offsets.tobytes() + bytes(DATA))
    stats = run.launch(
        kernel,
        (WORKGROUPS, 1, 1),
        (64, 1, 1),
        0,
        [buffer.to_bytes(8, "little")],
        memory,
        TARGETS[target],
        profile=True,
    )
    assert stats.profile is not None
    found = [
        inst.global_memory.traffic for inst in stats.profile.instructions if inst.global_memory
    ]

    reference, expected = Reference(target), []
    for turn in range(ROUNDS):
        table = turn * TABLE + 4 * np.arange(WORKGROUPS * 64).reshape(WORKGROUPS, 64)
        for addresses, stores in ((table, False), (offsets[turn], turn == 2)):
            expected.append(Traffic())
            for workgroup in range(WORKGROUPS):
                expected[-1].add(reference.access(workgroup, addresses[workgroup], stores))
    assert found == expected
    assert sum(traffic.l1_hits for traffic in found) > 1000
    profile = stats.profile
    assert profile.fabric_written == 32 * len(reference.dirty)
    if reference.has_last:
        assert profile.hbm_written == 32 * len(reference.written)
    else:
        assert profile.hbm_written == profile.fabric_written
    assert profile.hbm_read == 128 * len(reference.fetched)
