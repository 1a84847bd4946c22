"""The records of decoded CDNA instructions, and the numbering of the registers.

The operands of an `Instruction` carry their register file, number, width and number format. Its
register masks drive the hazard checks. `decode` makes instructions from machine code.

VGPRs ``v0..v255`` are numbers 0..255 of the vector file, AGPRs ``a0..a255`` are 256..511. Scalar
registers have the hardware's operand codes: s0 is 0, flat_scratch 102, vcc 106, m0 124, exec 126.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

FLAT_SCRATCH, XNACK_MASK, VCC, TTMP0, M0, EXEC = 102, 104, 106, 108, 124, 126
AGPR0 = 256
# Flat addresses of LDS and of private memory: the high words that src_shared_base and
# src_private_base give.
APERTURE_SHARED, APERTURE_PRIVATE = 0x0001_0000 << 32, 0x0002_0000 << 32
LITERAL = 255  # operand code of a literal, which follows the instruction
_SPECIAL_PAIRS = {FLAT_SCRATCH: "flat_scratch", XNACK_MASK: "xnack_mask", VCC: "vcc", EXEC: "exec"}

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


# Freezing it would double the time that making one takes.
@dataclass(slots=True, eq=False)
class Instruction:
    """One decoded instruction, which programs share: nobody changes it.

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
        Bit masks over the two register files. A destination that is written only in part (a 16-bit
        half, all lanes but those that a DPP row mask leaves out) does not count as read.
    target : str
        LLVM's name of the processor it was decoded for, ``""`` for any. The spelling of some
        instructions depends on it.
    writer : callable
        Returns its text.
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
    writer: Callable[[Instruction], str] = field(default=repr, repr=False)

    @property
    def text(self) -> str:
        """The instruction as assembly text."""
        return self.writer(self)

    @property
    def signed_immediate(self) -> int:
        """The field ``simm16`` as a signed number."""
        return signed(self.fields["simm16"], 16)

    @property
    def jump(self) -> int:
        """The bytes from a branch to its target."""
        return self.size + 4 * self.signed_immediate

    def operand(self, name: str) -> Operand | None:
        """Return the operand of that field, or None."""
        for op in self.dst + self.src:
            if op.field == name:
                return op
        return None


def signed(value: int, bits: int) -> int:
    """Return `value` as a two's complement number of that many bits."""
    return value - (1 << bits) if value >> (bits - 1) else value


def wait_counts(simm16: int) -> tuple[int, int]:
    """Return the vmcnt and the lgkmcnt that an s_waitcnt waits for."""
    return simm16 & 15 | simm16 >> 10 & 0x30, simm16 >> 8 & 15


def hardware_bits(simm16: int) -> tuple[int, int, int]:
    """Return the hardware register of s_getreg or s_setreg, its first bit, and the bits."""
    return simm16 & 63, simm16 >> 6 & 31, (simm16 >> 11 & 31) + 1


def registers(mask: int) -> list[int]:
    """Return the register numbers of a bit mask."""
    result = []
    while mask:
        low = mask & -mask
        result.append(low.bit_length() - 1)
        mask ^= low
    return result


def masks_of(operands: Iterable[Operand]) -> tuple[int, int]:
    """Return the vector and the scalar registers among operands, as bit masks."""
    vector = scalar = 0
    for op in operands:
        if op.kind == "v":
            vector |= ((1 << op.count) - 1) << op.index
        elif op.kind == "s":
            scalar |= ((1 << op.count) - 1) << op.index
    return vector, scalar


def register_name(kind: str, index: int) -> str:
    """Return the assembly name of a register."""
    if kind == "v":
        return f"v{index}" if index < 256 else f"a{index - 256}"
    if index == M0:
        return "m0"
    name = _SPECIAL_PAIRS.get(index & ~1)
    return f"s{index}" if name is None else f"{name}_{'hi' if index & 1 else 'lo'}"
