"""Accesses of many lanes to LDS give the records and faults of accesses by one lane at a time.

C processes the records of a few lanes one by one, those of many lanes as vectors, and those of a
contiguous range in memory order. Where possible, one record covers a block of granules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from ctypes import c_uint32
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.units import bind
from cupygemm.emulator.units.memory.fault_codes import FaultCode
from cupygemm.emulator.units.memory.machine import c_function, machine_of
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import ALL_LANES, assemble, make_state, set_exec

WAVES, LDS_BYTES, ADDRESS, DATA = 4, 2048, 0, 4
EVERY_CODE = (1 << 64) - 1
AMONG_LANES = 1 << FaultCode.LANE_RACE  # which lanes one after another do not have
TAINTED, SEVERAL = 1 << 45, 1 << 38  # of a write, as in shadow.h


@functools.cache
def step(text: str, width: int) -> Any:
    """Return the step of a read or a write of `width` bits, or of two consecutive ones."""

    def registers(first: int, count: int) -> str:
        return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"

    count = width // 32
    one, two = registers(DATA, count), registers(DATA, 2 * count)
    operands = {
        "read": f"{one}, v0",
        "write": f"v0, {one}",
        "read2": f"{two}, v0 offset1:1",
        "write2": f"v0, {one}, {registers(DATA + count, count)} offset1:1",
    }[text]
    return bind(assemble(f"ds_{text}_b{width} {operands}"), make_state().target)


def execute(
    state: State, text: str, width: int, wave: int, mask: int, ignored: int = AMONG_LANES
) -> int:
    """Execute the instruction in one wave, without its issue; return C's code."""
    operation, machine = step(text, width).operation, machine_of(state)
    set_exec(state, mask)
    machine.struct.ignored = ignored
    call = c_function("lds_instruction", c_uint32)
    return int(call(machine.address, operation.address, None, wave, 1, 1, 16))


def random_lanes(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return addresses: anywhere in a small part of LDS, with strides, and in order."""
    lane = np.arange(LANES)
    places = {
        "anywhere": rng.integers(0, 96, LANES),
        "strided": rng.integers(0, 8) + 2 * (lane % 48),
        "in order": lane,
        "shared": lane // 8,
    }
    return size * np.minimum(places[rng.choice(list(places))], LDS_BYTES // size - 1)


def histories(width: int) -> Iterator[tuple[State, np.random.Generator]]:
    """Yield states after random accesses, with or without races, and random barriers."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        state = make_state(waves=WAVES, lds_bytes=LDS_BYTES, seed=seed)
        for _ in range(rng.integers(1, 12)):
            wave = int(rng.integers(WAVES))
            state.vgpr[ADDRESS, wave] = random_lanes(rng, width // 8)
            state.lds_issued[wave] += 1
            mask = int(rng.integers(1, ALL_LANES, dtype=np.uint64)) if rng.random() < 0.5 else -1
            text = "read" if rng.random() < 0.5 else "write"
            while execute(state, text, width, wave, mask & ALL_LANES, EVERY_CODE):
                machine_of(state).refine_shadow(machine_of(state).struct.needed_shift)
            if rng.random() < 0.4:
                passed = rng.random(WAVES) < 0.8
                state.lds_released[passed] = state.lds_issued[passed]
                state.barrier_epoch += 1
        flag(state, rng)
        yield state, rng


def flag(state: State, rng: np.random.Generator) -> None:
    """Make some places undefined, and others stored by several waves."""
    arrays = machine_of(state).arrays
    writes = machine_of(state).lds_records()["write"]
    kinds, written = rng.random(writes.shape), writes != 0
    writes[written & (kinds < 0.1)] |= np.uint64(TAINTED)
    writes[written & (kinds > 0.9)] |= np.uint64(SEVERAL | int(rng.integers(WAVES)) << 40)
    arrays["lds_undefined"][:] = rng.integers(0, 2, state.lds.shape)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["read", "write"])
@pytest.mark.parametrize("width", [32, 64, 96, 128])
def test_many_lanes_are_noted_as_one_after_another(text: str, width: int) -> None:
    outcomes = set()
    for state, rng in histories(width):
        machine, wave = machine_of(state), int(rng.integers(WAVES))
        state.vgpr[ADDRESS, wave] = random_lanes(rng, width // 8)
        state.lds_issued[wave] += 1
        missing = rng.integers(0, LANES, rng.integers(0, 8))
        mask = ALL_LANES & ~sum(1 << int(lane) for lane in set(missing))
        records, before = machine.lds_records(), machine.lds_records().copy()
        lds, vgpr = state.lds.copy(), state.vgpr.copy()
        machine.arrays["undefined"][:16] = 0
        code, lanes = execute(state, text, width, wave, mask), machine.struct.fault.lanes
        together, undefined = machine.lds_records().copy(), machine.arrays["undefined"]
        noted = undefined[:16].copy()
        records[:], undefined[:16] = before, 0
        codes = []
        for lane in range(LANES):
            state.lds[:], state.vgpr[:] = lds, vgpr
            codes.append(execute(state, text, width, wave, mask & 1 << lane))
        first = next((each for each in codes if each), 0)
        assert code == first
        if first:
            assert lanes == sum(1 << lane for lane, each in enumerate(codes) if each == first)
        np.testing.assert_array_equal(together, machine.lds_records())
        if not first:
            np.testing.assert_array_equal(noted, undefined[:16])
        outcomes.add(bool(code))
    assert outcomes == {False, True}


def places_in_blocks(rng: np.random.Generator, size: int, base: int) -> np.ndarray:
    """Return addresses of ranges, and sometimes of every n-th place after one, or of others."""
    lane, start = np.arange(LANES), base + int(rng.choice([0, 0, 0, 0, 1, 16, 64]))
    places = start + lane * int(rng.choice([1, 1, 1, 1, 1, 1, 2, 3]))
    if rng.random() < 0.05:
        places = rng.integers(0, 128, LANES)
    return size * np.minimum(places, LDS_BYTES // size - 1)


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 64, 128])
def test_records_of_blocks_stand_for_those_of_their_granules(width: int) -> None:
    codes, blocks = set(), 0
    texts = ["read", "write"] if width == 128 else ["read", "write", "read2", "write2"]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        states = [make_state(waves=WAVES, lds_bytes=LDS_BYTES, seed=seed) for _ in range(2)]
        base = int(rng.choice([0, 1, 20]))
        for _ in range(rng.integers(3, 30)):
            wave, text = int(rng.integers(WAVES)), str(rng.choice(texts))
            each = width // 8 * (2 if text.endswith("2") else 1)
            lanes = places_in_blocks(rng, each, base)
            some = int(rng.choice([1, 5, 0x5555_5555_5555_5555, int(rng.integers(1 << 62))]))
            mask = some if rng.random() < 0.3 else ALL_LANES
            passed = rng.random(WAVES) < rng.choice([0, 0.9, 1])
            found = []
            for state in states:
                machine = machine_of(state)
                state.vgpr[ADDRESS, wave] = lanes
                state.lds_issued[wave] += 1
                code = execute(state, text, width, wave, mask)
                while machine.struct.needed_shift:
                    machine.refine_shadow(machine.struct.needed_shift)
                    machine.struct.needed_shift = 0
                    code = execute(state, text, width, wave, mask)
                found.append((code, machine.struct.fault.lanes if code else 0))
                state.lds_released[passed] = state.lds_issued[passed]
                state.barrier_epoch += passed.any()
            blocks += int((machine_of(states[0]).arrays["blocks"][..., 0] != 0).sum())
            assert found[0] == found[1]
            codes.add(found[0][0])
            machines = [machine_of(state) for state in states]
            spread = machines[1].lds_records()  # which leaves no block
            if rng.random() < 0.2:
                np.testing.assert_array_equal(machines[0].lds_records(), spread)
            np.testing.assert_array_equal(*(each.arrays["undefined"] for each in machines))
    assert blocks
    assert codes >= {0, FaultCode.RACE_READ, FaultCode.RACE_WRITE_READ, FaultCode.RACE_WRITE_WRITE}


@pytest.mark.parametrize("first", [-40, -4, 0, 1, 17, LDS_BYTES // 4 - 64, LDS_BYTES // 4 - 20])
@pytest.mark.parametrize("active", [1, 5, 40, 63, 64])
def test_some_lanes_load_places_in_order(first: int, active: int) -> None:
    """Inactive lanes may have addresses outside LDS, and keep their values."""
    rng = np.random.default_rng(active)
    state = make_state(waves=2, lds_bytes=LDS_BYTES, seed=active)
    machine_of(state).refine_shadow(2)
    state.lds_issued[:] = 1
    for block in range(0, LDS_BYTES, 4 * LANES):
        state.vgpr[ADDRESS, 0] = block + 4 * np.arange(LANES)
        state.vgpr[DATA, 0] = rng.integers(0, 1 << 32, LANES, np.uint32)
        assert execute(state, "write", 32, 0, ALL_LANES) == 0
    places = first + np.arange(LANES)
    inside = (places >= 0) & (places < LDS_BYTES // 4)
    chosen = rng.permutation(np.flatnonzero(inside))[:active]
    state.vgpr[ADDRESS, :] = (4 * places).astype(np.uint32)
    before = state.vgpr[DATA].copy()
    stored = state.lds[0].view(np.uint32)[places[chosen]]
    code = execute(state, "read", 32, 0, sum(1 << int(lane) for lane in chosen))
    assert code == 0
    np.testing.assert_array_equal(state.vgpr[DATA, 0, chosen], stored)
    off = np.setdiff1d(np.arange(LANES), chosen)
    np.testing.assert_array_equal(state.vgpr[DATA, 0, off], before[0, off])
