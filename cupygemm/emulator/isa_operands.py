"""Build an `Instruction` with its operands and register masks from machine code.

This is the only module that knows the source of the encoding tables. They are part of tinygrad's
wheel, generated from AMD's machine-readable ISA, and give the fields, operand widths and number
formats. This module adds what they leave open: which operands an encoding's modifiers switch off or
widen, which registers are implied, and which operands are read rather than written.
"""

from __future__ import annotations

from typing import Any

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa import AGPR0, EXEC, LITERAL, M0, VCC, Instruction, Operand, OperandKind
from cupygemm.emulator.isa_targets import (
    CDNA2_ALIASES,
    CDNA2_MFMA,
    CDNA3_MFMA,
    Mfma,
    is_cdna2,
    lacks,
)

# Instructions that read their destination, although the tables have no source operand for it.
_READS_DESTINATION = (
    "v_fmac_",
    "v_mac_",
    "v_pk_fmac_",
    "v_dot2c_",
    "v_dot4c_",
    "v_dot8c_",
    "v_swap_",
    "v_smfmac_",
    "v_permlane16_swap",
    "v_permlane32_swap",
    "v_cvt_pkaccum_",
    "s_addk_",
    "s_mulk_",
    "s_cmov",
    "s_bitset",
)
# Instructions whose destination field is only a source.
_ONLY_READS = ("s_cmpk_", "s_setreg_", "s_cbranch_i_fork")
# Instructions that read a carry or a mask from VCC in their 32-bit encoding.
_READS_VCC = ("v_cndmask_", "v_addc_", "v_subb_", "v_subbrev_", "v_div_fmas_")
_WRITES_VCC = ("v_add_co_", "v_sub_co_", "v_subrev_co_", "v_addc_", "v_subb_", "v_subbrev_")
_EXEC_MASK_OPS = ("_saveexec_", "_wrexec_")
# LLVM's names of instructions that the tables name differently.
_RENAMED = {
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
}
_DPP, _NO_ADDRESS, _VCCZ = 250, 0x7F, 251


def build_instruction(data: bytes, target: str) -> Instruction:
    """Return the instruction that `data` (up to 16 bytes) starts with."""
    inst, mnemonic, supplement = _recognise(data, target)
    if lacks(target, mnemonic):
        raise UnsupportedInstruction(f"{target} has no {mnemonic}")
    builder = _Builder(
        inst=inst, mnemonic=mnemonic, supplement=supplement, target=target, data=data
    )
    return builder.build()


def import_tables() -> None:
    """Import the encoding tables, which the first instruction would do."""
    _recognise(b"\0\0\x81\xbf", "")  # s_endpgm


def _recognise(data: bytes, target: str) -> tuple[Any, str, Mfma | None]:
    """Return tinygrad's instruction, LLVM's mnemonic, and a replacement of the tables' operands."""
    from tinygrad.renderer.amd import decode_inst
    from tinygrad.runtime.autogen.amd.cdna.ins import VOP3P_MFMA

    word, mnemonic = int.from_bytes(data[:4], "little"), ""
    if is_cdna2(target):
        for encoding in CDNA2_ALIASES:
            word, alias = encoding.replace(word)
            mnemonic = alias or mnemonic
        data = word.to_bytes(4, "little") + data[4:]
    if word >> 23 == 0x1A7:  # VOP3P
        table = CDNA2_MFMA if is_cdna2(target) else CDNA3_MFMA
        supplement = table.get(word >> 16 & 0x7F)
        if supplement is not None:
            inst = object.__new__(VOP3P_MFMA)  # from_bytes refuses an unknown opcode
            inst._raw = int.from_bytes(data[:8], "little")
            return inst, supplement.mnemonic, supplement
    try:
        inst = decode_inst(data, "cdna")
        name = inst.op.name.lower().removesuffix("_e32").removesuffix("_e64")
    except (ValueError, AssertionError, KeyError) as err:
        raise UnsupportedInstruction(
            f"no CDNA instruction starts with the bytes {data[:8].hex(' ')}"
        ) from err
    return inst, mnemonic or _RENAMED.get(name, name), None


class _Builder:
    """Translate one of tinygrad's instructions into an `Instruction`."""

    def __init__(
        self, *, inst: Any, mnemonic: str, supplement: Mfma | None, target: str, data: bytes
    ) -> None:
        self.inst = inst
        self.mnemonic = mnemonic
        self.supplement = supplement
        self.target = target
        self.data = data
        self.cls = type(inst).__name__
        self.fields = {name: _raw(inst, name, bits) for name, bits in inst._fields}
        self.encoding, self.variant = self._encoding()
        if is_cdna2(target) and self.encoding in ("GLOBAL", "SCRATCH") and self.fields["sve"]:
            self.mnemonic = mnemonic.replace("_load_", "_load_lds_")  # its LDS bit
        if self.encoding == "VOPC" and not self.variant and self.fields["src0"] == _DPP:
            raise UnsupportedInstruction(f"{mnemonic} has no DPP form")
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
            self._supplementary_operands(self.supplement)
        elif self.encoding in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "DS"):
            self._memory_operands()
        elif self.encoding == "SMEM":
            self._scalar_memory_operands()
        else:
            self._alu_operands()
        self._implicit_operands()
        self._check_registers()
        size = self.inst.size()
        raw = int.from_bytes(self.data[:size], "little")
        return Instruction(
            mnemonic=self.mnemonic,
            encoding=self.encoding,
            variant=self.variant,
            size=size,
            raw=raw,
            fields=self.fields,
            dst=tuple(self.dst),
            src=tuple(self.src),
            vector_reads=_mask(self.src, "v"),
            vector_writes=_mask(self.dst, "v"),
            scalar_reads=_mask(self.src, "s"),
            scalar_writes=_mask(self.dst, "s"),
            target=self.target,
        )

    # -- operands by family ------------------------------------------------------------------------

    def _alu_operands(self) -> None:
        operands = self.inst.operands
        op_bits = self.inst.op_bits
        for name, (fmt, _, kind) in operands.items():
            if name == "simm16" or (self.mnemonic == "s_set_gpr_idx_on" and name == "ssrc1"):
                continue
            canonical = _canonical(name)
            bits = op_bits[name]
            code = self._code(name, canonical)
            if self.encoding == "MFMA" and kind.name != "OPR_SIMM4":
                code = self._accumulator_code(canonical, code)
            elif "ACCVGPR" in kind.name and "VGPR_OR" not in kind.name and code >= 256:
                code += AGPR0
            if canonical == "vdst" and kind.name.startswith("OPR_SREG"):  # v_readlane
                code = self.fields[name]
            operand = self._operand(canonical, code, bits, fmt.name)
            written = canonical in ("vdst", "sdst") and not self.mnemonic.startswith(_ONLY_READS)
            (self.dst if written else self.src).append(operand)
        if self.encoding == "VOPC" and self.variant and self.fields["sd"]:
            self.dst.append(self._operand("sdst", self.fields["sdst"], 64, "FMT_NUM_M64"))
        if self.mnemonic.startswith(_READS_DESTINATION) and self.dst:
            self.src.append(self.dst[0])

    def _supplementary_operands(self, supplement: Mfma) -> None:
        single = "I32" if "_i32_" in supplement.mnemonic else "F32"
        for name in ("vdst", "src0", "src1", "src2"):
            code = self.fields[name] + (256 if name == "vdst" else 0)
            factor = name in ("src0", "src1")
            count = supplement.inputs if factor else supplement.accumulators
            fmt = "B32" if factor else f"PK{count}_{single}"
            operand = self._operand(name, self._accumulator_code(name, code), 32 * count, fmt)
            (self.dst if name == "vdst" else self.src).append(operand)

    def _code(self, name: str, canonical: str) -> int:
        """Return the 9-bit operand code of a field: 0..255 scalar and constants, 256.. VGPR."""
        fields = self.fields
        if self.variant and canonical == "src0":  # SDWA and DPP have the real src0 in another field
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
        to_lds = bool(fields.get("lds")) or "_load_lds_" in mnemonic
        for name, (fmt, _, _) in self.inst.operands.items():
            bits = self.inst.op_bits[name]
            if name in ("vdst", "vdata", "data", "data0", "data1"):
                self._data_operand(name, bits, fmt.name, to_lds)
            elif name == "saddr":
                if fields["saddr"] != _NO_ADDRESS and self.encoding != "FLAT":
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
        if to_lds or "addtid" in mnemonic or mnemonic in ("ds_append", "ds_consume"):
            self.src.append(self._operand("m0", M0, 32, "FMT_NUM_B32"))

    def _data_operand(self, name: str, bits: int, fmt: str, to_lds: bool) -> None:
        fields = self.fields
        code = fields[name] + 256 + (AGPR0 if fields.get("acc") else 0)
        operand = self._operand(name, code, bits, fmt)
        atomic, store = "_atomic_" in self.mnemonic, "_store_" in self.mnemonic
        if atomic and name == "vdata":
            self.src.append(operand)
            bits //= 1 + ("cmpswap" in self.mnemonic)  # returns one of its two operands
            operand = self._operand(name, code, bits, fmt)
        if name not in ("vdst", "vdata") or (store and not atomic):
            self.src.append(operand)
        elif not to_lds and (not atomic or fields["sc0"]):
            self.dst.append(operand)

    def _address_operand(self, bits: int, fmt: str) -> None:
        fields = self.fields
        if self.encoding == "FLAT":
            bits = 64
        elif self.encoding == "GLOBAL":
            bits = 32 if fields["saddr"] != _NO_ADDRESS else 64
        elif self.encoding == "SCRATCH":
            # CDNA3 and later use the VGPR if the bit SVE is set. That bit has another meaning on
            # CDNA2, which uses the VGPR if there is no SADDR.
            alone = fields["saddr"] == _NO_ADDRESS
            if not (alone if is_cdna2(self.target) else fields["sve"]):
                return
            bits = 32
        self.src.append(self._operand("addr", fields["addr"] + 256, bits, fmt))

    def _scalar_memory_operands(self) -> None:
        fields, mnemonic = self.fields, self.mnemonic
        atomic = "_atomic_" in mnemonic
        for name, (fmt, _, _) in self.inst.operands.items():
            bits = self.inst.op_bits[name]
            if name == "sdata" and not mnemonic.startswith("s_atc_probe"):
                if "_store_" in mnemonic or atomic:
                    self.src.append(self._operand(name, fields[name], bits, fmt.name))
                if "_store_" not in mnemonic and (not atomic or fields["glc"]):
                    width = bits // 2 if "cmpswap" in mnemonic else bits
                    self.dst.append(self._operand(name, fields[name], width, fmt.name))
            elif name == "sbase":
                wide = 128 if "_buffer" in mnemonic else 64
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
        if any(op.kind == "special" and op.index == _VCCZ for op in self.src):
            self.src.append(self._operand("vcc", VCC, 64, "FMT_NUM_B64"))
        if mnemonic.startswith("s_set_gpr_idx_") and mnemonic != "s_set_gpr_idx_off":
            self.dst.append(self._operand("m0", M0, 32, "FMT_NUM_B32"))
        if mnemonic.startswith("s_movrel"):
            self.src.append(self._operand("m0", M0, 32, "FMT_NUM_B32"))
        if mnemonic.startswith("v_swap_") or "_swap_b32" in mnemonic:
            self.dst.append(self.src[0])

    def _check_registers(self) -> None:
        """Refuse operands beyond the end of a register file, and results that are not registers."""
        for op in (*self.dst, *self.src):
            end = {"s": 128, "v": 256 if op.index < AGPR0 else 512}.get(op.kind)
            if end is not None and op.index + op.count > end:
                raise UnsupportedInstruction(
                    f"{self.mnemonic}: {op.field} of {op.count} registers starts at the last "
                    f"{end - op.index} of its file"
                )
        for op in self.dst:
            if op.kind not in ("s", "v"):
                raise UnsupportedInstruction(
                    f"{self.mnemonic}: {op.field} {op.index} is not a writable register"
                )

    def _operand(self, name: str, code: int, bits: int, fmt: str) -> Operand:
        kind: OperandKind
        if code >= 256:
            kind = "v"
        elif code < 128:
            kind = "s"
        else:
            constant = code <= 208 or 240 <= code <= 248 or code == LITERAL
            kind = "imm" if constant else "special"
        return Operand(
            field=name,
            kind=kind,
            index=code - 256 if kind == "v" else code,
            count=max(1, bits // 32),
            bits=bits,
            fmt=fmt.removeprefix("FMT_NUM_").removeprefix("FMT_"),
            literal=self.fields.get("literal", 0) if code == LITERAL else 0,
        )


def _raw(inst: Any, name: str, bits: Any) -> int:
    return int(inst._raw >> bits.lo & bits.mask)  # noqa: SLF001  # the only way to all bits


def _canonical(name: str) -> str:
    return name[1:] if name in ("vsrc0", "vsrc1", "ssrc0", "ssrc1") else name


def _mask(operands: list[Operand], kind: str) -> int:
    mask = 0
    for op in operands:
        if op.kind == kind:
            mask |= ((1 << op.count) - 1) << op.index
    return mask
