"""Describe lanes of a wave that store different values to one address (native/lane_races.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.errors import Fault, lanes_of

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

CHECK = "lane_races"
_OF_CUPY = "cupy_"
_FIRST_GLOBAL = 1 << 32  # LDS addresses are lower, addresses of device memory are higher
_REMEDY = """\
It is undefined which of them remains. If each value is needed, the index must differ between lanes:
check its stride and which part of the thread's number it ignores. If one is enough, let one lane
store (if (lane == 0)), or use an atomic (atomicExch, atomicMax)"""


_LOST_UPDATE = 2  # as in native/lane_races.h
_USE_ATOMICS = """\
They read it together, add, and store one after another, so that all additions but one are lost: use
atomicAdd, or give each lane a counter of its own"""


def lane_race(found: Any, group: Group, position: int) -> Fault:
    """Return the fault of lanes that store to one address.

    Parameters
    ----------
    found : ctypes.Structure
        ``struct fault``.
    group : Group
    position : int
        Position of the wave within the group.
    """
    state, address, size = group.state, int(found.address), found.bytes
    in_lds, lane, other = address < _FIRST_GLOBAL, found.lane, int(found.other)
    plural = "s" * (size > 1)
    where = f" of LDS at 0x{address:x}" if in_lds else f", {state.memory.describe(address, size)}"
    if found.other_seq == _LOST_UPDATE:
        kind = "add to one place"
        what = f"lanes {lane} and {other} of the wave add to {size} byte{plural}{where}"
        detail = f"{what}\n{_USE_ATOMICS}"
    else:
        kind = "store to one place"
        values = _values(found, group, position)
        shown = f": {values[0]} and {values[1]}" if values and values[0] != values[1] else ""
        detail = (
            f"lanes {lane} and {other} of the wave store different values to {size} byte{plural}"
            f"{where},\nin one instruction{shown}\n{_REMEDY}"
        )
    return Fault(
        f"{'LDS' if in_lds else 'global'} race: two lanes {kind}",
        detail,
        wave=position,
        lane=lane,
        address=address,
        is_global=not in_lds,
        lanes=lanes_of(found.lanes),
        check=CHECK,
        may_be_meant=_may_be_meant(state),
    )


def _may_be_meant(state: State) -> bool:
    """Tell whether a kernel may accept any of the values.

    Assembly does: ROCm/aiter's attention stores sums of lanes that have added in different orders.
    So do CuPy's functions: ``x[i] = v`` keeps one of the values if ``i`` has an element twice.
    """
    kernel = state.kernel
    return kernel.name.startswith(_OF_CUPY) or not line_table(kernel.code_object)


def _values(found: Any, group: Group, position: int) -> tuple[str, str] | None:
    """Return the values that the two lanes store, if each stores at most one register."""
    if found.bytes > 4 or found.other_seq:
        return None
    row = group.state.vgpr[found.reg][int(group.wave_ids[position])]
    mask = (1 << 8 * found.bytes) - 1
    low, high = int(row[found.lane]) & mask, int(row[found.other]) & mask
    return f"0x{low:x}", f"0x{high:x}"
