"""SMEM instructions: scalar loads, stores and atomics, the clocks, and cache control."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import Fault, KernelFault
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import HostMemory, assemble, make_state, run, set_exec, set_s64

SIZES = (1, 2, 4, 8, 16)
OFFSETS = {"0x10": 16, "-8": -8, "s6": 24, "s6 offset:0x10": 40}


def load_text(dwords: int, form: str) -> str:
    """Return a scalar load into s16 and those that follow, from an offset of one of four forms."""
    suffix, target = (f"x{dwords}", f"s[16:{15 + dwords}]") if dwords > 1 else ("", "s16")
    return f"s_load_dword{suffix} {target}, s[2:3], {form}"


@pytest.mark.parametrize("dwords", SIZES)
@pytest.mark.parametrize(("form", "offset"), OFFSETS.items())
def test_scalar_load(dwords: int, form: str, offset: int) -> None:
    memory = HostMemory()
    address = memory.put(np.arange(100, 200, dtype=np.uint32))
    state = make_state(waves=3, memory=memory)
    set_exec(state, [0, 1, 2])  # EXEC has no effect
    bases = address + np.array([16, 32, 64], np.uint64)
    state.sgpr[2], state.sgpr[3] = bases.astype(np.uint32), bases >> np.uint64(32)
    state.sgpr[6] = 24
    texts = [load_text(*case) for case in itertools.product(SIZES, OFFSETS)]
    run(state, assemble(load_text(dwords, form), among=texts))
    for wave, base in enumerate((16, 32, 64)):
        first = 100 + (base + offset) // 4
        assert state.sgpr[16 : 16 + dwords, wave].tolist() == list(range(first, first + dwords))


def test_scalar_load_bounds_and_alignment() -> None:
    memory = HostMemory()
    address = memory.malloc(64)
    state = make_state(waves=2, memory=memory)
    set_s64(state, 2, address)
    run(state, assemble("s_load_dwordx4 s[8:11], s[2:3], 0x30"))
    with pytest.raises(Fault, match="out-of-bounds global read"):
        run(state, assemble("s_load_dwordx4 s[8:11], s[2:3], 0x34"))
    state.sgpr[2, 1] += 2
    with pytest.raises(Fault, match="misaligned scalar access") as caught:
        run(state, assemble("s_load_dword s8, s[2:3], 0x0"))
    assert caught.value.wave == 1


@pytest.mark.parametrize(("stride", "records"), [(0, 20), (4, 5)])
def test_scalar_buffer_load(stride: int, records: int) -> None:
    """Dwords beyond the buffer's end read as 0."""
    memory = HostMemory()
    address = memory.put(np.arange(1, 17, dtype=np.uint32))
    state = make_state(memory=memory)
    state.sgpr[4:8, 0] = address & 0xFFFFFFFF, address >> 32 | stride << 16, records, 0x20000
    state.sgpr[9] = 4
    run(state, assemble("s_buffer_load_dwordx4 s[12:15], s[4:7], s9 offset:0x4"))
    assert state.sgpr[12:16, 0].tolist() == [3, 4, 5, 0]
    run(state, assemble("s_buffer_load_dwordx2 s[12:13], s[4:7], 0x100"))
    assert state.sgpr[12:14, 0].tolist() == [0, 0]


def test_scalar_store() -> None:
    memory = HostMemory()
    address = memory.malloc(64)
    state = make_state(memory=memory, target="gfx90a")
    set_s64(state, 2, address)
    state.sgpr[8:10, 0] = 7, 8
    run(state, assemble("s_store_dwordx2 s[8:9], s[2:3], 0x8", "gfx90a"))
    assert memory.view(address, np.uint32)[2:4].tolist() == [7, 8]


def test_clocks_advance_and_repeat() -> None:
    readings = []
    for _ in range(2):
        state = make_state(waves=2)
        values = []
        for _ in range(3):
            run(state, assemble("s_memtime s[4:5]"), assemble("s_memrealtime s[6:7]"))
            values.append(state.sgpr[4:8, 1].tolist())
        assert values == sorted(values)
        assert values[0] != values[1]
        readings.append(values)
    assert readings[0] == readings[1]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("s_dcache_inv", "gfx942"),
        ("s_dcache_wb", "gfx942"),
        ("buffer_wbl2 sc1", "gfx942"),
        ("buffer_inv sc1", "gfx942"),
        ("buffer_wbl2", "gfx90a"),
        ("buffer_invl2", "gfx90a"),
        ("buffer_wbinvl1_vol", "gfx90a"),
        ("buffer_wbinvl1", "gfx90a"),
    ],
)
def test_cache_control_changes_nothing(text: str, target: str) -> None:
    state = make_state(target=target, seed=1)
    before = state.vgpr.copy(), state.sgpr.copy()
    run(state, assemble(text, target))
    np.testing.assert_array_equal(state.vgpr, before[0])
    np.testing.assert_array_equal(state.sgpr, before[1])


# What the ISA guide says of each atomic: the new value from the old one and the operand.
ATOMICS = {
    "swap": lambda old, data: data,
    "add": lambda old, data: old + data,
    "sub": lambda old, data: old - data,
    "smin": lambda old, data: min(old, data, key=signed),
    "umin": min,
    "smax": lambda old, data: max(old, data, key=signed),
    "umax": max,
    "and": lambda old, data: old & data,
    "or": lambda old, data: old | data,
    "xor": lambda old, data: old ^ data,
    "inc": lambda old, data: 0 if old >= data else old + 1,
    "dec": lambda old, data: data if old == 0 or old > data else old - 1,
}  # fmt: skip


def signed(value: int) -> int:
    bits = 32 if value < 1 << 32 else 64
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", ATOMICS)
def test_scalar_atomics(name: str, target: str) -> None:
    texts = {each: f"s_atomic_{each} s5, s[2:3], 0x4 glc" for each in ATOMICS}
    for old, data in [(5, 3), (3, 5), (0, 7), (0xFFFFFFF0, 4), (9, 0xFFFFFFFF), (4, 4)]:
        memory = HostMemory()
        address = memory.put(np.array([11, old, 12], np.uint32))
        state = make_state(memory=memory, target=target)
        set_exec(state, 0)  # has no effect
        set_s64(state, 2, address)
        state.sgpr[5] = data
        run(state, assemble(texts[name], target, among=texts.values()))
        assert state.sgpr[5, 0] == old
        expected = ATOMICS[name](old, data) & 0xFFFFFFFF
        assert memory.view(address, np.uint32).tolist() == [11, expected, 12]


def test_scalar_atomics_of_two_dwords_and_without_a_result() -> None:
    memory = HostMemory()
    address = memory.put(np.array([0, (1 << 32) - 1], np.uint64))
    state = make_state(waves=3, memory=memory)
    set_s64(state, 2, address)
    state.sgpr[4], state.sgpr[5], state.sgpr[6] = 2, 1, 8
    run(state, assemble("s_atomic_add_x2 s[4:5], s[2:3], s6 glc"))  # by each of three waves
    old = state.sgpr[4].astype(np.uint64) | state.sgpr[5].astype(np.uint64) << np.uint64(32)
    added = (1 << 32) + 2
    assert old.tolist() == [(1 << 32) - 1 + wave * added for wave in range(3)]
    assert memory.view(address, np.uint64)[1] == (1 << 32) - 1 + 3 * added
    state.sgpr[4], state.sgpr[5] = 1, 0
    run(state, assemble("s_atomic_add_x2 s[4:5], s[2:3], 0x0"))
    assert state.sgpr[4:6].tolist() == [[1] * 3, [0] * 3]
    assert memory.view(address, np.uint64)[0] == 3


def test_scalar_compare_and_swap() -> None:
    memory = HostMemory()
    address = memory.put(np.array([5], np.uint32))
    state = make_state(waves=2, memory=memory)
    set_s64(state, 2, address)
    state.sgpr[8], state.sgpr[9] = [6, 7], 5  # the new value, then what it is compared with
    run(state, assemble("s_atomic_cmpswap s[8:9], s[2:3], 0x0 glc"))
    assert state.sgpr[8].tolist() == [5, 6], "the second wave finds what the first has written"
    assert memory.view(address, np.uint32).tolist() == [6]


def test_scalar_buffer_atomics_stay_within_the_buffer() -> None:
    memory = HostMemory()
    address = memory.put(np.arange(1, 5, dtype=np.uint32))
    state = make_state(memory=memory)
    state.sgpr[4:8, 0] = address & 0xFFFFFFFF, address >> 32, 8, 0x20000
    state.sgpr[9], state.sgpr[10] = 10, 4
    run(state, assemble("s_buffer_atomic_add s9, s[4:7], s10 glc"))
    assert (state.sgpr[9, 0], memory.view(address, np.uint32)[1]) == (2, 12)
    state.sgpr[9] = 10
    run(state, assemble("s_buffer_atomic_add s9, s[4:7], 0x8 glc"))
    assert (state.sgpr[9, 0], memory.view(address, np.uint32)[2]) == (0, 3)


def test_scalar_atomics_are_checked() -> None:
    memory = HostMemory()
    address = memory.malloc(64)
    state = make_state(memory=memory)
    set_s64(state, 2, address)
    with pytest.raises(Fault, match="out-of-bounds global"):
        run(state, assemble("s_atomic_dec s5, s[2:3], 0x40"))
    with pytest.raises(Fault, match="misaligned"):
        run(state, assemble("s_atomic_dec_x2 s[4:5], s[2:3], 0x4"))


# As in vendors' kernels with split k: the last workgroup that counts down adds the parts.
LAST_ONE_ADDS = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_lshl_b32 s8, s2, 8
v_add_u32 v2, s8, v1
v_mov_b32 v3, 1.0
s_waitcnt lgkmcnt(0)
global_store_dword v2, v3, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
s_mov_b32 s9, 3
s_atomic_dec s9, s[6:7], 0x0 glc
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s9, 1
s_cbranch_scc0 L_end
global_load_dword v4, v1, s[4:5]
global_load_dword v5, v1, s[4:5] offset:256
global_load_dword v6, v1, s[4:5] offset:512
s_waitcnt vmcnt(0)
v_add_f32 v4, v4, v5
v_add_f32 v4, v4, v6
global_store_dword v1, v4, s[4:5]
L_end:
s_endpgm
"""


@pytest.mark.parametrize("order", ["lockstep", "forward", "reverse"])
def test_a_scalar_atomic_orders_workgroups(order: Any) -> None:
    memory = Memory()
    kernel = load_kernel(LAST_ONE_ADDS, memory, arguments=[8, 8])
    parts, counter = memory.malloc(768), memory.malloc(4)
    memory.write(counter, struct.pack("<I", 3))
    arguments = [struct.pack("<Q", parts), struct.pack("<Q", counter)]
    launch(kernel, (3, 1, 1), (64, 1, 1), 0, arguments, memory, TARGETS["gfx942"], order=order)
    assert np.frombuffer(memory.read(parts, 256), np.float32).tolist() == [3.0] * 64


def test_scalar_atomics_need_defined_memory_and_scalar_stores_define_it() -> None:
    memory = Memory()
    use = "\ns_load_dwordx2 s[4:5], s[0:1], 0x0\ns_mov_b32 s9, 3\ns_waitcnt lgkmcnt(0)\n"
    atomic = "s_atomic_dec s9, s[4:5], 0x0 glc\ns_waitcnt lgkmcnt(0)\ns_endpgm"
    kernel = load_kernel(use + atomic, memory, arguments=[8])
    counter = memory.malloc(4)
    arguments = [struct.pack("<Q", counter)]
    target = TARGETS["gfx942"]
    with pytest.raises(KernelFault, match="uninitialised"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, target)
    store = "s_store_dword s9, s[4:5], 0x0\ns_waitcnt lgkmcnt(0)\n"
    kernel = load_kernel(use + store + atomic, memory, arguments=[8])
    launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, target)
    assert memory.read(counter, 4) == struct.pack("<I", 2)
