"""How many wait states a pair of instructions needs, by the rules of `wait_rules`.

Sources: AMD's CDNA3 ISA guide, sections 4.5 and 7.5; LLVM's GCNHazardRecognizer, which has the
numbers of CDNA2, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cupygemm.emulator.isa.instruction import (
    EXEC,
    M0,
    VCC,
    Instruction,
    Operand,
    hardware_bits,
    register_name,
)
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.matrix.unit import Shape

_LONGEST = 20  # no hazard lasts longer, in wait states
_MEMORY = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH", "DS")
_VECTOR_MEMORY = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH")
_LANE = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
_CARRY_IN = ("v_addc_co_", "v_subb_co_", "v_subbrev_co_")
_MASKED = ("v_cndmask_", "v_div_fmas_", *_CARRY_IN)
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_SETS_MODE = ("s_setreg_", "s_setvskip")
_VCC_MASK, _EXEC_MASK, _M0_MASK = 3 << VCC, 3 << EXEC, 1 << M0
_MODE, _VSKIP_BIT = 1, 28  # the number of the register, and the bit in it


class Wait(NamedTuple):
    """A number of wait states, the rule, and the use that requires them."""

    states: int
    rule: str
    what: str


class Shadow(NamedTuple):
    """The effects of an instruction that later instructions may run into.

    Attributes
    ----------
    inst : Instruction
    vector, scalar : int
        Bit masks of the registers that it wrote and that nothing has overwritten since.
    """

    inst: Instruction
    vector: int
    scalar: int

    @classmethod
    def of(cls, inst: Instruction) -> Shadow:
        """Return the effects of an instruction that has just been executed."""
        return cls(inst, inst.vector_writes, inst.scalar_writes)

    def after(self, follower: Instruction) -> Shadow:
        """Return the effects that remain after another instruction."""
        return Shadow(
            self.inst,
            vector=self.vector & ~follower.vector_writes,
            scalar=self.scalar & ~follower.scalar_writes,
        )


def is_mfma(inst: Instruction) -> bool:
    """Return whether an instruction is a matrix instruction, AGPR moves excluded."""
    return inst.encoding == "MFMA" and inst.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def is_valu(inst: Instruction) -> bool:
    """Return whether the vector ALU executes an instruction, matrix instructions excluded."""
    if inst.encoding == "MFMA":
        return not is_mfma(inst)
    return inst.encoding.startswith("VOP")


def mfma_passes(inst: Instruction, target: Target) -> int:
    """Return how many passes of 4 cycles a matrix instruction takes.

    Sources: AMD's matrix instruction calculator, LLVM's SISchedule.td.
    """
    shape = Shape.of(inst.mnemonic)
    if shape.a == "f64":
        return 4 if shape.m == 4 else target.f64_mfma_passes
    if shape.m == 4:
        return 2
    passes = 4 if shape.m == 16 else 8
    blocks = inst.dst[0].count * 64 // (shape.m * shape.n)
    if target.generation == 2 or shape.a == "f32" or blocks > 1:
        passes *= 2
    elif shape.a == "f8f6f4" and min(inst.fields["cbsz"], inst.fields["blgp"]) < 2:
        passes *= 2  # formats 0 and 1 have 8 bits: one such operand halves the rate
    return passes


def same_pipeline(first: Instruction, second: Instruction, target: Target) -> bool:
    """Return whether two instructions are MFMAs of one pipeline, which executes one at a time."""
    if not (is_mfma(first) and is_mfma(second)):
        return False
    return _is_f64(first) == _is_f64(second) and _is_xdl(first, target) == _is_xdl(second, target)


def longest_wait(inst: Instruction) -> int:
    """Return the longest wait that an instruction can cause, 0 if it causes none."""
    if is_mfma(inst):
        return _LONGEST
    if is_valu(inst):
        return 5 if inst.scalar_writes else 2
    if inst.mnemonic.startswith(_SETS_MODE) or _stored_late(inst):
        return 2
    return 1 if inst.scalar_writes & _M0_MASK else 0


def registers_that_matter(inst: Instruction) -> tuple[int, int] | None:
    """Return masks of the vector and scalar registers whose readers alone may have to wait.

    None means that other instructions may have to wait, too; `may_depend` tells which.
    """
    if not is_valu(inst) or inst.scalar_writes & _EXEC_MASK:
        return None
    return inst.vector_writes, inst.scalar_writes


def may_depend(inst: Instruction, follower: Instruction) -> bool:
    """Tell whether an instruction could require a wait after another one.

    This depends on the registers that it accesses and, for the vector ALU, which has few rules,
    also on its kind.
    """
    written = inst.vector_writes
    touched = written & follower.vector_reads
    if is_mfma(inst):
        return bool(touched or (written | inst.vector_reads) & follower.vector_writes)
    if not is_valu(inst) or inst.scalar_writes & _EXEC_MASK:
        return True
    if inst.scalar_writes & follower.scalar_reads:
        return True
    if not touched:
        return False
    sensitive = follower.variant == "DPP" or follower.mnemonic in _LANE or is_mfma(follower)
    return sensitive or inst.mnemonic.startswith(_TRANSCENDENTAL)


def waits_between(shadow: Shadow, follower: Instruction, target: Target) -> Iterator[Wait]:
    """Yield the waits that a later instruction requires after an earlier one.

    Some require 0 wait states.
    """
    if is_mfma(shadow.inst):
        yield from _after_mfma(shadow, follower, target)
    elif is_valu(shadow.inst):
        yield from _after_valu(shadow, follower, target)
    elif shadow.inst.mnemonic.startswith(_SETS_MODE):
        yield from _after_mode(shadow.inst, follower)
    elif shadow.inst.encoding in _VECTOR_MEMORY:
        yield from _after_store(shadow.inst, follower, target)
    elif shadow.scalar & _M0_MASK:
        yield from _after_m0(follower)


def _after_m0(follower: Instruction) -> Iterator[Wait]:
    """Yield the waits that an instruction requires after a write of M0 by the scalar ALU."""
    name = follower.mnemonic
    to_lds = "_lds" in name or bool(follower.fields.get("lds"))
    if follower.encoding in ("MUBUF", "MTBUF") and to_lds:
        yield Wait(1, "m0_buffer", "reads m0")
    elif (follower.encoding in _VECTOR_MEMORY and to_lds) or "addtid" in name or "movrel" in name:
        yield Wait(1, "m0", "reads m0")


def _after_mode(inst: Instruction, follower: Instruction) -> Iterator[Wait]:
    """Yield the waits that an instruction requires after a write of a hardware register."""
    register, sets_vskip = _MODE, True
    if inst.mnemonic.startswith("s_setreg_"):
        register, first, size = hardware_bits(inst.fields["simm16"])
        sets_vskip = register == _MODE and first <= _VSKIP_BIT < first + size
    if sets_vskip and (is_valu(follower) or is_mfma(follower) or follower.encoding in _MEMORY):
        yield Wait(2, "vskip", "is skipped or not")
    if follower.mnemonic.startswith(("s_getreg_", "s_setreg_")):
        gets = follower.mnemonic.startswith("s_getreg_")
        number, _, _ = hardware_bits(follower.fields["simm16"])
        if number == register and (gets or inst.mnemonic != "s_setvskip"):
            yield Wait(2, "hwreg", f"{'reads' if gets else 'writes'} the hardware register")


def _stored_late(inst: Instruction) -> int:
    """Return the data registers that a store reads after it has issued, as a mask."""
    if inst.encoding not in _VECTOR_MEMORY or not (
        "_store_" in inst.mnemonic or "_cmpswap" in inst.mnemonic
    ):
        return 0
    data = inst.operand("vdata") or inst.operand("data")
    offset = inst.operand("soffset")
    if data is None or data.count <= 2 or (offset is not None and offset.kind == "s"):
        return 0
    return ((1 << data.count) - 1) << data.index


def _after_store(inst: Instruction, follower: Instruction, target: Target) -> Iterator[Wait]:
    """Yield the wait of an instruction that overwrites what a store reads late."""
    overwritten = _stored_late(inst) & follower.vector_writes
    if overwritten and (is_valu(follower) or is_mfma(follower)):
        states = 2 if target.generation >= 3 else 1
        yield Wait(states, "store_data", f"{_write(overwritten)}, which the store still reads,")


def _after_valu(shadow: Shadow, follower: Instruction, target: Target) -> Iterator[Wait]:
    """Yield the waits that an instruction requires after one of the vector ALU."""
    name, first = follower.mnemonic, shadow.inst.mnemonic
    vector = shadow.vector & follower.vector_reads
    scalar = shadow.scalar & follower.scalar_reads
    dpp, lane = follower.variant == "DPP", name in _LANE
    if shadow.scalar & _EXEC_MASK:
        if dpp:
            yield Wait(5, "exec", "depends on exec")
        elif is_mfma(follower) or (lane and target.generation >= 3):
            yield Wait(4, "exec", "depends on exec")
    if is_mfma(follower) and not first.startswith("v_dot") and vector:
        yield Wait(2, "mfma_operand", _read(vector))
    if dpp and shadow.vector & _register(follower, "src0"):
        yield Wait(2, "dpp", _read(vector))
    if name.startswith("v_div_fmas") and scalar & _VCC_MASK:
        yield Wait(4, "div_fmas", "reads vcc")
    if lane and shadow.scalar & _register(follower, "src1"):
        yield Wait(4, "lane_select", "selects a lane by an SGPR")
    if follower.encoding in _VECTOR_MEMORY and scalar:
        yield Wait(5, "sgpr_to_memory", "reads an SGPR")
    # On CDNA2 the hardware orders its own VALU instructions.
    if target.generation >= 3 and is_valu(follower):
        yield from _between_valu(shadow, follower)


def _between_valu(shadow: Shadow, follower: Instruction) -> Iterator[Wait]:
    """Yield the waits between two instructions of the vector ALU on CDNA3 and CDNA4."""
    vector = shadow.vector & follower.vector_reads
    if vector and follower.mnemonic in _LANE:
        yield Wait(1, "lane_data", _read(vector))
    if (
        vector
        and shadow.inst.mnemonic.startswith(_TRANSCENDENTAL)
        and not follower.mnemonic.startswith(_TRANSCENDENTAL)
    ):
        yield Wait(1, "transcendental", _read(vector))
    mask, constants = _mask_and_constants(follower)
    if shadow.scalar & constants:
        yield Wait(2, "sgpr_constant", "reads an SGPR or vcc")
    if shadow.scalar & mask and not follower.mnemonic.startswith(_CARRY_IN):
        yield Wait(2, "lane_mask", "reads an SGPR or vcc as a mask")


def _mask_and_constants(inst: Instruction) -> tuple[int, int]:
    """Return the scalar registers that each lane reads one bit of, and the other sources."""
    if not inst.mnemonic.startswith(_MASKED):
        return 0, inst.scalar_reads
    field = "vcc" if any(op.field == "vcc" for op in inst.src) else "src2"
    masks = [op for op in inst.src if op.field == field]
    others = [op for op in inst.src if op.field != field and op.kind == "s"]
    return sum(map(_span, masks)), sum(map(_span, others))


def _after_mfma(shadow: Shadow, follower: Instruction, target: Target) -> Iterator[Wait]:
    """Yield the waits that an instruction requires after a matrix instruction."""
    if is_mfma(follower):
        yield _before_accumulator(shadow, follower, target)
        yield _before_factor(shadow, follower, target)
        return
    memory = follower.encoding in _MEMORY
    if not memory and not is_valu(follower):
        return
    passes, wide = mfma_passes(shadow.inst, target), _is_f64(shadow.inst)
    reading = writing = _until_read(shadow.inst, target)
    if wide and memory:
        reading = 9 if passes == 4 else 18
    reads, writes = shadow.vector & follower.vector_reads, shadow.vector & follower.vector_writes
    after_reading = 0 if wide or not _is_xdl(shadow.inst, target) else max(passes - 1, 1)
    overwritten = _accumulator(shadow.inst) & follower.vector_writes
    if reads:
        yield Wait(reading, "mfma_result", _read(reads))
    if writes:
        yield Wait(writing, "mfma_result", _write(writes))
    if overwritten:
        what = f"{_write(overwritten)}, an accumulator that the matrix instruction still reads,"
        if memory:
            yield Wait(after_reading, "mfma_overwrite_load", what)
        else:
            yield Wait(after_reading, "mfma_overwrite", what)


def _before_accumulator(shadow: Shadow, follower: Instruction, target: Target) -> Wait:
    """Return the wait of an MFMA whose accumulator overlaps the result of an earlier one."""
    reads = shadow.vector & _accumulator(follower)
    if not reads:
        return Wait(0, "mfma_accumulator", "")
    passes = mfma_passes(shadow.inst, target)
    first_wide, second_wide = _is_f64(shadow.inst), _is_f64(follower)
    cdna2 = target.generation == 2
    needed = 0
    if not second_wide and first_wide and cdna2:
        needed = 0
    elif shadow.inst.vector_writes == _accumulator(follower):
        if first_wide and second_wide and passes == 4:
            needed = 4
        elif not cdna2 and passes == 2:
            needed = 2
    elif first_wide:
        overlapping = 4 if passes == 4 else passes + 1
        needed = 0 if _is_xdl(follower, target) else overlapping
    elif cdna2:
        needed = passes + second_wide
    elif _is_xdl(shadow.inst, target):
        needed = passes + 1
    elif not _is_xdl(follower, target):
        needed = passes
    return Wait(needed, "mfma_accumulator", _read(reads))


def _before_factor(shadow: Shadow, follower: Instruction, target: Target) -> Wait:
    """Return the wait of an MFMA whose A or B overlaps the result of an earlier one."""
    reads = shadow.vector & (_register(follower, "src0") | _register(follower, "src1"))
    return Wait(_until_read(shadow.inst, target) if reads else 0, "mfma_result", _read(reads))


def _until_read(inst: Instruction, target: Target) -> int:
    """Return the wait states until a result of an MFMA can be read, other than as accumulator."""
    passes = mfma_passes(inst, target)
    if _is_f64(inst):
        return 6 if passes == 4 else passes + 3
    return passes + 3 if _is_xdl(inst, target) else passes + 2


def _is_f64(inst: Instruction) -> bool:
    return Shape.of(inst.mnemonic).a == "f64"


def _is_xdl(inst: Instruction, target: Target) -> bool:
    """Return whether an MFMA runs on the unit of the narrow types; on CDNA2 f32 MFMA do, too."""
    a = Shape.of(inst.mnemonic).a
    return a != "f64" and (target.generation == 2 or a != "f32")


def _accumulator(inst: Instruction) -> int:
    """Return the registers that an MFMA adds to: src2, or the destination of a sparse one."""
    dense = inst.mnemonic.startswith("v_mfma_")
    return _register(inst, "src2") if dense else inst.vector_writes


def _register(inst: Instruction, field: str) -> int:
    """Return the registers of an operand as a mask over its register file."""
    op = inst.operand(field)
    return 0 if op is None else _span(op)


def _span(op: Operand) -> int:
    """Return the registers of an operand as a mask."""
    return ((1 << op.count) - 1) << op.index if op.kind in ("v", "s") else 0


def _read(mask: int) -> str:
    return f"reads {_first(mask)}"


def _write(mask: int) -> str:
    return f"writes {_first(mask)}"


def _first(mask: int) -> str:
    """Return the name of the first register of a mask."""
    return register_name("v", (mask & -mask).bit_length() - 1) if mask else ""
