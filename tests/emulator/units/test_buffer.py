"""MUBUF instructions: addresses, bounds by the ISA guide's rules, LDS loads, private segment."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.state import LANES, SCRATCH_BASE, State
from tests.emulator.harness import (
    HostMemory,
    assemble,
    exec_lanes,
    make_state,
    run,
    set_exec,
)

MASK = 0x8F00000100F0FF01
SIZE = 4096


def resource(
    state: State, address: int, records: int, *, stride: int = 0, word3: int = 0x20000
) -> None:
    """Put a buffer resource into s[4:7]."""
    high = address >> 32 | (stride & 0x3FFF) << 16
    state.sgpr[4:8] = np.array([[address & 0xFFFFFFFF], [high], [records], [word3]], np.uint32)


def buffer_state(records: int, **options: int) -> tuple[State, np.ndarray]:
    """Return two waves, v1 random dword offsets, and the buffer's bytes."""
    memory = HostMemory()
    state = make_state(waves=2, memory=memory, seed=2)
    address = memory.malloc(SIZE)
    data = memory.bytes(address)
    data[:] = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    resource(state, address, records, **options)
    state.vgpr[1] = 4 * np.random.default_rng(3).integers(0, SIZE // 4, (2, LANES))
    set_exec(state, MASK)
    return state, data


def dword(data: np.ndarray, start: int, records: int) -> int:
    """Return a dword of a raw buffer, 0 if any of its bytes is out of bounds."""
    return int(data[start : start + 4].copy().view(np.uint32)[0]) if start + 4 <= records else 0


# -- raw buffers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [SIZE, 2000, 2002, 0])
@pytest.mark.parametrize("dwords", [1, 2, 3, 4])
def test_raw_load_is_checked_by_dword(dwords: int, records: int) -> None:
    state, data = buffer_state(records)
    state.vgpr[1, :, ::2] = 1984 + np.arange(LANES // 2)  # across the end, and misaligned
    suffix = f"x{dwords}" if dwords > 1 else ""
    registers = f"v[8:{7 + dwords}]" if dwords > 1 else "v8"
    state.vgpr[1] %= SIZE - 64
    expected = state.vgpr.copy()
    run(state, assemble(f"buffer_load_dword{suffix} {registers}, v1, s[4:7], 0 offen offset:12"))
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            start = int(expected[1, wave, lane]) + 12
            for i in range(dwords):
                expected[8 + i, wave, lane] = dword(data, start + 4 * i, records)
    np.testing.assert_array_equal(state.vgpr, expected)


@pytest.mark.parametrize("soffset", ["s9", "64", "m0"])
def test_the_check_counts_soffset(soffset: str) -> None:
    state, data = buffer_state(1024)
    state.sgpr[9] = state.sgpr[124] = 64
    state.vgpr[1] = 8 * np.arange(LANES) + 512
    run(state, assemble(f"buffer_load_dword v8, v1, s[4:7], {soffset} offen"))
    for lane in exec_lanes(state, 0):
        assert state.vgpr[8, 0, lane] == dword(data, 512 + 8 * lane + 64, 1024)


@pytest.mark.parametrize("offset", [0x80000000, 0xFFFFFFFC, 0xFFFFFFF0])
def test_large_offsets_do_not_wrap(offset: int) -> None:
    """The usual way to disable a lane is a huge offset."""
    state, _ = buffer_state(SIZE)
    state.sgpr[9] = 64
    state.vgpr[1] = offset
    run(state, assemble("buffer_load_dwordx4 v[8:11], v1, s[4:7], s9 offen offset:16"))
    for lane in exec_lanes(state, 1):
        assert not state.vgpr[8:12, 1, lane].any()


@pytest.mark.parametrize(
    ("name", "size", "signed"),
    [("ubyte", 1, False), ("sbyte", 1, True), ("ushort", 2, False), ("sshort", 2, True)],
)
def test_narrow_loads_read_only_their_bytes(name: str, size: int, signed: bool) -> None:
    """The last byte of the buffer, which is also the last of its allocation, can be read."""
    state, data = buffer_state(SIZE)
    state.vgpr[1] = SIZE - LANES * size + size * np.arange(LANES) + size // 2
    run(state, assemble(f"buffer_load_{name} v8, v1, s[4:7], 0 offen"))
    for lane in exec_lanes(state, 0):
        start = int(state.vgpr[1, 0, lane])
        value = int.from_bytes(data[start : start + size].tobytes(), "little", signed=signed)
        inside = start + size <= SIZE
        assert state.vgpr[8, 0, lane] == (value & 0xFFFFFFFF if inside else 0)


def test_half_register_loads_out_of_bounds_write_zero() -> None:
    state, _ = buffer_state(0)
    run(state, assemble("buffer_load_short_d16_hi v8, v1, s[4:7], 0 offen"))
    for lane in exec_lanes(state, 0):
        assert state.vgpr[8, 0, lane] == 0


@pytest.mark.parametrize("records", [SIZE, 1022])
@pytest.mark.parametrize(
    ("name", "size"), [("byte", 1), ("short", 2), ("dword", 4), ("dwordx4", 16)]
)
def test_raw_store(name: str, size: int, records: int) -> None:
    state, data = buffer_state(records)
    state.vgpr[1] = 16 * np.arange(2 * LANES).reshape(2, LANES)
    expected = data.copy()
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            start = int(state.vgpr[1, wave, lane])
            words = state.vgpr[8:12, wave, lane].copy().view(np.uint8)
            for first in range(0, size, min(size, 4)):
                end = first + min(size, 4)
                if start + end <= records:
                    expected[start + first : start + end] = words[first:end]
    registers = "v[8:11]" if size == 16 else "v8"
    run(state, assemble(f"buffer_store_{name} {registers}, v1, s[4:7], 0 offen"))
    np.testing.assert_array_equal(data, expected)


def test_atomics_are_all_or_nothing() -> None:
    state, data = buffer_state(1020)
    set_exec(state, [7, 0])
    state.vgpr[1, 0, :3] = 1008, 1016, 2000
    data.view(np.uint64)[:] = 5
    state.vgpr[8], state.vgpr[9] = 1, 0
    run(state, assemble("buffer_atomic_add_x2 v[8:9], v1, s[4:7], 0 offen sc0"))
    assert data.view(np.uint64)[[126, 127, 250]].tolist() == [6, 5, 5]
    assert state.vgpr[8, 0, :3].tolist() == [5, 0, 0]


def test_a_buffer_that_ends_beyond_its_allocation() -> None:
    """The access is within the resource's bounds, but not within the allocation's."""
    state, _ = buffer_state(SIZE + 64)
    state.vgpr[1] = 0
    state.vgpr[1, 1, 0] = SIZE
    with pytest.raises(Fault, match="out-of-bounds global read") as caught:
        run(state, assemble("buffer_load_dword v8, v1, s[4:7], 0 offen"))
    assert (caught.value.wave, caught.value.lane) == (1, 0)


# -- structured buffers ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["idxen", "idxen offen"])
def test_structured_buffer(form: str) -> None:
    """The index is checked, in elements; the address register pair is index, then offset."""
    records, stride = 40, 20
    state, data = buffer_state(records, stride=stride)
    state.vgpr[2] = np.random.default_rng(4).integers(0, 60, (2, LANES))
    state.vgpr[3] = 4 * np.random.default_rng(5).integers(0, 3, (2, LANES))
    address = "v[2:3]" if "offen" in form else "v2"
    expected = state.vgpr.copy()
    run(state, assemble(f"buffer_load_dwordx2 v[8:9], {address}, s[4:7], 0 {form} offset:4"))
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            index, offset = int(expected[2, wave, lane]), 4
            if "offen" in form:
                offset += int(expected[3, wave, lane])
            for i in range(2):
                start = index * stride + offset + 4 * i
                expected[8 + i, wave, lane] = dword(data, start, SIZE) if index < records else 0
    np.testing.assert_array_equal(state.vgpr, expected)


def test_swizzled_buffer() -> None:
    """Elements of 16 bytes, interleaved by dwords over blocks of 8 indices."""
    state, data = buffer_state(64, stride=16)
    state.sgpr[5] |= 1 << 31
    state.vgpr[2] = np.arange(LANES)
    run(state, assemble("buffer_load_dwordx2 v[2:3], v2, s[4:7], 0 idxen offset:4"))
    for lane in exec_lanes(state, 0):
        for i in range(2):
            start = lane // 8 * 16 * 8 + (4 + 4 * i) * 8 + lane % 8 * 4
            assert state.vgpr[2 + i, 0, lane] == dword(data, start, SIZE)


def test_a_swizzled_resource_without_an_index_is_linear() -> None:
    """HipKittens' loads: a stride, both bits of swizzling, and offsets only."""
    for load, at in (("v2, s[4:7], 0 offen offset:8", 2), ("off, s[4:7], s8 offset:4", 0)):
        state, data = buffer_state(SIZE, stride=16)
        state.sgpr[5] |= 3 << 30
        state.sgpr[8] = 4
        state.vgpr[2] = 4 * np.arange(LANES)
        run(state, assemble(f"buffer_load_dwordx2 v[8:9], {load}"))
        for lane in exec_lanes(state, 0):
            for i in range(2):
                start = (4 * lane if at else 0) + 8 + 4 * i
                assert state.vgpr[8 + i, 0, lane] == dword(data, start, SIZE)


def test_buffer_that_adds_the_lane() -> None:
    """ADD_TID: the lane is the index, and there is no check; the format bits extend the stride."""
    word3 = 1 << 23 | 2 << 15
    state, _ = buffer_state(0, stride=4, word3=word3)
    memory = HostMemory()
    address = memory.put(np.arange((1 << 15) * LANES // 2, dtype=np.uint32))
    state.memory = memory  # type: ignore[assignment]
    resource(state, address, 0, stride=4, word3=word3)
    stride = 4 | 2 << 14
    set_exec(state, [3, 3])
    run(state, assemble("buffer_load_dword v8, off, s[4:7], 0 offset:8"))
    assert state.vgpr[8, 0, :2].tolist() == [2, (stride + 8) // 4]


# -- direct to LDS ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "dwords", "target"), [("", 1, "gfx942"), ("x4", 4, "gfx950")])
def test_load_to_lds(suffix: str, dwords: int, target: str) -> None:
    """The offset counts twice; a lane out of bounds writes zeros, an inactive one nothing."""
    memory = HostMemory()
    state = make_state(waves=2, lds_bytes=4096, memory=memory, target=target)
    address = memory.put(np.arange(1, SIZE // 4 + 1, dtype=np.uint32))
    records = 1024
    resource(state, address, records)
    set_exec(state, MASK)
    state.vgpr[1] = 16 * np.arange(2 * LANES).reshape(2, LANES)
    state.sgpr[124] = [16, 2048]
    run(state, assemble(f"buffer_load_dword{suffix} v1, s[4:7], 0 offen offset:32 lds", target))
    expected = np.zeros(1024, np.uint32)
    written = np.zeros(1024, bool)
    for wave, base in enumerate((16, 2048)):
        for lane in exec_lanes(state, wave):
            place = (base + 32) // 4 + dwords * lane
            start = int(state.vgpr[1, wave, lane]) + 32
            for i in range(dwords):
                inside = start + 4 * i + 4 <= records
                expected[place + i] = (start + 4 * i) // 4 + 1 if inside else 0
                written[place + i] = True
    np.testing.assert_array_equal(state.lds[0].view(np.uint32), expected)
    state.vgpr[2] = 4 * int(np.flatnonzero(~written)[0])
    run(state, assemble("ds_read_b32 v3, v2", target))
    assert (marks_of(state).undefined[3, 0, exec_lanes(state, 0)] == 0xFFFFFFFF).all()


# -- the private segment buffer (gfx90a) -----------------------------------------------------------


def test_private_segment_buffer() -> None:
    """A scalar offset counts 64 lanes' bytes, a vector or instruction offset one lane's."""
    state = make_state(waves=3, scratch_bytes=128, target="gfx90a", seed=4)
    state.scratch[:] = np.random.default_rng(6).integers(0, 256, state.scratch.shape, np.uint8)
    set_exec(state, MASK)
    bases = SCRATCH_BASE + np.arange(3, dtype=np.uint64) * np.uint64(LANES * 128)
    state.sgpr[0] = bases.astype(np.uint32)
    state.sgpr[1] = (bases >> np.uint64(32)).astype(np.uint32) | np.uint32(1 << 31)
    state.sgpr[2], state.sgpr[3], state.sgpr[32] = 0xFFFFFFFF, 0x00EA4000, 64 * 16
    state.vgpr[1] = 4 * np.random.default_rng(7).integers(0, 10, (3, LANES))
    loads = (
        "buffer_load_dwordx2 v[8:9], v1, s[0:3], s32 offen offset:8",
        "buffer_load_dword v10, off, s[0:3], 0 offset:12",
    )
    before = state.vgpr.copy()
    run(state, *(assemble(text, "gfx90a") for text in loads))
    run(state, assemble("buffer_store_short v1, off, s[0:3], s32 offset:2", "gfx90a"))
    for wave in range(3):
        for lane in exec_lanes(state, wave):
            words = state.scratch[wave, lane].copy()
            start = 16 + 8 + int(before[1, wave, lane])
            assert state.vgpr[8:10, wave, lane].tobytes() == words[start : start + 8].tobytes()
            assert state.vgpr[10, wave, lane] == words[12:16].view(np.uint32)[0]
            assert words[18:20].view(np.uint16)[0] == before[1, wave, lane] & 0xFFFF
    state.vgpr[1, 2, 0] = 128
    with pytest.raises(Fault, match="out-of-bounds private read") as caught:
        run(state, assemble(loads[0], "gfx90a"))
    assert (caught.value.wave, caught.value.lane) == (2, 0)
