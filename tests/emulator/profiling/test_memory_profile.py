"""Counters of bank conflicts and cache lines, and the layouts that Python and C share."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cupygemm.emulator.execution import following, native_loop, side_by_side
from cupygemm.emulator.native import library
from cupygemm.emulator.programs import native_program
from cupygemm.emulator.units import structures
from cupygemm.emulator.units.lds import profile as lds_profile
from cupygemm.emulator.units.memory import machine, operation
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import HostMemory, assemble, make_state, run, set_exec, set_v64

# The table of the reference: phases of a 16-byte read, lanes 0-31 (then the same + 32).
READ_B128 = {
    32: ["0-3,20-23", "4-7,16-19", "8-11,28-31", "12-15,24-27"],
    64: ["0-3,12-15,20-27", "4-11,16-19,28-31"],
}


def lanes_of(text: str) -> set[int]:
    """Read lanes written as ``0-3,20-23``."""
    result: set[int] = set()
    for part in text.split(","):
        first, last = map(int, part.split("-"))
        result |= set(range(first, last + 1))
    return result


def reference_phases(size: int, banks: int, *, reads: bool) -> list[set[int]]:
    """Return the phases as sets of lanes, from the table."""
    if size > 8 and reads:
        half = [lanes_of(text) for text in READ_B128[banks]]
        return half + [{lane + 32 for lane in phase} for phase in half]
    width = {1: 4, 2: 4, 4: 4, 8: 8, 12: 16, 16: 16}[size]
    lanes = {(32, 4): 32, (32, 8): 16, (32, 16): 8, (64, 4): 64, (64, 8): 32, (64, 16): 16}[
        banks, width
    ]
    return [set(range(first, first + lanes)) for first in range(0, LANES, lanes)]


def reference_cycles(
    addresses: list[int], size: int, banks: int, *, reads: bool, active: set[int]
) -> tuple[int, int]:
    """Return the cycles of one wave's access, and those lost to conflicts."""
    cycles = 0
    phases = reference_phases(size, banks, reads=reads)
    for phase in phases:
        dwords = {
            dword
            for lane in phase & active
            for dword in range(addresses[lane] // 4, (addresses[lane] + size - 1) // 4 + 1)
        }
        demand = [0] * banks
        for dword in dwords:
            demand[dword % banks] += 1
        cycles += max(1, *demand)
    return cycles, cycles - len(phases)


def profiled(target: str, lds_bytes: int = 32768) -> State:
    """Return two waves that may read all of LDS, being profiled."""
    state = make_state(waves=2, lds_bytes=lds_bytes, target=target)
    found = machine.machine_of(state)
    found.arrays["shadow"]["write"] = 1 << 39  # written
    state.profile = True
    return state


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("ds_read_u8 v8, v1", 1),
        ("ds_read_b32 v8, v1", 4),
        ("ds_read_b64 v[8:9], v1", 8),
        ("ds_read_b96 v[8:10], v1", 12),
        ("ds_read_b128 v[8:11], v1", 16),
        ("ds_write_b64 v1, v[8:9]", 8),
        ("ds_write_b128 v1, v[8:11]", 16),
    ],
)
def test_conflicts_of_random_addresses(text: str, size: int, target: str) -> None:
    state = profiled(target)
    banks = 64 if target == "gfx950" else 32
    rng = np.random.default_rng(size)
    reads = "read" in text
    for addresses in (
        rng.integers(0, 1024, (2, LANES)) * 16,
        rng.integers(0, 40, (2, LANES)) * 4,
        np.tile(128 * np.arange(LANES), (2, 1)),
    ):
        state.units.pop("lds_conflicts", None)
        state.vgpr[1] = addresses
        if not reads:
            state.vgpr[1, 1] += 16384
        active = set(range(0, LANES, 3)) | set(range(20))
        set_exec(state, sum(1 << lane for lane in active))
        run(state, assemble(text, target))
        expected = [
            reference_cycles(state.vgpr[1, wave].tolist(), size, banks, reads=reads, active=active)
            for wave in range(2)
        ]
        total = (2, sum(c for c, _ in expected), sum(lost for _, lost in expected))
        assert state.units["lds_conflicts"] == {state.current_pc - 8: total}
        state.barrier_epoch += 1
        state.lds_released[:] = state.lds_issued


def test_a_layout_measured_without_conflicts() -> None:
    """Rows of 64 bf16, each 8-element column XORed with row % 8: none on gfx942."""
    state = profiled("gfx942")
    lane = np.arange(LANES)
    row, column = lane % 32, lane // 32
    state.vgpr[1] = 128 * row + 16 * (column ^ row % 8)
    run(state, assemble("ds_read_b128 v[8:11], v1"))
    assert state.units["lds_conflicts"][0] == (2, 16, 0)
    state.vgpr[1] = 128 * row + 16 * column  # without the swizzle
    run(state, assemble("ds_read_b128 v[8:11], v1"))
    assert state.units["lds_conflicts"][8][2] > 0


def test_broadcasts_are_free_except_in_atomics() -> None:
    state = profiled("gfx942")
    state.vgpr[2] = 64
    run(state, assemble("ds_read_b32 v8, v1"), assemble("ds_add_u32 v2, v8"))
    assert state.units["lds_conflicts"][0] == (2, 4, 0)
    assert state.units["lds_conflicts"][8] == (2, 128, 124)


def test_double_accesses_count_twice() -> None:
    state = profiled("gfx942")
    state.vgpr[1] = 4 * np.arange(LANES)
    run(state, assemble("ds_read2st64_b32 v[8:9], v1 offset0:0 offset1:1"))
    assert state.units["lds_conflicts"] == {0: (2, 8, 0)}


def test_nothing_is_counted_unless_asked() -> None:
    state = profiled("gfx942")
    state.profile = False
    run(state, assemble("ds_read_b32 v8, v1"))
    assert "lds_conflicts" not in state.units


@pytest.mark.parametrize("banks", [32, 64])
@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("size", [1, 4, 8, 12, 16])
def test_every_lane_is_in_one_phase(size: int, reads: bool, banks: int) -> None:
    masks = lds_profile.phases(size, reads=reads, banks=banks)
    assert sum(masks) == (1 << LANES) - 1
    assert sum(mask.bit_count() for mask in masks) == LANES


# -- cache lines -----------------------------------------------------------------------------------


def test_lines_of_a_coalesced_and_a_strided_load() -> None:
    memory = HostMemory()
    address = memory.malloc(1 << 16)
    address += -address % 128
    state = make_state(waves=2, memory=memory)
    state.profile = True
    load = assemble("global_load_dwordx4 v[8:11], v[2:3], off")
    set_v64(state, 2, address + 16 * np.arange(LANES))
    run(state, load)
    set_v64(state, 2, address + 128 * np.arange(LANES) + 56)
    run(state, load)
    set_exec(state, [0xFF, 0])
    run(state, load)
    assert state.units["global_lines"] == {
        0: (2, 128, 2048, 32, 16),
        8: (2, 128, 2048, 256, 128),
        16: (2, 8, 128, 16, 8),
    }


def test_lines_of_a_buffer_skip_what_is_out_of_bounds() -> None:
    memory = HostMemory()
    address = memory.malloc(4096)
    state = make_state(memory=memory)
    state.profile = True
    state.sgpr[4:8, 0] = address & 0xFFFFFFFF, address >> 32, 40, 0x20000
    state.vgpr[1] = 16 * np.arange(LANES)
    run(state, assemble("buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen"))
    assert state.units["global_lines"] == {0: (1, 3, 40, 1, 1)}


# -- layouts ---------------------------------------------------------------------------------------


def test_structures_have_the_size_that_c_gives_them() -> None:
    expected = {
        "machine": ctypes.sizeof(structures.MachineStruct),
        "operation": ctypes.sizeof(operation.OperationStruct),
        "record": machine.RECORD.itemsize,
        "loop": ctypes.sizeof(native_loop.LoopStruct),
        "instruction": ctypes.sizeof(native_program.InstructionStruct),
        "following": ctypes.sizeof(following.FollowingStruct),
        "turns": ctypes.sizeof(side_by_side.TurnsStruct),
    }
    sizes = {}
    for name in expected:
        function = getattr(library(), f"size_of_{name}")
        function.restype = ctypes.c_int64
        sizes[name] = function()
    assert sizes == expected
