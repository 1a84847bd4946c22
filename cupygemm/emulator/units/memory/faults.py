"""Faults of memory instructions: turns the fault record that C fills in into an `errors.Fault`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cupygemm.emulator.code_object.lds_variables import removed_bytes
from cupygemm.emulator.concurrency.stream_races import describe_race
from cupygemm.emulator.errors import Fault, lanes_of
from cupygemm.emulator.isa.disassembly_modifiers import DATA_FORMATS, NUMBER_FORMATS
from cupygemm.emulator.units.lds.polling import polls_of
from cupygemm.emulator.units.lds.shared_arrays import meant_by, meant_outside
from cupygemm.emulator.units.memory.fault_codes import CHECK_OF, FaultCode
from cupygemm.emulator.units.memory.global_races import (
    Race,
    global_race,
    stale_line,
    unseen_write,
)
from cupygemm.emulator.units.memory.lane_races import lane_race
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.reports import instruction_at

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

_FIRST_GLOBAL = 1 << 32  # LDS addresses are lower, addresses of device memory are higher
_ORDER = "an s_waitcnt in wave {other}, then an s_barrier, must come between the two\n"
_BARRIER = "(__syncthreads() is both, for accesses that the compiler sees)"
_FLAG = "(or wave {other} sets a flag in LDS after it, for which a loop of this wave waits)"
_NOT_WAITED = (
    "wave {other} has passed an s_barrier since, without having waited for that {access}:\n"
    "put s_waitcnt {counter}(0) before its barrier (__syncthreads waits only for accesses that\n"
    "the compiler sees, not for those of inline assembly)"
)


_NEXT_VARIABLE = (
    "the compiler has put another variable there: check the index, or the array's extents"
)
_REMOVED = (
    "\nthe compiler has removed {} bytes of the kernel's __shared__ variables, as nothing that it "
    "sees\nuses them: give asm statements the address of the variable as an operand, and the "
    'clobber "memory"'
)
_OFFSET_TO_LDS = re.compile(r"\boffset:(-?\d+) .*\blds\b|_lds_.*\boffset:(-?\d+)")
_OFFSET_COUNTS_TWICE = (
    "\nthe offset in the instruction, {}, counts in LDS as it does in memory. If the source has\n"
    "none, LLVM has put it there, as it does on gfx90a where a loop is unrolled: hide the sum\n"
    'from it by asm volatile("" : "+v"(pointer))'
)
_TYPED = (
    FaultCode.TYPED_FORMAT,
    FaultCode.TYPED_SELECTS,
    FaultCode.TYPED_SWIZZLED,
    FaultCode.TYPED_MISALIGNED,
)
_SPACES = {  # by fault code, for those that are not about LDS
    FaultCode.OUT_OF_BOUNDS: "",
    FaultCode.SCALAR_MISALIGNED: "",
    FaultCode.SCRATCH_OUT_OF_BOUNDS: " of private memory",
    FaultCode.SCRATCH_MISALIGNED: " of private memory",
    FaultCode.ATOMIC_MISALIGNED: "",
    FaultCode.MEMORY_UNINITIALISED: "",
    **dict.fromkeys(_TYPED, ""),
}


def memory_fault(number: int, found: Any, group: Group, position: int) -> Fault:
    """Return the fault for a code and the C structure that describes it.

    Parameters
    ----------
    number : int
        The value of a `FaultCode`.
    found : ctypes.Structure
        ``struct fault``.
    group : Group
    position : int
        Position of the wave within the group.
    """
    code = FaultCode(number)
    if code in (FaultCode.UNDEFINED_STORE, FaultCode.UNDEFINED_ATOMIC):
        return _undefined_data(code, found, group, position)
    if code == FaultCode.LANE_RACE:
        return lane_race(found, group, position)
    if code in _CACHED:
        kind, detail = _CACHED[code](found, group)
    else:
        kind, detail = _describe(code, found, group, position)
    in_lds = code == FaultCode.MISALIGNED and found.address < _FIRST_GLOBAL
    is_global = code in _GLOBAL and not in_lds
    return Fault(
        kind,
        detail,
        wave=position,
        lane=found.lane,
        address=int(found.address),
        is_global=is_global,
        lanes=lanes_of(found.lanes),
        check=CHECK_OF.get(code, ""),
    )


def _undefined_data(code: FaultCode, found: Any, group: Group, position: int) -> Fault:
    marks = marks_of(group.state)
    wave = int(group.wave_ids[position])
    use = (
        "is stored to global memory"
        if code == FaultCode.UNDEFINED_STORE
        else "is used in an atomic"
    )
    return marks.fault(
        group.state, ("v", found.reg), wave, use, position=position, lanes=lanes_of(found.lanes)
    )


def _wave_number(group: Group, position: int) -> int:
    return int(group.state.wave_in_group[group.wave_ids[position]])


def _describe(code: FaultCode, found: Any, group: Group, position: int) -> tuple[str, str]:
    state = group.state
    verb = "atomic" if found.is_atomic else "write" if found.writes else "read"
    size, address = found.bytes, int(found.address)
    space = _SPACES.get(code, " of LDS")
    span = f"{size} byte{'s' * (size > 1)}{space} at 0x{address:x}"
    if code == FaultCode.OUT_OF_BOUNDS:
        where = f"{span}: {state.memory.describe(address, size)}"
        if state.memory.is_peers(address):
            return f"global {verb} without peer access", where
        return f"out-of-bounds global {verb}", where
    if code == FaultCode.LDS_OUT_OF_BOUNDS:
        return f"out-of-bounds LDS {verb}", f"{span}; {_outside_lds(state, address, size)}"
    if code == FaultCode.OTHER_VARIABLE:
        meant = meant_by(state.kernel, state.current_pc, address, found.other)
        described = meant and f"{meant.element} of {meant.declaration}, {meant.distance}"
        return (
            f"LDS {verb} outside its array",
            f"{span}: by the source, this is {described};\n" + _NEXT_VARIABLE,
        )
    if code == FaultCode.SCRATCH_OUT_OF_BOUNDS:
        return (
            f"out-of-bounds private {verb}",
            f"{span}; a work-item has {state.scratch.shape[2]} bytes of private memory",
        )
    if code == FaultCode.LDS_UNINITIALISED:
        return "uninitialised LDS", f"an atomic on {span}, not all of which have been written"
    if code == FaultCode.MEMORY_UNINITIALISED:
        place = state.memory.describe(address, size)
        return "uninitialised memory", f"an atomic on {span}, which nothing has written: {place}"
    if code in (
        FaultCode.RACE_READ,
        FaultCode.RACE_WRITE_READ,
        FaultCode.RACE_WRITE_WRITE,
        FaultCode.LDS_LOAD_IN_FLIGHT,
    ):
        return _describe_race(code, found, group, position, span)
    if code in _GLOBAL_RACES:
        return global_race(_GLOBAL_RACES[code], found, group, position)
    if code in _STREAM_RACES:
        return _describe_stream_race(code, found, state)
    if code == FaultCode.MISALIGNED:
        place = " of LDS" if address < _FIRST_GLOBAL else ""
        return (
            f"misaligned {'LDS' if place else 'global'} {verb}",
            f"{size} bytes{place} at 0x{address:x}: legal on this target, and slower",
        )
    return _mistake(code, found, span)


def _outside_lds(state: State, address: int, size: int) -> str:
    """Describe how far outside its workgroup's LDS an access is, and a possible cause."""
    limit = state.lds.shape[1]
    past = f"{address + size - limit} bytes past its end"
    if address >> 31:
        past = f"{(1 << 32) - address} bytes before its start"
    if not limit:
        past = "it has none"
    dynamic = limit - state.kernel.lds_bytes
    if dynamic or not limit:
        past += f"\nthe launch gives it {dynamic} of them as dynamic LDS (shared_mem)"
    if removed := removed_bytes(state.kernel):
        past += _REMOVED.format(removed)
    text, _, _ = instruction_at(state, state.current_pc).partition("\n")
    if offset := _OFFSET_TO_LDS.search(text):
        past += _OFFSET_COUNTS_TWICE.format(offset[1] or offset[2])
    meant = meant_by(state.kernel, state.current_pc, address)
    if meant is not None:
        past += f"\nby the source, this is {meant.element} of {meant.declaration}"
    return f"the workgroup's LDS has {limit} bytes: {past}"


def _mistake(code: FaultCode, found: Any, span: str) -> tuple[str, str]:
    kind, rule = _MISTAKES[code]
    if code == FaultCode.LANE_ADDRESS:
        span = f"the address is {found.address}"
    if code == FaultCode.TYPED_FORMAT:
        rule = rule.format(DATA_FORMATS[found.other & 15], NUMBER_FORMATS[found.other >> 4 & 7])
    return kind, f"{span}: {rule}"


def _describe_race(
    code: FaultCode, found: Any, group: Group, position: int, span: str
) -> tuple[str, str]:
    wave, other = _wave_number(group, position), found.other_wave
    where = _other_access(code, found, group, position)
    if code == FaultCode.LDS_LOAD_IN_FLIGHT:
        detail = (
            f"{span}: a direct-to-LDS load of the same wave may not have written them yet, "
            f"because no s_waitcnt vmcnt covers it:\n  {where}"
        )
        return "LDS read before wait", detail
    done = "read" if code == FaultCode.RACE_WRITE_READ else "wrote"
    kind = {
        FaultCode.RACE_READ: "LDS race: read after another wave's write",
        FaultCode.RACE_WRITE_READ: "LDS race: write after another wave's read",
        FaultCode.RACE_WRITE_WRITE: "LDS race: write after another wave's write",
    }[code]
    doing = "reads" if code == FaultCode.RACE_READ else "writes"
    meant = meant_outside(group.state.kernel, group.state.current_pc, int(found.address))
    cause = (
        _missing_order(code, found, group, position)
        if meant is None
        else f"by the source, this is {meant.element} of {meant.declaration}, "
        f"{meant.distance}:\nthe index is wrong, not the order"
    )
    return (
        kind,
        f"wave {wave} {doing} {span}, which wave {other} {done} at\n  {where}\n{cause}",
    )


def _other_wave(found: Any, group: Group, position: int) -> int:
    """Return the index in the batch of the other wave of a race in LDS."""
    state = group.state
    same_group = state.workgroup == state.workgroup[group.wave_ids[position]]
    return int(np.flatnonzero(same_group & (state.wave_in_group == found.other_wave))[0])


def _other_access(code: FaultCode, found: Any, group: Group, position: int) -> str:
    """Describe the other access of a race in LDS.

    A record names only the last of several waves. For another wave, the candidates are its
    accesses since its last barrier.
    """
    state = group.state
    if found.other_pc < 0 and not found.other_seq and not found.other_by_load:
        index = _other_wave(found, group, position)
        reads = code == FaultCode.RACE_WRITE_READ
        issued = state.units["machine"].arrays["lds_history"][:, index].astype(np.int64)
        since = issued[issued[:, 0] > int(state.lds_passed[index])]
        pcs = dict.fromkeys(since[since[:, 0].argsort(), 1].tolist())
        texts = [instruction_at(state, pc) for pc in pcs]
        texts = [text for text in texts if ("read" in text.partition("\n")[0]) == reads]
        if texts:
            more = f"\n  and {len(texts) - 3} others" * (len(texts) > 3)
            return "one of these:\n  " * (len(texts) > 1) + "\n  ".join(texts[:3]) + more
    return instruction_at(state, found.other_pc)


def _missing_order(code: FaultCode, found: Any, group: Group, position: int) -> str:
    """Describe the missing order between an LDS access and the other wave's earlier access."""
    state, other = group.state, found.other_wave
    index = _other_wave(found, group, position)
    passed = state.vm_passed if found.other_by_load else state.lds_passed
    if not 0 < found.other_seq <= passed[index]:
        # Without flags, a barrier is missing.
        return (_ORDER + (_FLAG if polls_of(state.kernel) else _BARRIER)).format(other=other)
    return _NOT_WAITED.format(
        other=other,
        access="read" if code == FaultCode.RACE_WRITE_READ else "write",
        counter="vmcnt" if found.other_by_load else "lgkmcnt",
    )


_GLOBAL_RACES = {
    FaultCode.GLOBAL_RACE_READ: Race("read after another {}'s write", "reads", "wrote"),
    FaultCode.GLOBAL_RACE_WRITE_READ: Race("write after another {}'s read", "writes", "read"),
    FaultCode.GLOBAL_RACE_WRITE_WRITE: Race("write after another {}'s write", "writes", "wrote"),
}
_CACHED = {FaultCode.UNSEEN_WRITE: unseen_write, FaultCode.STALE_LINE: stale_line}
_STREAM_RACES = (
    FaultCode.STREAM_RACE_READ,
    FaultCode.STREAM_RACE_WRITE_READ,
    FaultCode.STREAM_RACE_WRITE_WRITE,
)
_GLOBAL = (
    FaultCode.OUT_OF_BOUNDS,
    FaultCode.MISALIGNED,
    FaultCode.MEMORY_UNINITIALISED,
    *_CACHED,
    *_TYPED,
    *_GLOBAL_RACES,
    *_STREAM_RACES,
)


def _describe_stream_race(code: FaultCode, found: Any, state: Any) -> tuple[str, str]:
    shadow = state.memory.shadow
    return describe_race(
        shadow.rivals.operation,
        shadow.rivals.at(found.other),
        state.memory,
        int(found.address),
        found.bytes,
        writes=code != FaultCode.STREAM_RACE_READ,
        others_write=code != FaultCode.STREAM_RACE_WRITE_READ,
        other_pc=found.other_pc,
    )


class _Mistake(NamedTuple):
    """A kind of fault, and the rule that the access breaks."""

    kind: str
    rule: str


_MISTAKES = {
    FaultCode.TYPED_FORMAT: _Mistake(
        "typed access to an unknown format",
        "the data format is {} and the numeric format {}, which is no valid combination.\n"
        "A MTBUF instruction has its own formats, a MUBUF one those in word 3 of the resource",
    ),
    FaultCode.TYPED_SELECTS: _Mistake(
        "typed store with exchanged components",
        "DST_SEL (bits 0 to 11 of word 3 of the buffer resource) is not red, green, blue, alpha. "
        "The\nguides do not say what a store does then, and it is not emulated",
    ),
    FaultCode.TYPED_SWIZZLED: _Mistake(
        "typed access to a swizzled buffer",
        "elements of more than a dword are not emulated there",
    ),
    FaultCode.TYPED_MISALIGNED: _Mistake(
        "misaligned typed access",
        "the address of an element must be a multiple of its size, or of 4 if it is larger",
    ),
    FaultCode.SCRATCH_MISALIGNED: _Mistake(
        "misaligned private access",
        "private memory interleaves the dwords of 64 lanes, so its scalar offset counts 64 dwords",
    ),
    FaultCode.ATOMIC_MISALIGNED: _Mistake(
        "misaligned atomic", "the address of an atomic must be a multiple of its size"
    ),
    FaultCode.SCALAR_MISALIGNED: _Mistake(
        "misaligned scalar access",
        "the hardware ignores the low two bits of a scalar memory address",
    ),
    FaultCode.TRANSPOSE_MISALIGNED: _Mistake(
        "misaligned LDS transpose read",
        "its addresses must be multiples of 8 bytes (16 for b96)",
    ),
    FaultCode.TRANSPOSE_PARTIAL: _Mistake(
        "LDS transpose read with lanes switched off",
        "every lane takes part in the read, so EXEC must be all ones",
    ),
    FaultCode.LANE_ADDRESS: _Mistake(
        "lane exchange at an address that is no multiple of 4",
        "ds_bpermute and ds_permute count bytes, 4 for each lane, and ignore the\nlower two bits. "
        "Multiply the number of the lane by 4 (__shfl does so itself)",
    ),
    FaultCode.LDS_LOAD_MISALIGNED: _Mistake(
        "misaligned direct-to-LDS load",
        "M0 plus the instruction's offset must be a multiple of 4",
    ),
}
