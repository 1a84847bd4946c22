"""Describe waves that can never end: their loop, what it waits for, and who could have set it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm.emulator.errors import Fault, UnsupportedInstruction, spans
from cupygemm.emulator.isa.instruction import APERTURE_SHARED, EXEC, Instruction
from cupygemm.emulator.liveness.setters import Setters, decoded
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.lds.records import last_writer
from cupygemm.emulator.units.memory.write_backs import may_communicate
from cupygemm.emulator.waves.reports import instruction_at, source_text, waves_text
from cupygemm.emulator.waves.state import State

_MOST_INSTRUCTIONS = 12  # instructions of a loop that are listed
_LEAVES = re.compile(r"s_andn2_b64 exec, exec, s\[(\d+):\d+\]")  # the lanes that are done
_LEFT = """\
lanes of wave {wave} that have left the loop: {lanes}. They continue when all lanes have left it,
because a wave has one program counter. So a lock that each lane takes for itself is never opened:
let one lane of the wave take it, or let the lanes take turns (for each lane: if it is this one). A
loop in which the lane that has the lock works and opens it must go on while (__any(!done)): the
compiler moves what only the last round does out of other loops"""
_MOVED = """\
the loop reads no memory that another wave could write. If its source reads a flag, the compiler has
moved that load out of the loop, because nothing says that others write the flag: read it by
__hip_atomic_load, or through a volatile pointer"""


@dataclass(frozen=True)
class Finding:
    """Why the waves of a batch can never end.

    Attributes
    ----------
    kind, detail : str
        Kind and text of the fault.
    wave : int
        Index in the batch of a wave that repeats its state.
    pc : int
        Program counter of the load that the wave waits for, or of an instruction of its loop.
    address : int or None
        The address that the wave reads while it waits.
    is_global : bool
        Whether `address` is in device memory.
    """

    kind: str
    detail: str
    wave: int
    pc: int
    address: int | None
    is_global: bool


@dataclass(frozen=True)
class _Flag:
    """A location that a loop reads."""

    pc: int
    space: str  # a key of STORES
    addresses: tuple[int, ...]
    bytes: int


def describe(state: State, spinning: dict[int, set[int]], waiting: list[int]) -> Finding:
    """Return the finding about waves that can never end.

    Parameters
    ----------
    state : State
    spinning : dict of int to set of int
        The program counters of the loop that each wave repeats, by wave index.
    waiting : list of int
        The waves that wait at a barrier that the others do not reach.
    """
    wave, loop = next(iter(spinning.items()))
    workgroup = state.workgroup[wave]
    together = [w for w in spinning if state.workgroup[w] == workgroup]
    same = [w for w in together if spinning[w] == loop]
    halted = [w for w in waiting if state.workgroup[w] == workgroup]
    flags = _flags(state, wave, loop)
    lines = [
        "no wave on the device can continue: each repeats its state or waits at a barrier,",
        "and nothing writes to memory in between, so no later step can differ.",
        f"{waves_text(state, same)} {'repeats' if len(same) == 1 else 'repeat'} this loop:",
        *_loop(state, loop, {flag.pc: flag for flag in flags}, wave),
    ]
    others = [w for w in together if w not in same]
    if others:
        places = sorted({hex(min(spinning[w] or {0}) - state.kernel.entry) for w in others})
        verb = "repeats another" if len(others) == 1 else "repeat others"
        lines.append(f"{waves_text(state, others)} {verb}, from +{', +'.join(places)} on")
    if halted:
        lines += _barrier(state, halted, together)
    lines += [_last_write(state, wave, flag) for flag in flags]
    for space in dict.fromkeys(flag.space for flag in flags):
        here = [flag for flag in flags if flag.space == space]
        writers = {_last_writer(state, wave, flag)[1] for flag in here}
        loads = [flag.pc for flag in here]
        lines += Setters(state, space, spinning, waiting, workgroup).listed(loads, writers)
    lines += _lanes_that_left(state, loop, wave)
    if not flags:
        has_source = any(source_text(state.kernel, pc) for pc in loop)
        lines.append(_MOVED if has_source else _MOVED.partition(".")[0])
    lines.append(_elsewhere(state, len(spinning) + len(waiting) - len(together) - len(halted)))
    found = flags[0] if flags else None
    return Finding(
        kind="deadlock" if flags else "divergent barrier" if halted else "endless loop",
        detail="\n".join(line for line in lines if line),
        wave=wave,
        pc=found.pc if found else min(loop, default=int(state.pc[wave])),
        address=found.addresses[0] if found and found.addresses else None,
        is_global=found is not None and found.space != "LDS",
    )


def _loop(state: State, loop: set[int], flags: dict[int, _Flag], wave: int) -> list[str]:
    """Return the instructions of a loop; those that read what it waits for have its address."""
    lines = []
    pcs = sorted(loop)
    shown = pcs
    if len(pcs) > _MOST_INSTRUCTIONS:
        shown = sorted({*flags, pcs[0], *pcs[-(_MOST_INSTRUCTIONS - len(flags) - 1) :]})
    for pc in shown:
        inst = decoded(state, pc)
        text = "" if inst is None else inst.text
        line = f"  {pc - state.kernel.entry:+#x}: {text}"
        if pc in flags:
            line += f"   <- reads {_content(state, wave, flags[pc])}"
        source = source_text(state.kernel, pc)
        lines.append(line + f"   {source}" * bool(source))
    if len(shown) < len(pcs):
        lines.append(f"  ({len(pcs) - len(shown)} more instructions)")
    return lines


def _lanes_that_left(state: State, loop: set[int], wave: int) -> list[str]:
    """Return a line about the lanes that have left the loop and wait for the others to leave."""
    for pc in loop:
        inst = decoded(state, pc)
        found = _LEAVES.fullmatch(inst.text) if inst is not None else None
        if found is None:
            continue
        register = int(found[1])
        left = sum(int(state.sgpr[register + word, wave]) << 32 * word for word in (0, 1))
        lanes = tuple(lane for lane in range(64) if left >> lane & 1)
        if lanes:
            return [_LEFT.format(lanes=spans(lanes), wave=int(state.wave_in_group[wave]))]
    return []


def _content(state: State, wave: int, flag: _Flag) -> str:
    """Return the location and the value that a loop reads."""
    if not flag.addresses:
        return flag.space
    address = flag.addresses[0]
    place = f"{flag.space} {'byte ' * (flag.space == 'LDS')}{address:#x}"
    if len(flag.addresses) > 1:
        place += f" and {len(flag.addresses) - 1} more addresses"
    size = min(flag.bytes, 8)
    if flag.space == "LDS":
        data = state.lds[state.workgroup[wave], address : address + size].tobytes()
    elif state.memory.contains(address, size):
        data = bytes(state.memory.view(address, size))
    else:
        return place
    return f"{place}, which holds {int.from_bytes(data, 'little')}"


def _flags(state: State, wave: int, loop: set[int]) -> list[_Flag]:
    """Return the locations that a wave's loop reads and that other waves can write."""
    flags = []
    for pc in sorted(loop):
        inst = decoded(state, pc)
        if inst is None:
            continue
        try:
            step = bind(inst, state.target)
        except (UnsupportedInstruction, Fault):
            continue
        operation = getattr(step, "operation", None)
        name = inst.mnemonic
        reads = name.startswith(("ds_", "global_", "flat_", "buffer_", "s_load", "s_buffer_load"))
        if operation is None or not reads or "_store" in name or name.startswith("ds_write"):
            continue
        if name.startswith(("ds_swizzle", "ds_permute", "ds_bpermute")):
            continue
        space = "LDS" if name.startswith("ds_") else "global memory"
        addresses = _addresses(state, wave, inst, operation.struct)
        if name.startswith("flat_") and addresses and _in_lds(addresses):
            space, addresses = "LDS", tuple(address & 0xFFFF_FFFF for address in addresses)
        flags.append(_Flag(pc, space, addresses, operation.struct.bytes))
    return flags


def _last_write(state: State, wave: int, flag: _Flag) -> str:
    """Return which wave last wrote the LDS location that a loop reads; "" if not known."""
    writer, pc = _last_writer(state, wave, flag)
    if writer < 0:
        return ""
    what = f"wave {writer} wrote byte {flag.addresses[0]:#x} last"
    if pc < 0:
        return what
    source = source_text(state.kernel, pc)
    place = instruction_at(state, pc).partition("\n")[0]
    return f"{what}: {place}" + f" ({source})" * bool(source)


def _last_writer(state: State, wave: int, flag: _Flag) -> tuple[int, int]:
    """Return the wave and the instruction that last wrote what a loop reads; -1 if not known."""
    found = None
    if flag.space == "LDS" and flag.addresses:
        found = last_writer(state, int(state.workgroup[wave]), flag.addresses[0])
    return found or (-1, -1)


def _addresses(state: State, wave: int, inst: Instruction, op: Any) -> tuple[int, ...]:
    """Return the addresses of a load, by the current registers; empty if they are not known."""

    def scalar64(register: int) -> int:
        return int(state.sgpr[register, wave]) | int(state.sgpr[register + 1, wave]) << 32

    if inst.encoding == "SMEM":
        if inst.mnemonic.startswith("s_buffer"):
            return ()
        soffset = int(state.sgpr[op.scalar, wave]) if op.scalar >= 0 else 0
        return (scalar64(op.resource) + op.offset + soffset,)
    lanes = np.flatnonzero(
        np.unpackbits(np.array([scalar64(EXEC)], "<u8").view(np.uint8), bitorder="little")
    )
    if not lanes.size or inst.encoding == "MUBUF":
        return ()
    column = np.zeros(lanes.size, np.uint64)
    if op.address >= 0:
        column = state.vgpr[op.address, wave, lanes].astype(np.uint64)
        if op.wide:
            column |= state.vgpr[op.address + 1, wave, lanes].astype(np.uint64) << np.uint64(32)
    base = scalar64(op.scalar) if inst.encoding == "GLOBAL" and op.scalar >= 0 else 0
    limit = 0xFFFF_FFFF if inst.encoding == "DS" else 0xFFFF_FFFF_FFFF_FFFF
    found = {(int(address) + base + op.offset) & limit for address in column}
    return tuple(sorted(found))


def _in_lds(addresses: tuple[int, ...]) -> bool:
    """Return whether the addresses of a FLAT instruction all reach LDS."""
    return {address >> 32 for address in addresses} == {APERTURE_SHARED >> 32}


def _barrier(state: State, halted: list[int], running: list[int]) -> list[str]:
    """Return lines that name the barrier at which some waves wait and that others do not reach."""
    lines = []
    for pc in sorted({int(state.pc[wave]) for wave in halted}):
        here = [wave for wave in halted if int(state.pc[wave]) == pc]
        source = source_text(state.kernel, pc - 4)
        where = f" ({source})" * bool(source)
        lines.append(
            f"divergent barrier: {waves_text(state, here)} wait{'s' * (len(here) == 1)} at the "
            f"barrier before {pc - state.kernel.entry:+#x}{where}, which "
            f"{waves_text(state, running)} never reach{'es' * (len(running) == 1)}"
        )
    return lines


def _elsewhere(state: State, others: int) -> str:
    """Return a line about the other workgroups."""
    first, last = int(state.launch_order[0]), int(state.launch_order[-1])
    total = int(np.prod(state.grid))
    text = f"{others} waves of other workgroups do not end either." if others else ""
    if last + 1 < total and may_communicate(state.kernel):
        text += (
            f" Workgroups {first} to {last} of the grid are on the device; the "
            f"{total - last - 1} others start when these end"
        )
    return text.strip()
