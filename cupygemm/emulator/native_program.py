"""The native form of a program: one record per instruction, which the C run loop executes.

`NativeProgram` mirrors ``struct instruction`` of native/loop.h. An instruction has a native form if
its memory operation or its matrix record exists anyway, if `units.native_alu` has one for it, or if
the loop executes it by itself (branches, waits, barriers). Any other is left to Python.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.state import GPR_INDEX, VSKIP
from cupygemm.emulator.units import native_alu
from cupygemm.emulator.units.machine import NativeStep
from cupygemm.emulator.units.matrix_step import MatrixStep
from cupygemm.emulator.units.scalar_control import IGNORED
from cupygemm.emulator.units.structures import members

if TYPE_CHECKING:
    from cupygemm.emulator.entry import Entry
    from cupygemm.emulator.targets import Target

_ACTIONS = """
in_python alu matrix vector_memory scalar_memory lds_instruction nothing wait branch barrier end
"""
_ACTION = {name: value for value, name in enumerate(_ACTIONS.split())}
_CONDITIONS = ("s_branch", "scc0", "scc1", "vccz", "vccnz", "execz", "execnz")
_CONDITION = {
    name if place == 0 else f"s_cbranch_{name}": place for place, name in enumerate(_CONDITIONS)
}
_COUNTERS = {None: 0, "vm": 1, "lds": 2, "scalar": 3, "flat": 4}
VECTOR_WORDS, SCALAR_WORDS = 8, 3
_ALU_COST, _MEMORY_COST, _MACS_PER_NANOSECOND = 10, 300, 8  # of a wave, in nanoseconds
_INDEXED = GPR_INDEX | VSKIP
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
            int32   counts_lanes
            pointer phases
            int64   num_phases
            """
        ),
        ("vector_reads", VectorMask),
        ("vector_writes", VectorMask),
        ("scalar_reads", ScalarMask),
        ("scalar_writes", ScalarMask),
    ]


class NativeProgram:
    """The records of a program's instructions.

    Attributes
    ----------
    table : uint64 array
        Address of the record of the instruction at each dword of the code, 0 for none.
    entries : list of Entry
        The instructions that have a record, by their index.
    loads : list of Entry
        Those that load registers, by their slot of the scoreboard.
    """

    def __init__(self, image_bytes: int, target: Target) -> None:
        self.table: NDArray[np.uint64] = np.zeros(-(-image_bytes // 4), np.uint64)
        self.entries: list[Entry] = []
        self.loads: list[Entry] = []
        self._target = target
        self._records: list[InstructionStruct] = []
        self._kept: list[Any] = []  # the operands to which records point

    def add(self, entry: Entry) -> None:
        """Make the record of an instruction."""
        inst = entry.inst
        record = InstructionStruct(
            pc=entry.pc,
            next_pc=entry.next_pc,
            counter=_COUNTERS[entry.counter],
            index=len(self.entries),
            slot=-1,
            vector_reads=_vector_mask(inst.vector_reads),
            vector_writes=_vector_mask(inst.vector_writes),
            scalar_reads=_scalar_mask(inst.scalar_reads | entry.scc_reads),
            scalar_writes=_scalar_mask(inst.scalar_writes | entry.scc_writes),
        )
        if entry.counter is not None and (inst.vector_writes or inst.scalar_writes):
            entry.slot = record.slot = len(self.loads)
            self.loads.append(entry)
        self._choose_action(record, entry)
        self.entries.append(entry)
        self._records.append(record)
        entry.record = record
        if entry.pc % 4 == 0:
            self.table[entry.pc // 4] = ctypes.addressof(record)

    def _choose_action(self, record: InstructionStruct, entry: Entry) -> None:
        inst, step = entry.inst, entry.step
        name = inst.mnemonic
        if entry.control in ("wait", "barrier", "end"):
            record.action = _ACTION[entry.control]
            record.wait = inst.fields.get("simm16", 0)
        elif name in _CONDITION:
            offset = inst.fields["simm16"]
            record.action, record.condition = _ACTION["branch"], _CONDITION[name]
            record.target = entry.pc + 4 + 4 * (offset - (1 << 16) if offset >> 15 else offset)
        elif name in IGNORED:
            record.action = _ACTION["nothing"]
        elif isinstance(step, NativeStep):
            record.action = _ACTION[step.name]
            record.function, record.operation = step.function_address, step.operation.address
            record.cost = _MEMORY_COST
        elif isinstance(step, MatrixStep):
            record.action, record.operation = _ACTION["matrix"], ctypes.addressof(step.operation)
            record.cost = step.macs // _MACS_PER_NANOSECOND
        else:
            self._choose_alu(record, entry)
        if entry.is_vector:
            record.mode_mask |= _INDEXED

    def _choose_alu(self, record: InstructionStruct, entry: Entry) -> None:
        if entry.control or entry.counter is not None:
            return
        native = native_alu.bind(entry.inst, self._target)
        if native is None:
            return
        record.action, record.cost = _ACTION["alu"], _ALU_COST
        record.function, record.operation = native.function, native.operation
        record.mode_mask, record.mode_value = native.mode_mask, native.mode_value
        self._kept.append(native)

    @staticmethod
    def leave_to_python(entry: Entry) -> None:
        """Let Python execute an instruction whose step has been replaced."""
        if entry.record is not None:
            entry.record.action = _ACTION["in_python"]


def _vector_mask(mask: int) -> Any:
    return VectorMask.from_buffer_copy(mask.to_bytes(8 * VECTOR_WORDS, "little"))


def _scalar_mask(mask: int) -> Any:
    return ScalarMask.from_buffer_copy(mask.to_bytes(8 * SCALAR_WORDS, "little"))
