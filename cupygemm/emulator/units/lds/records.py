"""Read the shadow memory of LDS: which wave last wrote an address (native/shadow.h)."""

from __future__ import annotations

from cupygemm.emulator.units.memory.machine import HISTORY, Machine
from cupygemm.emulator.waves.state import State

_BY_LOAD, _WRITTEN = 36, 39  # bits of the write word of a record


def last_writer(state: State, workgroup: int, address: int) -> tuple[int, int] | None:
    """Return the wave that last wrote a byte of LDS, and the program counter of its store.

    The program counter is -1 if it is no longer on record. None stands for a byte that no store or
    atomic has written, or that is not on record at all.
    """
    machine: Machine | None = state.units.get("machine")
    if machine is None or "shadow" not in machine.arrays:
        return None
    shadow = machine.lds_records()
    place = address >> machine.struct.shadow_shift
    word = int(shadow["write"][workgroup, place]) if place < shadow.shape[1] else 0
    if not word >> _WRITTEN & 1 or word >> _BY_LOAD & 1:
        return None
    writer, number = word >> 32 & 15, word & 0xFFFF_FFFF
    wave = machine.arrays["wave_ids"][workgroup, writer]
    issued, pc = machine.arrays["lds_history"][number % HISTORY, wave]
    return writer, int(pc) if issued == number else -1
