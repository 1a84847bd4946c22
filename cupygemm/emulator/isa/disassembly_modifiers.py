"""Format the parts of an instruction after its operands: waits, lane patterns, modifiers.

Each function yields words in LLVM's order. The lane patterns (DPP, SDWA, ds_swizzle) are described
in the CDNA3 ISA guide, chapters 6 and 12; the spelling is LLVM's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cupygemm.emulator.isa.instruction import Instruction, hardware_bits, signed, wait_counts
from cupygemm.emulator.isa.targets import is_cdna2

_SDWA_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "invalid")
_SDWA_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "invalid")
_DPP_CONTROL = {
    0x130: "wave_shl:1",
    0x134: "wave_rol:1",
    0x138: "wave_shr:1",
    0x13C: "wave_ror:1",
    0x140: "row_mirror",
    0x141: "row_half_mirror",
    0x142: "row_bcast:15",
    0x143: "row_bcast:31",
}
_DPP_SHIFTS = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_newbcast"}
_OMOD = ("", "mul:2", "mul:4", "div:2")
_HARDWARE_REGISTERS = {
    1: "MODE",
    2: "STATUS",
    3: "TRAPSTS",
    4: "HW_ID",
    5: "GPR_ALLOC",
    6: "LDS_ALLOC",
    7: "IB_STS",
    15: "SH_MEM_BASES",
    16: "TBA_LO",
    17: "TBA_HI",
    18: "TMA_LO",
    19: "TMA_HI",
    20: "XCC_ID",
    21: "SQ_PERF_SNAPSHOT_DATA",
    22: "SQ_PERF_SNAPSHOT_DATA1",
    23: "SQ_PERF_SNAPSHOT_PC_LO",
    24: "SQ_PERF_SNAPSHOT_PC_HI",
}
# Conversions of two operands that use the op_sel bit of a third to select a byte of the result.
_WITH_BYTE_SELECT = (
    "v_cvt_sr_fp8",
    "v_cvt_sr_bf8",
    "v_cvt_scalef32_pk_fp4_f16",
    "v_cvt_scalef32_pk_fp4_bf16",
)
# The names on CDNA2 of the cache policy bits that are sc0, nt and sc1 from CDNA3 on.
_CDNA2_CACHE = {"sc0": "glc", "nt": "slc", "sc1": "scc"}

# Formats of typed buffers, as LLVM names them (AMDGPUBaseInfo.cpp, AMDGPUAsmUtils.cpp).
DATA_FORMATS = (
    "INVALID 8 16 8_8 32 16_16 10_11_11 11_11_10 10_10_10_2 2_10_10_10 8_8_8_8 32_32 16_16_16_16 "
    "32_32_32 32_32_32_32 RESERVED_15"
).split()
NUMBER_FORMATS = "UNORM SNORM USCALED SSCALED UINT SINT RESERVED_6 FLOAT".split()


def bit_list(name: str, bits: int, count: int) -> str:
    """Return ``name:[0,1,...]``, lowest bit first."""
    return _values(name, [bits >> position & 1 for position in range(count)])


def _values(name: str, values: Sequence[int]) -> str:
    return f"{name}:[{','.join(map(str, values))}]"


# -- scalar ----------------------------------------------------------------------------------------


def waitcnt_text(simm16: int) -> str:
    """Return ``vmcnt(0) lgkmcnt(0)`` for the immediate of s_waitcnt; idle counters are left out."""
    vm, lgkm = wait_counts(simm16)
    counters = (("vmcnt", vm, 63), ("expcnt", simm16 >> 4 & 7, 7), ("lgkmcnt", lgkm, 15))
    idle = all(value == most for _, value, most in counters)
    return " ".join(f"{name}({value})" for name, value, most in counters if idle or value != most)


def gpr_index_text(bits: int) -> str:
    """Return the operands that s_set_gpr_idx_on indexes."""
    names = ("SRC0", "SRC1", "SRC2", "DST")
    chosen = ",".join(name for position, name in enumerate(names) if bits >> position & 1)
    return f"gpr_idx({chosen})"


def hardware_register_text(simm16: int, target: str) -> str:
    """Return the register of s_getreg or s_setreg, with the range of bits unless it is whole."""
    number, offset, width = hardware_bits(simm16)
    name = _HARDWARE_REGISTERS.get(number) if number < 20 or not is_cdna2(target) else None
    text = str(number) if name is None else f"HW_REG_{name}"
    return f"hwreg({text})" if (offset, width) == (0, 32) else f"hwreg({text}, {offset}, {width})"


# -- vector ALU ------------------------------------------------------------------------------------


def vector_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the modifiers of a VOP instruction."""
    fields = inst.fields
    if inst.mnemonic.startswith("v_accvgpr"):
        return
    if inst.encoding == "VOP3P":
        yield from _packed_modifiers(inst)
    elif inst.mnemonic.startswith("v_bitop3"):
        if table := fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]:
            yield f"bitop3:{table}" if table <= 10 else f"bitop3:0x{table:x}"
        if fields["opsel"]:
            yield bit_list("op_sel", fields["opsel"], 4)
        fields = {"clmp": fields["clmp"]}
    elif "_swap_b32" in inst.mnemonic and fields.get("opsel"):
        yield from (
            name for bit, name in ((2, "bound_ctrl:1"), (1, "fi:1")) if fields["opsel"] & bit
        )
    elif fields.get("opsel"):
        count = 3 if inst.mnemonic.startswith(_WITH_BYTE_SELECT) else _num_sources(inst)
        bits = fields["opsel"] & (1 << count) - 1 | fields["opsel"] >> 3 << count
        yield bit_list("op_sel", bits, count + 1)
    if fields.get("clmp"):
        yield "clamp"
    if fields.get("omod"):
        yield _OMOD[fields["omod"]]
    if inst.variant == "SDWA":
        yield from _sdwa_modifiers(inst)
    elif inst.variant == "DPP":
        yield from _dpp_modifiers(inst)


def _num_sources(inst: Instruction) -> int:
    return len({op.field for op in inst.src} & {"src0", "src1", "src2"})


def _packed_modifiers(inst: Instruction) -> Iterator[str]:
    fields, mnemonic = inst.fields, inst.mnemonic
    count = _num_sources(inst)
    every = (1 << count) - 1
    high = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    mixed = "fma_mix" in mnemonic
    if not mnemonic.startswith(("v_dot4", "v_dot8")):
        if fields["opsel"] & every:
            yield bit_list("op_sel", fields["opsel"], count)
        if high & every != (0 if mixed else every):
            yield bit_list("op_sel_hi", high, count)
    if not mixed:  # neg and abs are printed with the operands
        for name, bits in (("neg_lo", fields["neg"]), ("neg_hi", fields["neg_hi"])):
            if bits & every:
                yield bit_list(name, bits, count)


def matrix_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the broadcast and format modifiers of an MFMA."""
    fields = inst.fields
    if "x2encoding" in fields:  # scaled: two bits choose the byte of each scale; ABID is a marker
        selects = fields["opsel"] & 3, fields["opsel_hi"] & 3
        yield from (
            bit_list(name, bits, 3)
            for name, bits, default in zip(("op_sel", "op_sel_hi"), selects, (0, 7), strict=True)
            if bits != default
        )
    if fields.get("cbsz"):
        yield f"cbsz:{fields['cbsz']}"
    if fields.get("abid") and "x2encoding" not in fields:
        yield f"abid:{fields['abid']}"
    if fields.get("blgp"):
        negates = "_f64_" in inst.mnemonic and not is_cdna2(inst.target)
        yield bit_list("neg", fields["blgp"], 3) if negates else f"blgp:{fields['blgp']}"


def _sdwa_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if "dst_sel" in fields and not _converts_from_fp8(inst):
        yield f"dst_sel:{_SDWA_SELECT[fields['dst_sel']]}"
        yield f"dst_unused:{_SDWA_UNUSED[fields['dst_unused']]}"
    yield f"src0_sel:{_SDWA_SELECT[fields['src0_sel']]}"
    if inst.operand("src1") is not None:
        yield f"src1_sel:{_SDWA_SELECT[fields['src1_sel']]}"


def _converts_from_fp8(inst: Instruction) -> bool:
    return inst.mnemonic.startswith("v_cvt_") and inst.mnemonic.endswith(("_f32_fp8", "_f32_bf8"))


def _dpp_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    control = fields["dpp"]
    if control < 0x100:
        yield _values("quad_perm", [control >> shift & 3 for shift in (0, 2, 4, 6)])
    elif control in _DPP_CONTROL:
        yield _DPP_CONTROL[control]
    else:
        yield f"{_DPP_SHIFTS.get(control & 0x1F0, 'invalid')}:{control & 15}"
    yield f"row_mask:0x{fields['row_mask']:x}"
    yield f"bank_mask:0x{fields['bank_mask']:x}"
    if fields["bc"]:
        yield "bound_ctrl:1"


# -- memory ----------------------------------------------------------------------------------------


def lds_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the offsets of a DS instruction."""
    fields, mnemonic = inst.fields, inst.mnemonic
    offset = fields["offset0"] | fields["offset1"] << 8
    if any(part in mnemonic for part in ("read2", "write2", "wrxchg2")):
        for name in ("offset0", "offset1"):
            if fields[name]:
                yield f"{name}:{fields[name]}"
    elif mnemonic == "ds_swizzle_b32":
        if offset:
            yield f"offset:{_swizzle_text(offset)}"
    elif offset:
        yield f"offset:{offset}"
    if fields["gds"]:
        yield "gds"


def _swizzle_text(offset: int) -> str:
    if offset >> 8 == 0x80:
        return f"swizzle(QUAD_PERM,{','.join(str(offset >> shift & 3) for shift in (0, 2, 4, 6))})"
    if offset >> 13 == 6:
        return f"swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset >> 13 == 7:
        return f"swizzle(FFT,{offset & 31})"
    if offset >> 15:
        return str(offset)
    keep, with_or, with_xor = offset & 31, offset >> 5 & 31, offset >> 10
    if keep == 31 and not with_or and with_xor & with_xor + 1 == 0 and with_xor:
        return f"swizzle(REVERSE,{with_xor + 1})" if with_xor > 1 else "swizzle(SWAP,1)"
    if keep == 31 and not with_or and with_xor & with_xor - 1 == 0 and with_xor:
        return f"swizzle(SWAP,{with_xor})"
    size = 32 - keep
    if not with_xor and size & size - 1 == 0 and with_or < size and size > 1:
        return f"swizzle(BROADCAST,{size},{with_or})"
    return f'swizzle(BITMASK_PERM,"{_bitmask_text(keep, with_or, with_xor)}")'


def _bitmask_text(keep: int, with_or: int, with_xor: int) -> str:
    """Return the result for each lane bit, highest first: p (kept), i (inverted), 0 or 1."""
    text = ""
    for position in reversed(range(5)):
        kept, ored, flipped = (mask >> position & 1 for mask in (keep, with_or, with_xor))
        text += str(ored ^ flipped) if ored or not kept else "pi"[flipped]
    return text


def flat_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the offset and the cache policy of a FLAT, GLOBAL or SCRATCH instruction."""
    fields = inst.fields
    offset = fields["offset"] if inst.encoding == "FLAT" else signed(fields["offset"], 13)
    if offset:
        yield f"offset:{offset}"
    yield from _cache_policy(inst)
    if is_cdna2(inst.target) and "_load_lds_" in inst.mnemonic:
        yield "lds"


def buffer_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the addressing mode, offset and cache policy of a MUBUF instruction."""
    fields = inst.fields
    yield from (name for name in ("idxen", "offen") if fields[name])
    if fields["offset"]:
        yield f"offset:{fields['offset']}"
    yield from _cache_policy(inst)
    if fields.get("lds"):
        yield "lds"


def typed_buffer_modifiers(inst: Instruction) -> Iterator[str]:
    """Yield the formats of a MTBUF instruction, where they are not the default, and the rest."""
    data, number = inst.fields["dfmt"], inst.fields["nfmt"]
    names = [f"BUF_DATA_FORMAT_{DATA_FORMATS[data]}"] * (data != 1)
    names += [f"BUF_NUM_FORMAT_{NUMBER_FORMATS[number]}"] * (number != 0)
    if names:
        yield f"format:[{','.join(names)}]"
    yield from buffer_modifiers(inst)


def _cache_policy(inst: Instruction) -> Iterator[str]:
    names = _CDNA2_CACHE if is_cdna2(inst.target) else {}
    yield from (names.get(bit, bit) for bit in ("sc0", "nt", "sc1") if inst.fields[bit])
