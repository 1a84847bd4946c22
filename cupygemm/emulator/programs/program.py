"""A kernel's code in the form that the run loop executes: instructions with their functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from cupygemm.emulator.collector import paused_collector
from cupygemm.emulator.definedness.lanes import NEVER, is_marker
from cupygemm.emulator.diagnostics.wait_rules import RULES
from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.hazards.wait_states import Hazard, hazards_after
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.programs.facts import control_of, facts_of
from cupygemm.emulator.programs.native_program import NativeProgram
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.memory.updates import FAR, is_store, updates
from cupygemm.emulator.waves.entry import Entry, accesses_device
from cupygemm.emulator.waves.reports import instruction_at
from cupygemm.emulator.waves.state import Group, State

_TOO_EARLY = "missing wait states"
_MOST_BETWEEN = 16  # instructions between two accesses to device memory in one turn


class CheckedStep:
    """The step, in checked launches, of an instruction that executes too early.

    Once it has nothing more to report in a launch, C executes the instruction.

    Attributes
    ----------
    step : callable
        The instruction's own step.
    hazards : list of Hazard
    """

    __slots__ = ("entry", "hazards", "step")

    def __init__(self, entry: Entry, hazards: list[Hazard]) -> None:
        self.entry = entry
        self.step: Any = entry.step
        self.hazards = hazards

    def __call__(self, group: Group) -> Any:
        """Report the hazards, then execute the instruction."""
        state = group.state
        for hazard in self.hazards if state.checks else ():
            check = f"wait_states_{hazard.rule}"
            if state.findings.wants(check, _TOO_EARLY, state.current_pc):
                fault = _too_early(hazard, check, state)
                state.findings.report(fault, group, state.current_pc)
        NativeProgram.return_to_c(self.entry)
        return self.step(group)

    def finish(self, group: Group, code: int) -> None:
        """Handle what C found when it executed the instruction; see `Step.finish`."""
        self.step.finish(group, code)


class LazyStep:
    """The step of an instruction that C executes, resolved when Python first executes it.

    Resolving it cannot fail. Some special sources have a native form only, so `Program` resolves
    the steps of instructions with such a source immediately, in order to refuse them.

    Parameters
    ----------
    inst : Instruction
    target : Target
    """

    __slots__ = ("_inst", "_step", "_target")

    def __init__(self, inst: Instruction, target: Target) -> None:
        self._inst, self._target = inst, target
        self._step: Callable[[Group], Any] | None = None

    def __call__(self, group: Group) -> Any:
        """Execute the instruction."""
        if self._step is None:
            self._step = bind(self._inst, self._target)
        return self._step(group)


class _Instructions(dict[int, Instruction | None]):
    """The instructions by their byte offset, decoded when they are looked up; None for none.

    Parameters
    ----------
    image : bytes
    target : Target
    """

    def __init__(self, image: bytes, target: Target) -> None:
        super().__init__()
        self._image, self._target = image, target.name

    def __missing__(self, pc: int) -> Instruction | None:
        try:
            found = decode(self._image, pc, self._target) if 0 <= pc < len(self._image) else None
        except UnsupportedInstruction:  # data, or code that is not executed
            found = None
        self[pc] = found
        return found


class Program:
    """The instructions of a code object for a target, decoded when execution reaches their block.

    Attributes
    ----------
    entries : dict of int to Entry
        By byte offset.
    matrix : list of int
        Byte offsets of the MFMA instructions among them.
    native : NativeProgram
    """

    def __init__(self, image: bytes, target: Target) -> None:
        self.image = image
        self.target = target
        self.entries: dict[int, Entry] = {}
        self.matrix: list[int] = []
        self._hazards: dict[int, list[Hazard]] = {}  # by the offset at which they are reported
        self.native = NativeProgram(len(image))
        self._instructions = _Instructions(image, target)
        self._straight: deque[Instruction] = deque(maxlen=FAR)  # the latest consecutive ones
        self._straight_to = -1
        self._slots: set[int] = set()  # vector registers that v_writelane writes
        self._read: list[Entry] = []  # v_readlane of other registers

    def start_launch(self) -> None:
        """Let all instructions that come too early report that again."""
        for place in self._hazards.keys() & self.entries.keys():
            NativeProgram.leave_to_python(self.entries[place])

    def entry(self, pc: int) -> Entry:
        """Return the instruction at a byte offset."""
        found = self.entries.get(pc)
        return found if found is not None else self._decode(pc)

    def decode_block(self, pc: int) -> None:
        """Decode the instructions from a byte offset to the next branch, which execute together.

        The many small objects stay alive, so Python's garbage collector is off meanwhile.
        """
        with paused_collector():
            self._decode_up_to_branch(pc)

    def _decode_up_to_branch(self, pc: int) -> None:
        entry = self.entry(pc)
        while entry.control not in ("branch", "end") and entry.next_pc not in self.entries:
            try:
                entry = self._decode(entry.next_pc)
            except (Fault, UnsupportedInstruction):  # raised if a wave reaches it
                return

    def _decode(self, pc: int) -> Entry:
        if not 0 <= pc < len(self.image):
            raise Fault("wild jump", f"the program counter {pc:#x} is outside the code object")
        inst = self._instructions[pc] or decode(self.image, pc, self.target.name)  # which raises
        for hazard in hazards_after(pc, inst, self.target, self._instructions.__getitem__):
            self._note(hazard)
        facts = facts_of(inst, self.target.name)
        step: Callable[[Group], Any] = _nothing
        if facts.binds == "later":
            step = LazyStep(inst, self.target)
        elif facts.binds == "now":
            step = bind(inst, self.target)
        entry = Entry(
            pc=pc,
            inst=inst,
            step=step,
            next_pc=pc + inst.size,
            control=facts.control,
            counter=facts.counter,
            vector_uses=facts.vector_uses,
            scalar_uses=facts.scalar_uses,
            is_vector=facts.is_vector,
            is_relative=facts.is_relative,
            scc_reads=facts.scc_reads,
            scc_writes=facts.scc_writes,
            ends_turn=accesses_device(inst) and not self._accesses_soon(pc + inst.size),
            looked_at=facts.looked_at,
        )
        self._look_for_updates(entry)
        self.native.add(entry, facts)
        self._look_for_slots(entry)
        self.entries[pc] = entry
        if inst.encoding == "MFMA":
            self.matrix.append(pc)
        if pc in self._hazards:
            self._check(entry, self._hazards[pc])
        return entry

    def _accesses_soon(self, pc: int) -> bool:
        """Return whether straight code from a byte offset soon accesses device memory.

        This depends on the code alone, and not on what has been decoded.
        """
        for _ in range(_MOST_BETWEEN + 1):
            inst = self._instructions[pc]
            if inst is None or control_of(inst.mnemonic) not in ("", "wait"):
                return False
            if accesses_device(inst):
                return True
            pc += inst.size
        return False

    def _look_for_updates(self, entry: Entry) -> None:
        """Mark a store of a sum with the value that was loaded from the same address."""
        inst = entry.inst
        if self._straight_to != entry.pc:
            self._straight.clear()
        operation = getattr(entry.step, "operation", None)
        if operation is not None and is_store(inst):
            operation.struct.updates = updates(list(self._straight), inst)
        self._straight.append(inst)
        self._straight_to = -1 if entry.control in ("branch", "end", "barrier") else entry.next_pc

    def _look_for_slots(self, entry: Entry) -> None:
        """Allow v_readlane to read any lane, on or off, of a register that v_writelane writes.

        The compiler spills scalars to such lanes.
        """
        inst = entry.inst
        if inst.mnemonic == "v_writelane_b32":
            self._slots.add(inst.dst[0].index)
        elif inst.mnemonic == "v_readlane_b32":
            self._read.append(entry)
        else:
            return
        for reader in [each for each in self._read if each.inst.src[0].index in self._slots]:
            reader.looked_at = NEVER
            NativeProgram.look_never(reader)
            self._read.remove(reader)

    def _note(self, hazard: Hazard) -> None:
        """Have a hazard reported by the instruction at its `place`."""
        pair = (self._instructions[pc] for pc in (hazard.producer, hazard.consumer))
        if any(inst is not None and is_marker(inst) for inst in pair):
            return
        noted = self._hazards.setdefault(hazard.place, [])
        noted.append(hazard)
        entry = self.entries.get(hazard.place)
        if entry is None:
            return
        if len(noted) == 1:
            self._check(entry, noted)
        NativeProgram.leave_to_python(entry)

    @staticmethod
    def _check(entry: Entry, hazards: list[Hazard]) -> None:
        entry.step = CheckedStep(entry, hazards)
        NativeProgram.leave_to_python(entry)


def _nothing(_group: Group) -> None:
    """Do nothing: the run loop itself executes the instruction."""


def _too_early(hazard: Hazard, check: str, state: State) -> Fault:
    lacking = hazard.needed - hazard.found
    if hazard.place == hazard.consumer:
        after, other = "after what it depends on", hazard.producer
        subject = hazard.what
    else:
        after, other, subject = "before an instruction that depends on it", hazard.consumer, "comes"
    return Fault(
        _TOO_EARLY,
        f"{subject} {hazard.found} wait states {after}:\n"
        f"  {instruction_at(state, other)}\n"
        f"{hazard.needed} are needed: put s_nop {lacking - 1}, or other instructions, between\n"
        f"({check}: {RULES[hazard.rule].source})",
        0,
        check=check,
    )
