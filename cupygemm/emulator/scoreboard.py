"""Loads in flight: a register must not be used before an s_waitcnt has waited for its load.

The emulated memory answers at once, so a missing s_waitcnt would go unnoticed. `Scoreboard` mirrors
the wait counters of the hardware: the destination of every vector or scalar load stays unreadable
until an s_waitcnt of the wave covers the load. Vector memory and LDS return in order, each with its
own counter. Scalar memory returns in any order, so only lgkmcnt(0) covers it. FLAT needs both
counters.

The common case costs a few integer operations: `pending_vector` and `pending_scalar` are bit masks
over the register files, with a bit set if any wave of the batch may be affected, and only then are
the waves examined. (Registers that nothing has written are the subject of `definedness`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa import Instruction, register_name, registers
from cupygemm.emulator.marks import marks_of
from cupygemm.emulator.state import Group, State

Counter = Literal["vm", "lds", "scalar", "flat"]

EVERY_VECTOR, EVERY_SCALAR = (1 << 512) - 1, (1 << 128) - 1
"""The register files, as bit masks."""
_UNCOUNTED = ("buffer_inv", "buffer_wbinvl1", "s_dcache", "ds_nop")
_COUNTERS: dict[str, Counter] = {  # by encoding
    "MUBUF": "vm",
    "MTBUF": "vm",
    "GLOBAL": "vm",
    "SCRATCH": "vm",
    "DS": "lds",
    "SMEM": "scalar",
    "FLAT": "flat",
}
_WAITS: dict[Counter, str] = {
    "vm": "vmcnt",
    "lds": "lgkmcnt",
    "scalar": "lgkmcnt(0)",
    "flat": "vmcnt(0) lgkmcnt(0)",
}


def counter_of(inst: Instruction) -> Counter | None:
    """Return the wait counter that an instruction increments."""
    if inst.mnemonic.startswith(_UNCOUNTED):
        return None
    return _COUNTERS.get(inst.encoding)


@dataclass(slots=True, kw_only=True)
class Pending:
    """A memory instruction whose results may still be in flight."""

    counter: Counter
    waves: Any  # slice or index array into the batch
    vm: Any  # sequence numbers of the instruction: a scalar, or one per wave
    lds: Any
    scalar: Any
    vector_mask: int
    scalar_mask: int
    pc: int
    inst: Instruction


class Scoreboard:
    """The wait counters of one batch.

    Attributes
    ----------
    pending_vector, pending_scalar : int
        Bit masks of the registers with a load that some wave has not waited for.
    """

    def __init__(self, state: State, initial_vector: int, initial_scalar: int) -> None:
        waves = state.num_waves
        self.state = state
        self.outstanding: list[Pending] = []
        self.pending_vector = self.pending_scalar = 0
        marks_of(state).start(initial_vector, initial_scalar)
        self.vm_done, self.lds_done = state.vm_waited, state.lds_waited
        self.scalar_issued = np.zeros(waves, np.int32)
        self.scalar_done = np.zeros(waves, np.int32)

    # -- before an instruction ---------------------------------------------------------------------

    def check(self, group: Group, inst: Instruction, counter: Counter | None) -> None:
        """Raise a `Fault` if the group reads or overwrites a register whose load is in flight."""
        waiting_v = (inst.vector_reads | inst.vector_writes) & self.pending_vector
        waiting_s = (inst.scalar_reads | inst.scalar_writes) & self.pending_scalar
        if waiting_v or waiting_s:
            self._check_pending(group, inst, counter)

    def _check_pending(self, group: Group, inst: Instruction, counter: Counter | None) -> None:
        ids = group.wave_ids
        for entry in self.outstanding:
            reads_v = inst.vector_reads & entry.vector_mask
            reads_s = inst.scalar_reads & entry.scalar_mask
            writes_v = inst.vector_writes & entry.vector_mask
            writes_s = inst.scalar_writes & entry.scalar_mask
            if counter == entry.counter and counter != "scalar":
                writes_v = writes_s = 0  # loads return in order: the younger one wins
            if not (reads_v or reads_s or writes_v or writes_s):
                continue
            late = np.zeros(self.state.num_waves, bool)
            late[entry.waves] = ~self._done(entry)
            found = np.flatnonzero(late[ids])
            if not found.size:
                continue
            mask, prefix = (
                (reads_v | writes_v, "v") if reads_v or writes_v else (reads_s | writes_s, "s")
            )
            name = register_name(prefix, registers(mask)[0])
            wait = _WAITS[entry.counter]
            verb = "is read" if reads_v or reads_s else "is overwritten"
            _, load = self.state.kernel.code_object.locate(entry.pc)
            raise Fault(
                "read before wait" if reads_v or reads_s else "write before wait",
                f"{name} {verb} while its load is in flight: no s_waitcnt {wait} covers\n"
                f"  {load:+#x}: {entry.inst.text}",
                int(found[0]),
            )

    # -- after an instruction ----------------------------------------------------------------------

    def issue(self, group: Group, inst: Instruction, counter: Counter, pc: int) -> None:
        """Count a memory instruction; its results become unreadable until a wait covers it."""
        state, waves = self.state, group.waves
        if counter in ("vm", "flat"):
            state.vm_issued[waves] += 1
        if counter in ("lds", "flat"):
            state.lds_issued[waves] += 1
        if counter == "scalar":
            self.scalar_issued[waves] += 1
        if inst.vector_writes or inst.scalar_writes:
            entry = Pending(
                counter=counter,
                waves=waves,
                vm=state.vm_issued[waves].copy(),
                lds=state.lds_issued[waves].copy(),
                scalar=self.scalar_issued[waves].copy(),
                vector_mask=inst.vector_writes,
                scalar_mask=inst.scalar_writes,
                pc=pc,
                inst=inst,
            )
            self.outstanding.append(entry)
            self.pending_vector |= inst.vector_writes
            self.pending_scalar |= inst.scalar_writes

    def wait(self, group: Group, simm16: int) -> None:
        """Execute s_waitcnt."""
        waves = group.waves
        vm = simm16 & 15 | simm16 >> 10 & 0x30
        lgkm = simm16 >> 8 & 15
        # The largest values wait too: no more operations than a counter can count are in flight.
        _raise_to(self.vm_done, waves, self.state.vm_issued[waves] - vm)
        _raise_to(self.lds_done, waves, self.state.lds_issued[waves] - lgkm)
        if lgkm == 0:
            self.scalar_done[waves] = self.scalar_issued[waves]
        if self.outstanding:
            self.outstanding = [e for e in self.outstanding if not self._done(e).all()]
            self.pending_vector = self.pending_scalar = 0
            for entry in self.outstanding:
                self.pending_vector |= entry.vector_mask
                self.pending_scalar |= entry.scalar_mask

    def _done(self, entry: Pending) -> NDArray[np.bool_]:
        """Return which waves of an entry have waited for it."""
        waves = entry.waves
        if entry.counter == "scalar":
            done: NDArray[np.bool_] = self.scalar_done[waves] >= entry.scalar
        elif entry.counter == "vm":
            done = self.vm_done[waves] >= entry.vm
        elif entry.counter == "lds":
            done = self.lds_done[waves] >= entry.lds
        else:
            done = (self.vm_done[waves] >= entry.vm) & (self.lds_done[waves] >= entry.lds)
        return done

    def release(self, waves: Any) -> None:
        """Record what the waves that pass a barrier have waited for."""
        self.state.lds_released[waves] = self.lds_done[waves]
        self.state.vm_released[waves] = self.vm_done[waves]
        self.state.vm_passed[waves] = self.state.vm_issued[waves]


class NoScoreboard(Scoreboard):
    """The scoreboard of an unchecked launch: every register may be read at any time."""

    def __init__(self, state: State) -> None:
        super().__init__(state, EVERY_VECTOR, EVERY_SCALAR)

    def issue(self, group: Group, inst: Instruction, counter: Counter, pc: int) -> None:
        """Ignore the instruction: nothing is tracked."""

    def wait(self, group: Group, simm16: int) -> None:
        """Ignore the wait: nothing is tracked."""

    def release(self, waves: Any) -> None:
        """Ignore the barrier: nothing is tracked."""


def _raise_to(counter: NDArray[np.int32], waves: Any, value: NDArray[np.int32]) -> None:
    counter[waves] = np.maximum(counter[waves], value)
