"""What memory instructions do wrong: a C function's fault record as an `errors.Fault`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.reports import instruction_at

if TYPE_CHECKING:
    from cupygemm.emulator.state import Group, State

# enum fault_code of native/machine.h
(
    OK, OUT_OF_BOUNDS, LDS_OUT_OF_BOUNDS, LDS_UNINITIALISED, RACE_READ, RACE_WRITE_READ,
    RACE_WRITE_WRITE, GLOBAL_RACE_READ, GLOBAL_RACE_WRITE_READ, GLOBAL_RACE_WRITE_WRITE,
    LDS_LOAD_IN_FLIGHT, SCRATCH_OUT_OF_BOUNDS, SCRATCH_MISALIGNED,
    ATOMIC_MISALIGNED, SCALAR_MISALIGNED, TRANSPOSE_MISALIGNED, TRANSPOSE_PARTIAL,
    LDS_LOAD_MISALIGNED, MISALIGNED, MEMORY_UNINITIALISED, UNDEFINED_STORE, UNDEFINED_ATOMIC,
    NEEDS_FINER_SHADOW,
) = range(23)  # fmt: skip

_FIRST_GLOBAL = 1 << 32  # LDS addresses are below, device memory is above
_ORDER = (
    "an s_waitcnt in wave {other}, then an s_barrier, must come between the two\n"
    "(a flag in LDS is not taken for order)"
)


def memory_fault(code: int, found: Any, group: Group, position: int) -> Fault:
    """Return the fault for a code and the C structure that describes it.

    Parameters
    ----------
    code : int
        A ``fault_code``.
    found : ctypes.Structure
        ``struct fault``.
    group : Group
    position : int
        Of the wave within the group.
    """
    if code in (UNDEFINED_STORE, UNDEFINED_ATOMIC):
        return _undefined_data(code, found, group, position)
    kind, detail = _describe(code, found, group, position)
    in_lds = code == MISALIGNED and found.address < _FIRST_GLOBAL
    is_global = code in _GLOBAL and not in_lds
    return Fault(
        kind, detail, position, found.lane, int(found.address), is_global=is_global,
        lanes=lanes_of(found.lanes),
    )  # fmt: skip


def lanes_of(mask: int) -> tuple[int, ...]:
    """Return the lanes of a mask, ascending."""
    return tuple(lane for lane in range(64) if mask >> lane & 1)


def _undefined_data(code: int, found: Any, group: Group, position: int) -> Fault:
    marks = group.state.marks
    wave = int(group.wave_ids[position])
    use = "is stored to global memory" if code == UNDEFINED_STORE else "goes into an atomic"
    return marks.fault(
        group.state, ("v", found.reg), wave, use, position=position, lanes=lanes_of(found.lanes)
    )


def _wave_number(group: Group, position: int) -> int:
    return int(group.state.wave_in_group[group.wave_ids[position]])


def _describe(code: int, found: Any, group: Group, position: int) -> tuple[str, str]:
    state, wave = group.state, _wave_number(group, position)
    verb = "atomic" if found.is_atomic else "write" if found.writes else "read"
    size, address = found.bytes, int(found.address)
    space = {
        OUT_OF_BOUNDS: "", SCALAR_MISALIGNED: "", SCRATCH_OUT_OF_BOUNDS: " of private memory",
        SCRATCH_MISALIGNED: " of private memory", ATOMIC_MISALIGNED: "", MEMORY_UNINITIALISED: "",
    }.get(code, " of LDS")  # fmt: skip
    span = f"{size} byte{'s' * (size > 1)}{space} at 0x{address:x}"
    if code == OUT_OF_BOUNDS:
        return f"out-of-bounds global {verb}", f"{span}: {state.memory.describe(address, size)}"
    if code == LDS_OUT_OF_BOUNDS:
        limit = state.lds.shape[1]
        past = f"{address + size - limit} bytes past its end" if limit else "it has none"
        return (
            f"out-of-bounds LDS {verb}",
            f"{span}; the workgroup's LDS has {limit} bytes: {past}",
        )
    if code == SCRATCH_OUT_OF_BOUNDS:
        return (
            f"out-of-bounds private {verb}",
            f"{span}; a work-item has {state.scratch.shape[2]} bytes of private memory",
        )
    if code == LDS_UNINITIALISED:
        return "uninitialised LDS", f"an atomic on {span}: nothing has written all of them"
    if code == MEMORY_UNINITIALISED:
        place = state.memory.describe(address, size)
        return "uninitialised memory", f"an atomic on {span}, which nothing has written: {place}"
    if code in (RACE_READ, RACE_WRITE_READ, RACE_WRITE_WRITE, LDS_LOAD_IN_FLIGHT):
        return _describe_race(code, found, state, wave, span)
    if code in _GLOBAL_RACES:
        return _describe_global_race(code, found, group, position, f"{size} byte{'s' * (size > 1)}")
    if code == MISALIGNED:
        place = " of LDS" if address < _FIRST_GLOBAL else ""
        return (
            f"misaligned {'LDS' if place else 'global'} {verb}",
            f"{size} bytes{place} at 0x{address:x}: legal on this target, and slower",
        )
    return _MISALIGNED[code][0], f"{span}: {_MISALIGNED[code][1]}"


def _describe_race(code: int, found: Any, state: State, wave: int, span: str) -> tuple[str, str]:
    other, where = found.other_wave, instruction_at(state, found.other_pc)
    if code == LDS_LOAD_IN_FLIGHT:
        return (
            "LDS read before wait",
            (
                f"{span}: the wave's own direct-to-LDS load may not have written them yet, no "
                f"s_waitcnt vmcnt covers it:\n  {where}"
            ),
        )
    done = "read" if code == RACE_WRITE_READ else "wrote"
    kind = {
        RACE_READ: "LDS race: read after another wave's write",
        RACE_WRITE_READ: "LDS race: write after another wave's read",
        RACE_WRITE_WRITE: "LDS race: write after another wave's write",
    }[code]
    doing = "reads" if code == RACE_READ else "writes"
    return (
        kind,
        f"wave {wave} {doing} {span}, which wave {other} {done} at\n  {where}\n"
        + _ORDER.format(other=other),
    )


_GLOBAL = (
    OUT_OF_BOUNDS, MISALIGNED, MEMORY_UNINITIALISED, GLOBAL_RACE_READ, GLOBAL_RACE_WRITE_READ,
    GLOBAL_RACE_WRITE_WRITE,
)  # fmt: skip
_GLOBAL_RACES = {
    GLOBAL_RACE_READ: ("read after another {}'s write", "reads", "wrote"),
    GLOBAL_RACE_WRITE_READ: ("write after another {}'s read", "writes", "read"),
    GLOBAL_RACE_WRITE_WRITE: ("write after another {}'s write", "writes", "wrote"),
}


def _describe_global_race(
    code: int, found: Any, group: Group, position: int, size: str
) -> tuple[str, str]:
    state, address = group.state, int(found.address)
    per_group = state.num_waves // len(state.workgroup_ids)
    index = int(group.wave_ids[position])
    number = int(state.launch_order[state.workgroup[index]])
    other_number, other_wave = divmod(found.other_wave, per_group)
    what, doing, done = _GLOBAL_RACES[code]
    place = state.memory.describe(address, found.bytes)
    if other_number == number:
        who, kind = f"wave {other_wave}", "wave"
        order = "an s_barrier (__syncthreads) must come between the two"
    else:
        gx, gy, _ = state.grid
        ids = other_number % gx, other_number // gx % gy, other_number // (gx * gy)
        who, kind = f"wave {other_wave} of workgroup {ids}", "workgroup"
        order = (
            "workgroups run in any order: only an atomic that one makes after the access "
            "(__threadfence)\nand the other before it, or the end of the kernel, comes between "
            "the two"
        )
    detail = (
        f"{doing} {size}, {place},\nwhich {who} {done} at\n"
        f"  {instruction_at(state, found.other_pc)}\n{order}"
    )
    return "global race: " + what.format(kind), detail


_MISALIGNED = {
    SCRATCH_MISALIGNED: (
        "misaligned private access",
        "private memory interleaves the lanes' dwords, so its scalar offset counts 64 of them",
    ),
    ATOMIC_MISALIGNED: ("misaligned atomic", "an atomic's address must be a multiple of its size"),
    SCALAR_MISALIGNED: (
        "misaligned scalar access",
        "the hardware ignores the low two bits of a scalar memory address",
    ),
    TRANSPOSE_MISALIGNED: (
        "misaligned LDS transpose read",
        "its addresses must be multiples of 8 bytes (16 for b96)",
    ),
    TRANSPOSE_PARTIAL: (
        "LDS transpose read with lanes switched off",
        "every lane takes part in it, so EXEC must be all ones",
    ),
    LDS_LOAD_MISALIGNED: (
        "misaligned direct-to-LDS load",
        "M0 plus the instruction's offset must be a multiple of 4",
    ),
}
