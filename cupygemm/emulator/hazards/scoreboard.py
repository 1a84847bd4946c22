"""Loads in flight: a register must not be used before an s_waitcnt has waited for its load.

Emulated loads complete immediately, so a missing s_waitcnt would go unnoticed. `Scoreboard` mirrors
the wait counters of the hardware: the destination of every vector or scalar load stays unreadable
until an s_waitcnt of the wave covers the load. Vector memory and LDS return in order, each with its
own counter. Scalar memory returns in any order, so only lgkmcnt(0) covers it. FLAT needs both
counters.

The common case costs a few integer operations: `pending_vector` and `pending_scalar` are bit masks
over the register files, with a bit set if any wave of the batch may be affected. Only then are
the waves examined. (`definedness` tracks registers that nothing has written.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import register_name, registers, wait_counts
from cupygemm.emulator.waves.entry import Counter, Entry
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.reports import instruction_at
from cupygemm.emulator.waves.state import Group, State

EVERY_VECTOR, EVERY_SCALAR = (1 << 512) - 1, (1 << 128) - 1
"""The register files, as bit masks."""
_WAITS: dict[Counter, str] = {
    "vm": "vmcnt",
    "lds": "lgkmcnt",
    "scalar": "lgkmcnt(0)",
    "flat": "vmcnt(0) lgkmcnt(0)",
}

_WAIT_FIELDS = {"vm": 0xC00F, "lds": 0x0F00}  # the count's bits in an s_waitcnt
_FOLLOWING = 256  # instructions searched for a wait that comes too late


class Scoreboard:
    """The wait counters of one batch, whose arrays the C loop shares.

    Each load of the program has a slot. For each wave, the slot holds the numbers of the load among
    the operations that the wave has issued; 0 means that the wave did not execute it. A wave
    that executes the load again replaces its number: the younger execution returns later.

    Attributes
    ----------
    pending_vector, pending_scalar : int
        Bit masks of the registers with a load that some wave has not waited for.
    outstanding : list of int
        Slots of the loads that some wave has not waited for, oldest first.
    slots : int32 (slots, 2, waves)
        For FLAT loads, the number among the operations of vmcnt and that of lgkmcnt; for others,
        their only number.
    counts : bool
        Whether anything is tracked.
    """

    counts = True

    def __init__(
        self, state: State, loads: list[Entry], initial_vector: int, initial_scalar: int
    ) -> None:
        waves = state.num_waves
        self.state = state
        self.outstanding: list[int] = []
        self.slots = np.zeros((0, 2, waves), np.int32)
        self.pending_vector = self.pending_scalar = 0
        self._loads = loads
        marks_of(state).start(initial_vector, initial_scalar)
        self.vm_done, self.lds_done = state.vm_waited, state.lds_waited
        self.scalar_issued = np.zeros(waves, np.int32)
        self.scalar_done = np.zeros(waves, np.int32)
        self.fit()

    def restart(self, initial_vector: int, initial_scalar: int) -> None:
        """Prepare for another batch; the parameters are those of the class."""
        self.outstanding = []
        self.pending_vector = self.pending_scalar = 0
        self.scalar_issued.fill(0)
        self.scalar_done.fill(0)
        marks_of(self.state).start(initial_vector, initial_scalar)

    def fit(self) -> None:
        """Make room for the loads of the program."""
        old = self.slots
        if len(old) < len(self._loads) or not len(old):
            self.slots = np.empty((2 * len(self._loads) + 16, *old.shape[1:]), np.int32)
            self.slots[: len(old)] = old

    # -- before an instruction ---------------------------------------------------------------------

    def check(self, group: Group, entry: Entry) -> None:
        """Report that the group reads or overwrites a register whose load is in flight."""
        inst = entry.inst
        waiting_v = (inst.vector_reads | inst.vector_writes) & self.pending_vector
        waiting_s = (inst.scalar_reads | inst.scalar_writes) & self.pending_scalar
        if (waiting_v or waiting_s) and self.state.findings.policy["waits"] != "off":
            self._check_pending(group, entry)

    def _check_pending(self, group: Group, entry: Entry) -> None:
        inst, counter = entry.inst, entry.counter
        for slot in self.outstanding:
            load = self._loads[slot]
            vector_mask, scalar_mask = load.inst.vector_writes, load.inst.scalar_writes
            reads_v = inst.vector_reads & vector_mask
            reads_s = inst.scalar_reads & scalar_mask
            writes_v = inst.vector_writes & vector_mask
            writes_s = inst.scalar_writes & scalar_mask
            if counter == load.counter and counter != "scalar":
                writes_v = writes_s = 0  # loads return in order: the younger one wins
            if not (reads_v or reads_s or writes_v or writes_s):
                continue
            found = np.flatnonzero(~self._done(slot)[group.wave_ids])
            if not found.size:
                continue
            mask, prefix = (
                (reads_v | writes_v, "v") if reads_v or writes_v else (reads_s | writes_s, "s")
            )
            name = register_name(prefix, registers(mask)[0])
            wait = _WAITS[load.counter] if load.counter else ""
            verb = "is read" if reads_v or reads_s else "is overwritten"
            place = instruction_at(self.state, load.pc).replace("\n  ", "\n    ")
            fault = Fault(
                "read before wait" if reads_v or reads_s else "write before wait",
                f"{name} {verb} while its load is in flight: no s_waitcnt {wait} covers\n"
                f"  {place}{self._remedy(slot, group.wave_ids[found[0]])}"
                f"{self._later_wait(load.counter)}",
                int(found[0]),
                check="waits",
            )
            self.state.findings.report(fault, group, self.state.current_pc)

    def _remedy(self, slot: int, wave: int) -> str:
        """Return a line that states which s_waitcnt would cover the load in a wave."""
        state, counter = self.state, self._loads[slot].counter
        vector, lds = (int(number) for number in self.slots[slot, :, wave])
        if counter == "vm":
            return _enough("vmcnt", int(state.vm_issued[wave]) - vector, 63, "vector memory")
        if counter == "lds":
            in_order = self.scalar_done[wave] >= self.scalar_issued[wave]
            younger = int(state.lds_issued[wave]) - vector if in_order else 0
            return _enough("lgkmcnt", younger, 15, "LDS")
        if counter == "flat":
            missing = [
                name
                for name, done in (
                    ("vmcnt", self.vm_done[wave] >= vector),
                    ("lgkmcnt", self.lds_done[wave] >= lds),
                )
                if not done
            ]
            return (
                "\n  a FLAT load may read LDS, so it counts in vmcnt and in lgkmcnt: "
                f"nothing waits for {' and '.join(missing)}"
            )
        return ""

    def _later_wait(self, counter: Counter | None) -> str:
        """Return lines about a full wait that comes too late, as in code that was moved."""
        code = self.state.kernel.code_object
        field = _WAIT_FIELDS.get(counter or "")
        pc = self.state.current_pc
        for _ in range(_FOLLOWING):
            try:
                inst = decode(code.image, pc, self.state.target.name)
            except UnsupportedInstruction:
                return ""
            if inst.mnemonic.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc")):
                return ""
            if inst.mnemonic == "s_waitcnt" and field and not inst.fields["simm16"] & field:
                return (
                    f"\n  {inst.text} comes after it, at {code.locate(pc)[1]:+#x}: if the source "
                    "waits first, the compiler moved the two.\n  An asm statement orders only what "
                    "uses its operands; put __builtin_amdgcn_sched_barrier(0) after it"
                )
            pc += inst.size
        return ""

    # -- after an instruction ----------------------------------------------------------------------

    def issue(self, group: Group, entry: Entry) -> None:
        """Count a memory instruction; its results become unreadable until a wait covers it."""
        state, waves, counter, slot = self.state, group.waves, entry.counter, entry.slot
        if counter in ("vm", "flat"):
            state.vm_issued[waves] += 1
        if counter in ("lds", "flat"):
            state.lds_issued[waves] += 1
        if counter == "scalar":
            self.scalar_issued[waves] += 1
        if slot < 0:
            return
        self.fit()
        if slot not in self.outstanding:
            self.outstanding.append(slot)
            self.slots[slot] = 0
        number = {"lds": state.lds_issued, "scalar": self.scalar_issued}
        self.slots[slot, 0, waves] = number.get(counter or "", state.vm_issued)[waves]
        self.slots[slot, 1, waves] = state.lds_issued[waves]
        self.pending_vector |= entry.inst.vector_writes
        self.pending_scalar |= entry.inst.scalar_writes

    def wait(self, group: Group, simm16: int) -> None:
        """Execute s_waitcnt."""
        waves = group.waves
        vm, lgkm = wait_counts(simm16)
        # The largest values wait too: no more operations than a counter can count are in flight.
        _raise_to(self.vm_done, waves, self.state.vm_issued[waves] - vm)
        _raise_to(self.lds_done, waves, self.state.lds_issued[waves] - lgkm)
        if lgkm == 0:
            self.scalar_done[waves] = self.scalar_issued[waves]
        if self.outstanding:
            self.outstanding = [slot for slot in self.outstanding if not self._done(slot).all()]
            self.pending_vector = self.pending_scalar = 0
            for slot in self.outstanding:
                self.pending_vector |= self._loads[slot].inst.vector_writes
                self.pending_scalar |= self._loads[slot].inst.scalar_writes

    def _done(self, slot: int) -> NDArray[np.bool_]:
        """Return which waves of the batch have waited for a load, or have not executed it."""
        needs, counter = self.slots[slot], self._loads[slot].counter
        if counter == "scalar":
            done: NDArray[np.bool_] = self.scalar_done >= needs[0]
        elif counter == "vm":
            done = self.vm_done >= needs[0]
        elif counter == "lds":
            done = self.lds_done >= needs[0]
        else:
            done = (self.vm_done >= needs[0]) & (self.lds_done >= needs[1])
        return done

    def release(self, waves: Any) -> None:
        """Record which operations the waves that pass a barrier have waited for."""
        self.state.lds_released[waves] = self.lds_done[waves]
        self.state.vm_released[waves] = self.vm_done[waves]
        self.state.vm_passed[waves] = self.state.vm_issued[waves]
        self.state.lds_passed[waves] = self.state.lds_issued[waves]


class NoScoreboard(Scoreboard):
    """The scoreboard of an unchecked launch: every register may be read at any time."""

    counts = False

    def __init__(self, state: State, loads: list[Entry]) -> None:
        super().__init__(state, loads, EVERY_VECTOR, EVERY_SCALAR)

    def restart(self, initial_vector: int, initial_scalar: int) -> None:
        """Prepare for another batch."""
        super().restart(EVERY_VECTOR, EVERY_SCALAR)

    def issue(self, group: Group, entry: Entry) -> None:
        """Ignore the instruction: nothing is tracked."""

    def wait(self, group: Group, simm16: int) -> None:
        """Ignore the wait: nothing is tracked."""

    def release(self, waves: Any) -> None:
        """Ignore the barrier: nothing is tracked."""


def _enough(name: str, younger: int, largest: int, unit: str) -> str:
    """Return a line with the largest count that covers a load after which others were issued."""
    since = f"{younger} {unit} operation{'s' * (younger != 1)} followed it" if younger else ""
    return f"\n  s_waitcnt {name}({min(younger, largest)}) would{since and ': '}{since}"


def _raise_to(counter: NDArray[np.int32], waves: Any, value: NDArray[np.int32]) -> None:
    counter[waves] = np.maximum(counter[waves], value)
