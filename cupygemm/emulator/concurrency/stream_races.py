"""Races between streams: unordered work of different streams on the same bytes.

A kernel's accesses are compared in C (native/global_shadow.h) as they are made, with the launches
and the copies that `stream_order` finds unordered. Copies, fills and library calls are compared
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cupygemm.emulator.concurrency.stream_order import (
    INTERVAL,
    Operation,
    Rivals,
    StreamOrder,
    Stretch,
)
from cupygemm.emulator.diagnostics.checking import policy
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.waves.reports import instruction_of

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.memory.global_shadow import GlobalShadow

CHECK = "stream_races"


class StreamRace(EmulatorError):
    """A copy, a fill or a library call races with work of another stream.

    Attributes
    ----------
    kind : str
        For example ``"stream race: read after another stream's write"``.
    operation : str
        The work submitted last: ``"copy of 16 bytes"``.
    address : int
        The first address that both access.
    """

    def __init__(self, kind: str, operation: str, address: int, detail: str) -> None:
        self.kind, self.operation, self.address = kind, operation, address
        lines = [kind, f"  in {operation}", f"  address 0x{address:x}"]
        super().__init__("\n".join([*lines, *(f"  {line}" for line in detail.splitlines())]))


class _Kind(NamedTuple):
    """A kind of race, with the verbs for this access and the earlier one."""

    name: str
    doing: str
    done: str


_READ = _Kind("read after another stream's write", "reads", "wrote")
_WRITE_READ = _Kind("write after another stream's read", "writes", "read")
_WRITE_WRITE = _Kind("write after another stream's write", "writes", "wrote")


def describe_race(
    own: Operation,
    other: Operation,
    memory: Memory,
    address: int,
    size: int,
    *,
    writes: bool,
    others_write: bool,
    other_pc: int = -1,
) -> tuple[str, str]:
    """Return the kind of a race between streams, and what happened and how to repair it.

    Parameters
    ----------
    own, other : Operation
        The work that accesses the memory, and the work that did so before.
    memory : Memory
    address, size : int
        The bytes that the later work accesses.
    writes, others_write : bool
    other_pc : int
        Program counter of the earlier access if a kernel made it, else -1.
    """
    kind = _READ if not writes else _WRITE_WRITE if others_write else _WRITE_READ
    where, place = "", memory.describe(address, size)
    if other_pc >= 0 and other.kernel is not None:
        kernel, target = other.kernel
        where = f" at\n  {instruction_of(kernel, target, other_pc)}"
    detail = (
        f"{kind.doing} {size} byte{'s' * (size != 1)} in {own.queue}, {place},\n"
        f"which {other.label} in {other.queue} {kind.done}{where}\n"
        "nothing orders the two: on a GPU they run in any order, or simultaneously"
    )
    extent = memory.nearest(address)
    if extent is not None and extent.start <= address and extent.serial > other.serial:
        detail += (
            "\nthe memory was given back and used again, which orders work of the same stream only"
        )
    earlier, later = sorted((own, other), key=lambda each: each.submitted)
    first, second = earlier.queue.short_name, later.queue.short_name
    detail += (
        f"\nrecord an event in {first} after {earlier.label}, and let {second} wait for it:\n"
        "  later_stream.wait_event(earlier_stream.record())"
    )
    return f"stream race: {kind.name}", detail


def touch(order: StreamOrder, operation: Operation, memory: Memory, parts: list[Stretch]) -> None:
    """Record the accesses of a copy, a fill or a library call, and report races with other streams.

    Raises
    ------
    StreamRace
        A race is reported, and the check is an error.
    """
    operation.serial = memory.serial
    operation.stretches += parts
    for part in parts:
        if part.writes:
            order.copies.forget(part.start, part.end)
    rivals, shadow = order.rivals(operation), memory.shadow
    severity = "off" if rivals is None else policy()[CHECK]
    if rivals is None or shadow is None or severity == "off":
        return
    for part in parts:
        found = find_rival(shadow, rivals, part)
        if found is None:
            continue
        other, address, pc, others_write = found
        size = min(part.run, part.end - address)
        kind, detail = describe_race(
            operation, other, memory, address, size,
            writes=part.writes, others_write=others_write, other_pc=pc,
        )  # fmt: skip
        report_call(StreamRace(kind, operation.label, address, detail), severity)
        return


def look_at_copies(order: StreamOrder, memory: Memory) -> None:
    """Report copies from pinned memory that has changed since; see `pending_copies`."""

    def written(span: tuple[int, int], time: int) -> bool:
        shadow = memory.shadow
        if shadow is None or int(shadow.clock[0]) < time:  # the clock was set back
            return True
        times = np.array([(time + 1, int(shadow.clock[0]))], INTERVAL)
        return shadow.find_access(span, times, with_reads=False) is not None

    order.copies.look(memory, written)


def watch_launch(
    order: StreamOrder, operation: Operation, memory: Memory, kernel: tuple[Kernel, str]
) -> None:
    """Have C compare the accesses of a kernel that is about to start with those of other streams.

    Parameters
    ----------
    order : StreamOrder
    operation : Operation
    memory : Memory
    kernel : tuple of Kernel and str
        The kernel, and the name of the target.
    """
    shadow = memory.shadow
    if shadow is None:
        return
    if shadow.set_back():
        order.forget_times()
    operation.serial, operation.kernel = memory.serial, kernel
    rivals = order.rivals(operation)
    shadow.rivals = None if rivals is None or policy()[CHECK] == "off" else rivals
    operation.first = int(shadow.clock[0]) + 1


def end_launch(operation: Operation, memory: Memory) -> None:
    """Record that the kernel has ended."""
    shadow = memory.shadow
    if shadow is not None:
        shadow.rivals = None
        now = int(shadow.clock[0])
        operation.last = now if now >= operation.first else 0


def find_rival(
    shadow: GlobalShadow, rivals: Rivals, part: Stretch
) -> tuple[Operation, int, int, bool] | None:
    """Return an access with which a copy, a fill or a library call races.

    Parameters
    ----------
    shadow : GlobalShadow
    rivals : Rivals
    part : Stretch
        The bytes that it accesses.

    Returns
    -------
    tuple or None
        The other work, the address, the program counter (-1 without one), and whether it writes.
    """
    for operation, other in rivals.touched:
        if part.writes or other.writes:
            address = part.first_common(other)
            if address is not None:
                return operation, address, -1, other.writes
    if not len(rivals.intervals):
        return None
    for start in range(part.start, part.end, part.pitch):
        span = start, min(start + part.run, part.end)
        found = shadow.find_access(span, rivals.intervals, with_reads=part.writes)
        if found is not None:
            address, time, pc, writes = found
            return rivals.at(time), address, pc, writes
    return None
