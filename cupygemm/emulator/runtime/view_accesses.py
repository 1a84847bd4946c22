"""Find accesses of a kernel outside the view that it was given, but inside the view's array.

A kernel that receives the address of ``x[1]`` and runs past its last element accesses ``x[2]``.
That is inside an allocation, so it is not an out-of-bounds fault. The accesses of a launch are
recorded (`global_shadow`); when it has ended, the records around the views are searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.concurrency.stream_order import INTERVAL
from cupygemm.emulator.raw_kernels.argument_views import CHECK
from cupygemm.emulator.runtime.raw_arguments import reach
from cupygemm.emulator.waves.reports import instruction_of

if TYPE_CHECKING:
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.runtime.raw_arguments import RawLaunch

_SEARCHED = 1 << 20  # bytes on each side of a view
_LEAST_ADDRESS = 1 << 32


@dataclass(frozen=True)
class _Part:
    """An argument that points into an allocation.

    Attributes
    ----------
    position : int
        The position of the argument.
    shape : tuple of int
    start, end : int
        The address of the first element, and the end of the last.
    extent : tuple of (int, int)
        The start and end of the allocation.
    """

    position: int
    shape: tuple[int, ...]
    start: int
    end: int
    extent: tuple[int, int]


def parts(launch: RawLaunch) -> list[list[_Part]]:
    """Return the views among a launch's arguments, grouped by allocation."""
    return _parts(launch.arguments, launch.array, launch.memory)


def findings(launch: RawLaunch, found: Sequence[list[_Part]]) -> Iterator[str]:
    """Yield the accesses of an ended launch outside the views of each allocation."""
    shadow = launch.shadow
    times = np.array([(shadow.launch_start, int(shadow.clock[0]))], INTERVAL)
    for views in found:
        for span in _gaps(views):
            access = shadow.find_access(span, times, with_reads=True)
            if access is not None:
                address, _, pc, writes = access
                yield _text(launch, views, address, pc, writes=writes)
                break


def _parts(arguments: Sequence[Any], array: Any, memory: Memory) -> list[list[_Part]]:
    """Return the views grouped by allocation, if only arrays point into it."""
    if all(value.base is None for value in arguments if isinstance(value, array)):
        return []  # whole allocations
    found: dict[tuple[int, int], list[_Part]] = {}
    unknown: set[tuple[int, int] | None] = set()
    for position, value in enumerate(arguments):
        if isinstance(value, array):
            if value.size:
                start, end = reach(value)
                extent = memory.range_of(start)
                if extent is not None:
                    part = _Part(position, value.shape, start, end, extent)
                    found.setdefault(extent, []).append(part)
        elif isinstance(value, int | np.integer):
            if int(value) >= _LEAST_ADDRESS:
                unknown.add(memory.range_of(int(value)))
        elif value is not None and not isinstance(value, float | complex | np.number | np.bool_):
            return []  # a structure may contain any pointers
    return [parts for extent, parts in found.items() if extent not in unknown]


def _text(launch: RawLaunch, parts: list[_Part], address: int, pc: int, *, writes: bool) -> str:
    kernel = launch.kernel
    part = min(parts, key=lambda each: max(each.start - address, address - each.end))
    explicit = kernel.explicit_arguments
    name = f"argument {part.position}"
    if part.position < len(explicit):
        name = explicit[part.position].label(part.position)
    past = address >= part.end
    distance = address - part.end if past else part.start - address
    where = instruction_of(kernel, launch.target, pc).replace("\n", "\n  ")
    return (
        f"kernel {kernel.name} goes beyond a view that it was given, inside the view's array\n"
        f"  {name}: an array of shape {part.shape}, which is a part of another\n"
        f"  {'writes' if writes else 'reads'} {distance} bytes "
        f"{'past its end' if past else 'before its start'}, by\n"
        f"    {where}\n"
        f"  check: {CHECK}"
    )


def _gaps(parts: list[_Part]) -> Iterator[tuple[int, int]]:
    """Yield the searched ranges of an allocation outside the views."""
    (start, end), at = parts[0].extent, parts[0].extent[0]
    low = max(start, min(each.start for each in parts) - _SEARCHED)
    high = min(end, max(each.end for each in parts) + _SEARCHED)
    for each in sorted(parts, key=lambda each: each.start):
        if each.start > at:
            yield max(at, low), each.start
        at = max(at, each.end)
    if at < high:
        yield at, high
