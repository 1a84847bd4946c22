"""Architectural state of the waves in flight, as NumPy arrays, and the units' view of it.

A launch is executed in batches of whole workgroups; `State` holds one batch. All waves at the same
program counter form a `Group`; a unit executes one instruction for the whole group together:

    vgpr   uint32 (512, waves, 64)     rows 0..255 are VGPRs, 256..511 AGPRs
    sgpr   uint32 (128, waves)         indexed by the hardware's operand code; 106 is vcc, 126 exec
    scc    bool   (waves,)
    lds    uint8  (workgroups, lds_bytes)

Lanes that EXEC switches off keep their old contents: write through `Group.set_v`, never to `vgpr`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.isa.instruction import AGPR0, EXEC

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.targets import Target

GPR_INDEX, VSKIP = 1 << 27, 1 << 28  # bits of MODE
LANES = 64
_CACHE_LINE = 64  # bytes of a cache line of the host
_LARGE = 1 << 17  # bytes from which an array has pages of its own
_HUGE = 1 << 22  # bytes from which an array asks for huge pages, as NumPy's do
_PADDING = 17  # waves; a row of 256 waves is then no multiple of 64 KiB
# Base address that the private segment buffer and FLAT_SCRATCH carry on targets without architected
# scratch. Wave w of the batch has its window at SCRATCH_BASE + w * 64 * bytes; a MUBUF access with
# that resource reaches private byte (base + soffset - window) / 64 + voffset + offset of its own
# lane.
SCRATCH_BASE = 0x0003_0000_0000  # in a buffer resource, whose base has 48 bits
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
_LANE_BITS = np.uint64(1) << np.arange(LANES, dtype=np.uint64)


@dataclass
class State:
    """The waves of one batch of workgroups.

    Attributes
    ----------
    kernel, target, memory
        The kernel, the target and the device memory.
    vgpr, sgpr, scc, lds
        See the module's comment.
    pc : int64 (waves,)
        Byte offset into the code object's text.
    workgroup : int32 (waves,)
        Index of the wave's workgroup within the batch.
    wave_in_group : int32 (waves,)
        Index of the wave within its workgroup.
    workgroup_ids : int32 (workgroups, 3)
    launch_order : int64 (workgroups,)
        Linear number of each workgroup in the launch, x fastest.
    scratch : uint8 (waves, lanes, bytes)
        Private memory; empty when the kernel uses none.
    modes : uint32 (waves,)
        The MODE register (rounding, denormals) of each wave.
    used_registers : tuple of int
        How many VGPRs and how many AGPRs the kernel may use.
    units : dict
        Room for a unit's own per-batch data (the LDS unit keeps its shadow memory here).
    grid : tuple of int
        Workgroups of the launch.
    arguments : bytes
        The kernarg segment, for reports.
    checks : bool
        Keep the records that show races, missing waits and uses of undefined values.
    alignment : bool
        Look for plain accesses that are misaligned for their size.
    findings : Findings
        Decides whether a finding is an error, a warning or dropped.
    mode : int
        MODE of the waves of the executing group: waves that differ in it never form one group.
    current_pc : int
        Byte offset of the executing instruction, for records of accesses.
    profile : bool
        Count bank conflicts and cache lines.
    lds_issued, vm_issued : int32 (waves,)
        LDS and vector memory operations issued by each wave, the executing one included.
    lds_released, vm_released : int32 (waves,)
        How many of them had been waited for when the wave last passed a barrier.
    lds_waited, vm_waited : int32 (waves,)
        How many of them each wave has waited for.
    lds_passed, vm_passed : int32 (waves,)
        How many of them each wave had issued when it last passed a barrier.
    last_memory_pc : int64 (waves,)
        Program counter of each wave's latest memory instruction, -1 if there is none.
    barrier_epoch : int32 (workgroups,)
        Barriers that each workgroup has passed.
    """

    kernel: Kernel
    target: Target
    memory: Memory
    vgpr: U32
    sgpr: U32
    scc: Mask
    lds: NDArray[np.uint8]
    pc: NDArray[np.int64]
    workgroup: NDArray[np.int32]
    wave_in_group: NDArray[np.int32]
    workgroup_ids: NDArray[np.int32]
    launch_order: NDArray[np.int64]
    scratch: NDArray[np.uint8]
    modes: U32
    units: dict[str, Any]
    grid: tuple[int, int, int] = (1, 1, 1)
    arguments: bytes = b""
    checks: bool = True
    alignment: bool = False
    mode: int = 0
    current_pc: int = 0
    profile: bool = False
    findings: Findings = field(default_factory=Findings)

    def __post_init__(self) -> None:
        """Start every counter at zero."""
        waves, workgroups = self.pc.size, len(self.workgroup_ids)
        self._counters = np.zeros((8, waves), np.int32)
        self.lds_issued, self.vm_issued, self.lds_released, self.vm_released = self._counters[:4]
        self.lds_waited, self.vm_waited, self.lds_passed, self.vm_passed = self._counters[4:]
        self.last_memory_pc = np.full(waves, -1, np.int64)
        self.barrier_epoch = np.zeros(workgroups, np.int32)
        self.used_registers = AGPR0, AGPR0

    def restart(self, scalars: int | None = None) -> None:
        """Prepare the arrays for another batch; the caller sets registers and workgroup ids.

        Parameters
        ----------
        scalars : int, optional
            Bit mask of the scalar registers that may not be 0; None stands for all.
        """
        for array in self.zeroed():
            array.fill(0)
        self.last_memory_pc.fill(-1)
        self._clear_vectors()
        if scalars is None:
            self.sgpr.fill(0)
        else:
            self.sgpr[rows_of(scalars & (1 << 128) - 1)] = 0
        for name in ("lds_conflicts", "global_lines", "s_memtime", "s_memrealtime"):
            self.units.pop(name, None)

    def zeroed(self) -> list[NDArray[Any]]:
        """Return the arrays, other than registers, that are 0 when a batch starts."""
        return [self._counters, self.barrier_epoch, self.scc, self.lds, self.scratch]

    def _clear_vectors(self) -> None:
        """Set the vector registers to 0, except where many waves have never written them."""
        vectors, accumulators = self.used_registers
        marks = self.units.get("marks")
        if marks is None or not self.checks or self.num_waves <= LANES:
            self.vgpr[:vectors] = 0
            self.vgpr[AGPR0 : AGPR0 + accumulators] = 0
            return
        for register in (*range(vectors), *range(AGPR0, AGPR0 + accumulators)):
            if not (marks.suspect_vector >> register & 1 and marks.unwritten[register].all()):
                ctypes.memset(self.vgpr[register].ctypes.data, 0, self.vgpr[register].nbytes)

    def bytes_used(self) -> int:
        """Return roughly how many bytes the arrays of this state and its checks occupy."""
        rows = sum(self.used_registers) + 8  # flags and scalar registers take as much as 8 rows
        return rows * int(self.vgpr[0].nbytes) + 3 * (self.lds.nbytes + self.scratch.nbytes)

    @property
    def num_waves(self) -> int:
        """Return the number of waves in the batch."""
        return self.pc.size


class Group:
    """The waves that execute the next instruction together.

    Parameters
    ----------
    state : State
    waves : slice or ndarray of intp
        Indices of the waves; a slice where possible, so that register rows are views.
    count : int
        Number of waves.

    Attributes
    ----------
    mask : bool (count, 64)
        EXEC, a bool per lane.
    full : bool
        Every lane of every wave is active.
    """

    __slots__ = ("_whole", "count", "full", "mask", "state", "waves")

    def __init__(self, state: State, waves: slice | NDArray[np.intp], count: int) -> None:
        self.state = state
        self.waves = waves
        self.count = count
        self._whole = count == state.num_waves
        self.refresh_mask()

    # -- EXEC --------------------------------------------------------------------------------------

    def refresh_mask(self) -> None:
        """Recompute `mask` and `full`; call it after writing EXEC (`set_s` does)."""
        bits = self.s64(EXEC)
        self.full = bool((bits == np.uint64(0xFFFFFFFFFFFFFFFF)).all())
        self.mask = unpack_mask(bits)

    # -- vector registers --------------------------------------------------------------------------

    def v(self, index: int) -> U32:
        """Return register `index` as uint32 (count, 64); it may be a view: do not write to it."""
        return self.state.vgpr[index] if self._whole else self.state.vgpr[index, self.waves]

    def v64(self, index: int) -> U64:
        """Return the register pair at `index` as uint64 (count, 64)."""
        low, high = self.v(index), self.v(index + 1)
        return low | (high.astype(np.uint64) << np.uint64(32))

    def set_v(self, index: int, value: Any, mask: Mask | None = None) -> None:
        """Write a register in the lanes of EXEC, or in those of `mask` (bool (count, 64))."""
        row = self.state.vgpr[index]
        if mask is None and self.full:
            if self._whole:
                row[...] = value
            else:
                row[self.waves] = value
            return
        chosen = self.mask if mask is None else mask
        if self._whole:
            np.copyto(row, value, where=chosen, casting="unsafe")
        else:
            part = row[self.waves]  # a view for a slice, a copy for an index array
            np.copyto(part, value, where=chosen, casting="unsafe")
            row[self.waves] = part

    def set_v64(self, index: int, value: Any, mask: Mask | None = None) -> None:
        """Write a register pair from uint64 values."""
        value = np.asarray(value, np.uint64)
        self.set_v(index, value.astype(np.uint32), mask)
        self.set_v(index + 1, (value >> np.uint64(32)).astype(np.uint32), mask)

    # -- scalar registers --------------------------------------------------------------------------

    def s(self, index: int) -> U32:
        """Return a scalar register as uint32 (count,)."""
        return self.state.sgpr[index, self.waves]

    def s64(self, index: int) -> U64:
        """Return a scalar register pair as uint64 (count,)."""
        low, high = self.state.sgpr[index, self.waves], self.state.sgpr[index + 1, self.waves]
        return low | (high.astype(np.uint64) << np.uint64(32))

    def set_s(self, index: int, value: Any) -> None:
        """Write a scalar register from uint32 values."""
        self.state.sgpr[index, self.waves] = value
        if index >= EXEC:
            self.refresh_mask()

    def set_s64(self, index: int, value: Any) -> None:
        """Write a scalar register pair from uint64 values."""
        value = np.asarray(value, np.uint64)
        self.state.sgpr[index, self.waves] = value.astype(np.uint32)
        self.state.sgpr[index + 1, self.waves] = (value >> np.uint64(32)).astype(np.uint32)
        if index >= EXEC:
            self.refresh_mask()

    def set_lane_mask(self, index: int, mask: Mask) -> None:
        """Write a comparison result (bool (count, 64)) as bits; inactive lanes become 0."""
        self.set_s64(index, pack_mask(mask & self.mask))

    @property
    def scc(self) -> Mask:
        """SCC as bool (count,)."""
        return self.state.scc[self.waves]

    def set_scc(self, value: Any) -> None:
        """Write SCC."""
        self.state.scc[self.waves] = value

    # -- identity of the waves ---------------------------------------------------------------------

    @property
    def workgroup(self) -> NDArray[np.int32]:
        """Index into `State.lds` and `State.workgroup_ids` of each wave, (count,)."""
        return self.state.workgroup[self.waves]

    @property
    def wave_ids(self) -> NDArray[np.intp]:
        """Index into the batch of each wave, (count,)."""
        if isinstance(self.waves, slice):
            return np.arange(*self.waves.indices(self.state.num_waves), dtype=np.intp)
        return self.waves


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros that begin at a cache line, so that no vector of the host crosses two.

    Pages of large arrays cost nothing until they are accessed, and go back to the system with the
    array. Those of `numpy.zeros` may not: once a program has freed an array of 32 MB, glibc takes
    smaller ones from its heap, clears all of their pages, and keeps them.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    found: NDArray[Any]
    if size >= _LARGE:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE:
            with contextlib.suppress(OSError):  # the system has no huge pages
                pages.madvise(mmap.MADV_HUGEPAGE)
        found = np.frombuffer(pages, dtype).reshape(shape)
        return found
    room = np.zeros(size + _CACHE_LINE, np.uint8)
    start = -room.ctypes.data % _CACHE_LINE
    found = room[start : start + size].view(dtype).reshape(shape)
    return found


def register_file(waves: int) -> U32:
    """Return vector registers that hold 0, uint32 (512, waves, 64); unused pages cost nothing.

    Many waves are padded, so that the rows of a wave do not share sets of the processor's cache.
    """
    padded = waves if waves < LANES else waves + _PADDING
    rows: U32 = aligned_zeros((512, padded, LANES), np.uint32)[:, :waves]
    return rows


@functools.lru_cache(maxsize=256)
def rows_of(mask: int) -> NDArray[np.intp]:
    """Return the numbers of the bits of a mask, as an index."""
    size = -(-mask.bit_length() // 8)
    octets = np.frombuffer(mask.to_bytes(size, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little"))


def zeroed_rows(like: U32) -> U32:
    """Return zeros with the shape and the strides of vector registers."""
    rows: U32 = aligned_zeros((512, like.strides[0] // (4 * LANES), LANES), np.uint32)
    return rows[:, : like.shape[1]]


def unpack_mask(bits: U64) -> Mask:
    """Unpack uint64 (n,) lane bits into bool (n, 64)."""
    mask: Mask = (bits[:, None] & _LANE_BITS) != 0
    return mask


def pack_mask(mask: Mask) -> U64:
    """Pack bool (n, 64) into uint64 (n,) lane bits."""
    words: U64 = np.packbits(mask, axis=1, bitorder="little").view(np.uint64)[:, 0]
    return words
