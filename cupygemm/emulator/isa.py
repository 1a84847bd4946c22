"""Decode CDNA machine code into typed instructions.

`decode` turns bytes into an `Instruction`, whose operands carry register file, number, width and
number format, and whose register masks drive the hazard checks. `isa_operands` builds it from the
encoding tables of tinygrad's wheel; `isa_targets` says where a target differs from them.

Register numbering: VGPR ``v0..v255`` are 0..255 of the vector file and AGPR ``a0..a255`` are
256..511; scalar registers use the hardware's operand codes (s0.. = 0.., flat_scratch 102, vcc 106,
m0 124, exec 126).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FLAT_SCRATCH, XNACK_MASK, VCC, TTMP0, M0, EXEC = 102, 104, 106, 108, 124, 126
AGPR0 = 256
# Flat addresses of LDS and of private memory: the high words that src_shared_base and
# src_private_base give.
APERTURE_SHARED, APERTURE_PRIVATE = 0x0001_0000 << 32, 0x0002_0000 << 32
LITERAL = 255

OperandKind = Literal["v", "s", "imm", "special"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an instruction.

    Attributes
    ----------
    field : str
        The encoding's name for it, without the VOP2 ``v`` prefix: ``vdst``, ``sdst``, ``src0``,
        ``src1``, ``src2``, ``addr``, ``data``, ``data0``, ``data1``, ``saddr``, ``sbase``,
        ``srsrc``, ...
    kind : {"v", "s", "imm", "special"}
        Vector file (AGPRs included), scalar file, constant, or a special source (vccz, execz, scc
        and the aperture registers), told apart by `index`, the hardware's operand code.
    index : int
        Register number, or operand code (128..248, 255) of a constant.
    count : int
        Registers, at least 1.
    bits : int
        Width of the value in bits (16 for a half in a 32-bit register).
    fmt : str
        Number format from the ISA tables: ``F32``, ``U32``, ``B64``, ``PK2_F16``, ``M64``, ``ANY``,
        ...
    literal : int
        The 32-bit literal when `index` is 255.
    """

    field: str
    kind: OperandKind
    index: int
    count: int
    bits: int
    fmt: str
    literal: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One decoded instruction.

    Attributes
    ----------
    mnemonic : str
        LLVM's mnemonic without its encoding suffix: ``v_add_f32``, ``ds_read_b128``.
    encoding : str
        ``SOP1 SOP2 SOPC SOPK SOPP SMEM VOP1 VOP2 VOP3 VOP3P VOPC DS FLAT GLOBAL SCRATCH MUBUF``;
        MFMA are ``MFMA``. A literal does not change the encoding; `variant` is ``""``, ``SDWA`` or
        ``DPP``.
    size : int
        Bytes.
    fields : mapping of str to int
        Every raw encoding field by its ISA name: ``offset``, ``opsel``, ``neg``, ``abs``, ``omod``,
        ``clmp``, ``dpp``, ``row_mask``, ``simm16``, ...
    dst, src : tuple of Operand
        Explicit and implicit (vcc, exec, scc is not listed) operands written and read.
    vector_reads, vector_writes, scalar_reads, scalar_writes : int
        Bit masks over the two register files. A destination of which a part survives (a 16-bit
        half, a lane that a DPP row mask leaves out) does not count as read.
    target : str
        The processor it was decoded for, ``""`` for any; gfx90a spells some text differently.
    """

    mnemonic: str
    encoding: str
    variant: str
    size: int
    raw: int
    fields: Mapping[str, int]
    dst: tuple[Operand, ...]
    src: tuple[Operand, ...]
    vector_reads: int = field(repr=False)
    vector_writes: int = field(repr=False)
    scalar_reads: int = field(repr=False)
    scalar_writes: int = field(repr=False)
    target: str = ""

    def operand(self, name: str) -> Operand | None:
        """Return the operand of that field, or None."""
        for op in self.dst + self.src:
            if op.field == name:
                return op
        return None

    @property
    def text(self) -> str:
        """Return the instruction as assembly text."""
        from cupygemm.emulator.disassembly import format_instruction

        return format_instruction(self)


def decode(code: bytes, offset: int = 0, target: str = "") -> Instruction:
    """Decode the instruction at `offset` bytes into `code`.

    Parameters
    ----------
    code : bytes
    offset : int
    target : str
        LLVM's processor name. gfx90a gives some opcodes another meaning, and an instruction that
        the target lacks is refused. Without it every instruction of gfx942 and gfx950 is known.

    Raises
    ------
    UnsupportedInstruction
        The bytes are no instruction of the tables, or none of the target's.
    """
    # Only a scaled MFMA takes 16 bytes. Its table does not check the first half, so that any 8
    # bytes before an f8f6f4 MFMA would pass for one: show it no more than the instruction can have.
    scaled = bytes(code[offset + 2 : offset + 4]) == _SCALE_PREFIX
    return _decode_bytes(bytes(code[offset : offset + (16 if scaled else 8)]), target)


_SCALE_PREFIX = b"\xac\xd3"


@functools.lru_cache(maxsize=1 << 16)
def _decode_bytes(data: bytes, target: str) -> Instruction:
    from cupygemm.emulator.isa_operands import build

    return build(data, target)


def registers(mask: int) -> list[int]:
    """Return the register numbers of a bit mask."""
    result = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result


def register_name(kind: str, index: int) -> str:
    """Return the assembly name of a register."""
    if kind == "v":
        return f"v{index}" if index < 256 else f"a{index - 256}"
    special = {102: "flat_scratch_lo", 103: "flat_scratch_hi", 104: "xnack_mask_lo",
               105: "xnack_mask_hi", 106: "vcc_lo", 107: "vcc_hi", 124: "m0",
               126: "exec_lo", 127: "exec_hi"}  # fmt: skip
    return special.get(index, f"s{index}")
