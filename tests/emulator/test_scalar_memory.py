"""SMEM instructions: scalar loads and stores, the clocks, and cache control."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm.emulator.errors import Fault
from tests.emulator.harness import HostMemory, assemble, make_state, run, set_exec, set_s64


@pytest.mark.parametrize("dwords", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    ("form", "offset"), [("0x10", 16), ("-8", -8), ("s6", 24), ("s6 offset:0x10", 40)]
)
def test_scalar_load(dwords: int, form: str, offset: int) -> None:
    memory = HostMemory()
    address = memory.put(np.arange(100, 200, dtype=np.uint32))
    state = make_state(waves=3, memory=memory)
    set_exec(state, [0, 1, 2])  # EXEC plays no part
    bases = address + np.array([16, 32, 64], np.uint64)
    state.sgpr[2], state.sgpr[3] = bases.astype(np.uint32), bases >> np.uint64(32)
    state.sgpr[6] = 24
    suffix = f"x{dwords}" if dwords > 1 else ""
    target = f"s[16:{15 + dwords}]" if dwords > 1 else "s16"
    run(state, assemble(f"s_load_dword{suffix} {target}, s[2:3], {form}"))
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
    [("s_dcache_inv", "gfx942"), ("s_dcache_wb", "gfx942"), ("buffer_wbl2 sc1", "gfx942"),
     ("buffer_inv sc1", "gfx942"), ("buffer_wbl2", "gfx90a"), ("buffer_invl2", "gfx90a"),
     ("buffer_wbinvl1_vol", "gfx90a"), ("buffer_wbinvl1", "gfx90a")],
)  # fmt: skip
def test_cache_control_changes_nothing(text: str, target: str) -> None:
    state = make_state(target=target, seed=1)
    before = state.vgpr.copy(), state.sgpr.copy()
    run(state, assemble(text, target))
    np.testing.assert_array_equal(state.vgpr, before[0])
    np.testing.assert_array_equal(state.sgpr, before[1])
