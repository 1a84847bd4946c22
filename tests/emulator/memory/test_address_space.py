"""Address ranges: reused as late as possible, and lost neither to fragments nor to the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cupygemm.emulator.memory.address_space import GAP, PAGE, AddressSpace
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.memory.host_memory import OutOfMemory


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory(64 << 20)
    yield memory
    memory.close()


def test_a_released_range_is_used_again_last() -> None:
    space = AddressSpace(0, 10 * (PAGE + GAP) + GAP)
    first = space.take(1)
    assert first is not None
    space.release(first, 1)
    later = [space.take(1) for _ in range(9)]
    assert first not in later
    assert space.take(1) == first
    assert space.take(1) is None


def test_ranges_never_overlap_and_all_of_them_come_back() -> None:
    rng = np.random.default_rng(0)
    limit = 1 << 22
    space, live = AddressSpace(0, limit), dict[int, int]()
    for _ in range(3000):
        if live and rng.random() < 0.5:
            start = int(rng.choice(list(live)))
            space.release(start, live.pop(start))
        size = int(rng.integers(0, 200_000))
        taken = space.take(size)
        if taken is not None:
            live[taken] = size
            ordered = sorted(live)
            for start, following in zip(ordered, [*ordered[1:], limit], strict=True):
                assert start + max(live[start], 1) + GAP <= following
    for start, size in live.items():
        space.release(start, size)
    assert space.take(limit - 2 * GAP) is not None


def test_memory_that_is_free_can_be_allocated_in_one_piece() -> None:
    memory = Memory(8 << 20)
    for size in (100, 5000, 70_000, 1 << 20):
        blocks = []
        while True:
            try:
                blocks.append(memory.malloc(size))
            except OutOfMemory:
                break
        for block in blocks[::2] + blocks[1::2]:
            memory.free(block)
    assert memory.used_bytes == 0
    memory.free(memory.malloc(7 << 20))
    memory.close()


def test_arguments_of_launches_use_no_new_addresses(memory: Memory) -> None:
    first = memory.malloc(64, recycle=True)
    second = memory.malloc(64, recycle=True)
    assert second != first
    memory.free(first, recycle=True)
    assert memory.malloc(100, recycle=True) == first
    assert memory.malloc(100) not in (first, second)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * PAGE


@pytest.mark.slow
def test_blocks_that_come_and_go_cost_the_host_nothing() -> None:
    memory = Memory(1 << 30)
    for _ in range(5000):  # fills the history of what was freed
        memory.free(memory.malloc(64))
    grown = []
    for _ in range(3):  # the least of them, since Python may take memory for something else
        before = resident_bytes()
        for _ in range(10_000):
            memory.free(memory.malloc(64))
        grown.append(resident_bytes() - before)
    assert min(grown) < 2 << 20  # formerly 1.5 KiB for each block
    memory.close()


def test_the_bits_of_a_neighbour_outlive_a_block(memory: Memory) -> None:
    """A page of the shadow memory covers several small blocks."""
    assert memory.shadow is not None
    blocks = [memory.malloc(64) for _ in range(10)]
    for block in blocks:
        memory.define(block, 64)
    for block in blocks[:5] + blocks[6:]:
        memory.free(block)
    place = memory.shadow.defined + (blocks[5] - memory.shadow.base) // 8
    assert ctypes.string_at(place, 8) == b"\xff" * 8
