"""The command processor's part of a launch: check it, write the arguments, start the waves.

The register state at a kernel's entry follows LLVM's "User Guide for AMDGPU Backend", section
"Initial Kernel Execution State", for targets with architected flat scratch and for those without
(private segment buffer, FLAT_SCRATCH set by the prologue), all with packed work-item ids.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.code_object import Kernel
from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.isa.instruction import (
    AGPR0,
    APERTURE_PRIVATE,
    APERTURE_SHARED,
    EXEC,
    FLAT_SCRATCH,
)
from cupygemm.emulator.targets import Target
from cupygemm.emulator.waves.state import LANES, SCRATCH_BASE, State, aligned_zeros, register_file
from cupygemm.emulator.waves.work_items import (
    batch_places,
    first_exec,
    packed_items,
    workgroup_ids_of,
)

if TYPE_CHECKING:
    from cupygemm.emulator.memory.allocations import Memory

_MAX_THREADS = 1024
_DYNAMIC_STACK = 16 << 10  # private bytes for kernels whose stack depth the compiler does not know
_PACKET_BYTES = 64
_BLOCK_COUNTS = tuple(f"hidden_block_count_{axis}" for axis in "xyz")
_GROUP_SIZES = tuple(f"hidden_group_size_{axis}" for axis in "xyz")
_CACHE_BYTES = 2 << 20  # L2 caches of two cores


class Dispatch:
    """One launch of a kernel.

    Parameters
    ----------
    kernel : Kernel
    grid, block : sequence of 3 int
        Workgroups, and work-items of a workgroup.
    dynamic_lds : int
        Bytes of LDS beyond the kernel's own.
    target : Target
    findings : Findings, optional
        How findings are handled; by default, each check has its own severity.

    Attributes
    ----------
    checks : bool
        Keep a shadow of LDS and of device memory, from which races show.
    sample : int64 array or None
        The workgroups that run, in launch order; None for the whole grid.
    id_registers : dict of int to int
        The scalar registers in which a wave finds its workgroup's id, by axis.
    apart : bool
        Whether no workgroup waits for another one.

    Raises
    ------
    ValueError
        The launch exceeds a limit of the target or the kernel.
    """

    def __init__(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_lds: int,
        target: Target,
        *,
        findings: Findings | None = None,
        cooperative: bool = False,
    ) -> None:
        self.kernel, self.cooperative = kernel, cooperative
        self.grid = (int(grid[0]), int(grid[1]), int(grid[2]))
        self.block = (int(block[0]), int(block[1]), int(block[2]))
        self.dynamic_lds = int(dynamic_lds)
        self.target = target
        self.findings = Findings() if findings is None else findings
        self.checks = self.findings.policy.records
        self.alignment = self.findings.policy["alignment"] != "off"
        self.sample: NDArray[np.int64] | None = None
        self.id_registers: dict[int, int] = {}
        self.apart = False
        self.threads = math.prod(self.block)
        self._check()
        self.waves_per_workgroup = -(-self.threads // LANES)
        self.num_workgroups = math.prod(self.grid)
        self.lds_bytes = kernel.lds_bytes + self.dynamic_lds
        self.scratch_bytes = kernel.scratch_bytes + (_DYNAMIC_STACK if kernel.dynamic_stack else 0)
        self.scratch_bytes = -(-self.scratch_bytes // 16) * 16
        self._packet_offset = -(-max(kernel.kernarg_size, 1) // 64) * 64
        self.kernarg_bytes = self._packet_offset + _PACKET_BYTES

    @property
    def executed(self) -> int:
        """Return the number of workgroups that run."""
        return self.num_workgroups if self.sample is None else len(self.sample)

    def _check(self) -> None:
        name, threads = self.kernel.name, self.threads
        if min(self.grid) < 1 or min(self.block) < 1:
            raise ValueError(f"{name}: grid {self.grid} and block {self.block} must be at least 1")
        limit = min(_MAX_THREADS, self.kernel.max_threads)
        if threads > limit:
            raise ValueError(
                f"{name}: block {self.block} has {threads} work-items; the kernel was compiled for "
                f"at most {limit} (see __launch_bounds__)"
            )
        lds = self.kernel.lds_bytes + self.dynamic_lds
        if self.dynamic_lds < 0 or lds > self.target.lds_bytes:
            raise ValueError(
                f"{name}: {self.kernel.lds_bytes} bytes of static LDS and {self.dynamic_lds} of "
                f"dynamic; {self.target.name} has {self.target.lds_bytes} for a workgroup"
            )

    def batch_size(self, max_waves: int) -> int:
        """Return the number of workgroups in flight together: about `max_waves` waves.

        One workgroup for each compute unit always fits: persistent kernels wait for each other. So
        does the grid of a cooperative launch.
        """
        if self.cooperative or (self.executed <= self.target.num_cus and not self.apart):
            return self.executed
        return max(1, max_waves // self.waves_per_workgroup)

    def cluster_waves(self) -> int:
        """Return the waves of as many workgroups as fit a processor's cache with their state."""
        waves = self.waves_per_workgroup
        registers = self.kernel.num_vgpr + self.kernel.num_agpr
        tracked = 5 if self.checks else 1  # bytes per byte of LDS, with the records of races
        footprint = waves * (registers + 1) * 4 * LANES + self.lds_bytes * tracked
        cache = _CACHE_BYTES // 2 if self.apart else _CACHE_BYTES
        return waves * max(2, cache // footprint)

    # -- arguments ---------------------------------------------------------------------------------

    def write_arguments(self, address: int, arguments: bytes | Sequence[bytes]) -> None:
        """Write the kernarg segment and the dispatch packet at `address`.

        Raises
        ------
        ValueError
            Arguments are missing, too many, or of the wrong size.
        """
        segment = bytearray(self.kernarg_bytes)
        explicit = self.kernel.explicit_arguments
        if isinstance(arguments, bytes | bytearray):
            segment[: len(arguments)] = arguments[: self.kernel.kernarg_size]
        else:
            if len(arguments) < len(explicit):
                raise ValueError(
                    f"{self.kernel.name} takes {len(explicit)} arguments, "
                    f"and {len(arguments)} were given"
                )
            for position, (arg, value) in enumerate(zip(explicit, arguments, strict=False)):
                if len(value) < arg.size:
                    raise ValueError(
                        f"{self.kernel.name}: argument {position} is {arg.size} bytes, "
                        f"and {len(value)} were given"
                    )
                segment[arg.offset : arg.offset + arg.size] = value[: arg.size]
        values = self._hidden_values(address)
        for arg in self.kernel.hidden_arguments:
            hidden = values.get(arg.value_kind, 0) & ((1 << 8 * arg.size) - 1)
            segment[arg.offset : arg.offset + arg.size] = hidden.to_bytes(arg.size, "little")
        segment[self._packet_offset :] = self._packet(address)
        ctypes.memmove(address, bytes(segment), len(segment))
        self._kernarg = bytes(segment)

    def _hidden_values(self, address: int) -> dict[str, int]:
        """Return the hidden arguments that are not 0.

        HIP launches whole workgroups from the origin. Host calls, printf, heap and the like are
        absent, so null.
        """
        grid, block = self.grid, self.block
        dimensions = 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1
        return {
            **dict(zip(_BLOCK_COUNTS, grid, strict=True)),
            **dict(zip(_GROUP_SIZES, block, strict=True)),
            "hidden_grid_dims": dimensions,
            "hidden_dynamic_lds_size": self.dynamic_lds,
            "hidden_multigrid_sync_arg": int(self.cooperative),
            "hidden_private_base": APERTURE_PRIVATE >> 32,
            "hidden_shared_base": APERTURE_SHARED >> 32,
            "hidden_queue_ptr": address + self._packet_offset,
        }

    def _packet(self, kernarg: int) -> bytes:
        """Return the AQL kernel dispatch packet (HSA runtime specification, section 2.9.6)."""
        total = [g * b for g, b in zip(self.grid, self.block, strict=True)]
        return struct.pack(
            "<HHHHHHIIIIIQQQQ", 2, 3, *self.block, 0, *total, self.scratch_bytes, self.lds_bytes,
            0, kernarg, 0, 0,
        )[:_PACKET_BYTES]  # fmt: skip

    # -- waves -------------------------------------------------------------------------------------

    def batch_waves(self, first: int, max_waves: int) -> int:
        """Return the waves of the batch that starts at the workgroup in launch position `first`."""
        groups = min(self.batch_size(max_waves), self.executed - first)
        return groups * self.waves_per_workgroup

    def start(
        self,
        first: int,
        max_waves: int,
        kernarg: int,
        memory: Memory,
        reuse: State | None = None,
        scalars: int | None = None,
    ) -> tuple[State, int, int]:
        """Return the state of the batch that starts at the workgroup in launch position `first`.

        Parameters
        ----------
        first, max_waves : int
        kernarg : int
            Address of the arguments.
        memory : Memory
        reuse : State, optional
            The state of an earlier batch of the same shape, whose arrays are reused.
        scalars : int, optional
            Bit mask of the scalar registers that the earlier batch may have set.

        Returns
        -------
        state : State
        vector, scalar : int
            Bit masks of the registers that the hardware initialises.
        """
        per_group = self.waves_per_workgroup
        waves = self.batch_waves(first, max_waves)
        groups = waves // per_group
        order, ids = batch_places(first, groups, *self.grid[:2])
        if self.sample is not None:
            order = self.sample[first : first + groups]
            ids = workgroup_ids_of(order, *self.grid[:2])
        descriptor = self.kernel.descriptor
        preload = descriptor.preload_length
        if reuse is not None:
            state = reuse
            state.kernel, state.memory = self.kernel, memory
            state.workgroup_ids, state.launch_order = ids, order
            state.grid, state.arguments = self.grid, self._kernarg
            state.findings = self.findings
            state.restart(scalars)
            state.pc.fill(self.kernel.entry + (256 if preload else 0))
            state.modes.fill(descriptor.mode)
            return self._start_registers(state, kernarg)
        state = State(
            kernel=self.kernel,
            target=self.target,
            memory=memory,
            vgpr=register_file(waves),
            sgpr=np.zeros((128, waves), np.uint32),
            scc=np.zeros(waves, bool),
            lds=aligned_zeros((groups, self.lds_bytes), np.uint8),
            pc=np.full(waves, self.kernel.entry + (256 if preload else 0), np.int64),
            workgroup=np.repeat(np.arange(groups, dtype=np.int32), per_group),
            wave_in_group=np.tile(np.arange(per_group, dtype=np.int32), groups),
            workgroup_ids=ids,
            launch_order=order,
            scratch=np.zeros((waves, LANES, self.scratch_bytes), np.uint8),
            modes=np.full(waves, descriptor.mode, np.uint32),
            units={},
            grid=self.grid,
            arguments=self._kernarg,
            checks=self.checks,
            alignment=self.alignment,
            findings=self.findings,
        )
        return self._start_registers(state, kernarg)

    def place(self, state: State, first: int) -> None:
        """Make a state that of the batch that starts at workgroup `first`.

        At the end of the launch, the batch may have places without a workgroup.
        """
        state.launch_order, state.workgroup_ids = batch_places(
            first, len(state.workgroup_ids), *self.grid[:2]
        )

    @property
    def batches_differ(self) -> bool:
        """Whether scalar registers other than a workgroup's ids depend on the batch."""
        return bool(self.kernel.descriptor.properties & 16)

    def _start_registers(self, state: State, kernarg: int) -> tuple[State, int, int]:
        kernel = self.kernel
        vectors = max(kernel.num_vgpr, kernel.descriptor.num_registers)
        state.used_registers = (
            min(AGPR0, vectors),
            min(AGPR0, max(kernel.num_agpr, vectors - AGPR0)),
        )
        self._start_exec(state)
        vector = self._start_vector(state)
        scalar = self._start_scalar(state, kernarg)
        return state, vector, scalar

    def _start_exec(self, state: State) -> None:
        low, high = first_exec(self.threads, self.waves_per_workgroup)
        rows = state.sgpr[EXEC : EXEC + 2].reshape(2, -1, self.waves_per_workgroup)
        rows[0], rows[1] = low, high

    def _start_vector(self, state: State) -> int:
        """Put the packed work-item ids in v0."""
        waves, enabled = self.waves_per_workgroup, self.kernel.descriptor.rsrc2 >> 11 & 3
        state.vgpr[0].reshape(-1, waves, LANES)[...] = packed_items(waves, self.block, enabled)
        return 1

    def _start_scalar(self, state: State, kernarg: int) -> int:
        """Fill user and system SGPRs; return which are initialised."""
        descriptor, target, sgpr = self.kernel.descriptor, self.target, state.sgpr
        user = self._user_words(state, kernarg)
        user += [0] * ((descriptor.rsrc2 >> 1 & 31) - len(user))
        sgpr[: len(user)] = np.array(user, np.uint32)[:, None]
        used = len(user)
        self.id_registers = {}
        for axis in range(3):
            if descriptor.rsrc2 >> (7 + axis) & 1:
                self.id_registers[axis] = used
                by_group = sgpr[used].reshape(-1, self.waves_per_workgroup)
                by_group[...] = state.workgroup_ids[:, axis : axis + 1]
                used += 1
        if descriptor.rsrc2 >> 10 & 1:
            sgpr[used] = self.waves_per_workgroup
            used += 1
        window: int | NDArray[np.uint32] = 0
        if self.scratch_bytes:
            wave = np.arange(state.num_waves, dtype=np.uint32)
            window = wave * np.uint32(LANES * self.scratch_bytes)
        # A kernel that calls functions adds the offset of its scratch to the buffer's address, even
        # if the functions need no scratch and the descriptor does not request the offset.
        wants_offset = descriptor.rsrc2 & 1 or descriptor.properties & 1
        if wants_offset and not target.architected_flat_scratch:
            sgpr[used] = window
            used += 1
        scalar = (1 << used) - 1 | 3 << EXEC
        if target.architected_flat_scratch:
            sgpr[FLAT_SCRATCH] = window
            sgpr[FLAT_SCRATCH + 1] = SCRATCH_BASE >> 32
            scalar |= 3 << FLAT_SCRATCH
        return scalar

    def _user_words(self, state: State, kernarg: int) -> list[int]:
        """Return the user SGPRs that the descriptor's properties request, in their order."""
        descriptor = self.kernel.descriptor
        packet = kernarg + self._packet_offset
        start = 4 * descriptor.preload_offset
        preloaded = self._kernarg[start : start + 4 * descriptor.preload_length]
        parts: list[tuple[int, list[int]]] = [
            # The private segment buffer is swizzled by 4 bytes over the 64 lanes.
            (1, [SCRATCH_BASE & 0xFFFFFFFF, SCRATCH_BASE >> 32 | 1 << 31, 0xFFFFFFFF, 0x00EA4000]),
            (2, _pair(packet)),
            (4, _pair(packet)),  # the queue, which is not emulated
            (8, _pair(kernarg)),
            (16, _pair(int(state.launch_order[0]))),
            (32, _pair(SCRATCH_BASE)),
            (64, [self.scratch_bytes]),
        ]
        words: list[int] = []
        for bit, values in parts:
            if descriptor.properties & bit:
                words.extend(values)
        words.extend(np.frombuffer(preloaded, np.uint32).tolist())
        return words


def _pair(value: int) -> list[int]:
    """Split a 64-bit value into two words."""
    return [value & 0xFFFFFFFF, value >> 32]
