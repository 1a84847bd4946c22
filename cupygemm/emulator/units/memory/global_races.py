"""Describe a race between waves in global memory (native/global_order.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cupygemm.emulator.waves.reports import instruction_at, place_of

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

_BARRIER = "an s_barrier (__syncthreads) must come between the two"
_ATOMICS = """\
workgroups run in any order: to order the two accesses, one workgroup must execute an atomic after
its access (with __threadfence) and the other an atomic before its own; otherwise use two kernels"""
_NO_FENCE = """\
This workgroup has read past the caches since, as one that waits for a flag does. But nothing shows
that the other has waited for its {} before it set one, so the flag may come first: put
__threadfence() between them (__syncthreads() does not wait for accesses to global memory), and
__syncthreads() after it if another wave sets the flag; or set the flag with __ATOMIC_RELEASE and
__HIP_MEMORY_SCOPE_AGENT after __syncthreads()"""

_KEPT = """\
A plain store may stay in the L2 of its XCD until the launch ends. The two workgroups are on
different XCDs, and nothing has written that L2 back since. Data: put __threadfence() between the
store and the flag or counter. A flag or a lock: store it by an atomic (__hip_atomic_store with
__HIP_MEMORY_SCOPE_AGENT, atomicExch) or through a volatile pointer"""

_OLD_LINE = """\
That line may still be in the vector L1 of this workgroup's compute unit, as no wave of the
workgroup has emptied it since: put __threadfence() after the atomic that says that the value is
there, or load the flag with __ATOMIC_ACQUIRE and __HIP_MEMORY_SCOPE_AGENT"""


class Race(NamedTuple):
    """A kind of race in global memory, with the verbs for this access and the other one."""

    kind: str
    doing: str
    done: str


def global_race(race: Race, found: Any, group: Group, position: int) -> tuple[str, str]:
    """Return the kind of a race and its description.

    Parameters
    ----------
    race : Race
    found : ctypes.Structure
        ``struct fault``.
    group : Group
    position : int
        Position of the wave within the group.
    """
    state, address, size = group.state, int(found.address), found.bytes
    per_group = state.num_waves // len(state.workgroup_ids)
    index = int(group.wave_ids[position])
    number = int(state.launch_order[state.workgroup[index]])
    other_number, other_wave = divmod(found.other_wave, per_group)
    place = place_of(state, address, size)
    if other_number == number:
        who, kind, order = f"wave {other_wave}", "wave", _BARRIER
    else:
        ids = _workgroup_ids(state, other_number)
        who, kind, order = f"wave {other_wave} of workgroup {ids}", "workgroup", _ATOMICS
        if _has_acquired(state, index, found.other):
            order = _NO_FENCE.format("read" if race.done == "read" else "write")
    detail = (
        f"{race.doing} {size} byte{'s' * (size > 1)}, {place},\nwhich {who} {race.done} at\n"
        f"  {instruction_at(state, found.other_pc)}\n{order}"
    )
    return "global race: " + race.kind.format(kind), detail


def unseen_write(found: Any, group: Group) -> tuple[str, str]:
    """Return the kind and the description of a read of data that is still in another XCD's L2."""
    return "store that other XCDs need not see", f"{_store_and_load(found, group)}\n{_KEPT}"


def stale_line(found: Any, group: Group) -> tuple[str, str]:
    """Return the kind and the description of a load from a line that may be stale in L1."""
    detail = (
        f"{_store_and_load(found, group)}\nafter this workgroup had loaded the same line at\n"
        f"  {instruction_at(group.state, found.other_seq)}\n{_OLD_LINE}"
    )
    return "load that may find an old line in the cache", detail


def _store_and_load(found: Any, group: Group) -> str:
    """Describe what is read, and which access wrote it."""
    state, size = group.state, found.bytes
    per_group = state.num_waves // len(state.workgroup_ids)
    number, wave = divmod(found.other_wave, per_group)
    doing = "an atomic on" if found.is_atomic else "reads"
    return (
        f"{doing} {size} byte{'s' * (size > 1)}, "
        f"{place_of(state, int(found.address), size)},\n"
        f"which wave {wave} of workgroup {_workgroup_ids(state, number)} wrote at\n"
        f"  {instruction_at(state, found.other_pc)}"
    )


def _workgroup_ids(state: State, number: int) -> tuple[int, int, int]:
    """Return the indices of a workgroup of the grid by its number."""
    gx, gy, _ = state.grid
    return number % gx, number // gx % gy, number // (gx * gy)


def _has_acquired(state: State, index: int, time: int) -> bool:
    """Tell whether a wave's workgroup has acquired since a time of the clock."""
    acquired = state.units["machine"].arrays.get("acquired")
    return acquired is not None and int(acquired[state.workgroup[index]]) > time
