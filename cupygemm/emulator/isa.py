"""Decode CDNA machine code into typed instructions.

This is the only module that knows where the encoding tables come from: tinygrad's wheel carries
them, generated from AMD's machine-readable ISA. `decode` turns bytes into an `Instruction`, whose
operands carry register file, number, width and number format, and whose register masks drive the
hazard checks.

Register numbering: VGPR ``v0..v255`` are 0..255 of the vector file and AGPR ``a0..a255`` are
256..511; scalar registers use the hardware's operand codes (s0.. = 0.., flat_scratch 102, vcc 106,
m0 124, exec 126).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cupygemm.emulator.errors import UnsupportedInstruction

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
        Bit masks over the two register files.
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
        LLVM's processor name. It matters for gfx90a alone, which gives some MFMA opcodes another
        meaning.

    Raises
    ------
    UnsupportedInstruction
        The bytes are no instruction of the tables.
    """
    # Only a scaled MFMA takes 16 bytes. Its table does not check the first half, so that any 8
    # bytes before an f8f6f4 MFMA would pass for one: show it no more than the instruction can have.
    scaled = bytes(code[offset + 2 : offset + 4]) == _SCALE_PREFIX
    return _decode_bytes(bytes(code[offset : offset + (16 if scaled else 8)]), target == "gfx90a")


_SCALE_PREFIX = b"\xac\xd3"

# Dense MFMA that tinygrad's tables (made from the CDNA4 ISA) lack, or know as another instruction:
# opcode to mnemonic and the 32-bit registers of D and C, and of A and B. From AMD's CDNA2 and CDNA3
# ISA guides, checked against LLVM's assembler.
_CDNA2_MFMA = {
    0x54: ("v_mfma_i32_32x32x8i8", 16, 1),
    0x55: ("v_mfma_i32_16x16x16i8", 4, 1),
    0x63: ("v_mfma_f32_32x32x4bf16_1k", 32, 2),
    0x64: ("v_mfma_f32_16x16x4bf16_1k", 16, 2),
    0x65: ("v_mfma_f32_4x4x4bf16_1k", 4, 2),
    0x66: ("v_mfma_f32_32x32x8bf16_1k", 16, 2),
    0x67: ("v_mfma_f32_16x16x16bf16_1k", 4, 2),
    0x68: ("v_mfma_f32_32x32x2bf16", 32, 1),
    0x69: ("v_mfma_f32_16x16x2bf16", 16, 1),
    0x6B: ("v_mfma_f32_4x4x2bf16", 4, 1),
    0x6C: ("v_mfma_f32_32x32x4bf16", 16, 1),
    0x6D: ("v_mfma_f32_16x16x8bf16", 4, 1),
}
_CDNA3_MFMA = {
    0x3E: ("v_mfma_f32_16x16x8_xf32", 4, 2),
    0x3F: ("v_mfma_f32_32x32x4_xf32", 16, 2),
}


def _supplement(data: bytes, cdna2: bool) -> tuple[str, int, int] | None:
    """Return the entry of the tables above for an MFMA."""
    word = int.from_bytes(data[:4], "little")
    if word >> 23 != 0x1A7:  # VOP3P
        return None
    return (_CDNA2_MFMA if cdna2 else _CDNA3_MFMA).get(word >> 16 & 0x7F)


@functools.lru_cache(maxsize=1 << 16)
def _decode_bytes(data: bytes, cdna2: bool) -> Instruction:
    from tinygrad.renderer.amd import decode_inst

    supplement = _supplement(data, cdna2)
    if supplement is not None:
        from tinygrad.runtime.autogen.amd.cdna.ins import VOP3P_MFMA

        inst = object.__new__(VOP3P_MFMA)  # from_bytes wants an opcode that it knows
        inst._raw = int.from_bytes(data[:8], "little")
        return _Builder(inst, supplement).build()
    try:
        inst = decode_inst(data, "cdna")
    except (ValueError, AssertionError, KeyError) as err:
        raise UnsupportedInstruction(
            f"no CDNA instruction starts with the bytes {data[:8].hex(' ')}"
        ) from err
    return _Builder(inst).build()


# Instructions whose destination is also a source, without a source operand saying so.
_READS_DESTINATION = (
    "v_fmac_", "v_mac_", "v_pk_fmac_", "v_dot2c_", "v_dot4c_", "v_dot8c_", "v_swap_", "v_smfmac_",
    "s_addk_", "s_mulk_", "s_cmov", "s_bitset", "s_cmpk_",
)  # fmt: skip
# Instructions that read a carry or a mask from VCC in their 32-bit encoding.
_READS_VCC = ("v_cndmask_", "v_addc_", "v_subb_", "v_subbrev_", "v_div_fmas_")
_WRITES_VCC = ("v_add_co_", "v_sub_co_", "v_subrev_co_", "v_addc_", "v_subb_", "v_subbrev_")
_EXEC_MASK_OPS = ("_saveexec_", "_wrexec_")
_STORES = ("_store_", "buffer_wb", "buffer_inv")


class _Builder:
    """Translate one of tinygrad's instructions into an `Instruction`."""

    def __init__(  # type: ignore[no-untyped-def]  # tinygrad's Inst is internal
        self, inst, supplement: tuple[str, int, int] | None = None
    ) -> None:
        self.inst = inst
        self.supplement = supplement
        self.cls = type(inst).__name__
        self.fields = {name: _raw(inst, name, bits) for name, bits in inst._fields}
        self.mnemonic = supplement[0] if supplement else inst.op.name.lower()
        for suffix in ("_e32", "_e64"):
            self.mnemonic = self.mnemonic.removesuffix(suffix)
        self.encoding, self.variant = self._encoding()
        self.dst: list[Operand] = []
        self.src: list[Operand] = []

    def _encoding(self) -> tuple[str, str]:
        cls = self.cls
        if cls in ("VOP3P_MFMA", "VOP3PX2") or self.mnemonic.startswith(("v_mfma", "v_smfmac")):
            return "MFMA", ""
        base = cls.split("_")[0].replace("VOP3SD", "VOP3")
        variant = "SDWA" if "SDWA" in cls else "DPP" if "DPP" in cls else ""
        return base, variant

    def build(self) -> Instruction:
        if self.supplement:
            self._supplementary_operands(*self.supplement)
        elif self.encoding in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "DS"):
            self._memory_operands()
        elif self.encoding == "SMEM":
            self._scalar_memory_operands()
        else:
            self._alu_operands()
        self._implicit_operands()
        size = self.inst.size()
        return Instruction(
            self.mnemonic, self.encoding, self.variant, size,
            self.inst._raw & ((1 << 8 * size) - 1), self.fields, tuple(self.dst), tuple(self.src),
            _mask(self.src, "v"), _mask(self.dst, "v"), _mask(self.src, "s"), _mask(self.dst, "s"),
        )  # fmt: skip

    # -- operands by family ------------------------------------------------------------------------

    def _alu_operands(self) -> None:
        operands = self.inst.operands
        op_bits = self.inst.op_bits
        for name, (fmt, _, kind) in operands.items():
            if name == "simm16":
                continue
            canonical = _canonical(name)
            bits = op_bits[name]
            code = self._code(name, canonical)
            if self.encoding == "MFMA" and kind.name != "OPR_SIMM4":
                code = self._accumulator_code(canonical, code)
            elif "ACCVGPR" in kind.name and "VGPR_OR" not in kind.name and code >= 256:
                code += AGPR0
            operand = self._operand(canonical, code, bits, fmt.name)
            (self.dst if canonical in ("vdst", "sdst") else self.src).append(operand)
        if "sdst" in self.fields and "sdst" not in operands:  # VOPC SDWA: an explicit destination
            code = self.fields["sdst"] if self.fields.get("sd") else VCC
            self.dst.append(self._operand("sdst", code, 64, "FMT_NUM_M64"))
        if self.mnemonic.startswith(_READS_DESTINATION) and self.dst:
            self.src.append(self.dst[0])

    def _supplementary_operands(self, mnemonic: str, wide: int, narrow: int) -> None:
        single = "I32" if "_i32_" in mnemonic else "F32"
        for name in ("vdst", "src0", "src1", "src2"):
            code = self.fields[name] + (256 if name == "vdst" else 0)
            count = narrow if name in ("src0", "src1") else wide
            fmt = "B32" if name in ("src0", "src1") else f"PK{count}_{single}"
            operand = self._operand(name, self._accumulator_code(name, code), 32 * count, fmt)
            (self.dst if name == "vdst" else self.src).append(operand)

    def _code(self, name: str, canonical: str) -> int:
        """Return the 9-bit operand code of a field: 0..255 scalar and constants, 256.. VGPR."""
        fields = self.fields
        if self.variant and canonical == "src0":  # SDWA and DPP keep their real src0 apart
            scalar = self.variant == "SDWA" and fields.get("s0")
            return fields["vsrc0"] + (0 if scalar else 256)
        code = fields[name]
        if self.variant == "SDWA" and canonical == "src1":
            return code if fields.get("s1") else code + 256
        vector_field = name in ("vsrc1", "vdst") and self.cls != "VOP3_SDST"
        return code + 256 if vector_field else code

    def _accumulator_code(self, canonical: str, code: int) -> int:
        fields = self.fields
        sparse = self.mnemonic.startswith("v_smfmac_")  # its src2 is an index, always in a VGPR
        if canonical == "vdst" or (canonical == "src2" and not sparse):
            accumulator = fields["acc_cd"]
        elif canonical in ("src0", "src1"):
            accumulator = fields["acc"] >> (canonical == "src1") & 1
        else:
            accumulator = 0
        return code + AGPR0 if accumulator and code >= 256 else code

    def _memory_operands(self) -> None:
        fields, mnemonic = self.fields, self.mnemonic
        acc = AGPR0 if fields.get("acc") and self.encoding != "FLATLDS" else 0
        to_lds = bool(fields.get("lds")) or "_load_lds_" in mnemonic
        atomic = "_atomic_" in mnemonic
        for name, (fmt, _, _) in self.inst.operands.items():
            bits = self.inst.op_bits[name]
            if name in ("vdst", "vdata", "data", "data0", "data1"):
                if name == "vdst" and atomic and not fields["sc0"]:
                    continue
                operand = self._operand(name, fields[name] + 256 + acc, bits, fmt.name)
                if name == "vdst":
                    if not to_lds:
                        self.dst.append(operand)
                elif name != "vdata":
                    self.src.append(operand)
                elif atomic:
                    self.src.append(operand)
                    if fields["sc0"]:
                        half = "cmpswap" in mnemonic  # returns one of the two values it was given
                        width = bits // 2 if half else bits
                        self.dst.append(self._operand(name, operand.index + 256, width, fmt.name))
                elif "_store_" in mnemonic:
                    self.src.append(operand)
                elif not to_lds:
                    self.dst.append(operand)
            elif name == "saddr":
                if fields["saddr"] < 0x7C:
                    wide = 32 if self.encoding == "SCRATCH" else 64
                    self.src.append(self._operand(name, fields[name], wide, fmt.name))
            elif name == "addr":
                self._address_operand(bits, fmt.name)
            elif name == "vaddr":
                count = fields["offen"] + fields["idxen"]
                if count:
                    self.src.append(self._operand(name, fields[name] + 256, 32 * count, fmt.name))
            elif name == "srsrc":
                self.src.append(self._operand(name, fields[name] * 4, 128, fmt.name))
            elif name == "soffset":
                self.src.append(self._operand(name, fields[name], 32, fmt.name))
        if to_lds or "addtid" in mnemonic:
            self.src.append(self._operand("m0", M0, 32, "FMT_NUM_B32"))

    def _address_operand(self, bits: int, fmt: str) -> None:
        fields = self.fields
        if self.encoding == "FLAT":
            bits = 64
        elif self.encoding == "GLOBAL":
            bits = 32 if fields["saddr"] < 0x7C else 64
        elif self.encoding == "SCRATCH":
            # gfx940 and later have an SVE bit: the VGPR offset is used when it is set. On gfx90a
            # the VGPR is used when there is no SADDR.
            if not fields["sve"] and fields["saddr"] < 0x7C:
                return
            if not fields["sve"] and fields["saddr"] == 0x7F:
                return
            bits = 32
        self.src.append(self._operand("addr", fields["addr"] + 256, bits, fmt))

    def _scalar_memory_operands(self) -> None:
        fields = self.fields
        for name, (fmt, _, _) in self.inst.operands.items():
            bits = self.inst.op_bits[name]
            if name == "sdata":
                store = "_store_" in self.mnemonic or "_atomic_" in self.mnemonic
                side = self.src if store else self.dst
                side.append(self._operand(name, fields[name], bits, fmt.name))
            elif name == "sbase":
                wide = 128 if "_buffer_" in self.mnemonic else 64
                self.src.append(self._operand(name, fields[name] * 2, wide, fmt.name))
            elif name == "soffset":
                if fields["soffset_en"]:
                    self.src.append(self._operand(name, fields[name], 32, fmt.name))
                elif not fields["imm"]:  # the offset field names an SGPR
                    register = fields["offset"] & 0x7F
                    self.src.append(self._operand(name, register, 32, fmt.name))

    def _implicit_operands(self) -> None:
        mnemonic = self.mnemonic
        compact = self.encoding in ("VOP2", "VOPC", "VOP1")
        if self.encoding == "VOPC" and not any(op.field == "sdst" for op in self.dst):
            self.dst.append(self._operand("vcc", VCC, 64, "FMT_NUM_M64"))
        if mnemonic.startswith("v_cmpx"):
            self.dst.append(self._operand("exec", EXEC, 64, "FMT_NUM_M64"))
        if (compact and mnemonic.startswith(_READS_VCC)) or mnemonic.startswith("v_div_fmas"):
            self.src.append(self._operand("vcc", VCC, 64, "FMT_NUM_M64"))
        if compact and mnemonic.startswith(_WRITES_VCC):
            self.dst.append(self._operand("vcc", VCC, 64, "FMT_NUM_M64"))
        if any(part in mnemonic for part in _EXEC_MASK_OPS):
            self.src.append(self._operand("exec", EXEC, 64, "FMT_NUM_B64"))
            self.dst.append(self._operand("exec", EXEC, 64, "FMT_NUM_B64"))
        if mnemonic in ("s_cbranch_vccz", "s_cbranch_vccnz"):
            self.src.append(self._operand("vcc", VCC, 64, "FMT_NUM_B64"))
        if mnemonic.startswith("v_swap_"):
            self.dst.append(self.src[0])

    def _operand(self, name: str, code: int, bits: int, fmt: str) -> Operand:
        count = max(1, bits // 32)
        fmt = fmt.removeprefix("FMT_NUM_").removeprefix("FMT_")
        if code >= 256:
            return Operand(name, "v", code - 256, count, bits, fmt)
        if code < 128:
            return Operand(name, "s", code, count, bits, fmt)
        kind: OperandKind = "imm" if code <= 208 or 240 <= code <= 248 or code == LITERAL else "special"
        literal = self.fields.get("literal", 0) if code == LITERAL else 0
        return Operand(name, kind, code, count, bits, fmt, literal)


def _raw(inst, name: str, bits) -> int:  # type: ignore[no-untyped-def]
    return int(inst._raw >> bits.lo & bits.mask)


def _canonical(name: str) -> str:
    return name[1:] if name in ("vsrc0", "vsrc1", "ssrc0", "ssrc1") else name


def _mask(operands: list[Operand], kind: str) -> int:
    mask = 0
    for op in operands:
        if op.kind == kind:
            mask |= ((1 << op.count) - 1) << op.index
    return mask
