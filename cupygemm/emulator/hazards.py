"""Registers that must not be read yet: loads in flight, and registers that nothing has written.

The emulated memory answers at once, so a missing s_waitcnt would go unseen. `Scoreboard` keeps what
the hardware's counters keep: every vector or scalar load leaves its destination unreadable until an
s_waitcnt of the wave covers it. Vector memory and LDS return in order, each in its own counter;
scalar memory returns in any order, so only lgkmcnt(0) covers it; FLAT needs both counters.

The common case costs a few integer operations: `pending` and `unwritten` are bit masks over the
register files, true if any wave of the batch might be concerned; only a hit looks at the waves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa import EXEC, Instruction, Operand, register_name, registers
from cupygemm.emulator.reports import instruction_at
from cupygemm.emulator.state import SCRATCH_BASE, Group, State
from cupygemm.emulator.undefined_bits import ALL, SHIFTS, amount_field, bits_read, handed_on

Counter = Literal["vm", "lds", "scalar", "flat"]

# Compiled code reads registers that nothing has written where their value cannot matter, and only
# there: it copies them, it packs them into wider values and takes these apart, it selects between
# them, it keeps the lanes that a merge of lane masks will replace, and it leaves a half of a wide
# operand undefined. These hand the undefined bits on (or end them, where what they add makes the
# result whole); reading one in any other instruction is the error.
_COPIES = (
    "s_mov_b", "v_mov_b", "v_accvgpr_", "v_writelane_b32", "v_readlane_b32",
    "v_readfirstlane_b32", "v_swap_b32", "v_and_b32", "v_or_b32", "v_or3_b32",
    *SHIFTS,
)  # fmt: skip
_MASK_MERGES = ("s_and_b64", "s_andn2_b64", "s_or_b64", "s_orn2_b64", "s_xor_b64", "s_cselect_b")
_SELECTS = ("v_cndmask_b32", "v_perm_b32", "v_bfi_b32", "v_and_or_b32", "v_alignb")
# Each result register depends only on the source registers of the same place (packed operations),
# or the low result does not depend on the high source.
_BY_REGISTER = ("v_pk_", "v_mad_u64_u32", "v_mad_i64_i32", "v_lshl_add_u64", "s_lshl_b64")
_UNCOUNTED = ("buffer_inv", "buffer_wbinvl1", "s_dcache", "ds_nop")


def _source_place(inst: Instruction, op: Operand, place: int) -> int | None:
    """Return which register of a source, if any, the result register at `place` comes from."""
    if inst.encoding != "VOP3P" or op.count == 1:
        return place
    fields, position = inst.fields, int(op.field[-1])
    if inst.mnemonic == "v_pk_mov_b32":  # a word of each source
        return fields["opsel"] >> position & 1 if place == position else None
    low, high = fields["opsel"], fields["opsel_hi"] | fields["opsel_hi2"] << 2
    return (high if place else low) >> position & 1


def counter_of(inst: Instruction) -> Counter | None:
    """Return the wait counter that an instruction increments."""
    if inst.mnemonic.startswith(_UNCOUNTED):
        return None
    kinds: dict[str, Counter] = {
        "MUBUF": "vm", "MTBUF": "vm", "GLOBAL": "vm", "SCRATCH": "vm", "DS": "lds",
        "SMEM": "scalar", "FLAT": "flat",
    }  # fmt: skip
    return kinds.get(inst.encoding)


@dataclass(slots=True)
class Pending:
    """One memory instruction whose results may still be on their way."""

    counter: Counter
    waves: Any  # slice or index array into the batch
    vm: Any  # sequence numbers, scalar or one per wave
    lds: Any
    scalar: Any
    vector_mask: int
    scalar_mask: int
    pc: int
    inst: Instruction


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a register got bits from that nothing has written."""

    pc: int
    address: int


class Scoreboard:
    """Wait counters and register states of one batch.

    Attributes
    ----------
    pending_vector, pending_scalar : int
        Registers with a load that some wave has not waited for.
    unwritten_vector, unwritten_scalar : int
        Registers that some wave has not written, or not all bits of.
    """

    def __init__(self, state: State, initial_vector: int, initial_scalar: int) -> None:
        waves = state.num_waves
        self.state = state
        self.outstanding: list[Pending] = []
        self.pending_vector = self.pending_scalar = 0
        self.unwritten_vector = ~initial_vector & (1 << 512) - 1
        self.unwritten_scalar = ~initial_scalar & (1 << 128) - 1
        self._undefined = {  # (register, wave): a bit for each bit
            "v": np.full((512, waves), ALL, np.uint32),
            "s": np.full((128, waves), ALL, np.uint32),
        }
        for kind, mask in (("v", initial_vector), ("s", initial_scalar)):
            for register in registers(mask):
                self._undefined[kind][register] = 0
        self._origins: dict[tuple[str, int], Origin] = {}  # undefined since a load of such memory
        self._loaded: set[tuple[str, int]] = set()  # by the executing instruction
        self.vm_done, self.lds_done = state.vm_waited, state.lds_waited
        self.scalar_issued = np.zeros(waves, np.int32)
        self.scalar_done = np.zeros(waves, np.int32)

    # -- before an instruction ---------------------------------------------------------------------

    def check(self, group: Group, inst: Instruction, counter: Counter | None) -> None:
        """Raise a `Fault` if the group reads or overwrites what it must not touch yet."""
        waiting_v = (inst.vector_reads | inst.vector_writes) & self.pending_vector
        waiting_s = (inst.scalar_reads | inst.scalar_writes) & self.pending_scalar
        if waiting_v or waiting_s:
            self._check_pending(group, inst, counter)
        missing = [
            (op, register)
            for op in inst.src
            if op.kind in ("v", "s")
            for register in range(op.index, op.index + op.count)
            if (self.unwritten_vector if op.kind == "v" else self.unwritten_scalar) >> register & 1
        ]
        if missing:
            self._check_unwritten(group, inst, missing)

    def _check_pending(self, group: Group, inst: Instruction, counter: Counter | None) -> None:
        ids = group.wave_ids
        for entry in self.outstanding:
            reads_v = inst.vector_reads & entry.vector_mask
            reads_s = inst.scalar_reads & entry.scalar_mask
            writes_v = inst.vector_writes & entry.vector_mask
            writes_s = inst.scalar_writes & entry.scalar_mask
            if counter == entry.counter and counter != "scalar":
                writes_v = writes_s = 0  # returns in order: the younger load wins
            if not (reads_v or reads_s or writes_v or writes_s):
                continue
            late = np.zeros(self.state.num_waves, bool)
            late[entry.waves] = ~self._done(entry)
            found = np.flatnonzero(late[ids])
            if not found.size:
                continue
            mask, prefix = (
                (reads_v | writes_v, "v") if reads_v or writes_v else (reads_s | writes_s, "s")
            )
            name = register_name(prefix, registers(mask)[0])
            wait = {"vm": "vmcnt", "lds": "lgkmcnt", "scalar": "lgkmcnt(0)",
                    "flat": "vmcnt(0) lgkmcnt(0)"}[entry.counter]  # fmt: skip
            verb = "is read" if reads_v or reads_s else "is overwritten"
            _, load = self.state.kernel.code_object.locate(entry.pc)
            raise Fault(
                "read before wait" if reads_v or reads_s else "write before wait",
                f"{name} {verb} while its load is in flight: no s_waitcnt {wait} covers\n"
                f"  +0x{load:x}: {entry.inst.text}",
                int(found[0]),
            )

    def _check_unwritten(
        self, group: Group, inst: Instruction, missing: list[tuple[Operand, int]]
    ) -> None:
        for op, register in missing:
            undefined = self._undefined[op.kind][register, group.waves]
            lacking = undefined & np.uint32(bits_read(inst, op)) != 0
            if not lacking.any() or self._tolerates(group, inst, op, register):
                continue
            name, origin = register_name(op.kind, register), self._origins.get((op.kind, register))
            if origin is not None:
                if _passes_on(inst, op):
                    continue
                raise Fault(
                    "uninitialised memory",
                    f"{name} holds memory that nothing has written, loaded by\n"
                    f"  {instruction_at(self.state, origin.pc)}\n"
                    f"from {self.state.memory.describe(origin.address, 1)}",
                    int(np.flatnonzero(lacking)[0]),
                    address=origin.address,
                    is_global=True,
                )
            raise Fault(
                "uninitialised register",
                f"{name} is read and nothing has written it in this wave",
                int(np.flatnonzero(lacking)[0]),
            )

    @staticmethod
    def _tolerates(group: Group, inst: Instruction, op: Operand, register: int) -> bool:
        """Return whether an instruction may read a register that nothing has written."""
        name = inst.mnemonic
        if name in SHIFTS and op.field == amount_field(name):
            return False
        if name.startswith((*_COPIES, *_MASK_MERGES)):
            return not any(dst.index == EXEC and dst.kind == "s" for dst in inst.dst)
        if name.startswith(_SELECTS):
            return op.field != "vcc" and not (name.startswith("v_cndmask") and op.field == "src2")
        if name.startswith(_BY_REGISTER):
            return register > op.index or "_pk_" in name
        if name.startswith(("ds_write", "ds_bpermute", "ds_permute")):
            return op.field != "addr"  # a struct's padding, an unused field
        if "_store_" in name and op.field in ("data", "vdata"):
            # A callee-saved register, saved before anything has written it.
            return _is_private(group, inst)
        return False

    # -- after an instruction ----------------------------------------------------------------------

    def mark_written(self, group: Group, inst: Instruction) -> None:
        """Note the registers that the group has just written, where that is news."""
        copied = self._copied_bits(group, inst)
        for kind, writes, unwritten in (
            ("v", inst.vector_writes, self.unwritten_vector),
            ("s", inst.scalar_writes, self.unwritten_scalar),
        ):
            for register in registers(writes & unwritten if not copied else writes):
                if (kind, register) in self._loaded:
                    continue
                row = self._undefined[kind][register]
                row[group.waves] = copied.get((kind, register), 0)
                self._set_unwritten(kind, register, bool(row.any()))

    def _copied_bits(self, group: Group, inst: Instruction) -> dict[tuple[str, int], Any]:
        """Return which bits of each destination register a copy leaves undefined."""
        result: dict[tuple[str, int], Any] = {}
        name = inst.mnemonic
        if not name.startswith((*_COPIES, *_MASK_MERGES, *_BY_REGISTER)) or not inst.dst:
            return result
        if name == "v_writelane_b32" or any(op.index == EXEC for op in inst.src if op.kind == "s"):
            return result  # the other lanes, or the lanes of EXEC, make the result whole
        dst = inst.operand("vdst") or inst.dst[0]
        for op in inst.src:
            if op.kind not in ("v", "s"):
                continue
            unwritten = self.unwritten_vector if op.kind == "v" else self.unwritten_scalar
            if not unwritten >> op.index & (1 << op.count) - 1:
                continue
            rows = self._undefined[op.kind][op.index : op.index + op.count, group.waves]
            sources = handed_on(group, inst, op, list(rows))
            for place in range(min(op.count, dst.count)):
                source = _source_place(inst, op, place)
                if source is None:
                    continue
                bits, key = sources[source], (dst.kind, dst.index + place)
                self._hand_on_origin((op.kind, op.index + source), key, bits)
                result[key] = result[key] | bits if key in result else bits
        return result

    def _hand_on_origin(self, source: tuple[str, int], key: tuple[str, int], bits: Any) -> None:
        origin = self._origins.get(source)
        if origin is None or not np.any(bits):
            self._origins.pop(key, None)
        else:
            self._origins[key] = origin

    def load_undefined(self, group: Group, register: int, bits: Any, address: int) -> None:
        """Note that the executing load found bytes that nothing has written.

        Parameters
        ----------
        group : Group
        register : int
            The first that it loads.
        bits : ndarray
            uint32 (registers, waves), the undefined bits.
        address : int
            Of a lane that found some.
        """
        for place, row in enumerate(bits):
            if row.any():
                key = ("v", register + place)
                self._undefined["v"][register + place, group.waves] = row
                self._set_unwritten(*key, unwritten=True)
                self._origins[key] = Origin(self.state.current_pc, int(address))
                self._loaded.add(key)

    def _set_unwritten(self, kind: str, register: int, unwritten: bool) -> None:
        name = "unwritten_vector" if kind == "v" else "unwritten_scalar"
        mask = getattr(self, name)
        setattr(self, name, mask | 1 << register if unwritten else mask & ~(1 << register))

    def issue(self, group: Group, inst: Instruction, counter: Counter, pc: int) -> None:
        """Count a memory instruction; its destinations become unreadable until waited for."""
        state, waves = self.state, group.waves
        self._loaded.clear()
        if counter in ("vm", "flat"):
            state.vm_issued[waves] += 1
        if counter in ("lds", "flat"):
            state.lds_issued[waves] += 1
        if counter == "scalar":
            self.scalar_issued[waves] += 1
        if inst.vector_writes or inst.scalar_writes:
            entry = Pending(
                counter,
                waves,
                state.vm_issued[waves].copy(),
                state.lds_issued[waves].copy(),
                self.scalar_issued[waves].copy(),
                inst.vector_writes,
                inst.scalar_writes,
                pc,
                inst,
            )
            self.outstanding.append(entry)
            self.pending_vector |= inst.vector_writes
            self.pending_scalar |= inst.scalar_writes

    def wait(self, group: Group, simm16: int) -> None:
        """Execute s_waitcnt."""
        waves = group.waves
        vm = simm16 & 15 | simm16 >> 10 & 0x30
        lgkm = simm16 >> 8 & 15
        if vm < 63:
            _raise_to(self.vm_done, waves, self.state.vm_issued[waves] - vm)
        if lgkm < 15:
            _raise_to(self.lds_done, waves, self.state.lds_issued[waves] - lgkm)
            if lgkm == 0:
                self.scalar_done[waves] = self.scalar_issued[waves]
        if self.outstanding:
            self.outstanding = [e for e in self.outstanding if not self._done(e).all()]
            self.pending_vector = self.pending_scalar = 0
            for entry in self.outstanding:
                self.pending_vector |= entry.vector_mask
                self.pending_scalar |= entry.scalar_mask

    def _done(self, entry: Pending) -> NDArray[np.bool_]:
        """Return which waves of an entry have waited for it."""
        waves = entry.waves
        if entry.counter == "scalar":
            done: NDArray[np.bool_] = self.scalar_done[waves] >= entry.scalar
        elif entry.counter == "vm":
            done = self.vm_done[waves] >= entry.vm
        elif entry.counter == "lds":
            done = self.lds_done[waves] >= entry.lds
        else:
            done = (self.vm_done[waves] >= entry.vm) & (self.lds_done[waves] >= entry.lds)
        return done

    def release(self, waves: Any) -> None:
        """Note what the waves that pass a barrier have waited for."""
        self.state.lds_released[waves] = self.lds_done[waves]
        self.state.vm_released[waves] = self.vm_done[waves]
        self.state.vm_passed[waves] = self.state.vm_issued[waves]


class NoScoreboard(Scoreboard):
    """The scoreboard of an unchecked launch: every register may be read at any time."""

    def __init__(self, state: State) -> None:
        super().__init__(state, (1 << 512) - 1, (1 << 128) - 1)

    def issue(self, group: Group, inst: Instruction, counter: Counter, pc: int) -> None:
        """Nothing is in flight."""

    def wait(self, group: Group, simm16: int) -> None:
        """There is nothing to wait for."""

    def release(self, waves: Any) -> None:
        """Nobody asks what is ordered."""


def _passes_on(inst: Instruction, op: Operand) -> bool:
    """Tell whether an instruction may read memory that nothing has written.

    A store copies it. A matrix instruction mixes the columns and rows of a tile, of which some may
    lie outside the matrix: what it makes of them is not stored.
    """
    if inst.mnemonic.startswith(("v_mfma_", "v_smfmac_")):
        return True
    return op.field in ("data", "vdata", "data0", "data1") and "_store_" in inst.mnemonic


def _raise_to(counter: NDArray[np.int32], waves: Any, value: NDArray[np.int32]) -> None:
    counter[waves] = np.maximum(counter[waves], value)


def _is_private(group: Group, inst: Instruction) -> bool:
    """Return whether a memory instruction goes to private memory."""
    if inst.encoding == "SCRATCH":
        return True
    resource = inst.operand("srsrc")
    if resource is None:
        return False
    return bool((group.s(resource.index + 1) & np.uint32(0xFFFF) == SCRATCH_BASE >> 32).all())
