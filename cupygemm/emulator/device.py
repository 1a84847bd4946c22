"""The emulated device: its memory, code, streams, events and launches.

Without a seed, work is executed when it is submitted: a call returns after its work is done.
`stream_order` records which work is unordered, so that a GPU could execute it in another order.
With a seed, `stream_deferral` executes it in such an order. An event's time is the host's time when
the work before the event was done.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cupygemm.emulator.concurrency.stream_order import Clock, Operation, StreamOrder
from cupygemm.emulator.concurrency.stream_races import end_launch, watch_launch
from cupygemm.emulator.diagnostics import source_findings
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.memory.extents import Extent
from cupygemm.emulator.memory.host_memory import OutOfMemory
from cupygemm.emulator.raw_kernels import polling, warp_idioms
from cupygemm.emulator.targets import Target
from cupygemm.emulator.undisturbed import undisturbed

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject, Kernel

__all__ = ["Device", "Event", "Extent", "LaunchError", "Memory", "OutOfMemory", "Stream"]

MAX_THREADS_PER_BLOCK = 1024
MAX_GRID = (2**31 - 1, 65536, 65536)
_VGPRS_PER_LANE = 512  # of a SIMD, VGPRs and AGPRs together
_SIMDS_PER_CU = 4
_MAX_WAVES_PER_SIMD = 8
_MAX_WORKGROUPS_PER_CU = 32


class LaunchError(EmulatorError):
    """The device refuses a launch before it starts, e.g. with too many threads or too much LDS."""


class CooperativeLaunchError(LaunchError):
    """The device cannot hold all workgroups of a cooperative launch at once."""


@dataclass(eq=False)
class Stream:
    """A stream's properties; `StreamOrder` records its work."""

    flags: int = 0
    priority: int = 0
    device: int | None = None
    """The device on which it was created; None for a default stream, which every device has."""


@dataclass(eq=False)
class Event:
    """An event, with the time of its last recording in nanoseconds, or None.

    `clock` identifies the work before that recording. If the stream was being captured, `mark` is
    the place in the capture.
    """

    flags: int = 0
    recorded: int | None = None
    clock: Clock = field(default_factory=dict)
    mark: Any = None

    def record(self, clock: Clock) -> None:
        """Record the event now, after the work that a clock identifies."""
        self.recorded, self.clock = time.perf_counter_ns(), clock

    def pass_by(self, clock: Clock) -> None:
        """Set the time of the recording with this clock, unless a later one replaced it."""
        if self.clock is clock:
            self.recorded = time.perf_counter_ns()


@dataclass(eq=False)
class FaultLog:
    """The latest fault of all devices of a process."""

    latest: EmulatorError | None = None


@dataclass(eq=False)
class Device:
    """One emulated device.

    Attributes
    ----------
    target : Target
    memory : Memory
    index : int
        The device's number in the process.
    faults : FaultLog
        Shared by all devices of the process.
    launching : threading.RLock
        Held during a launch; shared by all devices of the process.
    order : StreamOrder
        Shared by all devices of the process.
    """

    target: Target
    memory: Memory = field(default_factory=Memory)
    index: int = 0
    faults: FaultLog = field(default_factory=FaultLog)
    launching: Any = field(default_factory=threading.RLock, repr=False)
    order: StreamOrder = field(default_factory=StreamOrder, repr=False)

    @property
    def last_fault(self) -> EmulatorError | None:
        """The exception of the latest failed launch."""
        return self.faults.latest

    @last_fault.setter
    def last_fault(self, fault: EmulatorError | None) -> None:
        self.faults.latest = fault

    def load(self, data: bytes) -> CodeObject:
        """Load a code object, or the one for this target in a bundle, into device memory.

        Raises
        ------
        code_object.InvalidCodeObject
            The code object is damaged, or is for another target.
        """
        loaded: CodeObject = _code_object().load(data, self.memory, self.target.name)
        try:
            source_findings.report(loaded.elf)
        except EmulatorError:
            self.unload(loaded)
            raise
        return loaded

    def unload(self, code: CodeObject) -> None:
        """Free a code object; its kernels can no longer be launched."""
        self.memory.free(code.base)
        if code.printf is not None:
            code.printf.free()

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_lds: int,
        arguments: list[bytes],
        operation: Operation | None = None,
        *,
        cooperative: bool = False,
    ) -> Any:
        """Execute a kernel to its end.

        Parameters
        ----------
        kernel : Kernel
        grid : tuple of int
            Workgroups along x, y, z.
        block : tuple of int
            Work-items of a workgroup along x, y, z.
        dynamic_lds : int
            Bytes of LDS beyond the kernel's own.
        arguments : list of bytes
            Values of the kernel's explicit arguments.
        operation : Operation, optional
            The launch's place in a stream; without one, it does not race with other streams.
        cooperative : bool
            Whether its workgroups may wait for each other.

        Returns
        -------
        run.LaunchStats

        Raises
        ------
        LaunchError
            The device cannot run the launch.
        KernelFault
            The kernel made an error; see `KernelFault`.
        """
        self.check_launch(kernel, grid, block, dynamic_lds, cooperative=cooperative)
        run = _run()
        with self.launching:
            if operation is not None:
                watch_launch(self.order, operation, self.memory, (kernel, self.target.name))
            try:
                return run.launch(
                    kernel,
                    grid,
                    block,
                    dynamic_lds,
                    arguments,
                    self.memory,
                    self.target,
                    cooperative=cooperative,
                )
            except EmulatorError as fault:
                self.last_fault = fault
                raise
            finally:
                if operation is not None:
                    end_launch(operation, self.memory)

    def check_launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_lds: int,
        *,
        cooperative: bool = False,
    ) -> None:
        """Raise `LaunchError` if the device cannot run a launch; check the kernel's source once."""
        what = f"launch of {kernel.name} with grid {grid} and block {block}"
        threads = math.prod(block)
        if min(*grid, *block) < 1:
            raise LaunchError(f"{what}: every extent must be at least 1")
        if any(extent > limit for extent, limit in zip(grid, MAX_GRID, strict=True)):
            raise LaunchError(f"{what}: the grid can be at most {MAX_GRID}")
        if threads > kernel.max_threads:
            raise LaunchError(
                f"{what}: {threads} threads in a block, but the kernel is compiled for at most "
                f"{kernel.max_threads} (__launch_bounds__)"
            )
        lds = kernel.lds_bytes + dynamic_lds
        if lds > self.target.lds_bytes:
            raise LaunchError(
                f"{what}: {lds} bytes of LDS ({kernel.lds_bytes} static, {dynamic_lds} dynamic), "
                f"but a workgroup of {self.target.name} has {self.target.lds_bytes}"
            )
        warp_idioms.report(kernel.code_object, threads)
        polling.report(kernel.code_object)
        if not cooperative:
            return
        workgroups, fitting = math.prod(grid), self.occupancy(kernel, threads, dynamic_lds)
        most = fitting * self.target.num_cus
        if workgroups > most:
            raise CooperativeLaunchError(
                f"{kernel.name}: a cooperative launch of {workgroups:,} workgroups; the device "
                f"holds {most:,} of {threads} work-items at once, {fitting} on each compute unit. "
                "They would wait for workgroups that cannot start: a deadlock"
            )

    def occupancy(self, kernel: Kernel, threads: int, dynamic_lds: int) -> int:
        """Return how many workgroups of `threads` work-items a compute unit holds at a time.

        Computed from LDS and the registers in the kernel descriptor, with the limits of AMD's CDNA
        ISA guides: 512 registers per lane and 8 waves on each of 4 SIMDs.
        """
        registers = max(kernel.descriptor.num_registers, 1)
        waves_per_simd = min(_MAX_WAVES_PER_SIMD, _VGPRS_PER_LANE // registers)
        waves = -(-threads // 64)
        fitting = min(waves_per_simd * _SIMDS_PER_CU // waves, _MAX_WORKGROUPS_PER_CU)
        lds = kernel.lds_bytes + dynamic_lds
        if lds > 0:
            fitting = min(fitting, self.target.lds_bytes // lds)
        return fitting


@functools.cache
def _run() -> ModuleType:
    """Return the module `run` after importing and building everything that it needs."""

    def prepare() -> ModuleType:
        from cupygemm.emulator import native, run
        from cupygemm.emulator.isa.operands import read_tables

        native.library()
        read_tables()
        return run

    return undisturbed(prepare)


@functools.cache
def _code_object() -> ModuleType:
    def prepare() -> ModuleType:
        from cupygemm.emulator import code_object

        return code_object

    return undisturbed(prepare)
