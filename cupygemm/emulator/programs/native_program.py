"""The native form of a program: one record per instruction, which the C run loop executes.

`NativeProgram` mirrors ``struct instruction`` of native/loop.h. An instruction has a native form if
its memory operation or its matrix record exists anyway, if `units.native.alu` has one for it, or if
the loop executes it by itself (branches, waits, barriers). All others are left to Python.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.definedness.native import second_run_of
from cupygemm.emulator.programs.facts import SCALAR_WORDS, VECTOR_WORDS
from cupygemm.emulator.units.matrix.step import MatrixStep
from cupygemm.emulator.units.memory.machine import NativeStep
from cupygemm.emulator.units.native import salu
from cupygemm.emulator.units.scalar.control import IGNORED
from cupygemm.emulator.units.structures import members
from cupygemm.emulator.waves.state import GPR_INDEX, VSKIP

if TYPE_CHECKING:
    from cupygemm.emulator.programs.facts import Facts
    from cupygemm.emulator.units.native.form import NativeAlu
    from cupygemm.emulator.waves.entry import Entry

_ACTIONS = """
in_python alu matrix vector_memory scalar_memory lds_instruction nothing wait branch barrier end
"""
_ACTION = {name: value for value, name in enumerate(_ACTIONS.split())}
_CONDITIONS = ("s_branch", "scc0", "scc1", "vccz", "vccnz", "execz", "execnz")
_CONDITION = {
    name if place == 0 else f"s_cbranch_{name}": place for place, name in enumerate(_CONDITIONS)
}
_COUNTERS = {None: 0, "vm": 1, "lds": 2, "scalar": 3, "flat": 4}
_EVERY_VECTOR, _EVERY_SCALAR = (1 << 512) - 1, (1 << 129) - 1
_ALU_COST, _MEMORY_COST, _MACS_PER_NANOSECOND = 10, 300, 8  # of a wave, in nanoseconds
_INDEXED = GPR_INDEX | VSKIP
_IN_PYTHON = object()
VectorMask, ScalarMask = ctypes.c_uint64 * VECTOR_WORDS, ctypes.c_uint64 * SCALAR_WORDS


class InstructionStruct(ctypes.Structure):
    """``struct instruction``."""

    _fields_ = [
        *members(
            """
            int64   pc next_pc target
            pointer function operation
            int32   action condition counter slot index cost
            uint32  mode_mask mode_value wait
            int32   looked_at ends_turn counts_lanes
            pointer phases
            int64   num_phases
            pointer second_run
            """
        ),
        ("vector_reads", VectorMask),
        ("vector_writes", VectorMask),
        ("scalar_reads", ScalarMask),
        ("scalar_writes", ScalarMask),
    ]


_HEAD = struct.Struct("=3q2Q6i3I3i3q")  # its members before the masks


class NativeProgram:
    """The records of a program's instructions.

    Attributes
    ----------
    table : uint64 array
        Address of the record of the instruction at each dword of the code, 0 for none.
    entries : list of Entry
        The instructions that have a record, by their index.
    loads : list of Entry
        The instructions that load registers, by their slot of the scoreboard.
    used_vector, used_scalar : int
        Bit masks of the registers that the instructions read or write.
    is_undisturbed : bool
        Whether C did not need Python when it last ran the program.
    """

    def __init__(self, image_bytes: int) -> None:
        self.table: NDArray[np.uint64] = np.zeros(-(-image_bytes // 4), np.uint64)
        self.entries: list[Entry] = []
        self.loads: list[Entry] = []
        self.used_vector = self.used_scalar = 0
        self.is_undisturbed = False
        self._kept: list[Any] = []  # the records, and the operands to which they point

    def add(self, entry: Entry, facts: Facts) -> None:
        """Make the record of an instruction."""
        inst, slot = entry.inst, -1
        if entry.counter is not None and (inst.vector_writes or inst.scalar_writes):
            entry.slot = slot = len(self.loads)
            self.loads.append(entry)
        form = facts.form
        if inst.mnemonic == "s_getpc_b64":
            form = salu.program_counter(inst, entry.next_pc)
        native = _native(entry, form)
        head = _HEAD.pack(
            entry.pc,
            entry.next_pc,
            native.target,
            native.function,
            native.operation,
            native.action,
            native.condition,
            _COUNTERS[entry.counter],
            slot,
            len(self.entries),
            native.cost,
            native.mode_mask | (_INDEXED if entry.is_vector else 0),
            native.mode_value,
            native.wait,
            entry.looked_at,
            entry.ends_turn,
            *(0, 0, 0, 0),  # what a profile needs, and the second run
        )
        record = InstructionStruct.from_buffer_copy(head + facts.masks)
        moves = entry.moves_registers
        self.used_vector |= _EVERY_VECTOR if moves else facts.vector_uses
        self.used_scalar |= _EVERY_SCALAR if moves else facts.scalar_uses
        self.entries.append(entry)
        self._kept.append((record, form))
        entry.record = record
        if entry.pc % 4 == 0:
            self.table[entry.pc // 4] = ctypes.addressof(record)

    @staticmethod
    def look_never(entry: Entry) -> None:
        """Have C execute an instruction without examining the lanes that it reads."""
        if entry.record is not None:
            entry.record.looked_at = 0

    @staticmethod
    def carry_undefined_bits(entry: Entry) -> None:
        """Have C carry undefined bits through an instruction from now on, if it can."""
        if entry.record is None or entry.second_run is not None:
            return
        entry.second_run = second_run_of(entry.inst) or _IN_PYTHON
        if entry.second_run is not _IN_PYTHON:
            entry.record.second_run = ctypes.addressof(entry.second_run)

    @staticmethod
    def leave_to_python(entry: Entry) -> None:
        """Let Python execute an instruction whose step has been replaced."""
        if entry.record is not None and entry.record.action != _ACTION["in_python"]:
            entry.native_action = entry.record.action
            entry.record.action = _ACTION["in_python"]

    @staticmethod
    def return_to_c(entry: Entry) -> None:
        """Let C execute an instruction again, if it could before."""
        if entry.record is not None and entry.native_action:
            entry.record.action = entry.native_action


class _Native(NamedTuple):
    """How the loop executes an instruction, see ``struct instruction``."""

    action: int
    function: int = 0
    operation: int = 0
    cost: int = 0
    mode_mask: int = 0
    mode_value: int = 0
    condition: int = 0
    target: int = 0
    wait: int = 0


def _native(entry: Entry, form: NativeAlu | None) -> _Native:
    """Return how the loop executes an instruction."""
    inst, step = entry.inst, entry.step
    name = inst.mnemonic
    if form is not None:
        operation, mode = form.operation, (form.mode_mask, form.mode_value)
        return _Native(_ACTION["alu"], form.function, operation, _ALU_COST, *mode)
    if isinstance(step, NativeStep):
        operation = step.operation.address
        return _Native(_ACTION[step.name], step.function_address, operation, _MEMORY_COST)
    if isinstance(step, MatrixStep):
        cost = step.macs // _MACS_PER_NANOSECOND
        return _Native(_ACTION["matrix"], 0, ctypes.addressof(step.operation), cost)
    if entry.control in ("wait", "barrier", "end"):
        return _Native(_ACTION[entry.control], wait=inst.fields.get("simm16", 0))
    if name in _CONDITION:
        target = entry.pc + inst.jump
        return _Native(_ACTION["branch"], condition=_CONDITION[name], target=target)
    return _Native(_ACTION["nothing" if name in IGNORED else "in_python"])
