"""Device memory: extents, guards, freed addresses, carved arrays; limits of a launch."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cupygemm.emulator import run
from cupygemm.emulator.code_object import CodeObject
from cupygemm.emulator.device import Device, LaunchError, Memory, OutOfMemory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.memory import host_memory
from cupygemm.emulator.targets import TARGETS


@pytest.fixture
def memory() -> Memory:
    return Memory(1 << 30)


def test_fresh_memory_is_poisoned_and_aligned(memory: Memory) -> None:
    pointer = memory.malloc(10_000)
    assert pointer % 4096 == 0
    assert set(memory.read(pointer, 10_000)) == {0xA5}


def test_ranges_are_the_live_allocations_in_order(memory: Memory) -> None:
    pointers = [memory.malloc(size) for size in (5, 100, 5000)]
    memory.free(pointers[1])
    starts, ends = memory.ranges()
    assert starts.tolist() == [pointers[0], pointers[2]]
    assert ends.tolist() == [pointers[0] + 5, pointers[2] + 5000]
    assert starts.dtype == ends.dtype == np.uint64
    assert memory.ranges()[0] is starts, "unchanged memory gives the same arrays"


def test_no_two_allocations_touch(memory: Memory) -> None:
    pointers = [memory.malloc(4096) for _ in range(20)]
    gaps = np.diff(np.sort(pointers)) - 4096
    assert gaps.min() >= 4096


def test_a_freed_address_does_not_come_back_soon(memory: Memory) -> None:
    seen = set()
    for _ in range(1000):
        pointer = memory.malloc(100)
        assert pointer not in seen
        seen.add(pointer)
        memory.free(pointer)


def test_freed_addresses_come_back_when_there_are_no_others() -> None:
    memory = Memory(64 << 20)
    block = 8 << 20
    for _ in range(100):
        memory.free(memory.malloc(block))
    held = [memory.malloc(block) for _ in range(5)]
    assert len(set(held)) == 5
    with pytest.raises(OutOfMemory, match="address space"):
        memory.malloc(64 << 20)


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (0, 100, "0 bytes into allocation 1 (thing): 100 bytes"),
        (40, 4, "40 bytes into allocation 1"),
        (100, 4, "0 bytes past the end of allocation 1 (thing): 100 bytes"),
        (164, 8, "64 bytes past the end of allocation 1"),
        (98, 4, "starts 2 bytes before the end of allocation 1 (thing): 100 bytes"),
        (98, 4, "and runs 2 bytes past it"),
        (-16, 8, "16 bytes before the start of allocation 1"),
        (-2, 4, "runs 2 bytes into allocation 1"),
    ],
)
def test_describe_tells_the_distance(memory: Memory, offset: int, size: int, expected: str) -> None:
    pointer = memory.malloc(100, "thing")
    assert expected in memory.describe(pointer + offset, size)


def test_describe_tells_what_was_freed_and_what_never_was(memory: Memory) -> None:
    assert memory.describe(8192, 1) == "not device memory: no device memory is allocated"
    assert memory.describe(12, 1) == "12 bytes past a null pointer"
    freed = memory.malloc(100, "gone")
    memory.malloc(100)
    memory.free(freed)
    assert "8 bytes into allocation 1 (gone)" in memory.describe(freed + 8, 4)
    assert "was freed" in memory.describe(freed + 8, 4)
    assert memory.describe(0, 4) == "a null pointer"
    host = ctypes.create_string_buffer(8)
    assert "not device memory" in memory.describe(ctypes.addressof(host), 4)


def test_past_an_array_into_what_was_freed(memory: Memory) -> None:
    """Either may be the mistake: a pointer kept too long, or an index too high."""
    block = memory.malloc(4096, "pool")
    array = memory.carve(block, 512)
    memory.carve(block + 512, 8)  # dropped at once
    freed, live = memory.describe(block + 512, 4).splitlines()
    del array
    assert freed.startswith("0 bytes into allocation 3 (array): 8 bytes")
    assert freed.endswith("which was freed;")
    assert live.startswith("0 bytes past the end of allocation 2 (array): 512 bytes")


def test_free_of_what_was_not_allocated_says_what_is_there(memory: Memory) -> None:
    pointer = memory.malloc(100)
    with pytest.raises(ValueError, match="no allocation starts: 8 bytes into allocation 1"):
        memory.free(pointer + 8)
    memory.free(pointer)
    with pytest.raises(ValueError, match="was freed"):
        memory.free(pointer)


def test_past_an_array_in_a_place_that_was_another_before(memory: Memory) -> None:
    """CuPy's pool reuses a block: the live array is named first, then the freed one."""
    block = memory.malloc(4096, "pool")
    memory.carve(block, 4000)  # dropped at once
    arrays = [memory.carve(block, 999), memory.carve(block + 1024, 100)]
    first, second = memory.describe(block + 999, 1).splitlines()
    assert first.startswith("0 bytes past the end of allocation 3 (array): 999 bytes")
    assert second.startswith("also 999 bytes into allocation 2 (array): 4000 bytes")
    assert second.endswith("which was freed")
    assert memory.describe(block + 1020, 2).startswith("4 bytes before the start of allocation 4")
    del arrays[1]
    assert memory.describe(block + 1024, 4).startswith("0 bytes into allocation 4 (array)")


def test_carved_extents_are_all_that_is_valid_of_their_block(memory: Memory) -> None:
    block = memory.malloc(4096, "pool")
    assert memory.contains(block, 4096)
    arrays = [memory.carve(block, 100), memory.carve(block + 512, 200)]
    assert memory.contains(block, 100)
    assert not memory.contains(block, 101)
    assert not memory.contains(block + 256, 1)
    assert "28 bytes past the end of allocation 2 (array)" in memory.describe(block + 128, 4)
    del arrays[0]
    assert not memory.contains(block, 1)
    assert "was freed" in memory.describe(block, 4)
    assert memory.contains(block + 512, 200)
    arrays.append(memory.carve(block, 50))
    assert memory.contains(block, 50)
    memory.free(block)
    assert memory.ranges()[0].size == 0
    del arrays  # their block is gone: nothing to do
    assert memory.ranges()[0].size == 0


def test_carving_outside_of_a_block_is_refused(memory: Memory) -> None:
    block = memory.malloc(1000)
    with pytest.raises(ValueError, match="not inside one allocation"):
        memory.carve(block + 900, 200)


def test_host_access_is_checked(memory: Memory) -> None:
    pointer = memory.malloc(16)
    memory.write(pointer, bytes(range(16)))
    assert memory.read(pointer + 4, 4) == bytes([4, 5, 6, 7])
    memory.view(pointer, 16)[0] = 99
    assert memory.read(pointer, 1) == b"c"
    with pytest.raises(ValueError, match="runs 1 bytes past it"):
        memory.read(pointer + 8, 9)


def test_an_allocation_beyond_the_host_is_refused(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "host_available", lambda: 100 << 20)
    memory.malloc(80 << 20)
    with pytest.raises(OutOfMemory, match="104857600 bytes available"):
        memory.malloc(95 << 20)


# -- launches --


def kernel(**changes: Any) -> Any:
    descriptor = SimpleNamespace(num_registers=changes.pop("registers", 64))
    values = {"name": "k", "lds_bytes": 0, "max_threads": 1024, "descriptor": descriptor}
    code = CodeObject("gfx942", 0, b"")
    return cast("Any", SimpleNamespace(code_object=code, **values | changes))


@pytest.mark.parametrize(
    ("grid", "block", "dynamic", "expected"),
    [
        ((0, 1, 1), (64, 1, 1), 0, "at least 1"),
        ((1, 1, 1), (64, 0, 1), 0, "at least 1"),
        ((1, 65537, 1), (64, 1, 1), 0, "at most"),
        ((1, 1, 1), (512, 1, 1), 0, "512 threads in a block, but the kernel is compiled for at "),
        ((1, 1, 1), (64, 1, 1), 60_000, r"70000 bytes of LDS \(10000 static, 60000 dynamic\)"),
    ],
)
def test_launches_that_the_device_cannot_run(
    grid: tuple[int, int, int], block: tuple[int, int, int], dynamic: int, expected: str
) -> None:
    device = Device(TARGETS["gfx942"], Memory(1 << 26))
    with pytest.raises(LaunchError, match=expected):
        device.launch(kernel(lds_bytes=10_000, max_threads=256), grid, block, dynamic, [])


@pytest.mark.parametrize(
    ("registers", "threads", "lds", "expected"),
    [
        (64, 256, 0, 8),  # 8 waves on each of 4 SIMDs, 4 waves in a workgroup
        (128, 256, 0, 4),
        (512, 256, 0, 1),
        (512, 512, 0, 0),  # 8 waves, and room for 4
        (32, 64, 0, 32),
        (32, 64, 20_000, 3),
    ],
)
def test_occupancy(registers: int, threads: int, lds: int, expected: int) -> None:
    device = Device(TARGETS["gfx942"], Memory(1 << 26))
    assert device.occupancy(kernel(registers=registers, lds_bytes=lds), threads, 0) == expected


def test_a_fault_is_kept_and_the_next_launch_works(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(TARGETS["gfx942"], Memory(1 << 26))
    fault = KernelFault(
        kernel="k",
        workgroup=(0, 0, 0),
        wave=0,
        lane=0,
        pc=0,
        instruction="s_nop 0",
        kind="kind",
        detail="detail",
    )

    def launch(*arguments: Any, cooperative: bool) -> str:
        assert not cooperative
        if arguments[4] == [b"bad"]:
            raise fault
        return "stats"

    monkeypatch.setattr(run, "launch", launch)
    with pytest.raises(KernelFault):
        device.launch(kernel(), (1, 1, 1), (64, 1, 1), 0, [b"bad"])
    assert device.last_fault is fault
    assert device.launch(kernel(), (1, 1, 1), (64, 1, 1), 0, [b"good"]) == "stats"
    assert device.last_fault is fault


def test_the_collector_may_free_while_ranges_are_made(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, dropped = memory.malloc(10), memory.malloc(10)
    make, left = np.frombuffer, [dropped]

    def collecting(*arguments: Any) -> Any:
        if left:
            memory.free(left.pop())  # as by a destructor that runs now
        return make(*arguments)

    monkeypatch.setattr(np, "frombuffer", collecting)
    assert memory.ranges()[0].tolist() == [kept]
