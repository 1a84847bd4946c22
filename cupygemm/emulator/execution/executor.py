"""Execute one batch of workgroups: groups of waves, hazards, steps, faults.

    group of waves ─► hazards ► counts ► step ► control

`Executor` runs a batch in C (`native_loop`) and executes in Python the instructions that C cannot.
It can also run the whole batch in Python: this reference path defines what an instruction does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.code_object.lds_variables import private_array_at, variable_at
from cupygemm.emulator.definedness.uses import follow
from cupygemm.emulator.errors import Fault, KernelFault, UnsupportedInstruction
from cupygemm.emulator.execution.native_loop import (
    DONE,
    ENDLESS,
    FAULT,
    FOLLOWED,
    NEEDS_GROUP,
    NOT_DECODED,
    STEP_WORK,
    STUCK,
    UNDEFINED,
    NativeLoop,
)
from cupygemm.emulator.execution.schedule import BarrierFault
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.units.relative import indexed_forms, is_selected
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.reports import (
    argument_near,
    call_of,
    call_sites,
    host_call_near,
    quotes,
    source_line,
)
from cupygemm.emulator.waves.state import GPR_INDEX, VSKIP, Group

if TYPE_CHECKING:
    from cupygemm.emulator.execution.batch import Batch
    from cupygemm.emulator.programs.program import Program
    from cupygemm.emulator.waves.entry import Entry


class Executor:
    """Executes one batch of workgroups."""

    def __init__(self, batch: Batch, program: Program, counts: dict[int, int]) -> None:
        self.state = batch.state
        self.program = program
        self.scoreboard = batch.scoreboard
        self.scheduler = batch.scheduler
        self.loop = batch.loop
        self.counts = counts
        batch.state.findings.explain = self._explain

    def run(self) -> None:
        """Run until every wave has ended."""
        if self.loop is None:
            for _ in self.accesses():
                pass
            return
        while (event := self.loop.run()) != DONE:
            if event != FOLLOWED and self.serve(event) is None:
                break
        self.finish()

    @contextmanager
    def _explained(self, group: Group) -> Iterator[None]:
        """Add the kernel and the location to faults that a group raises."""
        state = self.state
        try:
            yield
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
            raise self._explain(fault, self._everything()) from None

    def _everything(self) -> Group:
        return Group(self.state, slice(0, self.state.num_waves), self.state.num_waves)

    # -- in C --------------------------------------------------------------------------------------

    def serve(self, event: int) -> bool | None:
        """Handle an event; return whether it ended the batch's turn, or None at the end."""
        scheduler, loop = self.scheduler, self.loop
        assert loop is not None
        self.state.findings.explain = self._explain
        if event == STUCK:
            raise self._explain(scheduler.stuck(), self._everything())
        if event == ENDLESS:
            raise self._explain(scheduler.endless(loop.struct.leader), self._everything())
        if event == NEEDS_GROUP:
            group = self._next_group()
            if group is None:
                return None
            loop.start_group(group)
            return False
        group = loop.group()
        loop.struct.work -= STEP_WORK
        with self._explained(group):
            return self._handle(loop, event, group)

    def finish(self) -> None:
        """Add the counts of the C loop."""
        loop = self.loop
        assert loop is not None
        executions = loop.executions()
        if self.counts:
            for pc, count in executions.items():
                self.counts[pc] = self.counts.get(pc, 0) + count
        else:
            self.counts.update(executions)
        if loop.recorder is not None:
            loop.recorder.finish(executions)

    def _handle(self, loop: NativeLoop, event: int, group: Group) -> bool:
        """Execute in Python what C leaves to it, for the group at which the loop stopped."""
        state, program = self.state, self.program
        if event in (FAULT, UNDEFINED):
            entry = program.entry(loop.struct.current)
            step: Any = entry.step
            state.current_pc = entry.pc
            step.finish(loop.remaining(group), loop.struct.code if event == FAULT else 0)
            machine_of(state).struct.tainted = False
            loop.resume(entry.next_pc)
            return entry.ends_turn
        if event == NOT_DECODED and state.current_pc not in program.entries:
            program.decode_block(state.current_pc)
            loop.fit()
            return False
        entry = program.entry(state.current_pc)
        if event == NOT_DECODED and loop.lacks_room(entry):
            loop.fit()
            return False
        loop.resume(self._execute(group, entry))
        program.native.carry_undefined_bits(entry)
        return entry.ends_turn

    # -- in Python ---------------------------------------------------------------------------------

    def accesses(self) -> Iterator[None]:
        """Run until every wave has ended, and yield after each turn to access device memory."""
        self.state.findings.explain = self._explain
        while (group := self._next_group()) is not None:
            pc = int(self.state.pc[group.waves][0])
            self.state.mode = int(self.state.modes[group.waves][0])
            with self._explained(group):
                yield from self._run_group(group, pc)

    def _run_group(self, group: Group, pc: int) -> Iterator[None]:
        """Run a group from `pc` until it ends, waits, splits or yields to another group."""
        state, scheduler = self.state, self.scheduler
        steps, limit = 0, scheduler.quantum
        alone = not scheduler.others
        while True:
            state.current_pc = pc
            entry = self.program.entries.get(pc) or self.program.entry(pc)
            following = self._execute(group, entry)
            if entry.ends_turn:
                yield
                state.findings.explain = self._explain  # other batches have run
            if following is None:
                return
            pc = following
            steps += 1
            if (not alone and (pc in scheduler.others or pc > scheduler.ahead)) or steps >= limit:
                state.pc[group.waves] = pc
                scheduler.yielded(steps >= limit)
                return

    def _execute(self, group: Group, entry: Entry) -> int | None:
        """Execute one instruction; return the group's next program counter, or None if it stops."""
        state, board, pc = self.state, self.scoreboard, entry.pc
        if state.mode & VSKIP and entry.is_vector:
            return entry.next_pc
        marks = marks_of(state)
        suspect_v = board.pending_vector | marks.suspect_vector
        suspect_s = board.pending_scalar | marks.suspect_scalar
        tainted = False
        # M0 may select the registers that the instruction accesses.
        may_be_indexed = entry.is_relative or state.mode & GPR_INDEX
        if may_be_indexed and (suspect_v or suspect_s) and is_selected(entry.inst, state.mode):
            for moved, waves in indexed_forms(entry.inst, group):
                board.check(waves, replace(entry, inst=moved))
            tainted = follow(marks, group, entry.inst, entry.looked_at)
        elif entry.vector_uses & suspect_v or entry.scalar_uses & suspect_s:
            board.check(group, entry)
            tainted = follow(marks, group, entry.inst, entry.looked_at)
        elif entry.looked_at and state.checks:
            follow(marks, group, entry.inst, entry.looked_at)
        self.counts[pc] = self.counts.get(pc, 0) + group.count
        if entry.counter is not None:
            state.last_memory_pc[group.waves] = pc
            board.issue(group, entry)
        target = entry.step(group)
        if tainted:
            machine_of(state).struct.tainted = False
        return self._steer(group, entry, target) if entry.control else entry.next_pc

    def _steer(self, group: Group, entry: Entry, target: Any) -> int | None:
        """Return a group's program counter after a control instruction, or None if it stops."""
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
        if entry.control == "mode":  # waves of different modes form separate groups
            return None if np.ptp(state.modes[group.waves]) else pc
        released = scheduler.arrive(group)
        if released is None:
            return None
        board.release(released)
        return pc if scheduler.whole(group, released) else None

    def _explain(self, fault: Fault, group: Group | None) -> KernelFault:
        """Return a fault with the kernel, the location and the arguments added."""
        state = self.state
        function, offset = state.kernel.code_object.locate(state.current_pc)
        try:
            text = self.program.entry(state.current_pc).inst.text
        except (Fault, UnsupportedInstruction):
            text = "(no instruction)"
        workgroup: tuple[int, ...] = ()
        wave, caller = -1, ""
        if fault.wave >= 0:
            if group is None or isinstance(fault, BarrierFault):
                index = fault.wave
            else:
                index = int(group.wave_ids[fault.wave])
            wave, caller = int(state.wave_in_group[index]), call_of(state, index)
            workgroup = tuple(int(x) for x in state.workgroup_ids[state.workgroup[index]])
        detail = fault.detail
        if function not in ("", state.kernel.name):
            detail += f"\nin function {function} {offset:+#x}"
            detail += f"\ncalled at {caller}" * bool(caller)
        if fault.is_global and fault.address is not None:
            argument = argument_near(state, fault.address)
            host_call = host_call_near(state, fault.address)
            detail += "".join(f"\n{line}" for line in (argument, host_call) if line)
        in_lds = "LDS" in fault.kind or (fault.kind == "deadlock" and not fault.is_global)
        if in_lds and fault.address is not None:
            variable = variable_at(state.kernel, fault.address)
            detail += f"\n{variable}" * bool(variable)
        if "private memory" in fault.kind and fault.address is not None:
            variable = private_array_at(state.kernel, fault.address)
            detail += f"\n{variable}" * bool(variable)
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
            call_sites=call_sites(state.kernel, state.current_pc),
            quotes=quotes(state.kernel, state.current_pc),
            lanes=fault.lanes,
            check=fault.check,
        )
