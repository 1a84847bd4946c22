"""SMEM instructions: loads and stores of scalar registers, and the clocks.

    address = SBASE + offset (21 bits, signed) + SOFFSET

A buffer load returns 0 beyond the end of the resource. Each clock advances by a fixed amount when
it is read, so that a run is repeatable; the values do not measure time. (CDNA3 ISA guide, chapter
8.)
"""

from __future__ import annotations

import re

import numpy as np

from cupygemm.emulator.isa import EXEC, Instruction
from cupygemm.emulator.state import Group
from cupygemm.emulator.units import Step
from cupygemm.emulator.units.machine import NativeStep, Operation

_MNEMONIC = re.compile(r"s_(buffer_)?(load|store)_dword(?:x(\d+))?")
_TICKS = {"s_memtime": 64, "s_memrealtime": 4}


def bind(inst: Instruction) -> Step | None:
    """Return the step that executes a SMEM instruction, or None if it is not emulated."""
    if inst.mnemonic.startswith("s_dcache_"):
        return lambda _group: None  # the emulated memory has no caches
    if inst.mnemonic in _TICKS:
        return _clock(inst)
    match = _MNEMONIC.fullmatch(inst.mnemonic)
    data, base, offset = inst.operand("sdata"), inst.operand("sbase"), inst.operand("soffset")
    if match is None or data is None or base is None:
        return None
    immediate = inst.fields["offset"] if inst.fields["imm"] else 0
    if not match[1]:
        immediate = (immediate ^ 0x100000) - 0x100000
    dwords = int(match[3] or 1)
    operation = Operation(
        "buffer" if match[1] else "global",
        match[2],
        dwords=dwords,
        bytes=4 * dwords,
        data=data.index,
        resource=base.index,
        offset=immediate,
        scalar=-1 if offset is None else offset.index,
    )
    step = NativeStep("scalar_memory", operation)
    if match[2] == "store" or data.index + dwords <= EXEC:
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
