"""Waves that end before a barrier at which other waves of their workgroup wait.

The hardware counts only waves that have not ended, so the others continue, and a kernel that
returns before ``__syncthreads()`` seems to work. But what the ended waves should have written to
LDS is missing.

    entry ─► branch ─► barrier ─► LDS read
               └─────► s_endpgm

Work-items past the end of the data return early in many correct kernels, including CuPy's, and
only their own results are missing. The first work-item of a workgroup is past the end only if all
others are. So an early end is a finding if the first wave is among those that ended, and if the
waiting waves read LDS after the barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.control_flow import Node, graph, predecessors
from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.waves.reports import instruction_at, waves_text

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import State

CHECK, KIND = "early_ends", "early end"
_LDS_READS = ("ds_read", "ds_load", "flat_load")
_MOST_BRANCHES = 3
_REMEDY = """\
A GPU continues, because s_barrier waits only for waves that have not ended. What the others would
have written to LDS is missing. Put the work under a condition instead of the return, so that all
threads of the block reach __syncthreads()"""


def is_wanted(state: State) -> bool:
    """Tell whether a launch looks for early ends: its waves may share LDS."""
    return bool(state.lds.size) and state.findings.policy[CHECK] != "off"


def is_end_of_data(state: State, ended: list[int]) -> bool:
    """Tell whether the end of the data explains that waves of a workgroup have ended early."""
    return bool(state.wave_in_group[ended].min() > 0)


def describe(state: State, ended: list[int], waiting: list[int]) -> str | None:
    """Describe waves that have ended while others of their workgroup wait at a barrier.

    Parameters
    ----------
    state : State
        The program counter of a wave that has ended is that of its end.
    ended, waiting : list of int
        Indices into the batch.

    Returns
    -------
    str or None
        None if the waiting waves read no LDS after the barrier.
    """
    after_barrier = int(state.pc[waiting[0]])
    try:
        nodes = graph(state.kernel)
    except UnsupportedInstruction:  # after the barrier: the launch will report it
        return None
    following = {pc: node.successors for pc, node in nodes.items()}
    if not any(
        nodes[pc].inst.mnemonic.startswith(_LDS_READS)
        for pc in _reached(following, {after_barrier})
    ):
        return None
    left = _branches(nodes, after_barrier - 4, {int(state.pc[wave]) for wave in ended})
    places = "\n".join(f"  {instruction_at(state, pc)}" for pc in left[-_MOST_BRANCHES:])
    waits, has = "waits" if len(waiting) == 1 else "wait", "has" if len(ended) == 1 else "have"
    branches = "the branch" if len(left) == 1 else "one of the branches"
    return (
        f"{waves_text(state, waiting)} of the workgroup {waits} at this barrier, and "
        f"{waves_text(state, ended)} {has} ended without reaching it,\n"
        f"by {branches}\n{places}\n{_REMEDY}"
    )


def _branches(nodes: Mapping[int, Node], barrier: int, ends: set[int]) -> list[int]:
    """Return the branches at which a path to the ends leaves all paths to the barrier."""
    before = predecessors(nodes)
    to_barrier, to_ends = _reached(before, {barrier}), _reached(before, ends)
    away = to_ends - to_barrier
    return sorted(
        pc
        for pc in to_barrier - {barrier}
        if len(nodes[pc].successors) > 1 and not away.isdisjoint(nodes[pc].successors)
    )


def _reached(following: Mapping[int, tuple[int, ...] | list[int]], starts: set[int]) -> set[int]:
    """Return the instructions that can be reached from `starts`, which are included."""
    seen: set[int] = set()
    left = list(starts)
    while left:
        pc = left.pop()
        if pc not in seen:
            seen.add(pc)
            left += following[pc]
    return seen
