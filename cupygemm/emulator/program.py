"""A kernel's code in the form that the run loop executes: instructions with their functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cupygemm.emulator.decode import decode
from cupygemm.emulator.definedness.scalar import reads_scc, writes_scc
from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.marks import SCC
from cupygemm.emulator.reports import instruction_at
from cupygemm.emulator.scoreboard import Counter, counter_of
from cupygemm.emulator.state import Group, State
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import bind
from cupygemm.emulator.wait_states import Hazard, hazards_behind


@dataclass(slots=True, kw_only=True)
class Entry:
    """One instruction of a program, ready to execute."""

    pc: int
    inst: Instruction
    step: Callable[[Group], Any]
    next_pc: int
    control: str  # "", "wait", "barrier", "end", "branch" or "mode"
    counter: Counter | None
    vector_uses: int
    scalar_uses: int
    is_vector: bool  # an instruction that MODE.vskip skips


class Program:
    """The instructions of a code object for a target, decoded when execution reaches them."""

    def __init__(self, image: bytes, target: Target) -> None:
        self.image = image
        self.target = target
        self.entries: dict[int, Entry] = {}
        self._hazards: dict[
            int, Hazard
        ] = {}  # by the program counter of the instruction that comes too early
        self._decoded: dict[int, Instruction] = {}

    def entry(self, pc: int) -> Entry:
        """Return the instruction at a byte offset."""
        found = self.entries.get(pc)
        return found if found is not None else self._decode(pc)

    def _decode(self, pc: int) -> Entry:
        if not 0 <= pc < len(self.image):
            raise Fault("wild jump", f"the program counter {pc:#x} is outside the code object")
        inst = self._instruction(pc)
        for hazard in hazards_behind(pc, inst, self.target, self._instruction_or_none):
            self._refuse(hazard)
        control = {"s_waitcnt": "wait", "s_barrier": "barrier", "s_endpgm": "end"}.get(
            inst.mnemonic, ""
        )
        step = (lambda _group: None) if control else bind(inst, self.target)
        if inst.mnemonic.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")):
            control = "branch"
        if inst.mnemonic.startswith(("s_setvskip", "s_setreg")):
            control = "mode"
        scc = (reads_scc(inst) or writes_scc(inst)) << SCC
        entry = Entry(
            pc=pc,
            inst=inst,
            step=step,
            next_pc=pc + inst.size,
            control=control,
            counter=counter_of(inst),
            vector_uses=inst.vector_reads | inst.vector_writes,
            scalar_uses=inst.scalar_reads | inst.scalar_writes | scc,
            is_vector=not inst.encoding.startswith("S") or inst.encoding == "SCRATCH",
        )
        self.entries[pc] = entry
        if pc in self._hazards:
            self._refuse(self._hazards[pc])
        return entry

    def _refuse(self, hazard: Hazard) -> None:
        """Make an instruction that comes too early fail in checked launches."""
        self._hazards[hazard.consumer] = hazard
        entry = self.entries.get(hazard.consumer)
        if entry is None:
            return
        step = entry.step

        def refusing(group: Group) -> Any:
            if group.state.checks:
                raise _too_early(hazard, group.state)
            return step(group)

        entry.step = refusing

    def _instruction(self, pc: int) -> Instruction:
        found = self._decoded.get(pc)
        if found is None:
            found = self._decoded[pc] = decode(self.image, pc, self.target.name)
        return found

    def _instruction_or_none(self, pc: int) -> Instruction | None:
        try:
            return self._instruction(pc) if 0 <= pc < len(self.image) else None
        except UnsupportedInstruction:  # data, or code that is not executed
            return None


def _too_early(hazard: Hazard, state: State) -> Fault:
    lacking = hazard.needed - hazard.found
    return Fault(
        "missing wait states",
        f"{hazard.what} {hazard.found} wait states after what it depends on:\n"
        f"  {instruction_at(state, hazard.producer)}\n"
        f"{hazard.needed} are needed: put s_nop {lacking - 1}, or other instructions, between",
        0,
    )
