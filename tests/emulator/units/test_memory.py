"""GLOBAL, FLAT and SCRATCH instructions against plain loops, and their refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cupygemm.emulator.diagnostics.checking import Policy
from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa.instruction import APERTURE_PRIVATE, APERTURE_SHARED
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import (
    HostMemory,
    assemble,
    barrier,
    exec_lanes,
    make_state,
    run,
    set_exec,
    set_s64,
    set_v64,
)

MASK = 0x8F00000100F0FF01
# Instruction: bytes, whether the load extends the sign, and the half register that it fills.
_LOADS = """\
ubyte         1   unsigned  -
sbyte         1   signed    -
ushort        2   unsigned  -
sshort        2   signed    -
dword         4   unsigned  -
dwordx2       8   unsigned  -
dwordx3       12  unsigned  -
dwordx4       16  unsigned  -
ubyte_d16     1   unsigned  low
ubyte_d16_hi  1   unsigned  high
sbyte_d16     1   signed    low
sbyte_d16_hi  1   signed    high
short_d16     2   unsigned  low
short_d16_hi  2   unsigned  high
"""
LOADS = {
    name: (int(size), kind == "signed", half.strip("-"))
    for name, size, kind, half in map(str.split, _LOADS.splitlines())
}
# Instruction: bytes, and the bit of the register at which the data starts.
STORES = {name: (size, 0) for name, (size, _, _) in LOADS.items() if name.startswith("dword")}
STORES |= {"byte": (1, 0), "short": (2, 0), "byte_d16_hi": (1, 16), "short_d16_hi": (2, 16)}


def registers(first: int, size: int) -> str:
    """Return the assembly name of the registers that hold `size` bytes."""
    return f"v[{first}:{first - 1 + size // 4}]" if size > 4 else f"v{first}"


def loaded(data: bytes, kind: tuple[int, bool, str]) -> list[int]:
    """Return the contents of the destination registers after a load of `data`."""
    size, signed, half = kind
    if size >= 4:
        return np.frombuffer(data, np.uint32).tolist()
    value = int.from_bytes(data, "little", signed=signed) & 0xFFFFFFFF
    if half == "low":
        return [value & 0xFFFF]
    return [(value & 0xFFFF) << 16] if half else [value]


def stored(state: State, register: int, wave: int, lane: int, size: int, shift: int) -> bytes:
    """Return the bytes that a store of `size` bytes writes."""
    words = state.vgpr[register : register + 4, wave, lane].tolist()
    value = sum(word << 32 * i for i, word in enumerate(words)) >> shift
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def memory_state(size: int, *, target: str = "gfx942") -> tuple[State, HostMemory, int]:
    """Return two waves with random registers, and an allocation of random bytes."""
    memory = HostMemory()
    state = make_state(waves=2, target=target, memory=memory, seed=9)
    address = memory.malloc(size)
    memory.bytes(address)[:] = np.random.default_rng(4).integers(0, 256, size, np.uint8)
    set_exec(state, MASK)
    return state, memory, address


# -- loads and stores ------------------------------------------------------------------------------


def load_text(name: str, form: str) -> str:
    """Return a load into v8 and those that follow, from an address of one of three forms."""
    data = registers(8, LOADS[name][0])
    return {
        "off": f"global_load_{name} {data}, v[2:3], off offset:-33",
        "saddr": f"global_load_{name} {data}, v2, s[6:7] offset:100",
        "flat": f"flat_load_{name} {data}, v[2:3] offset:200",
    }[form]


def store_text(name: str, form: str) -> str:
    """Return a store of v8 and those that follow, to an address of one of three forms."""
    data = registers(8, STORES[name][0])
    return {
        "off": f"global_store_{name} v[2:3], {data}, off offset:-16",
        "saddr": f"global_store_{name} v2, {data}, s[6:7] offset:-16",
        "flat": f"flat_store_{name} v[2:3], {data} offset:16",
    }[form]


FORMS = ("off", "saddr", "flat")
LOAD_TEXTS = [load_text(*case) for case in itertools.product(LOADS, FORMS)]
STORE_TEXTS = [store_text(*case) for case in itertools.product(STORES, FORMS)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOADS)
def test_load(name: str, form: str) -> None:
    kind = LOADS[name]
    size = kind[0]
    state, memory, address = memory_state(4096)
    where = np.random.default_rng(5).integers(64, 4096 - 256, (2, LANES))
    if form == "saddr":
        state.vgpr[2] = where
        set_s64(state, 6, address)
    else:
        set_v64(state, 2, np.uint64(address) + where.astype(np.uint64))
    offset = {"off": -33, "saddr": 100, "flat": 200}[form]
    expected = state.vgpr.copy()
    run(state, assemble(load_text(name, form), among=LOAD_TEXTS))
    data = memory.bytes(address)
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            start = int(where[wave, lane]) + offset
            for i, word in enumerate(loaded(data[start : start + size].tobytes(), kind)):
                expected[8 + i, wave, lane] = word
    np.testing.assert_array_equal(state.vgpr, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_store(name: str, form: str) -> None:
    size, shift = STORES[name]
    state, memory, address = memory_state(4096)
    where = 17 + 31 * np.arange(2 * LANES).reshape(2, LANES)
    if form == "saddr":
        state.vgpr[2] = where
        set_s64(state, 6, address)
    else:
        set_v64(state, 2, np.uint64(address) + where.astype(np.uint64))
    offset = 16 if form == "flat" else -16
    expected = memory.bytes(address).copy()
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            data = stored(state, 8, wave, lane, size, shift)
            start = int(where[wave, lane]) + offset
            expected[start : start + size] = np.frombuffer(data, np.uint8)
    before = state.vgpr.copy()
    run(state, assemble(store_text(name, form), among=STORE_TEXTS))
    np.testing.assert_array_equal(memory.bytes(address), expected)
    np.testing.assert_array_equal(state.vgpr, before)


def test_accumulation_registers() -> None:
    state, memory, address = memory_state(1024)
    set_exec(state, 0xFFFFFFFFFFFFFFFF)
    set_v64(state, 2, address + 8 * np.arange(LANES))
    run(state, assemble("global_load_dwordx2 a[4:5], v[2:3], off"))
    words = memory.view(address, np.uint32)
    np.testing.assert_array_equal(state.vgpr[256 + 5, 1], words[1 : 2 * LANES : 2])
    state.vgpr[256 + 5] = np.arange(LANES)
    run(state, assemble("global_store_dwordx2 v[2:3], a[4:5], off"))
    np.testing.assert_array_equal(words[1 : 2 * LANES : 2], np.arange(LANES))


def test_destination_may_be_the_address() -> None:
    state, memory, address = memory_state(2048)
    set_exec(state, 0xFFFFFFFFFFFFFFFF)
    set_v64(state, 2, address + 16 * np.arange(LANES))
    run(state, assemble("global_load_dwordx4 v[0:3], v[2:3], off"))
    expected = memory.view(address, np.uint32)[: 4 * LANES].reshape(LANES, 4).T
    np.testing.assert_array_equal(state.vgpr[:4, 0], expected)


def test_the_highest_lane_wins() -> None:
    state, memory, address = memory_state(64)
    state.findings = Findings(Policy().changed({"lane_races": "off"}))
    set_exec(state, 0xFFFFFFFFFFFFFFFF)
    set_v64(state, 2, address)
    state.vgpr[4] = np.arange(LANES)
    run(state, assemble("global_store_dword v[2:3], v4, off"))
    assert memory.view(address, np.uint32)[0] == 63


def test_part_of_the_batch() -> None:
    """An index array of waves leaves the other waves' registers alone."""
    memory = HostMemory()
    address = memory.put(np.arange(16 * LANES, dtype=np.uint32))
    state = make_state(waves=4, memory=memory)
    set_v64(state, 2, address + 4 * np.arange(4 * LANES).reshape(4, LANES))
    run(state, assemble("global_load_dword v5, v[2:3], off"), waves=[3, 1])
    assert not state.vgpr[5, [0, 2]].any()
    np.testing.assert_array_equal(state.vgpr[5, 3], 3 * LANES + np.arange(LANES))
    np.testing.assert_array_equal(state.vgpr[5, 1], LANES + np.arange(LANES))


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("global_load_dwordx2 v[4:5], v[2:3], off", "read"),
        ("global_store_dwordx2 v[2:3], v[4:5], off", "write"),
        ("global_atomic_add_x2 v[2:3], v[4:5], off", "atomic"),
        ("flat_load_dwordx2 v[4:5], v[2:3]", "read"),
    ],
)
def test_global_bounds(text: str, kind: str) -> None:
    state, memory, address = memory_state(512)
    memory.malloc(512)
    set_exec(state, 0xFFFFFFFFFFFFFFFF)
    set_v64(state, 2, address + 8 * np.arange(LANES))
    run(state, assemble(text))
    high = state.vgpr[2, 1, 40].copy()
    for value in (address + 512, address - 8, 8):
        set_v64(state, 2, address + 8 * np.arange(LANES))
        state.vgpr[2, 1, 40], state.vgpr[3, 1, 40] = value & 0xFFFFFFFF, value >> 32
        with pytest.raises(Fault, match=f"out-of-bounds global {kind}") as caught:
            run(state, assemble(text))
        assert (caught.value.wave, caught.value.lane) == (1, 40)
        assert caught.value.address == value
        assert "allocation at" in caught.value.detail
    assert high == (address + 320) & 0xFFFFFFFF


def test_an_access_across_the_end_is_out_of_bounds() -> None:
    state, _, address = memory_state(64)
    set_exec(state, [1, 0])
    set_v64(state, 2, address + 56)
    run(state, assemble("global_load_dwordx2 v[4:5], v[2:3], off"))
    with pytest.raises(Fault, match="8 bytes past the end"):
        run(state, assemble("global_load_dwordx4 v[4:7], v[2:3], off"))


def test_lanes_switched_off_do_not_count() -> None:
    state, _, address = memory_state(64)
    set_exec(state, [1 << 5, 0])
    set_v64(state, 2, 0)
    state.vgpr[2, 0, 5], state.vgpr[3, 0, 5] = address & 0xFFFFFFFF, address >> 32
    run(state, assemble("global_load_dword v4, v[2:3], off"))


# -- private memory --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "form", "scalar", "vector"),
    [
        ("gfx942", "off, off", 0, 0),
        ("gfx942", "v2, off", 0, 1),
        ("gfx942", "off, s6", 1, 0),
        ("gfx942", "v2, s6", 1, 1),
        ("gfx90a", "v2, off", 0, 1),
        ("gfx90a", "off, s6", 1, 0),
    ],
)
def test_scratch_addresses(target: str, form: str, scalar: int, vector: int) -> None:
    state = make_state(waves=2, scratch_bytes=256, target=target, seed=3)
    state.scratch[:] = np.random.default_rng(6).integers(0, 256, state.scratch.shape, np.uint8)
    set_exec(state, MASK)
    state.sgpr[6] = [32, 48]
    state.vgpr[2] = 4 * np.random.default_rng(7).integers(0, 32, (2, LANES))
    before = state.vgpr.copy()
    run(state, assemble(f"scratch_load_dwordx2 v[8:9], {form} offset:16", target))
    for wave in range(2):
        for lane in range(LANES):
            start = 16 + scalar * int(state.sgpr[6, wave]) + vector * int(before[2, wave, lane])
            words = state.scratch[wave, lane, start : start + 8].copy().view(np.uint32)
            wanted = words if lane in exec_lanes(state, wave) else before[8:10, wave, lane]
            np.testing.assert_array_equal(state.vgpr[8:10, wave, lane], wanted)
    data = "v2" if vector else "off"
    where = "s6" if scalar else "off"
    run(state, assemble(f"scratch_store_byte {data}, v8, {where} offset:17", target))
    for lane in exec_lanes(state, 1):
        start = 17 + scalar * 48 + vector * int(state.vgpr[2, 1, lane])
        assert state.scratch[1, lane, start] == state.vgpr[8, 1, lane] & 0xFF


def test_private_bounds() -> None:
    """LLVM relies on unaligned private accesses, by SCRATCH and by FLAT."""
    state = make_state(waves=2, scratch_bytes=64)
    load = assemble("scratch_load_dword v4, v2, off")
    state.vgpr[2] = 60
    run(state, load)
    state.vgpr[2, 1, 3] = 64
    with pytest.raises(Fault, match="out-of-bounds private read") as caught:
        run(state, load)
    assert (caught.value.wave, caught.value.lane) == (1, 3)
    state.vgpr[2, 1, 3] = 7
    state.scratch[1, 3, 7:11] = [1, 2, 3, 4]
    run(state, load)
    assert state.vgpr[4, 1, 3] == 0x04030201


def test_flat_reaches_all_three() -> None:
    """Lanes of one FLAT instruction in LDS, in private memory and in global memory."""
    memory = HostMemory()
    address = memory.put(np.arange(LANES, dtype=np.uint32))
    state = make_state(waves=2, lds_bytes=256, scratch_bytes=256, memory=memory)
    kind = np.arange(LANES) % 3
    where = 4 * np.arange(LANES, dtype=np.uint64) % np.uint64(256)
    base = np.choose(kind, [address, APERTURE_SHARED, APERTURE_PRIVATE]).astype(np.uint64)
    set_v64(state, 2, base + where)
    state.vgpr[4] = 1000 + np.arange(LANES)
    store, load = assemble("flat_store_dword v[2:3], v4"), assemble("flat_load_dword v5, v[2:3]")
    run(state, store, load, waves=[0])
    np.testing.assert_array_equal(state.vgpr[5, 0], 1000 + np.arange(LANES))
    words = state.lds[0].view(np.uint32)
    np.testing.assert_array_equal(words[kind == 1], 1000 + np.flatnonzero(kind == 1))
    np.testing.assert_array_equal(
        memory.view(address, np.uint32)[kind == 1], np.flatnonzero(kind == 1)
    )
    for lane in np.flatnonzero(kind == 2):
        assert state.scratch[0, lane, 4 * lane : 4 * lane + 4].view(np.uint32)[0] == 1000 + lane
    set_exec(state, int(sum(1 << int(lane) for lane in np.flatnonzero(kind == 1))))
    with pytest.raises(Fault, match="LDS race: read after another wave's write"):
        run(state, load, waves=[1])
    barrier(state)
    run(state, load, waves=[1])
    state.vgpr[2, 1] += 256
    with pytest.raises(Fault, match="out-of-bounds LDS read"):
        run(state, load, waves=[1])
    barrier(state)
    run(state, assemble("flat_atomic_add v[2:3], v4"), waves=[0])
    assert words[1] == 1001 + 1001
