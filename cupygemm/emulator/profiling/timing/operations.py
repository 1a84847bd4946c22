"""The cost of each instruction, as ``struct timing_op`` of native/timing.h.

The wait states after an MFMA of N passes (4 cycles each) are LLVM's: none if the next MFMA has the
same accumulator (two after 2 passes), N+1 if the accumulators overlap, N+3 for its other operands
and for every other instruction. An MFMA that reads the result of a vector instruction needs two.
Code contains s_nop instructions for waits that the hardware does not insert; the model waits in
either case.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import c_int16, c_int32
from enum import IntEnum, IntFlag

from cupygemm.emulator.hazards.wait_pairs import mfma_passes
from cupygemm.emulator.isa.instruction import Instruction, wait_counts
from cupygemm.emulator.profiling.classify import category
from cupygemm.emulator.profiling.timing.machine import TimingMachine
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.matrix.unit import Shape
from cupygemm.emulator.waves.entry import counter_of
from cupygemm.emulator.waves.state import LANES

_TURN, _MAX_RANGES = 4, 5
_QUARTER_RATE = re.compile(
    r"v_(?:rcp|rsq|sqrt|log|exp|sin|cos)_.*|v_mul_(?:lo|hi)_[iu]\d+|v_mad_[iu]64_.*"
)


class Unit(IntEnum):
    """``enum unit``."""

    VECTOR = 0
    MATRIX = 1
    SCALAR = 2
    VECTOR_MEMORY = 3
    LDS = 4
    SCALAR_MEMORY = 5
    BRANCH = 6
    BUFFER = 7


class Flag(IntFlag):
    """``enum flag``."""

    BLOCKS_VECTOR = 1
    STORES = 2
    COUNTS_VM = 4
    COUNTS_LGKM = 8
    WAITS = 16
    BARRIER = 32
    SETS_PRIORITY = 64
    WRITES_LDS = 128


class Range(ctypes.Structure):
    """``struct range``."""

    _fields_ = [(name, c_int16) for name in ("first", "count", "is_c", "unused")]


class TimingOp(ctypes.Structure):
    """``struct timing_op``."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in (
                "unit",
                "flags",
                "hold",
                "busy",
                "ready",
                "ready_matrix",
                "ready_accumulator",
                "ready_same",
                "vm",
                "lgkm",
                "priority",
                "num_sources",
                "num_results",
            )
        ),
        ("sources", Range * _MAX_RANGES),
        ("results", Range * 2),
    ]


_UNITS = {
    "MFMA": Unit.MATRIX,
    "VALU": Unit.VECTOR,
    "SALU": Unit.SCALAR,
    "VMEM": Unit.VECTOR_MEMORY,
    "LDS": Unit.LDS,
    "SMEM": Unit.SCALAR_MEMORY,
    "branch": Unit.BRANCH,
}


def describe(inst: Instruction, target: str, machine: TimingMachine, lds_bytes: int) -> TimingOp:
    """Return the cost of an instruction.

    Parameters
    ----------
    inst : Instruction
    target : str
    machine : TimingMachine
    lds_bytes : int
        Bytes that a lane of a DS instruction accesses.
    """
    kind = category(inst)
    op = TimingOp(unit=_UNITS.get(kind, Unit.BUFFER), hold=_TURN, busy=_TURN, vm=63, lgkm=15)
    _set_registers(op, inst)
    if kind == "MFMA":
        _set_matrix(op, inst, target)
    elif kind == "VALU":
        op.busy = op.hold = 4 * _TURN if _QUARTER_RATE.fullmatch(inst.mnemonic) else _TURN
        op.ready = op.busy
        op.ready_matrix = op.ready_accumulator = op.ready_same = op.busy + 2 * _TURN
    elif kind == "LDS":
        data = LANES * max(lds_bytes, 4)
        op.busy = _TURN + -(-data // machine.lds_port_bytes)
    elif kind == "VMEM" and ("_load_lds_" in inst.mnemonic or inst.fields.get("lds")):
        op.flags |= Flag.WRITES_LDS
        op.busy = LANES * 4 // 128
    elif kind == "branch":
        op.hold = op.busy = machine.branch_cycles
    _set_counters(op, inst)
    _set_buffered(op, inst)
    return op


def _set_registers(op: TimingOp, inst: Instruction) -> None:
    sources = [operand for operand in inst.src if operand.kind == "v"]
    results = [operand for operand in inst.dst if operand.kind == "v"]
    for place, operand in enumerate(sources[:_MAX_RANGES]):
        is_c = inst.encoding == "MFMA" and operand.field == "src2"
        op.sources[place] = Range(operand.index, operand.count, is_c)
    for place, operand in enumerate(results[:2]):
        op.results[place] = Range(operand.index, operand.count)
    op.num_sources, op.num_results = min(len(sources), _MAX_RANGES), min(len(results), 2)


def _set_matrix(op: TimingOp, inst: Instruction, target: str) -> None:
    passes, shape = mfma_passes(inst, TARGETS[target]), Shape.of(inst.mnemonic)
    op.busy = passes * _TURN
    op.ready = op.ready_matrix = (1 + passes + 3) * _TURN
    op.ready_accumulator = (1 + passes + 1) * _TURN
    op.ready_same = (1 + (2 if passes == 2 else 0)) * _TURN
    if shape.a == "f64" or (shape.a == "f32" and TARGETS[target].generation == 3):
        op.flags |= Flag.BLOCKS_VECTOR


def _set_counters(op: TimingOp, inst: Instruction) -> None:
    counter = counter_of(inst)
    if counter in ("vm", "flat"):
        op.flags |= Flag.COUNTS_VM
    if counter in ("lds", "scalar", "flat"):
        op.flags |= Flag.COUNTS_LGKM
    if "_store_" in inst.mnemonic:
        op.flags |= Flag.STORES


def _set_buffered(op: TimingOp, inst: Instruction) -> None:
    """Set the cost of an instruction that a wave's instruction buffer executes."""
    name, immediate = inst.mnemonic, inst.fields.get("simm16", 0)
    if name == "s_waitcnt":
        op.flags |= Flag.WAITS
        op.vm, op.lgkm = wait_counts(immediate)
    elif name == "s_barrier":
        op.flags |= Flag.BARRIER
    elif name == "s_setprio":
        op.flags |= Flag.SETS_PRIORITY
        op.priority = immediate & 3
    elif name == "s_nop":
        op.hold = _TURN * ((immediate & 15) + 1)
    elif name == "s_sleep":
        op.hold = max(_TURN, 64 * (immediate & 127))
    else:
        return
    op.unit = Unit.BUFFER
