"""The stores of a kernel that could set what a loop waits for; those to the flag come first."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.reports import quotes, source_text, waves_text
from cupygemm.emulator.waves.state import State

_MOST = 4  # stores that are listed
_ENDS = ("s_endpgm", "s_setpc", "s_rfe")
STORES = {
    "LDS": (
        "ds_write",
        "ds_add",
        "ds_or",
        "ds_and",
        "ds_xor",
        "ds_wrxchg",
        "ds_cmpst",
        "ds_inc",
        "flat_store",
        "flat_atomic",
    ),
    "global memory": (
        "global_store",
        "global_atomic",
        "flat_store",
        "flat_atomic",
        "buffer_store",
        "buffer_atomic",
        "s_store",
        "s_atomic",
    ),
}
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_ASSIGNED = re.compile(r"^(.*?[^=!<>+\-*/%&|^])(?:[-+*/%&|^]|<<|>>)?=(?!=)")
# Names on a line that say nothing about what it accesses.
_COMMON = frozenset(
    """
    if else for while do return break continue int unsigned long float double char short bool void
    auto const volatile static threadIdx blockIdx blockDim gridDim x y z true false
    atomicAdd atomicSub atomicExch atomicCAS atomicMax atomicMin atomicOr atomicAnd atomicXor
    __hip_atomic_load __hip_atomic_store __hip_atomic_fetch_add __hip_atomic_exchange
    __ATOMIC_RELAXED __ATOMIC_ACQUIRE __ATOMIC_RELEASE __ATOMIC_ACQ_REL __ATOMIC_SEQ_CST
    __HIP_MEMORY_SCOPE_WAVEFRONT __HIP_MEMORY_SCOPE_WORKGROUP __HIP_MEMORY_SCOPE_AGENT
    __HIP_MEMORY_SCOPE_SYSTEM __threadfence __threadfence_block __syncthreads
    """.split()
)


class Setters:
    """The stores of a kernel to LDS or to global memory, and the waves that would reach them.

    Parameters
    ----------
    state : State
    space : {"LDS", "global memory"}
    spinning : dict of int to set of int
        The program counters of the loop that each wave repeats, by wave index.
    waiting : list of int
        The waves that wait at a barrier that the others do not reach.
    workgroup : int
        The workgroup of the wave that is described.
    """

    def __init__(
        self,
        state: State,
        space: str,
        spinning: dict[int, set[int]],
        waiting: list[int],
        workgroup: int,
    ) -> None:
        def members(waves: Iterable[int]) -> list[int]:
            return [w for w in waves if space != "LDS" or state.workgroup[w] == workgroup]

        self.state, self.space, self.workgroup = state, space, workgroup
        self.stores = [
            pc
            for pc in reachable(state, {state.kernel.entry})
            if (inst := decoded(state, pc)) is not None and inst.mnemonic.startswith(STORES[space])
        ]
        self.held, turning = members(waiting), members(spinning)
        self.looping = set().union(*(spinning[wave] for wave in turning))
        self.behind_barrier = reachable(state, {int(state.pc[wave]) for wave in self.held})
        self.behind_loop = reachable(state, self.looping)

    def listed(self, loads: list[int], writers: set[int]) -> list[str]:
        """List the stores that may set what some loads wait for; count the others.

        Parameters
        ----------
        loads : list of int
            The program counters of the loads.
        writers : set of int
            The program counters of the last stores to the same addresses, as far as known.
        """
        if not self.stores:
            return [f"the kernel has no store to {self.space} that could set it"]
        awaited = set().union(*(self._names(pc) for pc in loads))
        near = [  # all, without source
            pc
            for pc in self.stores
            if not awaited or pc in writers or awaited & self._names(pc, is_store=True)
        ]
        first = (self.looping, self.behind_barrier, writers, self.behind_loop)  # explain most
        candidates = sorted(
            near or self.stores, key=lambda pc: ([pc not in pcs for pcs in first], pc)
        )
        lines = [f"stores to {self.space} that could set it:"]
        lines += [self._line(pc) for pc in candidates[:_MOST]]
        left, others = len(candidates[_MOST:]), len(self.stores) - len(candidates)
        more = [f"{left} more"] * bool(left) + [f"{others} to other variables"] * bool(others)
        return [*lines, f"  and {' and '.join(more)}"] if more else lines

    def _line(self, pc: int) -> str:
        source = source_text(self.state.kernel, pc)
        where = f" ({source})" * bool(source)
        if pc in self.looping:
            who = "the loops execute it, and it changes nothing"
        elif pc in self.behind_barrier:
            who = f"{self._waiting()} would reach it after the barrier"
        elif pc in self.behind_loop:
            who = "only after the loops that wait"
        else:
            who = "no remaining wave reaches it"
        inst = decoded(self.state, pc)
        text = inst.text if inst else ""
        return f"  {pc - self.state.kernel.entry:+#x}: {text}{where}: {who}"

    def _waiting(self) -> str:
        own = [wave for wave in self.held if self.state.workgroup[wave] == self.workgroup]
        return waves_text(self.state, own) if own else "waves of other workgroups"

    def _names(self, pc: int, *, is_store: bool = False) -> set[str]:
        """Return the names in the source line of an access; for a store, that left of the ``=``.

        In an inlined function, the line is that of the call.
        """
        told = quotes(self.state.kernel, pc)
        text = _COMMENT.sub(" ", told[-1]) if told else ""
        assigned = _ASSIGNED.match(text) if is_store else None
        if assigned:
            subscripts = assigned[1].rpartition(")")[2].partition("[")[0]
            text = subscripts if _NAME.search(subscripts) else assigned[1]
        return set(_NAME.findall(text)) - _COMMON


def decoded(state: State, pc: int) -> Instruction | None:
    """Return an instruction of the kernel; None if there is none."""
    try:
        return decode(state.kernel.code_object.image, pc, state.target.name)
    except UnsupportedInstruction:
        return None


def reachable(state: State, starts: set[int]) -> set[int]:
    """Return the program counters reachable from `starts`; calls return."""
    seen: set[int] = set()
    left = [pc for pc in starts if pc >= 0]
    while left:
        pc = left.pop()
        if pc in seen:
            continue
        inst = decoded(state, pc)
        if inst is None:
            continue
        seen.add(pc)
        name = inst.mnemonic
        if name.startswith(("s_branch", "s_cbranch", "s_call")) and "simm16" in inst.fields:
            left.append(pc + inst.jump)
        if name != "s_branch" and not name.startswith(_ENDS):
            left.append(pc + inst.size)
    return seen
