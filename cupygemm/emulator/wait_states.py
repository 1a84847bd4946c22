"""Wait states that code must keep and the hardware does not: hazards that take s_nop to mend.

An instruction is one wait state, ``s_nop n`` is n + 1. Compilers put in what is needed; in assembly
and inline assembly it is the author's. The checker looks ahead from each instruction that has such
a shadow, along every branch, while the program is decoded; what it finds is reported when the
instruction that comes too early is executed.

Sources: LLVM's GCNHazardRecognizer (checkMAIHazards90A, checkMAIVALUHazards, checkVALUHazards,
checkVMEMHazards, checkDPPHazards, checkDivFMasHazards, checkRWLaneHazards, checkReadM0Hazards);
AMD's CDNA3 ISA guide, section 4.5, "Manually Inserted Wait States".
What LLVM 22 asks for on gfx950 beyond gfx942, one state, is not asked for: older compilers do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cupygemm.emulator.isa import EXEC, M0, VCC, Instruction, register_name
from cupygemm.emulator.units.matrix import Shape

_FURTHEST = 20  # no shadow is longer
_MEMORY = ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH", "DS")
_VECTOR_MEMORY = _MEMORY[:-1]
_LANE = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
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
        Wait states between the two.
    """

    producer: int
    consumer: int
    what: str
    needed: int
    found: int


@dataclass
class _Shadow:
    """What must not happen for a while behind an instruction."""

    pc: int
    inst: Instruction
    vector: int  # registers that it wrote and nothing has overwritten since
    scalar: int


def is_mfma(inst: Instruction) -> bool:
    """Tell whether an instruction is a matrix instruction, and no move of an AGPR."""
    return inst.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def is_valu(inst: Instruction) -> bool:
    """Tell whether an instruction is one of the vector unit, and no matrix instruction."""
    return inst.encoding.startswith(("VOP", "MFMA")) and not is_mfma(inst)


def mfma_passes(inst: Instruction, target: str) -> int:
    """Return the passes of a matrix instruction, of 4 cycles each.

    Sources: AMD's matrix instruction calculator, LLVM's SISchedule.td.
    """
    shape = Shape.of(inst.mnemonic)
    if shape.a == "f64":
        return 4 if shape.m == 4 else 16 if target == "gfx950" else 8
    if shape.m == 4:
        return 2
    passes = 4 if shape.m == 16 else 8
    blocks = inst.dst[0].count * 64 // (shape.m * shape.n)
    if target == "gfx90a" or shape.a == "f32" or blocks > 1:
        passes *= 2
    elif shape.a == "f8f6f4" and min(inst.fields["cbsz"], inst.fields["blgp"]) < 2:
        passes *= 2  # formats 0 and 1 have 8 bits: one such operand halves the rate
    return passes


def hazards_behind(
    pc: int, inst: Instruction, target: str, at: Callable[[int], Instruction | None]
) -> Iterator[Hazard]:
    """Yield what comes too early behind an instruction.

    Parameters
    ----------
    pc : int
    inst : Instruction
    target : str
        ``"gfx90a"``, ``"gfx942"`` or ``"gfx950"``.
    at : callable
        The instruction at a byte offset; None where there is none.
    """
    length = _length(inst, target)
    if not length:
        return
    start = _Shadow(pc, inst, inst.vector_writes, inst.scalar_writes)
    paths = [(pc + inst.size, 0, start)]
    while paths:
        place, states, shadow = paths.pop()
        while states < length and (follower := at(place)) is not None:
            needed, what = _needed(shadow, follower, target)
            if needed > states:
                yield Hazard(pc, place, what, needed, states)
                break
            if follower.mnemonic in ("s_endpgm", "s_setpc_b64", "s_swappc_b64", "s_call_b64"):
                break
            shadow = _Shadow(
                pc,
                inst,
                shadow.vector & ~follower.vector_writes,
                shadow.scalar & ~follower.scalar_writes,
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


def _length(inst: Instruction, target: str) -> int:
    """Return how many wait states the shadow of an instruction can be long, 0 for none."""
    if is_mfma(inst):
        return _FURTHEST
    if is_valu(inst):
        return 5 if inst.scalar_writes else 2
    return 1 if inst.scalar_writes & _M0_MASK else 0


def _needed(shadow: _Shadow, follower: Instruction, target: str) -> tuple[int, str]:
    """Return the wait states that must lie before a follower, and what it does too early."""
    if is_mfma(shadow.inst):
        return _behind_mfma(shadow, follower, target)
    if is_valu(shadow.inst):
        return _behind_valu(shadow, follower, target)
    loads_lds = follower.encoding in _VECTOR_MEMORY and (
        "_lds" in follower.mnemonic or bool(follower.fields.get("lds"))
    )
    return (1, "reads m0") if loads_lds and shadow.scalar & _M0_MASK else (0, "")


def _behind_valu(shadow: _Shadow, follower: Instruction, target: str) -> tuple[int, str]:
    """Return the longest of the waits behind an instruction of the vector unit."""
    vector = shadow.vector & follower.vector_reads
    scalar = shadow.scalar & follower.scalar_reads & ~_EXEC_MASK
    name, modern = follower.mnemonic, target != "gfx90a"
    dpp, mfma, lane = follower.variant == "DPP", is_mfma(follower), name in _LANE
    dot = shadow.inst.mnemonic.startswith("v_dot")
    vector_memory = follower.encoding in _VECTOR_MEMORY
    cases: tuple[tuple[int, int | bool, str], ...] = (
        (5 if dpp else 4, (dpp or mfma or (lane and modern)) and shadow.scalar & _EXEC_MASK,
         "depends on exec"),
        (2, (mfma and not dot and vector) or (dpp and shadow.vector & _register(follower, "src0")),
         _read(vector)),
        (1, modern and is_valu(follower) and vector
         and (lane or shadow.inst.mnemonic.startswith(_TRANSCENDENTAL)), _read(vector)),
        (4, name.startswith("v_div_fmas") and scalar & _VCC_MASK, "reads vcc"),
        (4, lane and shadow.scalar & _register(follower, "src1"), "selects a lane by an SGPR"),
        (2, modern and is_valu(follower) and scalar, "reads an SGPR or vcc"),
        (5, vector_memory and scalar, "reads an SGPR"),
    )  # fmt: skip
    return max(((needed, what) for needed, holds, what in cases if holds), default=(0, ""))


def _behind_mfma(shadow: _Shadow, follower: Instruction, target: str) -> tuple[int, str]:
    passes = mfma_passes(shadow.inst, target)
    xdl = _is_xdl(shadow.inst, target)
    wide = _is_f64(shadow.inst)
    if is_mfma(follower):
        return max(
            _accumulator_behind(shadow, follower, target, passes),
            _factor_behind(shadow, follower, target),
        )
    memory = follower.encoding in _MEMORY
    if not memory and not is_valu(follower):
        return 0, ""
    reading = writing = _until_read(shadow.inst, target)
    if wide:
        reading = (9 if passes == 4 else 18) if memory else writing
    reads, writes = shadow.vector & follower.vector_reads, shadow.vector & follower.vector_writes
    after_reading = 0 if wide or not xdl else max(passes - 1, 1)
    overwritten = _accumulator(shadow.inst) & follower.vector_writes
    return max(
        (reading if reads else 0, _read(reads)),
        (writing if writes else 0, _write(writes)),
        (after_reading if overwritten else 0, _write(overwritten) + ", which it accumulates on,"),
    )


def _accumulator_behind(
    shadow: _Shadow, follower: Instruction, target: str, passes: int
) -> tuple[int, str]:
    """Return what an MFMA needs whose accumulator the first one wrote, or some of it."""
    reads = shadow.vector & _accumulator(follower)
    if not reads:
        return 0, ""
    first_wide, second_wide = _is_f64(shadow.inst), _is_f64(follower)
    modern = target != "gfx90a"
    needed = 0
    if not second_wide and first_wide and not modern:
        needed = 0
    elif shadow.inst.vector_writes == _accumulator(follower):
        if first_wide and second_wide and passes == 4:
            needed = 4
        elif modern and passes == 2:
            needed = 2
    elif first_wide:
        overlapping = 4 if passes == 4 else 17 if target == "gfx950" else 9
        needed = 0 if _is_xdl(follower, target) else overlapping
    elif not modern:
        needed = passes + second_wide
    elif _is_xdl(shadow.inst, target):
        needed = passes + 1
    elif not _is_xdl(follower, target):
        needed = passes
    return needed, _read(reads)


def _factor_behind(shadow: _Shadow, follower: Instruction, target: str) -> tuple[int, str]:
    """Return what an MFMA needs of which the first one wrote a factor."""
    reads = shadow.vector & (_register(follower, "src0") | _register(follower, "src1"))
    if not reads:
        return 0, ""
    return _until_read(shadow.inst, target), _read(reads)


def _until_read(inst: Instruction, target: str) -> int:
    """Return the wait states until the vector unit or an MFMA's factor can take a result."""
    passes = mfma_passes(inst, target)
    if _is_f64(inst):
        return 6 if passes == 4 else passes + 3
    return passes + 3 if _is_xdl(inst, target) else passes + 2


def _is_f64(inst: Instruction) -> bool:
    return Shape.of(inst.mnemonic).a == "f64"


def _is_xdl(inst: Instruction, target: str) -> bool:
    """Tell whether an MFMA runs on the unit of the narrow types; gfx90a has but one."""
    a = Shape.of(inst.mnemonic).a
    return a != "f64" and (target == "gfx90a" or a != "f32")


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
    return register_name("v", (mask & -mask).bit_length() - 1) if mask else ""
