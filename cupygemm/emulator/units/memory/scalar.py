"""SMEM instructions: loads, stores and atomics of scalar registers, and the clocks.

    address = SBASE + offset (21 bits, signed) + SOFFSET

An atomic returns the old value if its GLC bit is set. Loads and atomics beyond the end of a buffer
resource return 0. Each clock advances by a fixed amount when it is read, so that a run is
repeatable; the values do not measure time. (CDNA3 ISA guide, chapter 8.)
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import EXEC, Instruction
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.memory.machine import NativeStep
from cupygemm.emulator.units.memory.operation import Operation
from cupygemm.emulator.waves.state import Group

_MNEMONIC = re.compile(r"s_(buffer_)?(load|store)_dword(?:x(\d+))?")
_ATOMIC = re.compile(
    r"s_(buffer_)?atomic_(swap|cmpswap|add|sub|[su]min|[su]max|and|or|xor|inc|dec)(_x2)?"
)
_TICKS = {"s_memtime": 64, "s_memrealtime": 4}


def bind(inst: Instruction) -> Step | None:
    """Return the step that executes a SMEM instruction, or None if it is not emulated."""
    if inst.mnemonic.startswith("s_dcache_"):
        return lambda _group: None  # the emulated memory has no caches
    if inst.mnemonic in _TICKS:
        return _clock(inst)
    match = _MNEMONIC.fullmatch(inst.mnemonic)
    atomic = _ATOMIC.fullmatch(inst.mnemonic)
    data, base, offset = inst.operand("sdata"), inst.operand("sbase"), inst.operand("soffset")
    found = match or atomic
    if found is None or data is None or base is None:
        return None
    immediate = inst.fields["offset"] if inst.fields["imm"] else 0
    if not found[1]:
        immediate = (immediate ^ 0x100000) - 0x100000
    space, scalar = "buffer" if found[1] else "global", -1 if offset is None else offset.index
    common: Any = {
        "data": data.index,
        "resource": base.index,
        "offset": immediate,
        "scalar": scalar,
    }
    dwords = int(match[3] or 1) if match else 2 if found[3] else 1
    if match:
        operation = Operation(space, match[2], dwords=dwords, bytes=4 * dwords, **common)
    else:
        compared = data.index + dwords if found[2] == "cmpswap" else -1
        operation = Operation(
            space, "atomic", atomic=found[2], dwords=dwords, bytes=4 * dwords, data2=compared,
            result=data.index if inst.dst else -1, **common,
        )  # fmt: skip
    step = NativeStep("scalar_memory", operation)
    if not inst.dst or data.index + dwords <= EXEC:
        return step

    def load_exec(group: Group) -> None:
        step(group)
        group.refresh_mask()

    return load_exec


def _clock(inst: Instruction) -> Step:
    index, tick = inst.dst[0].index, _TICKS[inst.mnemonic]

    def step(group: Group) -> None:
        units = group.state.units
        units[inst.mnemonic] = now = units.get(inst.mnemonic, 0) + tick
        group.set_s64(index, np.uint64(now))

    return step
