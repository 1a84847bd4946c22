"""Run a kernel: batches of workgroups, groups of waves at one program counter, barriers, faults.

    launch ─► batches of whole workgroups ─► `Executor` ─► group of waves ─► hazards ► step ►
    counters

All waves at the lowest program counter form the next group and run on until they meet others, pass
them, diverge, or wait at a barrier: branches reconverge and uniform kernels run in lockstep
throughout. `order` runs the waves of a workgroup one after another instead, so that a result that
depends on their order shows as different bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.checking import checking
from cupygemm.emulator.code_object import Kernel
from cupygemm.emulator.definedness.uses import follow
from cupygemm.emulator.dispatch import Dispatch
from cupygemm.emulator.errors import Fault, KernelFault, UnsupportedInstruction
from cupygemm.emulator.marks import marks_of
from cupygemm.emulator.profiling import active
from cupygemm.emulator.program import Entry, Program
from cupygemm.emulator.reports import argument_near, host_call_near, source_line
from cupygemm.emulator.schedule import BarrierFault, Order, Scheduler
from cupygemm.emulator.scoreboard import NoScoreboard, Scoreboard
from cupygemm.emulator.state import VSKIP, Group, State
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.machine import machine_of

if TYPE_CHECKING:
    from cupygemm.emulator.allocations import Memory
    from cupygemm.emulator.profiling.kernel_profile import KernelProfile
    from cupygemm.emulator.profiling.recorder import Recorder

BATCH_WAVES = 1024  # waves in flight together; bounds the register file's memory


@dataclass(frozen=True)
class LaunchStats:
    """The statistics of a launch: *emulated* figures, exact counts of executed instructions.

    Attributes
    ----------
    kernel : str
    grid, block : tuple of int
    num_waves : int
    instructions : int
        Wave-instructions executed.
    seconds : float
        Wall-clock time of the emulation, which says nothing about a GPU.
    executions : dict of int to int
        Waves that executed the instruction, by byte offset from the kernel's entry.
    mnemonics : dict of str to int
        Wave-instructions by mnemonic.
    lds_conflicts, global_lines : dict
        By byte offset from the kernel's entry, when profiling; see `units.lds` and `units.memory`.
    profile : KernelProfile or None
        The complete profile, when profiling.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    num_waves: int
    instructions: int
    seconds: float
    executions: dict[int, int]
    mnemonics: dict[str, int]
    lds_conflicts: dict[int, Any]
    global_lines: dict[int, Any]
    profile: KernelProfile | None = None

    @property
    def mfma(self) -> int:
        """Return the MFMA instructions executed, one per wave."""
        return sum(
            n for name, n in self.mnemonics.items() if name.startswith(("v_mfma", "v_smfmac"))
        )


_last: LaunchStats | None = None
_totals = [0, 0]  # MFMA, instructions


def launch_totals() -> tuple[int, int]:
    """Return the MFMA and the instructions that all launches of this process have executed."""
    return _totals[0], _totals[1]


def last_launch() -> LaunchStats | None:
    """Return the statistics of the latest launch in this process.

    Returns
    -------
    LaunchStats or None
        None before the first successful launch.
    """
    return _last


def launch(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    dynamic_lds: int,
    arguments: bytes | Sequence[bytes],
    memory: Memory,
    target: Target,
    *,
    order: Order = "lockstep",
    profile: bool = False,
    checks: bool | None = None,
) -> LaunchStats:
    """Execute a kernel's machine code.

    Parameters
    ----------
    kernel : Kernel
    grid, block : sequence of 3 int
        Workgroups, and work-items of a workgroup.
    dynamic_lds : int
        Bytes of LDS beyond the kernel's own.
    arguments : bytes or sequence of bytes
        The explicit arguments: the whole segment, or one item for each.
    memory : Memory
        Device memory; accesses outside its allocations are faults.
    target : Target
    order : {"lockstep", "forward", "reverse"} or ("random", seed)
        How the waves of a workgroup take turns.
    profile : bool
        Also collect a `KernelProfile`: bank conflicts, cache lines, waits and more. It is slower.
    checks : bool, optional
        Report races, missing waits and uses of values that were never written. The default is what
        `cupygemm.emulator.checks` has set.

    Returns
    -------
    LaunchStats

    Raises
    ------
    KernelFault
        The kernel made an error; see `KernelFault`.
    UnsupportedInstruction
        The kernel holds an instruction that the target or the emulator does not have.
    ValueError
        The launch has too many work-items, too much LDS or missing arguments.
    """
    global _last  # noqa: PLW0603  # what last_launch returns
    started = time.perf_counter()
    profile = profile or bool(active)
    checks = checking() if checks is None else checks
    dispatch = Dispatch(kernel, grid, block, dynamic_lds=dynamic_lds, target=target, checks=checks)
    if checks and memory.shadow is not None:
        memory.shadow.start_launch()
    programs = kernel.code_object.programs
    program = programs.setdefault(target.name, Program(kernel.code_object.image, target))
    recorder = _recorder(dispatch, target) if profile else None
    if recorder is not None:
        program = recorder.program
    counts: dict[int, int] = {}
    conflicts: dict[int, Any] = {}
    lines: dict[int, Any] = {}
    kernarg = memory.malloc(
        max(dispatch.kernarg_bytes, 64), tag=f"arguments of {kernel.name}", recycle=True
    )
    memory.define(kernarg, dispatch.kernarg_bytes)
    try:
        dispatch.write_arguments(kernarg, arguments)
        with np.errstate(all="ignore"):
            for first in range(0, dispatch.num_workgroups, dispatch.batch_size(BATCH_WAVES)):
                state, vector, scalar = dispatch.start(first, BATCH_WAVES, kernarg, memory)
                scoreboard: Scoreboard
                if recorder is not None:
                    scoreboard = recorder.start_batch(state, vector, scalar)
                elif checks:
                    scoreboard = Scoreboard(state, vector, scalar)
                else:
                    scoreboard = NoScoreboard(state)
                scheduler = Scheduler(state, order)
                Executor(state, program, scoreboard, scheduler, counts=counts).run()
                _merge(conflicts, state.units.get("lds_conflicts", {}), kernel.entry)
                _merge(lines, state.units.get("global_lines", {}), kernel.entry)
    finally:
        memory.free(kernarg, recycle=True)
    mnemonics: dict[str, int] = {}
    for pc, count in counts.items():
        name = program.entries[pc].inst.mnemonic
        mnemonics[name] = mnemonics.get(name, 0) + count
    _last = LaunchStats(
        kernel=kernel.name,
        grid=dispatch.grid,
        block=dispatch.block,
        num_waves=dispatch.num_workgroups * dispatch.waves_per_workgroup,
        instructions=sum(counts.values()),
        seconds=time.perf_counter() - started,
        executions={pc - kernel.entry: count for pc, count in counts.items()},
        mnemonics=mnemonics,
        lds_conflicts=conflicts,
        global_lines=lines,
    )
    _totals[0] += _last.mfma
    _totals[1] += _last.instructions
    if recorder is not None:
        profiled = recorder.finish(counts, conflicts, lines)
        _last = replace(_last, profile=profiled)
        for collecting in tuple(active):
            collecting.add(profiled)
    return _last


def _recorder(dispatch: Dispatch, target: Target) -> Recorder:
    from cupygemm.emulator.profiling.recorder import Recorder

    return Recorder(dispatch, target)


def _merge(total: dict[int, Any], part: dict[int, Any], entry: int) -> None:
    """Add a batch's counters, tuples by program counter, to the launch's."""
    for pc, values in part.items():
        old = total.get(pc - entry)
        new = (
            tuple(values) if old is None else tuple(a + b for a, b in zip(old, values, strict=True))
        )
        total[pc - entry] = new


class Executor:
    """Executes one batch of workgroups."""

    def __init__(
        self,
        state: State,
        program: Program,
        scoreboard: Scoreboard,
        scheduler: Scheduler,
        counts: dict[int, int],
    ) -> None:
        self.state = state
        self.program = program
        self.scoreboard = state.units["scoreboard"] = scoreboard
        self.scheduler = scheduler
        self.counts = counts

    def run(self) -> None:
        """Run until every wave has ended."""
        state = self.state
        while (group := self._next_group()) is not None:
            pc = int(state.pc[group.waves][0])
            state.mode = int(state.modes[group.waves][0])
            try:
                self._run_group(group, pc)
            except Fault as fault:
                raise self._explain(fault, group) from None
            except UnsupportedInstruction as err:
                function, offset = state.kernel.code_object.locate(state.current_pc)
                raise UnsupportedInstruction(
                    f"{err}\n  in kernel {state.kernel.name}, {function} {offset:+#x}"
                ) from err.__cause__

    def _next_group(self) -> Group | None:
        try:
            return self.scheduler.next_group()
        except Fault as fault:
            waves = slice(0, self.state.num_waves)
            raise self._explain(fault, Group(self.state, waves, self.state.num_waves)) from None

    def _run_group(self, group: Group, pc: int) -> None:
        """Run a group from `pc` until it ends, waits, splits or yields to another group."""
        state, board, counts = self.state, self.scoreboard, self.counts
        entries, scheduler, marks = self.program.entries, self.scheduler, marks_of(state)
        steps, limit = 0, scheduler.quantum
        count, alone = group.count, not scheduler.others
        skips = bool(state.mode & VSKIP)
        while True:
            state.current_pc = pc
            entry = entries.get(pc) or self.program.entry(pc)
            inst = entry.inst
            if skips and entry.is_vector:
                pc = entry.next_pc
                if not alone and (pc in scheduler.others or pc > scheduler.ahead):
                    state.pc[group.waves] = pc
                    return
                continue
            suspect_v = board.pending_vector | marks.suspect_vector
            suspect_s = board.pending_scalar | marks.suspect_scalar
            tainted = False
            if entry.vector_uses & suspect_v or entry.scalar_uses & suspect_s:
                board.check(group, inst, entry.counter)
                tainted = follow(marks, group, inst)
            counts[pc] = counts.get(pc, 0) + count
            if entry.counter is not None:
                state.last_memory_pc[group.waves] = pc
                board.issue(group, inst, entry.counter, pc)
            target = entry.step(group)
            if tainted:
                machine_of(state).struct.tainted = False
            pc = entry.next_pc
            if entry.control:
                following = self._steer(group, entry, target)
                if following is None:
                    return
                pc, skips = following, bool(state.mode & VSKIP)
            steps += 1
            if (not alone and (pc in scheduler.others or pc > scheduler.ahead)) or steps >= limit:
                state.pc[group.waves] = pc
                scheduler.yielded(steps >= limit)
                return

    def _steer(self, group: Group, entry: Entry, target: Any) -> int | None:
        """Return where a group goes on after a control instruction, or None if it does not."""
        state, board, scheduler = self.state, self.scoreboard, self.scheduler
        pc = entry.next_pc
        if entry.control == "wait":
            board.wait(group, entry.inst.fields["simm16"])
            return pc
        if entry.control == "branch":
            if isinstance(target, np.ndarray):
                if target.size > 1 and np.ptp(target):
                    state.pc[group.waves] = target
                    return None
                target = int(target.flat[0])
            return int(target)
        if entry.control == "end":
            released = scheduler.end(group)
            if released is not None:
                board.release(released)
            return None
        state.pc[group.waves] = pc
        if entry.control == "mode":  # waves of different modes run apart
            return None if np.ptp(state.modes[group.waves]) else pc
        released = scheduler.arrive(group)
        if released is None:
            return None
        board.release(released)
        return pc if scheduler.whole(group, released) else None

    def _explain(self, fault: Fault, group: Group) -> KernelFault:
        """Return a fault with the kernel, the place and the arguments, which its unit lacks."""
        state = self.state
        function, offset = state.kernel.code_object.locate(state.current_pc)
        try:
            text = self.program.entry(state.current_pc).inst.text
        except (Fault, UnsupportedInstruction):
            text = "(no instruction)"
        workgroup: tuple[int, ...] = ()
        wave = -1
        if fault.wave >= 0:
            in_batch = isinstance(fault, BarrierFault)
            index = fault.wave if in_batch else int(group.wave_ids[fault.wave])
            wave = int(state.wave_in_group[index])
            workgroup = tuple(int(x) for x in state.workgroup_ids[state.workgroup[index]])
        detail = fault.detail
        if function not in ("", state.kernel.name):
            detail += f"\nin function {function} {offset:+#x}"
        if fault.is_global and fault.address is not None:
            argument = argument_near(state, fault.address)
            host_call = host_call_near(state, fault.address)
            detail += "".join(f"\n{line}" for line in (argument, host_call) if line)
        return KernelFault(
            kernel=state.kernel.name,
            workgroup=workgroup,
            wave=wave,
            lane=fault.lane,
            pc=state.current_pc - state.kernel.entry,
            instruction=text,
            kind=fault.kind,
            detail=detail,
            address=fault.address,
            source=source_line(state.kernel, state.current_pc),
            lanes=fault.lanes,
        )
