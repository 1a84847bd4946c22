"""Loads of a dword from a few places have the effect of loads by one lane after another."""

from __future__ import annotations

from ctypes import c_uint32

import numpy as np
import pytest

from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.memory.fault_codes import FaultCode
from cupygemm.emulator.units.memory.machine import c_function, machine_of
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import ALL_LANES, assemble, make_state, set_exec, set_v64

DWORDS, RESULT = 64, 4


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory(8 << 20)


def execute(state: State, text: str, wave: int, mask: int) -> int:
    """Execute an instruction in one wave; return C's code."""
    operation = bind(assemble(text), state.target).operation
    machine = machine_of(state)
    set_exec(state, mask)
    call = c_function("vector_memory", c_uint32)
    return int(call(machine.address, operation.address, None, wave, 1, 1, 16))


def runs_of_lanes(rng: np.random.Generator, places: int) -> np.ndarray:
    """Return the place of each lane: runs of lanes share a place, in any order of the places."""
    starts = np.sort(rng.choice(np.arange(1, LANES), places - 1, replace=False))
    run = np.searchsorted(starts, np.arange(LANES), side="right")
    return rng.choice(DWORDS, places, replace=False)[run]


@pytest.mark.parametrize("places", [1, 2, 3, 8, 9, 20])
@pytest.mark.parametrize("missing", [0, 5])
def test_values_and_undefined_bytes(memory: Memory, places: int, missing: int) -> None:
    outcomes = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        base = memory.malloc(4 * DWORDS)
        defined = rng.random(DWORDS) < 0.8
        for place in np.flatnonzero(defined):
            memory.define(base + 4 * int(place), 4)
        state = make_state(waves=2, memory=memory, seed=seed)
        machine = machine_of(state)
        addresses = (base + 4 * runs_of_lanes(rng, places)).astype(np.uint64)
        set_v64(state, 0, np.tile(addresses, (2, 1)))
        mask = ALL_LANES & ~sum(
            1 << int(lane) for lane in rng.choice(LANES, missing, replace=False)
        )
        undefined = machine.arrays["undefined"]
        undefined[:16] = 0
        text = f"global_load_dword v{RESULT}, v[0:1], off"
        assert execute(state, text, 0, mask) == 0
        for lane in range(LANES):
            assert execute(state, text, 1, mask & 1 << lane) == 0
        active = (mask >> np.arange(LANES, dtype=object) & 1).astype(bool)
        values = state.vgpr[RESULT]
        np.testing.assert_array_equal(values[0, active], values[1, active])
        np.testing.assert_array_equal(undefined[RESULT, 0], undefined[RESULT, 1])
        outcomes.add(bool(undefined[RESULT, 0].any()))
        memory.free(base)
    assert True in outcomes


@pytest.mark.parametrize("places", [1, 4, 20])
def test_a_race_names_the_lanes_that_share_its_place(memory: Memory, places: int) -> None:
    rng = np.random.default_rng(places)
    base = memory.malloc(4 * DWORDS)
    memory.define(base, 4 * DWORDS)
    state = make_state(waves=2, memory=memory)
    where = runs_of_lanes(rng, places)
    raced = where[20]
    addresses = base + 4 * np.stack([np.full(LANES, raced), where])
    set_v64(state, 0, addresses.astype(np.uint64))
    assert memory.shadow is not None
    memory.shadow.start_launch()
    machine_of(state).restart(state)
    state.vm_issued[:] = 1
    assert execute(state, f"global_store_dword v[0:1], v{RESULT}, off", 0, 1) == 0
    code = execute(state, f"global_load_dword v{RESULT}, v[0:1], off", 1, ALL_LANES)
    assert code == FaultCode.GLOBAL_RACE_READ
    sharing = sum(1 << lane for lane in range(LANES) if where[lane] == raced)
    assert machine_of(state).struct.fault.lanes == sharing
    memory.free(base)
