"""The interface of the memory units to C: a batch's arrays and an instruction's operands.

`Machine` mirrors `struct machine` of native/machine.h, field for field, and `Operation` mirrors
`struct operation` of native/operation.h. A machine is created once per batch and kept in
``State.units["machine"]``. It points into the state's arrays, which are updated in place and never
replaced. It also holds the shadow memory of LDS, which records the last accesses to each 16 bytes;
the granules become 8 bytes to 1 when the kernel first makes a narrower or misaligned access.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_uint32, c_void_p
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.isa.instruction import APERTURE_PRIVATE, APERTURE_SHARED
from cupygemm.emulator.native import library
from cupygemm.emulator.units.lds.partial_barriers import exec_of, fault_of, forget, is_watched
from cupygemm.emulator.units.lds.polling import counts_in_lds, polls_of
from cupygemm.emulator.units.lds.shared_arrays import CHECK as SHARED_ARRAYS
from cupygemm.emulator.units.lds.shared_arrays import tables_of
from cupygemm.emulator.units.memory.fault_codes import FaultCode, dropped_codes
from cupygemm.emulator.units.memory.faults import memory_fault
from cupygemm.emulator.units.memory.invalidations import CHECK as INVALIDATIONS
from cupygemm.emulator.units.memory.operation import Operation
from cupygemm.emulator.units.memory.write_backs import CHECK as WRITE_BACKS
from cupygemm.emulator.units.memory.write_backs import may_communicate, without_write_back
from cupygemm.emulator.units.native.form import address_of
from cupygemm.emulator.units.structures import MachineStruct, PointedArrays
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.state import SCRATCH_BASE, Group, State, aligned_zeros

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.errors import Fault

MAX_WAVES = 16  # per workgroup
FLAGS = 32  # places in LDS that may be flags, of a workgroup
STATES = 8  # latest values of a flag, with what each orders
HISTORY = 256  # operations per wave whose program counters a report can still name
RELEASES = 16  # release operations that are remembered per wave
TOGETHER = 64  # granules of LDS with one record, at most
COARSEST = 4  # log2 of the bytes in the largest granules of LDS
PENDING_LOADS = 64  # loads from LDS that are not yet recorded, for each wave
RECORD = np.dtype([("write", "u8"), ("read", "u8")])  # struct record
LDS_LOAD = np.dtype("V152")  # struct lds_load
_STATE_DWORDS = 4 + 2 * MAX_WAVES  # of struct flag_state
_FLAGS_DWORDS = 2 + 2 * MAX_WAVES**2 + FLAGS * (4 + STATES * _STATE_DWORDS)  # of lds_flags
# log2 of the granules' size that each kernel has needed so far
_granules: WeakKeyDictionary[Kernel, int] = WeakKeyDictionary()


_STATE_ARRAYS = """
vgpr sgpr scc lds scratch workgroup wave_in_group
lds_issued lds_released lds_waited vm_issued vm_released vm_waited barrier_epoch
"""


_RECORDS = """
shadow blocks pending settled flags acquired releases skipped written_back invalidated
""".split()


class Machine(PointedArrays):
    """The arrays of one batch, as C reads them."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self.struct = MachineStruct(
            row_dwords=state.vgpr.strides[0] // 4,
            num_waves=state.num_waves,
            lds_bytes=state.lds.shape[1],
            scratch_bytes=state.scratch.shape[2],
            scratch_base=SCRATCH_BASE,
            shared_aperture=APERTURE_SHARED,
            private_aperture=APERTURE_PRIVATE,
            waves_per_group=state.num_waves // max(len(state.lds), 1),
            bank_shift=state.target.lds_banks.bit_length() - 1,
            strict_alignment=state.alignment,
            ignored=dropped_codes(state.findings.policy),
        )
        self.dropped = self.struct.ignored
        self.address = ctypes.addressof(self.struct)
        for name in _STATE_ARRAYS.split():
            self._point(name, getattr(state, name))
        self.vgpr = state.vgpr
        wave_ids = np.zeros((len(state.lds), MAX_WAVES), np.int32)
        wave_ids[state.workgroup, state.wave_in_group] = np.arange(state.num_waves)
        self._point("wave_ids", wave_ids)
        for name in ("lds_history", "vm_history"):
            self._point(name, np.zeros((HISTORY, state.num_waves, 2), np.uint32))
        self._point("launched", exec_of(state))
        self._point("skipped", np.zeros(state.num_waves, np.uint64))
        self._point("skipped_at", np.zeros(state.num_waves, np.int64))
        self._watch_barriers(state)
        self._watch_variables(state)
        self._set_ranges(state)
        if state.checks:
            self._fit_shadow(state)
            self._watch_flags(state)
            for name, array in marks_of(state).arrays().items():
                self._point(name, array)
            self._watch_global_memory(state)

    def _set_ranges(self, state: State) -> None:
        """Allow C to access the current allocations."""
        starts, ends = state.memory.ranges()
        if self.arrays.get("starts") is not starts or self.arrays.get("ends") is not ends:
            self._point("starts", np.ascontiguousarray(starts, np.uint64))
            self._point("ends", np.ascontiguousarray(ends, np.uint64))
            self.struct.num_ranges = len(starts)

    def _watch_barriers(self, state: State) -> None:
        """Have C look for lanes that skip barriers."""
        self.arrays["launched"][:] = exec_of(state)
        self._point("skipped", self.arrays["skipped"])
        self.arrays["skipped"].fill(0)
        self.struct.num_skipped = 0
        if not is_watched(state):
            self.struct.skipped = None

    def _watch_variables(self, state: State) -> None:
        """Have C look for accesses outside the variable in LDS that the source names."""
        self.struct.num_named = 0
        if state.lds.size and state.findings.policy[SHARED_ARRAYS] != "off":
            named, extents = tables_of(state.kernel)
            self._point("named", named)
            self._point("variables", extents)
            self.struct.num_named, self.struct.num_variables = len(named), len(extents)

    def restart(self, state: State) -> None:
        """Prepare the arrays for another batch of the same shape."""
        self._set_ranges(state)
        self._watch_barriers(state)
        self._watch_variables(state)
        self.struct.tainted = self.struct.num_undefined = 0
        self.dropped = self.struct.ignored = dropped_codes(state.findings.policy)
        if not state.checks:
            return
        if state.lds.size:
            self._fit_shadow(state)
        if state.kernel is not self.kernel:
            self._watch_flags(state)
        self._watch_stores(state)
        for array in self.zeroed():
            array.fill(0)
        shadow = getattr(state.memory, "shadow", None)
        if shadow is not None:
            self._start_shadow(state, shadow)

    def _watch_flags(self, state: State) -> None:
        """Have C track the flags in LDS for which loops of the kernel wait."""
        self.kernel = state.kernel
        for name in ("polls", "flags", "reads"):
            self.arrays.pop(name, None)
            setattr(self.struct, name, None)
        self.struct.num_polls = 0
        polls = polls_of(state.kernel) if state.lds.size else {}
        self.struct.lds_orders = bool(polls) or counts_in_lds(state.kernel)
        if polls:
            self._point("polls", np.array(list(polls.items()), np.int64))
            self._point("flags", np.zeros((len(state.lds), _FLAGS_DWORDS), np.int32))
            self.struct.num_polls = len(polls)
            self._note_reads()

    def _note_reads(self) -> None:
        """Have C record the last read of each wave, as flags order waves one by one."""
        shape = *self.arrays["shadow"].shape, self.struct.waves_per_group
        reads = self.arrays.get("reads")
        if reads is None or reads.shape != shape:
            self._point("reads", np.zeros(shape, np.int32))

    def zeroed(self) -> list[NDArray[Any]]:
        """Return the records of accesses, which are 0 when a batch starts."""
        found = [self.arrays[name] for name in _RECORDS if name in self.arrays]
        return [array.view(np.uint64) if array.dtype == RECORD else array for array in found]

    def _start_shadow(self, state: State, shadow: Any) -> None:
        self._point("clock", shadow.clock)
        self.struct.global_shadow, self.struct.global_lines = shadow.address, shadow.lines
        self.struct.defined = shadow.defined
        self.struct.global_base, self.struct.global_end = shadow.base, shadow.end
        self.struct.arguments, self.struct.arguments_bytes = shadow.arguments
        self.struct.first_wave = int(state.launch_order[0]) * self.struct.waves_per_group
        self.struct.launch_start = shadow.launch_start
        rivals = shadow.rivals
        self.struct.num_rivals = self.struct.num_stretches = 0
        if rivals is not None:
            self._point("rivals", rivals.intervals)
            self._point("stretches", rivals.stretches)
            self.struct.num_rivals = len(rivals.intervals)
            self.struct.num_stretches = len(rivals.stretches)

    def _watch_global_memory(self, state: State) -> None:
        """Have C detect races in global memory, if the launch has a shadow of that memory."""
        shadow = getattr(state.memory, "shadow", None)
        if shadow is None:
            return
        groups = len(state.lds)
        self._point("vm_passed", state.vm_passed)
        self._point("acquired", np.zeros(groups, np.uint32))
        self._point("releases", np.zeros((state.num_waves, RELEASES, 2), np.uint32))
        self.struct.num_groups = groups
        self._watch_stores(state)
        self._start_shadow(state, shadow)

    def _watch_stores(self, state: State) -> None:
        """Have C look for stores that other XCDs may not see."""
        gx, gy, gz = state.grid
        policy, several = state.findings.policy, gx * gy * gz > 1
        self.struct.communicates = may_communicate(state.kernel)
        self.struct.invalidated = None
        if several and self.struct.communicates and policy[INVALIDATIONS] != "off":
            times = self.arrays.get("invalidated", np.zeros(len(state.lds), np.uint32))
            self._point("invalidated", times)
        watched = several and policy[WRITE_BACKS] != "off"
        without = without_write_back(state.kernel, state.target) if watched else None
        self.struct.num_xcds = 1 if without is None else state.target.num_xcds
        if without is None:
            return
        self._point("without_write_back", without)
        self.struct.num_without_write_back = len(without)
        self._point("pcs", state.pc)
        if "written_back" not in self.arrays:
            self._point("written_back", np.zeros(state.num_waves, np.int32))

    def _point(self, name: str, array: NDArray[Any]) -> None:
        """Let a member point to an array, whose elements must be adjacent as C expects them."""
        if not (array[0] if name in ("vgpr", "undefined") else array).flags.c_contiguous:
            raise ValueError(f"State.{name} is not C-contiguous")
        super()._point(name, array)

    def _set_shadow(self, records: NDArray[Any], shift: int) -> None:
        blocks = -(-records.shape[1] // TOGETHER)
        self._point("shadow", records)
        self._point("blocks", np.zeros((len(records), blocks, 4), np.uint64))
        self._point("pending", np.zeros((len(records), 4), np.uint32))
        self._point("settled", np.zeros((len(records), blocks), np.uint8))
        if "loads" not in self.arrays:
            self._point("loads", np.empty((self.struct.num_waves, PENDING_LOADS), LDS_LOAD))
        self.struct.shadow_stride, self.struct.shadow_shift = records.shape[1], shift

    def _fit_shadow(self, state: State) -> None:
        """Set the size of the LDS granules to what the kernel has needed so far."""
        shift = _granules.get(state.kernel, COARSEST)
        shape = len(state.lds), -(-state.lds.shape[1] >> COARSEST) << (COARSEST - shift)
        shadow = self.arrays.get("shadow")
        if shadow is None or shadow.shape != shape:
            self._set_shadow(aligned_zeros(shape, RECORD), shift)
            if "flags" in self.arrays:
                self._note_reads()

    def lds_records(self) -> NDArray[Any]:
        """Return the records of LDS, all up to date: (workgroups, granules)."""
        library().spread_lds_blocks(c_void_p(self.address))
        return self.arrays["shadow"]

    def refine_shadow(self, shift: int) -> None:
        """Divide the granules of the LDS shadow into ``2**shift`` bytes, repeating the records.

        Later launches of the kernel start with granules of this size.
        """
        times = 1 << (self.struct.shadow_shift - shift)
        coarse = self.lds_records()
        records = aligned_zeros((len(coarse), coarse.shape[1] * times), RECORD)
        records[:] = np.repeat(coarse, times, axis=1)
        self._set_shadow(records, shift)
        if "reads" in self.arrays:
            self._point("reads", np.repeat(self.arrays["reads"], times, axis=1))
        _granules[self.state.kernel] = shift


def machine_of(state: State) -> Machine:
    """Return the machine of a batch, which is created on first use."""
    machine: Machine | None = state.units.get("machine")
    if machine is None or machine.vgpr is not state.vgpr:
        machine = state.units["machine"] = Machine(state)
    return machine


class NativeStep:
    """A step that applies a C function to an operation.

    Parameters
    ----------
    function : str
        ``vector_memory``, ``scalar_memory`` or ``lds_instruction``.
    operation : Operation
    profiler : callable, optional
        Called with the group before the instruction executes, if the launch is profiled.
    """

    __slots__ = ("function", "name", "operation", "profiler")

    def __init__(
        self, function: str, operation: Operation, profiler: Callable[[Group], None] | None = None
    ) -> None:
        self.name = function
        self.function = c_function(function, c_uint32)
        self.operation = operation
        self.profiler = profiler

    def __call__(self, group: Group) -> None:
        """Execute the instruction in the waves of a group."""
        state = group.state
        if state.profile and self.profiler is not None:
            self.profiler(group)
        machine = machine_of(state)
        listed = state.findings.listed
        machine.struct.ignored = machine.dropped | listed.get(state.current_pc, 0)
        self.finish(group, self._execute(machine, group, 0))

    def _execute(self, machine: Machine, group: Group, done: int) -> int:
        """Execute the instruction in all waves of a group but the first ones; return C's code."""
        ids, first, step = wave_list(group)
        address = None if ids is None else ids.ctypes.data + 8 * done
        code: int = self.function(
            machine.address,
            self.operation.address,
            address,
            first + done * step,
            step,
            group.count - done,
            group.state.current_pc,
        )
        return code

    def finish(self, group: Group, code: int) -> None:
        """Handle the code that C returned, and execute the instruction in the remaining waves.

        C stops at a wave with a finding, before the wave has changed anything. If the finding is
        no error, C executes the wave again and ignores findings of this kind at this instruction.
        """
        state = group.state
        machine = machine_of(state)
        listed, done = state.findings.listed, 0
        while code:
            done += machine.struct.fault.position
            if code == FaultCode.NEEDS_FINER_SHADOW:
                machine.refine_shadow(machine.struct.needed_shift)
            else:
                self._report(code, group, done)
                listed[state.current_pc] = listed.get(state.current_pc, 0) | 1 << code
                machine.struct.ignored |= 1 << code
            code = self._execute(machine, group, done)
        machine.struct.ignored = machine.dropped
        if machine.struct.num_undefined:
            self.note_undefined(machine)

    @staticmethod
    def _report(code: int, group: Group, position: int) -> None:
        """Report the finding at which C has stopped."""
        state, found = group.state, machine_of(group.state).struct.fault
        fault: Fault | None
        if code == FaultCode.SKIPPED_BARRIER:
            fault = fault_of(state, int(group.wave_ids[position]), position, found.lanes)
            forget(state)
        else:
            fault = memory_fault(code, found, group, position)
        if fault is not None:
            state.findings.report(fault, group, state.current_pc)

    @property
    def function_address(self) -> int:
        """The address of the C function."""
        return address_of(self.name) or 0

    def note_undefined(self, machine: Machine) -> None:
        """Record in the batch which registers a load has left undefined."""
        op, machine.struct.num_undefined = self.operation.struct, 0
        scalar = op.result < 0
        count = op.dwords * (2 if op.pair else 1)
        first = op.data if scalar else op.result
        state = machine.state
        marks_of(state).note_load(state.current_pc, first, count, scalar=scalar)


def wave_list(group: Group) -> tuple[NDArray[np.int64] | None, int, int]:
    """Return the group's waves for C: an index array, or None with the first wave and the step."""
    waves = group.waves
    if isinstance(waves, slice):
        return None, waves.start or 0, waves.step or 1
    return np.ascontiguousarray(waves, np.int64), 0, 0


@functools.cache
def c_function(name: str, *extra: Any) -> Any:
    """Return a native function that takes a machine, an operation, waves and `extra` arguments."""
    function = getattr(library(), name)
    function.argtypes = [c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int64, *extra]
    function.restype = c_int32
    return function
