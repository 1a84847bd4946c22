"""Run a kernel: batches of workgroups, groups of waves at one program counter, barriers, faults.

    launch ─► batches of whole workgroups ─► `Executor` ─► group of waves ─► hazards ► step ►
    counters

All waves at the lowest program counter form the next group. It runs until it meets or passes other
waves, diverges, or waits at a barrier: branches reconverge and uniform kernels run in lockstep
throughout. `order` can instead run diverged waves abreast, or the waves of a workgroup one after
another; a result that depends on their order then changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cupygemm.emulator.code_object import Kernel
from cupygemm.emulator.device_printf import buffer_of
from cupygemm.emulator.diagnostics.checking import Policy, policy
from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.errors import EmulatorError, KernelFault
from cupygemm.emulator.execution.batch import Batches
from cupygemm.emulator.execution.executor import Executor
from cupygemm.emulator.execution.following import let_follow
from cupygemm.emulator.execution.schedule import Order
from cupygemm.emulator.execution.side_by_side import run_side_by_side
from cupygemm.emulator.execution.wave_order import chosen_order
from cupygemm.emulator.liveness import Progress
from cupygemm.emulator.profiling import active
from cupygemm.emulator.programs.program import Program
from cupygemm.emulator.programs.program_store import Key, store
from cupygemm.emulator.targets import Target
from cupygemm.emulator.waves.dispatch import Dispatch

if TYPE_CHECKING:
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.profiling.kernel_profile import KernelProfile
    from cupygemm.emulator.profiling.recorder import Recorder
    from cupygemm.emulator.waves.entry import Entry


class Executed(NamedTuple):
    """The waves that executed each instruction of a kernel, by program counter."""

    waves: dict[int, int]
    instructions: dict[int, Entry]
    entry: int  # program counter of the kernel


@dataclass(frozen=True, repr=False)
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
        Wall-clock time of the emulation, not of a GPU.
    mfma : int
        MFMA instructions executed, one per wave.
    executed : Executed
        The source from which `executions` and `mnemonics` are computed on demand.
    lds_conflicts, global_lines : dict
        By byte offset from the kernel's entry, when profiling; see `units.lds` and `units.memory`.
    profile : KernelProfile or None
        The complete profile, when profiling.
    warnings : tuple of KernelFault
        The findings of checks that are warnings; see `cupygemm.emulator.checks`.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    num_waves: int
    instructions: int
    mfma: int
    seconds: float
    executed: Executed
    lds_conflicts: dict[int, Any]
    global_lines: dict[int, Any]
    profile: KernelProfile | None = None
    warnings: tuple[KernelFault, ...] = ()

    def __repr__(self) -> str:
        grid, block = ("x".join(map(str, extent)) for extent in (self.grid, self.block))
        return (
            f"LaunchStats({self.kernel}: grid {grid}, block {block}, {self.num_waves:,} waves, "
            f"{self.instructions:,} instructions, {self.mfma:,} MFMA; emulated in "
            f"{self.seconds:.3g} s)"
        )

    @cached_property
    def executions(self) -> dict[int, int]:
        """The waves that executed each instruction, by byte offset from the kernel's entry."""
        entry = self.executed.entry
        return {pc - entry: count for pc, count in self.executed.waves.items()}

    @cached_property
    def mnemonics(self) -> dict[str, int]:
        """The wave-instructions by mnemonic."""
        found: dict[str, int] = {}
        for pc, count in self.executed.waves.items():
            name = self.executed.instructions[pc].inst.mnemonic
            found[name] = found.get(name, 0) + count
        return found


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
    order: Order | None = None,
    profile: bool = False,
    sample: int | None = None,
    checks: bool | Policy | None = None,
    cooperative: bool = False,
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
        The explicit arguments: the whole segment, or one item per argument.
    memory : Memory
        Device memory; accesses outside its allocations are faults.
    target : Target
    order : {"lockstep", "abreast", "forward", "reverse"} or ("random", seed), optional
        The order in which the waves of a workgroup execute; by default the environment's
        (`wave_order`).
    profile : bool
        Also collect a `KernelProfile`: bank conflicts, cache lines, waits and more. It is slower.
    sample : int, optional
        Run at most this many workgroups of a profiled launch, and scale the profile to the grid.
    checks : bool or Policy, optional
        The checks, as a policy or as the first argument of `cupygemm.emulator.checks`, which also
        sets the default.
    cooperative : bool
        Whether all workgroups are resident together and may wait for each other.

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
    sample = sample or next((each.sample for each in reversed(active) if each.sample), None)
    findings = Findings(policy(checks).of_kernel(kernel.name))
    dispatch = Dispatch(
        kernel,
        grid,
        block,
        dynamic_lds=dynamic_lds,
        target=target,
        findings=findings,
        cooperative=cooperative,
    )
    if dispatch.checks and memory.shadow is not None:
        memory.shadow.start_launch(kernel.name, grid, block)
    # A signal handler's exception may interrupt the decoding of an instruction anywhere. So this
    # launch has its own program, which is cached only if no handler raised.
    key = Key(kernel.code_object.image, target.name, profile)
    program = store.take(key) or _program(kernel, target, profile=profile)
    program.start_launch()
    decoded = len(program.entries)
    recorder = _recorder(dispatch, target, program) if profile else None
    if recorder is not None and sample is not None and not cooperative:
        recorder.choose_sample(sample)
    counts = _Counts()
    batches = Batches(dispatch, program, memory, order or chosen_order(), recorder)
    printing = buffer_of(kernel.code_object, memory)
    kernarg = memory.malloc(
        max(dispatch.kernarg_bytes, 64), tag=f"arguments of {kernel.name}", recycle=True
    )
    memory.define(kernarg, dispatch.kernarg_bytes)
    if memory.shadow is not None:
        memory.shadow.arguments = kernarg, dispatch.kernarg_bytes
    try:
        dispatch.write_arguments(kernarg, arguments)
        _run_batches(batches, dispatch, program, kernarg, counts)
    except EmulatorError as err:
        store.give_back(key, program, grown=len(program.entries) > decoded)
        findings.finish(kernel.name, err)
        raise
    finally:
        memory.free(kernarg, recycle=True)
        if printing is not None:
            printing.flush()
    store.give_back(key, program, grown=len(program.entries) > decoded)
    _last = _statistics(kernel, dispatch, program, counts, time.perf_counter() - started)
    _last = replace(_last, warnings=tuple(findings.warnings))
    _totals[0] += _last.mfma
    _totals[1] += _last.instructions
    if recorder is not None:
        profiled = recorder.finish(counts.executed, counts.lds_conflicts, counts.global_lines)
        _last = replace(_last, profile=profiled)
        for collecting in tuple(active):
            collecting.add(profiled, kernel.code_object.elf)
    findings.finish(kernel.name)
    return _last


@dataclass
class _Counts:
    """The counts of a launch, as described in `LaunchStats`.

    `executed` is by program counter, the others by byte offset from the kernel's entry.
    """

    executed: dict[int, int] = field(default_factory=dict)
    lds_conflicts: dict[int, Any] = field(default_factory=dict)
    global_lines: dict[int, Any] = field(default_factory=dict)


def _run_batches(
    batches: Batches, dispatch: Dispatch, program: Program, kernarg: int, counts: _Counts
) -> None:
    """Execute all workgroups of a launch, and add to its counts."""
    entry = dispatch.kernel.entry
    with np.errstate(all="ignore"), Progress(dispatch.kernel.name, dispatch.executed) as progress:
        if run_side_by_side(batches, dispatch, kernarg, counts.executed, progress):
            return
        first = 0
        while first < dispatch.executed:
            batch = batches.start(first, kernarg)
            batch.scheduler.watch.progress = progress
            if batches.may_follow:
                let_follow(batch, dispatch, first, batches.max_waves)
            Executor(batch, program, counts=counts.executed).run()
            _merge(counts.lds_conflicts, batch.state.units.get("lds_conflicts", {}), entry)
            _merge(counts.global_lines, batch.state.units.get("global_lines", {}), entry)
            first += dispatch.batch_size(batches.max_waves) * (1 + batch.followed)
        batches.finish()


def _statistics(
    kernel: Kernel, dispatch: Dispatch, program: Program, counts: _Counts, seconds: float
) -> LaunchStats:
    """Return the statistics of a launch, without its profile and its warnings."""
    waves = counts.executed
    return LaunchStats(
        kernel=kernel.name,
        grid=dispatch.grid,
        block=dispatch.block,
        num_waves=dispatch.executed * dispatch.waves_per_workgroup,
        instructions=sum(waves.values()),
        mfma=sum(waves.get(pc, 0) for pc in program.matrix),
        seconds=seconds,
        executed=Executed(waves, program.entries, kernel.entry),
        lds_conflicts=counts.lds_conflicts,
        global_lines=counts.global_lines,
    )


def _program(kernel: Kernel, target: Target, *, profile: bool) -> Program:
    if not profile:
        return Program(kernel.code_object.image, target)
    from cupygemm.emulator.profiling.recorder import ProfiledProgram

    return ProfiledProgram(kernel.code_object.image, target)


def _recorder(dispatch: Dispatch, target: Target, program: Any) -> Recorder:
    from cupygemm.emulator.profiling.recorder import Recorder

    return Recorder(dispatch, target, program)


def _merge(total: dict[int, Any], part: dict[int, Any], entry: int) -> None:
    """Add a batch's counters, tuples by program counter, to the launch's."""
    for pc, values in part.items():
        old = total.get(pc - entry)
        new = (
            tuple(values) if old is None else tuple(a + b for a, b in zip(old, values, strict=True))
        )
        total[pc - entry] = new
