"""Describe a race between waves in global memory (native/global_order.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cupygemm.emulator.waves.reports import instruction_at

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

_BARRIER = "an s_barrier (__syncthreads) must come between the two"
_ATOMICS = """\
workgroups run in any order: to order the two accesses, one workgroup must execute an atomic after
its access (with __threadfence) and the other an atomic before its own; otherwise use two kernels"""
_NO_FENCE = """\
This workgroup has read past the caches since, as one that waits for a flag does. But nothing shows
that the other has waited for its {} before it set one, so the flag may come first: put
__threadfence() between them (__syncthreads() does not wait for accesses to global memory), or set
the flag with __ATOMIC_RELEASE and __HIP_MEMORY_SCOPE_AGENT behind __syncthreads()"""


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
    place = state.memory.describe(address, size)
    if other_number == number:
        who, kind, order = f"wave {other_wave}", "wave", _BARRIER
    else:
        gx, gy, _ = state.grid
        ids = other_number % gx, other_number // gx % gy, other_number // (gx * gy)
        who, kind, order = f"wave {other_wave} of workgroup {ids}", "workgroup", _ATOMICS
        if _has_acquired(state, index, found.other):
            order = _NO_FENCE.format("read" if race.done == "read" else "write")
    detail = (
        f"{race.doing} {size} byte{'s' * (size > 1)}, {place},\nwhich {who} {race.done} at\n"
        f"  {instruction_at(state, found.other_pc)}\n{order}"
    )
    return "global race: " + race.kind.format(kind), detail


def _has_acquired(state: State, index: int, time: int) -> bool:
    """Tell whether a wave's workgroup has acquired since a time of the clock."""
    acquired = state.units["machine"].arrays.get("acquired")
    return acquired is not None and int(acquired[state.workgroup[index]]) > time
