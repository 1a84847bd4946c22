"""Manually inserted wait states: hazards that a program must avoid, with s_nop or otherwise.

Every instruction is one wait state; ``s_nop n`` is n + 1. A compiler inserts the s_nop instructions
that its code needs; in assembly and inline assembly they are the author's responsibility. While a
program is decoded, the checker looks ahead from each instruction that may cause such a hazard,
along every branch. What it finds is reported when the instruction that comes too early executes.

Sources: LLVM's GCNHazardRecognizer (checkMAIHazards90A, checkMAIVALUHazards, checkVALUHazards,
checkVMEMHazards, checkDPPHazards, checkDivFMasHazards, checkRWLaneHazards, checkReadM0Hazards);
AMD's CDNA3 ISA guide, section 4.5, "Manually Inserted Wait States".
LLVM 22 inserts one more wait state on CDNA4 than on CDNA3 in some cases. It is not required here,
because older compilers do not insert it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cupygemm.emulator.isa import EXEC, M0, VCC, Instruction, register_name
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.matrix import Shape

_LONGEST = 20  # no hazard lasts longer, in wait states
_MEMORY = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH", "DS")
_VECTOR_MEMORY = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH")
_LANE = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_JUMPS = ("s_endpgm", "s_setpc_b64", "s_swappc_b64", "s_call_b64")
_VCC_MASK, _EXEC_MASK, _M0_MASK = 3 << VCC, 3 << EXEC, 1 << M0


@dataclass(frozen=True)
class Hazard:
    """An instruction that comes too early.

    Attributes
    ----------
    producer, consumer : int
        Byte offsets into the code object.
    what : str
        What the consumer does, ``"reads v3"``.
    needed, found : int
        Wait states that must lie between the two, and those that do.
    """

    producer: int
    consumer: int
    what: str
    needed: int
    found: int


class _Wait(NamedTuple):
    """A number of wait states, and what the later instruction does that requires them."""

    states: int
    what: str


_NO_WAIT = _Wait(0, "")


@dataclass
class _Shadow:
    """The effects of an instruction that later instructions may run into."""

    pc: int
    inst: Instruction
    vector: int  # registers that it wrote and that nothing has overwritten since
    scalar: int


def is_mfma(inst: Instruction) -> bool:
    """Return whether an instruction is a matrix instruction, AGPR moves excluded."""
    return inst.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def is_valu(inst: Instruction) -> bool:
    """Return whether the vector ALU executes an instruction, matrix instructions excluded."""
    return inst.encoding.startswith(("VOP", "MFMA")) and not is_mfma(inst)


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


def hazards_behind(
    pc: int, inst: Instruction, target: Target, at: Callable[[int], Instruction | None]
) -> Iterator[Hazard]:
    """Yield the hazards between an instruction and those that follow it.

    Parameters
    ----------
    pc : int
        Byte offset of the instruction.
    inst : Instruction
    target : Target
    at : callable
        Returns the instruction at a byte offset, or None if there is none.
    """
    length = _length(inst)
    if not length:
        return
    start = _Shadow(pc, inst, inst.vector_writes, inst.scalar_writes)
    paths = [(pc + inst.size, 0, start)]
    while paths:
        place, states, shadow = paths.pop()
        while states < length and (follower := at(place)) is not None:
            wait = _wait_between(shadow, follower, target)
            if wait.states > states:
                yield Hazard(
                    producer=pc, consumer=place, what=wait.what, needed=wait.states, found=states
                )
                break
            if follower.mnemonic in _JUMPS:
                break
            shadow = _Shadow(
                pc,
                inst,
                vector=shadow.vector & ~follower.vector_writes,
                scalar=shadow.scalar & ~follower.scalar_writes,
            )
            nop = follower.mnemonic == "s_nop"
            states += (follower.fields["simm16"] & 15) + 1 if nop else 1
            place += follower.size
            if follower.mnemonic.startswith(("s_branch", "s_cbranch")):
                offset = follower.fields["simm16"]
                other = place + 4 * (offset - (1 << 16) if offset >> 15 else offset)
                if follower.mnemonic == "s_branch":
                    place = other
                else:
                    paths.append((other, states, shadow))


def _length(inst: Instruction) -> int:
    """Return the longest wait that an instruction can cause, 0 if it causes none."""
    if is_mfma(inst):
        return _LONGEST
    if is_valu(inst):
        return 5 if inst.scalar_writes else 2
    return 1 if inst.scalar_writes & _M0_MASK else 0


def _wait_between(shadow: _Shadow, follower: Instruction, target: Target) -> _Wait:
    """Return the wait states that a later instruction requires after an earlier one."""
    if is_mfma(shadow.inst):
        return _after_mfma(shadow, follower, target)
    if is_valu(shadow.inst):
        return max(_after_valu(shadow, follower, target), default=_NO_WAIT)
    loads_lds = follower.encoding in _VECTOR_MEMORY and (
        "_lds" in follower.mnemonic or bool(follower.fields.get("lds"))
    )
    return _Wait(1, "reads m0") if loads_lds and shadow.scalar & _M0_MASK else _NO_WAIT


def _after_valu(shadow: _Shadow, follower: Instruction, target: Target) -> Iterator[_Wait]:
    """Yield the waits that an instruction requires after one of the vector ALU."""
    name, first = follower.mnemonic, shadow.inst.mnemonic
    vector = shadow.vector & follower.vector_reads
    scalar = shadow.scalar & follower.scalar_reads & ~_EXEC_MASK
    dpp, lane = follower.variant == "DPP", name in _LANE
    valu_waits = target.generation >= 3  # before, the hardware orders its own VALU instructions
    if shadow.scalar & _EXEC_MASK:
        if dpp:
            yield _Wait(5, "depends on exec")
        elif is_mfma(follower) or (lane and valu_waits):
            yield _Wait(4, "depends on exec")
    if is_mfma(follower) and not first.startswith("v_dot") and vector:
        yield _Wait(2, _read(vector))
    if dpp and shadow.vector & _register(follower, "src0"):
        yield _Wait(2, _read(vector))
    if name.startswith("v_div_fmas") and scalar & _VCC_MASK:
        yield _Wait(4, "reads vcc")
    if lane and shadow.scalar & _register(follower, "src1"):
        yield _Wait(4, "selects a lane by an SGPR")
    if follower.encoding in _VECTOR_MEMORY and scalar:
        yield _Wait(5, "reads an SGPR")
    if valu_waits and is_valu(follower):
        if vector and (lane or first.startswith(_TRANSCENDENTAL)):
            yield _Wait(1, _read(vector))
        if scalar:
            yield _Wait(2, "reads an SGPR or vcc")


def _after_mfma(shadow: _Shadow, follower: Instruction, target: Target) -> _Wait:
    """Return the wait that an instruction requires after a matrix instruction."""
    if is_mfma(follower):
        return max(
            _before_accumulator(shadow, follower, target),
            _before_factor(shadow, follower, target),
        )
    memory = follower.encoding in _MEMORY
    if not memory and not is_valu(follower):
        return _NO_WAIT
    passes, wide = mfma_passes(shadow.inst, target), _is_f64(shadow.inst)
    reading = writing = _until_read(shadow.inst, target)
    if wide and memory:
        reading = 9 if passes == 4 else 18
    reads, writes = shadow.vector & follower.vector_reads, shadow.vector & follower.vector_writes
    after_reading = 0 if wide or not _is_xdl(shadow.inst, target) else max(passes - 1, 1)
    overwritten = _accumulator(shadow.inst) & follower.vector_writes
    return max(
        _Wait(reading if reads else 0, _read(reads)),
        _Wait(writing if writes else 0, _write(writes)),
        _Wait(
            after_reading if overwritten else 0,
            f"{_write(overwritten)}, an accumulator that the matrix instruction still reads,",
        ),
    )


def _before_accumulator(shadow: _Shadow, follower: Instruction, target: Target) -> _Wait:
    """Return the wait of an MFMA whose accumulator overlaps the result of an earlier one."""
    reads = shadow.vector & _accumulator(follower)
    if not reads:
        return _NO_WAIT
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
    return _Wait(needed, _read(reads))


def _before_factor(shadow: _Shadow, follower: Instruction, target: Target) -> _Wait:
    """Return the wait of an MFMA whose A or B overlaps the result of an earlier one."""
    reads = shadow.vector & (_register(follower, "src0") | _register(follower, "src1"))
    return _Wait(_until_read(shadow.inst, target), _read(reads)) if reads else _NO_WAIT


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
    return ((1 << op.count) - 1) << op.index if op is not None and op.kind in ("v", "s") else 0


def _read(mask: int) -> str:
    return f"reads {_first(mask)}"


def _write(mask: int) -> str:
    return f"writes {_first(mask)}"


def _first(mask: int) -> str:
    """Return the name of the first register of a mask."""
    return register_name("v", (mask & -mask).bit_length() - 1) if mask else ""
