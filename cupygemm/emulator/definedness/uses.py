"""Propagation of undefined values through an instruction, and the uses that are reported.

The run loop calls `follow` before an instruction that accesses a register with undefined bits.
Values that determine where a wave continues or which memory it accesses must be defined: addresses,
branch conditions, EXEC, and operands of atomics. So must be values that are stored to device
memory; native/definedness.h checks these, since it knows which lanes a buffer's bounds exclude. All
other instructions only propagate undefined bits.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm.emulator.definedness import divisions, lanes, matrix, scalar
from cupygemm.emulator.definedness.vector import ShadowGroup, is_packed, selected, shadow_of
from cupygemm.emulator.isa.instruction import EXEC, Instruction, Operand, registers
from cupygemm.emulator.units.lanewise import source_operands
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.units.operands import lane_mask
from cupygemm.emulator.units.relative import indexed_forms, is_selected
from cupygemm.emulator.units.scalar.scc import reads_scc, writes_scc
from cupygemm.emulator.waves.marks import (
    ALL,
    BY_MATRIX,
    COMPUTED,
    SCC,
    Marks,
    Register,
    origin_of_division,
    origin_of_lane,
    origin_of_marker,
)
from cupygemm.emulator.waves.reports import source_line
from cupygemm.emulator.waves.state import Group, unpack_mask

VECTOR = ("VOP1", "VOP2", "VOP3", "VOP3P", "VOPC")
MEMORY = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF")
ADDRESSES = ("addr", "vaddr", "saddr", "srsrc", "soffset", "m0", "sbase")
DATA = ("data", "vdata", "data0", "data1")
EXCHANGES = ("ds_bpermute_", "ds_permute_", "ds_swizzle_")


def follow(marks: Marks, group: Group, inst: Instruction, looked_at: int = lanes.NEVER) -> bool:
    """Set the undefined bits of the registers that an instruction is about to write.

    Parameters
    ----------
    marks : Marks
    group : Group
    inst : Instruction
    looked_at : int, optional
        Whether the instruction may read lanes that are off, is a marker, or may divide by zero;
        see `lanes`.

    Returns
    -------
    bool
        Whether C must examine the undefined bits of the instruction's operands.

    Raises
    ------
    Fault
        An undefined value would change where the wave continues or what it stores.
    """
    encoding = inst.encoding
    if is_selected(inst, group.state.mode):
        through = _vector if encoding in VECTOR else _scalar
        for moved, waves in indexed_forms(inst, group):
            through(marks, waves, moved)
        return False
    if encoding in VECTOR:
        _vector(marks, group, inst, looked_at)
        return False
    if encoding in MEMORY:
        return _memory(marks, group, inst)
    if encoding == "MFMA":
        _matrix(marks, group, inst)
    elif encoding == "SMEM":
        _scalar_memory(marks, group, inst)
    else:
        _scalar(marks, group, inst)
    return False


# -- which sources are undefined -------------------------------------------------------------------


def _exposed(
    marks: Marks, group: Group, op: Operand, read: set[tuple[str, int]] | None = None
) -> list[Register]:
    """Return the registers of a source that have undefined bits in some wave of the group.

    `read` names those that the instruction reads; None stands for all.
    """
    if op.kind not in ("v", "s"):
        return []
    is_exposed = marks.expose if op.kind == "v" else marks.is_exposed_scalar
    return [
        Register(op.kind, register)
        for register in range(op.index, op.index + op.count)
        if (read is None or (op.kind, register) in read) and is_exposed(group, register)
    ]


def _sources(marks: Marks, group: Group, inst: Instruction) -> list[Register]:
    read = selected(inst) if is_packed(inst) else None
    found = [key for op in inst.src for key in _exposed(marks, group, op, read)]
    if reads_scc(inst) and marks.undefined_scalar[SCC, group.waves].any():
        found.append(Register("s", SCC))
    return found


def _require(
    marks: Marks, group: Group, op: Operand, use: str, *, waves: Any = True, lanes: Any = None
) -> None:
    """Raise a fault if a source is undefined in an active lane, or in one of the `waves`."""
    for key in _exposed(marks, group, op):
        if key.file == "v":
            bad = (marks.undefined[key.number, group.waves] != 0) & group.mask
            _report(marks, group, key, bad.any(axis=1), use, bad)
        else:
            bad = (marks.undefined_scalar[key.number, group.waves] != 0) & waves
            _report(marks, group, key, bad, use, lanes)


def _report(
    marks: Marks, group: Group, key: Register, bad: Any, use: str, lanes: Any = None
) -> None:
    if not bad.any() or group.state.findings.policy["uninitialised"] == "off":
        return
    position = int(np.flatnonzero(bad)[0])
    found = () if lanes is None else tuple(np.flatnonzero(lanes[position]).tolist())
    wave, state = int(group.wave_ids[position]), group.state
    fault = marks.fault(state, key, wave, use, position=position, lanes=found)
    state.findings.report(fault, group, state.current_pc)


# -- vector and matrix -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 14)
def _shadow_of(inst: Instruction) -> Any:
    return shadow_of(inst)


def _vector(marks: Marks, group: Group, inst: Instruction, looked_at: int = lanes.NEVER) -> None:
    sources = _sources(marks, group, inst)
    if len(sources) > 1 and inst.mnemonic.startswith("v_cndmask_b32"):
        sources = _chosen_first(marks, group, inst, sources)
    targets = [
        Register("v" if op.kind == "v" else "s", register)
        for op in inst.dst
        for register in range(op.index, op.index + op.count)
    ]
    if any(op.kind == "s" and op.index == EXEC for op in inst.dst):  # v_cmpx
        for op in inst.src:
            _require(marks, group, op, "decides which lanes run")
    marked = any(
        marks.is_marked(register) if file == "v" else marks.suspect_scalar >> register & 1
        for file, register in targets
    )
    if sources or marked:
        shadow = _shadow_of(inst)
        marks.propagate_origins(group, sources, targets, 0 if shadow.moves else COMPUTED)
        shadow.run(ShadowGroup(group, marks), group)
    taken = looked_at != lanes.NEVER and _take(marks, group, inst, looked_at, targets)
    for file, register in targets:
        if file == "v":
            marks.written(group, register)
            marks.settle(register, marked=bool(sources) or taken)
        else:
            marks.settle_scalar(register)


def _chosen_first(
    marks: Marks, group: Group, inst: Instruction, sources: list[Register]
) -> list[Register]:
    """Return the sources of a select; those whose undefined bits it takes come first."""
    first, second, selector = source_operands(inst)
    chosen = lane_mask(selector)(group)
    lanes_of = [(first, ~chosen & group.mask), (second, chosen & group.mask)]

    def is_left(key: Register) -> bool:
        read = [where for op, where in lanes_of if (op.kind, op.index) == (key.file, key.number)]
        undefined = marks.undefined[key.number, group.waves] != 0 if key.file == "v" else True
        return not any((undefined & where).any() for where in read)

    return sorted(sources, key=is_left)


def _take(
    marks: Marks, group: Group, inst: Instruction, looked_at: int, targets: list[Register]
) -> bool:
    """Mark what comes from lanes that are off, nowhere or x / 0; return whether any does."""
    state, check = group.state, "inactive_lanes"
    off, origin = group.mask, origin_of_marker(state.current_pc)
    if looked_at == lanes.ANYHOW:
        check = "uninitialised"
        marks.note_index(group, inst.src[0].index)
    elif looked_at in (lanes.IF_ZERO, lanes.IF_INFINITE):
        check = "integer_divisions"
        off, origin = divisions.by_zero(inst, group), origin_of_division(state.current_pc)
    else:
        off, origin = lanes.switched_off(inst, group), origin_of_lane(state.current_pc)
    if state.findings.policy[check] == "off" or not off.any():
        return False
    if check == "inactive_lanes" and source_line(state.kernel, state.current_pc) is None:
        return False  # assembly may do so on purpose
    waves = off.any(axis=1)
    for file, register in targets:
        undefined = marks.undefined if file == "v" else marks.undefined_scalar
        origins = marks.origin if file == "v" else marks.origin_scalar
        where = off if file == "v" else waves
        bits, found = undefined[register, group.waves], origins[register, group.waves]
        undefined[register, group.waves] = np.where(where, np.uint32(ALL), bits)
        origins[register, group.waves] = np.where(waves, np.int32(origin), found)
    return True


def _matrix(marks: Marks, group: Group, inst: Instruction) -> None:
    sources = _sources(marks, group, inst)
    written = registers(inst.vector_writes)
    if sources or any(marks.is_marked(register) for register in written):
        targets = [Register("v", register) for register in written]
        marks.propagate_origins(group, sources, targets, COMPUTED | BY_MATRIX)
        matrix.run(marks, group, inst)
    for register in written:
        marks.written(group, register)
        marks.settle(register, marked=bool(sources))


# -- memory ----------------------------------------------------------------------------------------


def _memory(marks: Marks, group: Group, inst: Instruction) -> bool:
    name = inst.mnemonic
    active = group.mask.any(axis=1)
    exchange = name.startswith(EXCHANGES)
    for op in inst.src:
        if op.field in ADDRESSES and not exchange:
            _require(marks, group, op, "is an address", waves=active, lanes=group.mask)
    data = [op for op in inst.src if op.field in DATA or (exchange and op.kind == "v")]
    if exchange:
        return _exchange(marks, group, inst, data)
    if inst.encoding == "DS" and not name.startswith(("ds_read", "ds_write")):
        for op in data:
            _require(marks, group, op, "is used in an atomic")
    tainted = bool([key for op in data for key in _exposed(marks, group, op)])
    kept = {register for op in data for register in range(op.index, op.index + op.count)}
    for register in registers(inst.vector_writes):
        if register not in kept:
            marks.clear(group, register, ALL)
    machine_of(group.state).struct.tainted = tainted
    return tainted


def _exchange(marks: Marks, group: Group, inst: Instruction, data: list[Operand]) -> bool:
    """Propagate undefined bits through a lane exchange.

    C moves the undefined bits of the data. A lane with an undefined index becomes undefined.
    """
    source = next(op for op in data if op.field == "data0" or len(data) == 1)
    (register,) = registers(inst.vector_writes)
    tainted = _exposed(marks, group, source)
    index = [op for op in data if op is not source]
    unsure = [key for op in index for key in _exposed(marks, group, op)]
    if not tainted and not unsure:
        marks.clear(group, register)
        return False
    flags = COMPUTED if unsure else 0
    marks.propagate_origins(group, [*unsure, *tainted], [Register("v", register)], flags)
    if unsure:
        bad = np.any([marks.undefined[key.number, group.waves] for key in unsure], axis=0)
        rows = marks.undefined[register, group.waves]
        rows = np.where(bad & group.mask, np.uint32(ALL), rows)
        marks.undefined[register, group.waves] = rows
    marks.written(group, register)
    marks.settle(register, marked=True)
    if not tainted:
        return False
    machine_of(group.state).struct.tainted = True
    marks.expect(register)
    return True


def _scalar_memory(marks: Marks, group: Group, inst: Instruction) -> None:
    for op in inst.src:
        use = "is stored to global memory" if op.field == "sdata" else "is an address"
        _require(marks, group, op, use)
    for register in registers(inst.scalar_writes):
        marks.undefined_scalar[register, group.waves] = 0
        marks.settle_scalar(register)


# -- scalar ----------------------------------------------------------------------------------------


def _scalar(marks: Marks, group: Group, inst: Instruction) -> None:
    name = inst.mnemonic
    if name.startswith(("s_setpc", "s_swappc", "s_setreg_b32", "s_setvskip")):
        for op in inst.src:
            _require(marks, group, op, "is jumped to" if "pc" in name else "is written to MODE")
    if name.startswith("s_cbranch"):
        bad = scalar.branch_undefined(marks, group, inst)
        sources = _sources(marks, group, inst)
        if sources:
            _report(marks, group, sources[0], bad, "decides a branch")
        return
    sources = _sources(marks, group, inst)
    sets_scc = writes_scc(inst)
    targets = [Register("s", register) for register in registers(inst.scalar_writes)]
    result, flag = scalar.result_of(marks, group, inst)
    _check_exec(marks, group, inst, sources, result)
    if sources:
        everything = [*targets, Register("s", SCC)] if sets_scc else targets
        marks.propagate_origins(group, sources, everything, 0 if scalar.moves(inst) else COMPUTED)
    save = "_saveexec_" in name
    for place, (_, register) in enumerate(targets):
        word = np.uint32(0)
        if register < EXEC and not save and inst.dst:
            word = (result >> result.dtype.type(32 * (place % 2) * (result.itemsize == 8))).astype(
                np.uint32
            )
        marks.undefined_scalar[register, group.waves] = word
        marks.settle_scalar(register)
    if sets_scc:
        marks.undefined_scalar[SCC, group.waves] = np.where(flag, np.uint32(ALL), np.uint32(0))
        marks.settle_scalar(SCC)


def _check_exec(
    marks: Marks, group: Group, inst: Instruction, sources: list[Register], result: Any
) -> None:
    """Raise a fault if EXEC becomes undefined; its undefined bits are the lanes to report."""
    if not sources or not any(op.kind == "s" and op.index == EXEC for op in inst.dst):
        return
    lanes = unpack_mask(np.asarray(result, np.uint64))
    bad = lanes.any(axis=1)
    for key in sources:
        rows = marks.undefined_scalar[key.number, group.waves]
        _report(marks, group, key, bad & (rows != 0), "decides which lanes run", lanes)
