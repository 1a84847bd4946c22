"""Loads from LDS that C lists before it records them cause the same reports as recorded ones."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.native import library
from cupygemm.emulator.units.memory.fault_codes import FaultCode
from cupygemm.emulator.units.memory.machine import Machine, machine_of
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import ALL_LANES, make_state
from tests.emulator.units.test_lds_records import ADDRESS, execute

WAVES, DWORDS = 4, 256
FAULT = ("lane", "lanes", "address", "bytes", "other_wave", "other_pc", "other_seq", "writes")


def new_state(seed: int) -> State:
    """Return a state whose LDS all waves have written, with records of dwords."""
    state = make_state(waves=WAVES, lds_bytes=4 * DWORDS, seed=seed)
    machine_of(state).refine_shadow(2)
    state.lds_issued[:] = 1
    for wave in range(WAVES):
        state.vgpr[ADDRESS, wave] = 4 * (wave * LANES + np.arange(LANES))
        assert execute(state, "write", 32, wave, ALL_LANES) == 0
    return state


def wait(state: State, waves: np.ndarray) -> None:
    state.lds_waited[waves] = state.lds_issued[waves]


def pass_barrier(state: State, machine: Machine) -> None:
    """Let all waves pass a barrier, which releases what they have waited for."""
    library().pass_lds_barrier(c_void_p(machine.address), c_int64(0))
    state.lds_released[:] = state.lds_waited
    state.barrier_epoch += 1


def access(state: State, text: str, wave: int, lanes: np.ndarray, mask: int) -> tuple[Any, ...]:
    """Execute an access and return its outcome."""
    machine = machine_of(state)
    state.vgpr[ADDRESS, wave] = lanes
    state.lds_issued[wave] += 1
    machine.arrays["undefined"][:16] = 0
    code = execute(state, text, 32, wave, mask)
    fault = tuple(getattr(machine.struct.fault, name) for name in FAULT) if code else ()
    return code, fault


def random_access(rng: np.random.Generator) -> tuple[str, int, np.ndarray, int]:
    """Return what a wave does: mostly it loads from anywhere."""
    text = str(rng.choice(["read", "read", "read", "read2", "read2", "write", "write2"]))
    low, high = sorted(rng.integers(0, DWORDS - 1, 2))
    places = 4 * rng.integers(low, high + 1, LANES)
    if rng.random() < 0.2:
        places = 4 * (min(low, DWORDS - 2 * LANES) + np.arange(LANES))
    mask = int(rng.integers(1, 1 << 62)) if rng.random() < 0.5 else ALL_LANES
    return text, int(rng.integers(WAVES)), places, mask


@pytest.mark.parametrize("waits", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("loads", [0.6, 0.95])
def test_listed_loads_cause_the_same_reports(waits: float, loads: float) -> None:
    """If no wave waits for all of its loads, the records of loads are the same, too."""
    codes, listed = set(), 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        states = [new_state(seed) for _ in range(2)]
        machines = [machine_of(state) for state in states]
        library().begin_deferring(c_void_p(machines[0].address))
        for state, machine in zip(states, machines, strict=True):
            wait(state, np.ones(WAVES, bool))
            pass_barrier(state, machine)
        for _ in range(60):
            text, wave, lanes, mask = random_access(rng)
            if text.startswith("write") and rng.random() < loads:
                text = "read"
            found = [access(state, text, wave, lanes, mask) for state in states]
            assert found[0] == found[1]
            codes.add(found[0][0])
            listed += int(machines[0].arrays["pending"][0, 0])
            np.testing.assert_array_equal(*(each.arrays["undefined"] for each in machines))
            if rng.random() < 0.15:
                waves = rng.random(WAVES) < rng.choice([0.5, 1]) if waits else np.zeros(WAVES, bool)
                if rng.random() < waits:
                    waves[:] = True
                for state, machine in zip(states, machines, strict=True):
                    wait(state, waves)
                    pass_barrier(state, machine)
            if rng.random() < 0.05:
                library().end_deferring(c_void_p(machines[0].address), False)
                first, second = (machine.lds_records() for machine in machines)
                np.testing.assert_array_equal(first["write"], second["write"])
                if not waits:
                    np.testing.assert_array_equal(first["read"], second["read"])
                library().begin_deferring(c_void_p(machines[0].address))
    assert listed
    assert codes >= {0, FaultCode.RACE_READ, FaultCode.RACE_WRITE_READ}


def test_reads_are_forgotten_when_epochs_repeat() -> None:
    """A read of 4,096 barriers ago is not one since the last barrier."""
    state = new_state(0)
    machine = machine_of(state)
    library().begin_deferring(c_void_p(machine.address))
    everyone, first = np.ones(WAVES, bool), 4 * np.arange(LANES)[::-1]
    wait(state, everyone)
    pass_barrier(state, machine)
    assert access(state, "read", 1, first, ALL_LANES)[0] == 0
    for _ in range(4096):
        wait(state, everyone)
        pass_barrier(state, machine)
    assert access(state, "read", 0, first, ALL_LANES)[0] == 0
    assert access(state, "write", 0, first, ALL_LANES)[0] == 0
