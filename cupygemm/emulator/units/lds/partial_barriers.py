"""Lanes that continue past a barrier that only other lanes of their wave have reached.

The hardware's barrier counts waves. A wave in which a branch leaves some lanes out passes it like
any other, so a GPU continues; but HIP allows ``__syncthreads()`` in conditional code only if all
threads of the block agree. Lanes that have returned before the barrier do nothing after it. So a
finding is a barrier with lanes switched off, and a later barrier, or access to LDS or global
memory, in one of these lanes (native/barrier_lanes.h). Assembly may switch lanes off on purpose:
only code whose source lines are known is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.errors import Fault, lanes_of, spans
from cupygemm.emulator.isa.instruction import EXEC
from cupygemm.emulator.waves.reports import instruction_at

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

CHECK, KIND = "partial_barriers", "barrier in a part of a wave"
_DETAIL = """\
lanes {lanes} of the wave have not reached the barrier
  {barrier}
at which the others waited, and continue here. A GPU does so, because s_barrier counts waves and not
lanes; for these lanes it orders nothing that HIP promises. __syncthreads() may be in conditional
code only if all threads of the block take the same path: move it out of the condition or loop"""


def is_watched(state: State) -> bool:
    """Tell whether a launch looks for such lanes."""
    return state.findings.policy[CHECK] != "off"


def exec_of(state: State, waves: Any = slice(None)) -> NDArray[np.uint64]:
    """Return EXEC of some waves, (waves,)."""
    low, high = state.sgpr[EXEC, waves], state.sgpr[EXEC + 1, waves]
    found: NDArray[np.uint64] = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    return found


def fault_of(state: State, wave: int, position: int, lanes: int) -> Fault | None:
    """Return the fault of lanes that have not reached a barrier; None where assembly may do so.

    Parameters
    ----------
    state : State
    wave : int
        Index of the wave in the batch.
    position : int
        The `wave` of the fault.
    lanes : int
        The lanes that continue, one bit each.
    """
    if not line_table(state.kernel.code_object):
        return None
    pc = int(state.units["machine"].arrays["skipped_at"][wave])
    found = lanes_of(lanes)
    detail = _DETAIL.format(lanes=spans(found), barrier=instruction_at(state, pc))
    return Fault(KIND, detail, wave=position, lane=found[0], lanes=found, check=CHECK)


def forget(state: State) -> None:
    """Stop looking for such lanes in this batch: one finding is enough."""
    machine = state.units["machine"]
    machine.arrays["skipped"].fill(0)
    machine.struct.num_skipped = 0
    machine.struct.skipped = None


def arrive(state: State, group: Group) -> tuple[int, int] | None:
    """Record a barrier that waves of a group reach, like note_barrier of native/barrier_lanes.h.

    Returns
    -------
    tuple of int or None
        The first wave with lanes that have not reached an earlier one, and these lanes.
    """
    machine = state.units.get("machine")
    if machine is None or not machine.struct.skipped:
        return None
    arrays, waves = machine.arrays, group.wave_ids
    active = exec_of(state, waves)
    again = arrays["skipped"][waves] & active
    if again.any():
        first = int(np.flatnonzero(again)[0])
        return int(waves[first]), int(again[first])
    missing = arrays["launched"][waves] & ~active
    new = (missing != 0) & (arrays["skipped"][waves] == 0)
    arrays["skipped_at"][waves[new]] = state.current_pc
    arrays["skipped"][waves] |= missing
    machine.struct.num_skipped |= int(missing.any())
    return None
