"""Build an `Instruction` with its operands and register masks from machine code.

`encodings` has the tables. This module adds what they leave open: which operands an encoding's
modifiers switch off or widen, which registers are implied, and which operands are read rather than
written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.encodings import Encoding, Opcode, find_encoding, named
from cupygemm.emulator.isa.implied import Implied, kind_of
from cupygemm.emulator.isa.instruction import (
    AGPR0,
    EXEC,
    LITERAL,
    M0,
    VCC,
    Instruction,
    Operand,
    OperandKind,
    masks_of,
)
from cupygemm.emulator.isa.targets import (
    CDNA2_ALIASES,
    CDNA2_MFMA,
    CDNA3_MFMA,
    Mfma,
    is_cdna2,
    lacks,
)

_DPP, _NO_ADDRESS, _VCCZ = 250, 0x7F, 251
_F8F6F4_REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}  # by the format


def build_instruction(
    data: bytes, target: str, writer: Callable[[Instruction], str]
) -> Instruction:
    """Return the instruction at the start of `data` (up to 16 bytes); `writer` gives its text."""
    found = _recognise(data, target)
    if lacks(target, found.mnemonic):
        raise UnsupportedInstruction(f"{target} has no {found.mnemonic}")
    return _Builder(found, target=target, data=data).build(writer)


def read_tables() -> None:
    """Read the encoding tables now rather than at the first instruction."""
    _recognise(b"\0\0\x81\xbf", "")  # s_endpgm


class _Found(NamedTuple):
    """An instruction's encoding, bits, LLVM's mnemonic and operands."""

    encoding: Encoding
    raw: int
    mnemonic: str
    opcode: Opcode
    supplement: Mfma | None  # operands that the tables lack


def _recognise(data: bytes, target: str) -> _Found:
    """Return the instruction at the start of `data`, as the tables describe it."""
    word, mnemonic = int.from_bytes(data[:4], "little"), ""
    if is_cdna2(target):
        for alias_encoding in CDNA2_ALIASES:
            word, alias = alias_encoding.replace(word)
            mnemonic = alias or mnemonic
    raw = word | int.from_bytes(data[4:], "little") << 32
    if word >> 23 == 0x1A7:  # VOP3P
        table = CDNA2_MFMA if is_cdna2(target) else CDNA3_MFMA
        supplement = table.get(word >> 16 & 0x7F)
        if supplement is not None:
            opcode = Opcode(supplement.mnemonic, ())
            return _Found(named("VOP3P_MFMA"), raw, supplement.mnemonic, opcode, supplement)
    encoding = find_encoding(raw, len(data))
    try:
        if encoding is None:
            raise ValueError
        opcode = encoding.instruction(encoding.opcode(raw))
    except ValueError as err:
        raise UnsupportedInstruction(
            f"no CDNA instruction starts with the bytes {data[:8].hex(' ')}"
        ) from err
    return _Found(encoding, raw, mnemonic or opcode.mnemonic, opcode, None)


class _Builder:
    """Translate an instruction of the tables into an `Instruction`."""

    def __init__(self, found: _Found, *, target: str, data: bytes) -> None:
        self.mnemonic = mnemonic = found.mnemonic
        self.operands = found.opcode.operands
        self.supplement = found.supplement
        self.target = target
        self.size = found.encoding.size
        raw = found.raw
        self.raw = int.from_bytes(data[: self.size], "little")
        self.fields: dict[str, int] = {
            name: raw >> low & mask for name, low, mask in found.encoding.fields
        }
        kind = kind_of(found.encoding.name, mnemonic, self.operands)
        self.encoding, self.variant, self.implied, self.alu_operands = kind
        if self.encoding in ("GLOBAL", "SCRATCH") and is_cdna2(target) and self.fields["sve"]:
            self.mnemonic = mnemonic.replace("_load_", "_load_lds_")  # its LDS bit
        if self.encoding == "VOPC" and not self.variant and self.fields["src0"] == _DPP:
            raise UnsupportedInstruction(f"{mnemonic} has no DPP form")
        self.dst: list[Operand] = []
        self.src: list[Operand] = []

    def build(self, writer: Callable[[Instruction], str]) -> Instruction:
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
        vector_reads, scalar_reads = masks_of(self.src)
        vector_writes, scalar_writes = masks_of(self.dst)
        return Instruction(
            mnemonic=self.mnemonic,
            encoding=self.encoding,
            variant=self.variant,
            size=self.size,
            raw=self.raw,
            fields=self.fields,
            dst=tuple(self.dst),
            src=tuple(self.src),
            vector_reads=vector_reads,
            vector_writes=vector_writes,
            scalar_reads=scalar_reads,
            scalar_writes=scalar_writes,
            target=self.target,
            writer=writer,
        )

    # -- operands by family ------------------------------------------------------------------------

    def _alu_operands(self) -> None:
        for name, canonical, width, fmt, base, is_matrix, is_agpr, is_written in self.alu_operands:
            code, bits = self._code(name, canonical, base), width
            if is_matrix:
                code = self._accumulator_code(canonical, code)
                bits = self._matrix_bits(name, width)
            elif is_agpr and code >= 256:
                code += AGPR0
            operand = self._operand(canonical, code, bits, fmt)
            (self.dst if is_written else self.src).append(operand)
        if self.variant and self.encoding == "VOPC" and self.fields["sd"]:
            self.dst.append(self._operand("sdst", self.fields["sdst"], 64, "M64"))
        if self.implied.reads_destination and self.dst:
            self.src.append(self.dst[0])

    def _matrix_bits(self, name: str, bits: int) -> int:
        """Return the width of an operand; a field selects that of A or B of an f8f6f4 MFMA."""
        if "f8f6f4" not in self.mnemonic or name not in ("src0", "src1"):
            return bits
        formats = self.fields["cbsz" if name == "src0" else "blgp"]
        return 32 * _F8F6F4_REGISTERS.get(formats, 8)

    def _supplementary_operands(self, supplement: Mfma) -> None:
        single = "I32" if "_i32_" in supplement.mnemonic else "F32"
        for name in ("vdst", "src0", "src1", "src2"):
            code = self.fields[name] + (256 if name == "vdst" else 0)
            factor = name in ("src0", "src1")
            count = supplement.inputs if factor else supplement.accumulators
            fmt = "B32" if factor else f"PK{count}_{single}"
            operand = self._operand(name, self._accumulator_code(name, code), 32 * count, fmt)
            (self.dst if name == "vdst" else self.src).append(operand)

    def _code(self, name: str, canonical: str, base: int) -> int:
        """Return the 9-bit operand code of a field: 0..255 scalar and constants, 256.. VGPR."""
        fields = self.fields
        if self.variant and canonical == "src0":  # SDWA and DPP have the real src0 in another field
            scalar = self.variant == "SDWA" and fields.get("s0")
            return fields["vsrc0"] + (0 if scalar else 256)
        if self.variant == "SDWA" and canonical == "src1":
            return fields[name] + (0 if fields.get("s1") else 256)
        return fields[name] + base

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
        for name, _, bits, fmt, _ in self.operands:
            if name in ("vdst", "vdata", "data", "data0", "data1"):
                self._data_operand(name, bits, fmt, to_lds)
            elif name == "saddr":
                if fields["saddr"] != _NO_ADDRESS and self.encoding != "FLAT":
                    wide = 32 if self.encoding == "SCRATCH" else 64
                    self.src.append(self._operand(name, fields[name], wide, fmt))
            elif name == "addr":
                self._address_operand(bits, fmt)
            elif name == "vaddr":
                count = fields["offen"] + fields["idxen"]
                if count:
                    self.src.append(self._operand(name, fields[name] + 256, 32 * count, fmt))
            elif name == "srsrc":
                self.src.append(self._operand(name, fields[name] * 4, 128, fmt))
            elif name == "soffset":
                self.src.append(self._operand(name, fields[name], 32, fmt))
        if to_lds or "addtid" in mnemonic or mnemonic in ("ds_append", "ds_consume"):
            self.src.append(self._operand("m0", M0, 32, "B32"))

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
        for name, _, bits, fmt, _ in self.operands:
            if name == "sdata" and not mnemonic.startswith("s_atc_probe"):
                if "_store_" in mnemonic or atomic:
                    self.src.append(self._operand(name, fields[name], bits, fmt))
                if "_store_" not in mnemonic and (not atomic or fields["glc"]):
                    width = bits // 2 if "cmpswap" in mnemonic else bits
                    self.dst.append(self._operand(name, fields[name], width, fmt))
            elif name == "sbase":
                wide = 128 if "_buffer" in mnemonic else 64
                self.src.append(self._operand(name, fields[name] * 2, wide, fmt))
            elif name == "soffset":
                if fields["soffset_en"]:
                    self.src.append(self._operand(name, fields[name], 32, fmt))
                elif not fields["imm"]:  # the offset field names an SGPR
                    register = fields["offset"] & 0x7F
                    self.src.append(self._operand(name, register, 32, fmt))

    def _implicit_operands(self) -> None:
        implied = self.implied
        compact = self.encoding in ("VOP2", "VOPC", "VOP1")
        if self.encoding == "VOPC" and not any(op.field == "sdst" for op in self.dst):
            self.dst.append(self._operand("vcc", VCC, 64, "M64"))
        if any(implied):
            self._implied_operands(implied, compact=compact)
        for op in self.src:
            if op.kind == "special" and op.index == _VCCZ:
                self.src.append(self._operand("vcc", VCC, 64, "B64"))
                break

    def _implied_operands(self, implied: Implied, *, compact: bool) -> None:
        """Add the operands that the mnemonic implies."""
        if implied.compares_exec:
            self.dst.append(self._operand("exec", EXEC, 64, "M64"))
        if (compact and implied.reads_vcc) or implied.reads_any_vcc:
            self.src.append(self._operand("vcc", VCC, 64, "M64"))
        if compact and implied.writes_vcc:
            self.dst.append(self._operand("vcc", VCC, 64, "M64"))
        if implied.masks_exec:
            self.src.append(self._operand("exec", EXEC, 64, "B64"))
            self.dst.append(self._operand("exec", EXEC, 64, "B64"))
        if implied.tests_vcc:
            self.src.append(self._operand("vcc", VCC, 64, "B64"))
        if implied.sets_index:
            self.dst.append(self._operand("m0", M0, 32, "B32"))
        if implied.moves_relative:
            self.src.append(self._operand("m0", M0, 32, "B32"))
        if implied.swaps:
            self.dst.append(self.src[0])

    def _check_registers(self) -> None:
        """Refuse operands beyond the end of a register file, and results that are not registers."""
        for op in (*self.dst, *self.src):
            if op.count == 1:  # which fits
                continue
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
        literal = self.fields.get("literal", 0) if code == LITERAL else 0
        return _operand(name, code, bits, fmt, literal)


@functools.lru_cache(maxsize=1 << 15)
def _operand(name: str, code: int, bits: int, fmt: str, literal: int) -> Operand:
    """Return an operand by its code, which is 256 and more for a vector register."""
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
        fmt=fmt,
        literal=literal,
    )
