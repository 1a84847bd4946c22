"""Bank conflicts: the phases in which LDS serves the lanes of an instruction.

native/profile.c counts cycles with the masks that `phases` returns. Each phase is a mask of lanes,
and lanes conflict only within a phase. Banks are 4 bytes wide; a target has 32 or 64 of them.

Sources: for 32 banks, nod-ai's amd-shark-ai notes, Composable Kernel's documentation and the ROCm
blogs; for 64 banks, HipKittens (arXiv 2511.08083), who measured the phases of reads. The following
is assumed, since it is not documented: a b96 access has the phases of b128; with 64 banks, a phase
of a write consists of the consecutive lanes that fill the banks once; the two halves of a read2 or
write2 are served one after the other.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from ctypes import c_int64, c_void_p

import numpy as np

from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.memory.machine import c_function, machine_of, wave_list
from cupygemm.emulator.units.memory.operation import Operation
from cupygemm.emulator.waves.state import LANES, Group

_B128_READS_32_BANKS = (
    (range(4), range(20, 24)),
    (range(4, 8), range(16, 20)),
    (range(8, 12), range(28, 32)),
    (range(12, 16), range(24, 28)),
)
_B128_READS_64_BANKS = (
    (range(4), range(12, 16), range(20, 28)),
    (range(4, 12), range(16, 20), range(28, 32)),
)


@functools.cache
def phases(size: int, *, reads: bool, banks: int) -> tuple[int, ...]:
    """Return the phases of an access as 64-bit lane masks.

    Parameters
    ----------
    size : int
        Bytes per lane.
    reads : bool
        Whether the access is a read; reads and writes of 16 bytes differ.
    banks : {32, 64}

    Returns
    -------
    tuple of int
    """
    if size > 8 and reads:
        half = _B128_READS_64_BANKS if banks == 64 else _B128_READS_32_BANKS
        masks = tuple(_mask(lane for block in phase for lane in block) for phase in half)
        return masks + tuple(mask << 32 for mask in masks)
    width = 4 if size <= 4 else 8 if size <= 8 else 16
    lanes = 4 * banks // width
    return tuple(_mask(range(first, first + lanes)) for first in range(0, LANES, lanes))


def _mask(lanes: Iterable[int]) -> int:
    return sum(1 << lane for lane in lanes)


class ConflictCounter:
    """Count the conflicts in a group of a DS instruction, or of a FLAT one that reaches LDS.

    A call adds to ``State.units["lds_conflicts"]``, which maps a program counter to
    (wave-instructions, cycles, cycles lost to conflicts). If ``State.units["lds_cycles"]`` exists,
    it is replaced by the cycles of each wave of the group, if it is a DS instruction. A FLAT
    instruction counts in waves that have a lane in LDS.

    Parameters
    ----------
    operation : Operation
    target : Target
    lines : callable, optional
        Called for a FLAT instruction, to count its other accesses.

    Attributes
    ----------
    masks : uint64 (phases,)
        The lanes that LDS serves together.
    """

    def __init__(
        self, operation: Operation, target: Target, lines: Callable[[Group], None] | None = None
    ) -> None:
        self._operation = operation
        self._lines = lines
        reads = operation.name in ("load", "transpose")
        lanes = phases(operation.struct.bytes, reads=reads, banks=target.lds_banks)
        self.masks = np.array(lanes, np.uint64)
        self._function = c_function("count_conflicts", c_void_p, c_int64, c_void_p, c_void_p)

    def __call__(self, group: Group) -> None:
        """Count; call it before the instruction executes."""
        state = group.state
        if self._lines is not None:
            self._lines(group)
        ids, first, step = wave_list(group)
        totals = (c_int64 * 3)()
        each = None
        if "lds_cycles" in state.units and self._lines is None:
            each = state.units["lds_cycles"] = np.zeros(group.count, np.int32)
        self._function(
            machine_of(state).address,
            self._operation.address,
            None if ids is None else ids.ctypes.data,
            first,
            step,
            group.count,
            self.masks.ctypes.data,
            self.masks.size,
            ctypes.addressof(totals),
            None if each is None else each.ctypes.data,
        )
        if not totals[0]:
            return
        counters = state.units.setdefault("lds_conflicts", {})
        old = counters.get(state.current_pc, (0, 0, 0))
        counters[state.current_pc] = tuple(a + b for a, b in zip(old, totals, strict=True))
