"""Print decoded instructions as the assembly text of LLVM's disassembler.

An instruction is a mnemonic, operands and modifiers. Each encoding has one function that yields the
operand texts in LLVM's order and one that yields the modifiers; everything else is tables of names. The
text is for error messages and listings, and the tests hold it against LLVM's own word by word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa import AGPR0, LITERAL, Instruction, Operand, decode

_SCALAR_NAMES = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = dict(
    zip(range(240, 248), "0.5 -0.5 1.0 -1.0 2.0 -2.0 4.0 -4.0".split(), strict=True)
)
_SPECIAL = {
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit",
    239: "src_pops_exiting_wave_id", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
    254: "src_lds_direct",
}  # fmt: skip
_SDWA_SELECT = (
    "BYTE_0",
    "BYTE_1",
    "BYTE_2",
    "BYTE_3",
    "WORD_0",
    "WORD_1",
    "DWORD",
    "invalid",
)
_SDWA_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "invalid")
_DPP_CONTROL = {
    0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1",
    0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31",
}  # fmt: skip
_DPP_SHIFTS = {
    0x100: "row_shl",
    0x110: "row_shr",
    0x120: "row_ror",
    0x150: "row_newbcast",
}
_OMOD = ("", "mul:2", "mul:4", "div:2")
# Compact encodings whose mnemonic carries a suffix in LLVM's text; VOP3 has _e64 only for their twins.
_COMPACT = ("VOP1", "VOP2", "VOPC")


def disassemble(code: bytes, base: int = 0) -> Iterator[tuple[int, str]]:
    """Yield ``(pc, text)`` for every instruction of `code`, whose first byte is at pc `base`.

    Bytes that are no instruction come out as ``.long`` so that a listing never stops half-way.
    """
    offset = 0
    while offset + 4 <= len(code):
        try:
            inst = decode(code, offset)
        except UnsupportedInstruction:
            yield (
                base + offset,
                f".long 0x{int.from_bytes(code[offset : offset + 4], 'little'):08x}",
            )
            offset += 4
        else:
            yield base + offset, format_instruction(inst, base + offset)
            offset += inst.size


def format_instruction(inst: Instruction, pc: int | None = None) -> str:
    """Return the assembly text of `inst`.

    Parameters
    ----------
    inst : Instruction
    pc : int, optional
        Where the instruction is. A branch target is then its absolute byte offset, ``0x1c0``; otherwise it
        is relative to the branch, ``pc+0x1c``.
    """
    if inst.encoding == "SOPP":
        return _program_control(inst, pc)
    operands, modifiers = _FORMATS[inst.encoding]
    text = mnemonic_with_suffix(inst)
    listed = ", ".join(operands(inst, pc))
    return " ".join(filter(None, (text, listed, *modifiers(inst))))


def mnemonic_with_suffix(inst: Instruction) -> str:
    """Return LLVM's mnemonic with ``_e32``, ``_e64``, ``_sdwa`` or ``_dpp`` where it prints one."""
    if inst.variant:
        return f"{inst.mnemonic}_{inst.variant.lower()}"
    if inst.encoding in _COMPACT and not inst.mnemonic.startswith(_NEVER_SUFFIXED):
        return f"{inst.mnemonic}_e32"
    if inst.encoding == "VOP3" and inst.fields["op"] < 0x1C0 and not _vop3_only(inst):
        return f"{inst.mnemonic}_e64"
    return inst.mnemonic


_NEVER_SUFFIXED = (
    "v_fmamk", "v_fmaak", "v_madmk", "v_madak", "v_readfirstlane", "v_swap_b32", "v_nop", "v_clrexcp",
    "v_accvgpr_mov",
)  # fmt: skip


def _vop3_only(inst: Instruction) -> bool:
    return inst.fields["op"] >= 0x180 or inst.mnemonic.startswith("v_nop")


# -- operands ------------------------------------------------------------------------------------------


def operand_text(op: Operand) -> str:
    """Return a register, constant or special source by name."""
    if op.kind == "v":
        file, first = ("a", op.index - AGPR0) if op.index >= AGPR0 else ("v", op.index)
        return (
            f"{file}{first}"
            if op.count == 1
            else f"{file}[{first}:{first + op.count - 1}]"
        )
    if op.kind == "s":
        return _scalar_text(op.index, op.count)
    if op.index == LITERAL:
        return f"0x{op.literal:x}"
    return _constant_text(op.index, op.bits)


def _scalar_text(index: int, count: int) -> str:
    if index == 124:
        return "m0"
    if index < 102 or 108 <= index < 124:
        file, first = ("s", index) if index < 102 else ("ttmp", index - 108)
        return (
            f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"
        )
    name = _SCALAR_NAMES.get(index & ~1, f"s{index}")
    return name if count == 2 else f"{name}_{'hi' if index & 1 else 'lo'}"


def _constant_text(code: int, bits: int) -> str:
    if 128 <= code <= 208:
        return str(code - 128 if code <= 192 else 192 - code)
    if code == 248:
        return "0.15915494309189532" if bits == 64 else "0.15915494"
    return _FLOATS.get(code) or _SPECIAL.get(code) or f"invalid_{code}"


def _named(inst: Instruction, *names: str) -> Iterator[str]:
    for name in names:
        if (op := inst.operand(name)) is not None:
            yield operand_text(op)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# -- scalar instructions -------------------------------------------------------------------------------


def _program_control(inst: Instruction, pc: int | None) -> str:
    mnemonic, simm16 = inst.mnemonic, inst.fields["simm16"]
    if mnemonic == "s_waitcnt":
        return f"s_waitcnt {_waitcnt_text(simm16)}"
    if mnemonic.startswith(("s_branch", "s_cbranch")):
        return f"{mnemonic} {_target(inst, pc)}"
    if mnemonic in (
        "s_endpgm",
        "s_barrier",
        "s_wakeup",
        "s_icache_inv",
        "s_set_gpr_idx_off",
    ):
        return mnemonic if not simm16 else f"{mnemonic} {simm16}"
    if mnemonic == "s_set_gpr_idx_mode":
        return f"{mnemonic} {_gpr_index_text(simm16)}"
    return f"{mnemonic} {simm16}"


def _waitcnt_text(simm16: int) -> str:
    vmcnt = simm16 & 0xF | simm16 >> 10 & 0x30
    expcnt, lgkmcnt = simm16 >> 4 & 7, simm16 >> 8 & 0xF
    every = vmcnt == 63 and expcnt == 7 and lgkmcnt == 15
    parts = [
        f"{name}({value})"
        for name, value, idle in (
            ("vmcnt", vmcnt, 63),
            ("expcnt", expcnt, 7),
            ("lgkmcnt", lgkmcnt, 15),
        )
        if value != idle or every
    ]
    return " ".join(parts)


def _target(inst: Instruction, pc: int | None) -> str:
    offset = 4 + 4 * _signed(inst.fields["simm16"], 16)
    return f"pc{offset:+#x}" if pc is None else f"{pc + offset:#x}"


def _gpr_index_text(bits: int) -> str:
    names = ("SRC0", "SRC1", "SRC2", "DST")
    return f"gpr_idx({','.join(name for i, name in enumerate(names) if bits >> i & 1)})"


def _scalar_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    if inst.mnemonic == "s_set_gpr_idx_on":
        yield from _named(inst, "src0")
        yield _gpr_index_text(inst.fields["ssrc1"])
        return
    yield from _named(inst, "sdst", "src0", "src1")


def _constant_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    simm16 = inst.fields["simm16"]
    if inst.mnemonic.startswith("s_setreg"):
        yield _hardware_register_text(simm16)
        if inst.mnemonic == "s_setreg_imm32_b32":
            yield f"0x{inst.fields['literal']:x}"
        else:
            yield from _named(inst, "sdst")
        return
    yield from _named(inst, "sdst")
    if inst.mnemonic == "s_getreg_b32":
        yield _hardware_register_text(simm16)
    elif inst.mnemonic in ("s_call_b64", "s_cbranch_i_fork"):
        yield _target(inst, pc)
    else:
        yield f"0x{simm16:x}"


_HARDWARE_REGISTERS = {
    1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 5: "HW_REG_GPR_ALLOC",
    6: "HW_REG_LDS_ALLOC", 7: "HW_REG_IB_STS", 15: "HW_REG_SH_MEM_BASES", 16: "HW_REG_TBA_LO",
    17: "HW_REG_TBA_HI", 18: "HW_REG_TMA_LO", 19: "HW_REG_TMA_HI", 20: "HW_REG_XCC_ID",
    21: "HW_REG_SQ_PERF_SNAPSHOT_DATA", 22: "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
    23: "HW_REG_SQ_PERF_SNAPSHOT_PC_LO", 24: "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
}  # fmt: skip


def _hardware_register_text(simm16: int) -> str:
    number, offset, width = simm16 & 0x3F, simm16 >> 6 & 0x1F, (simm16 >> 11) + 1
    name = _HARDWARE_REGISTERS.get(number, str(number))
    return (
        f"hwreg({name})"
        if (offset, width) == (0, 32)
        else f"hwreg({name}, {offset}, {width})"
    )


def _scalar_memory_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    yield from _named(inst, "sdata", "sbase")
    fields = inst.fields
    if inst.operand("sbase") is None:
        return
    if (offset := inst.operand("soffset")) is not None:
        yield operand_text(offset)
    elif fields["imm"]:
        yield _hex(_signed(fields["offset"], 21))


def _scalar_memory_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if fields["soffset_en"] and fields["imm"] and inst.operand("sbase") is not None:
        yield f"offset:{_hex(_signed(fields['offset'], 21))}"
    if fields["glc"]:
        yield "glc"


def _hex(value: int) -> str:
    return f"-0x{-value:x}" if value < 0 else f"0x{value:x}"


# -- vector ALU ----------------------------------------------------------------------------------------


def _vector_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    mnemonic = inst.mnemonic
    compact = inst.encoding in _COMPACT
    yield from _named(inst, "vdst")
    explicit = inst.operand("sdst")
    if explicit is not None:
        yield operand_text(explicit)
    elif inst.operand("vcc") in inst.dst and compact:
        yield "vcc"
    sources = [
        op
        for name in ("src0", "src1", "src2")
        if (op := inst.operand(name)) is not None
    ]
    for position, op in enumerate(sources):
        if (
            position
            and position == len(sources) - 1
            and mnemonic.startswith(("v_fmaak", "v_madak"))
        ):
            yield operand_text(op)
            yield f"0x{inst.fields['literal']:x}"
            return
        yield _with_input_modifiers(inst, op, position)
        if not position and mnemonic.startswith(("v_fmamk", "v_madmk")):
            yield f"0x{inst.fields['literal']:x}"
    if compact and mnemonic.startswith(("v_cndmask", "v_addc", "v_subb")):
        yield "vcc"


def _with_input_modifiers(inst: Instruction, op: Operand, position: int) -> str:
    text, fields = operand_text(op), inst.fields
    if inst.encoding in ("VOP3P", "MFMA"):
        return text
    if inst.variant:
        negate, magnitude = (
            fields.get(f"src{position}_{what}", 0) for what in ("neg", "abs")
        )
        extend = fields.get(f"src{position}_sext", 0)
    else:
        negate, magnitude = (
            fields.get(what, 0) >> position & 1 for what in ("neg", "abs")
        )
        extend = 0
    if magnitude:
        text = f"|{text}|"
    if extend:
        text = f"sext({text})"
    return f"-{text}" if negate else text


def _vector_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if inst.encoding == "VOP3P":
        yield from _packed_modifiers(inst)
    elif inst.encoding == "VOP3" and (opsel := fields.get("opsel", 0)):
        count = sum(op.field in ("src0", "src1", "src2") for op in inst.src)
        yield _bits("op_sel", [opsel >> i & 1 for i in range(count)] + [opsel >> 3 & 1])
    if fields.get("clmp") and inst.encoding != "MFMA":
        yield "clamp"
    if fields.get("omod"):
        yield _OMOD[fields["omod"]]
    if inst.variant == "SDWA":
        yield from _sdwa_modifiers(inst)
    elif inst.variant == "DPP":
        yield from _dpp_modifiers(inst)


def _bits(name: str, values: list[int]) -> str:
    return f"{name}:[{','.join(map(str, values))}]"


def _packed_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    count = sum(op.field in ("src0", "src1", "src2") for op in inst.src)
    high = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    every = (1 << count) - 1
    default_high = 0 if "_mix" in inst.mnemonic else every
    for name, value, default in (
        ("op_sel", fields["opsel"], 0),
        ("op_sel_hi", high, default_high),
        ("neg_lo", fields["neg"], 0),
        ("neg_hi", fields["neg_hi"], 0),
    ):
        if value & every != default:
            yield _bits(name, [value >> i & 1 for i in range(count)])


def _matrix_modifiers(inst: Instruction) -> Iterator[str]:
    for name in ("cbsz", "abid", "blgp"):
        if inst.fields.get(name):
            yield f"{name}:{inst.fields[name]}"


def _sdwa_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if "dst_sel" in fields:
        yield f"dst_sel:{_SDWA_SELECT[fields['dst_sel']]}"
        yield f"dst_unused:{_SDWA_UNUSED[fields['dst_unused']]}"
    yield f"src0_sel:{_SDWA_SELECT[fields['src0_sel']]}"
    if inst.operand("src1") is not None:
        yield f"src1_sel:{_SDWA_SELECT[fields['src1_sel']]}"


def _dpp_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    control = fields["dpp"]
    if control < 0x100:
        yield _bits("quad_perm", [control >> shift & 3 for shift in (0, 2, 4, 6)])
    elif control in _DPP_CONTROL:
        yield _DPP_CONTROL[control]
    else:
        yield f"{_DPP_SHIFTS.get(control & 0x1F0, 'invalid')}:{control & 15}"
    yield f"row_mask:0x{fields['row_mask']:x}"
    yield f"bank_mask:0x{fields['bank_mask']:x}"
    if fields["bc"]:
        yield "bound_ctrl:0"


# -- memory --------------------------------------------------------------------------------------------


def _lds_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    yield from _named(inst, "vdst", "addr", "data0", "data1")


def _lds_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if any(part in inst.mnemonic for part in ("read2", "write2", "wrxchg2")):
        for name in ("offset0", "offset1"):
            if fields[name]:
                yield f"{name}:{fields[name]}"
    elif offset := fields["offset0"] | fields["offset1"] << 8:
        yield f"offset:{offset}"
    if fields["gds"]:
        yield "gds"


def _flat_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    address = inst.operand("addr")
    yield from _named(inst, "vdst")
    yield operand_text(address) if address is not None else "off"
    yield from _named(inst, "data")
    if inst.encoding != "FLAT":
        base = inst.operand("saddr")
        yield operand_text(base) if base is not None else "off"


def _flat_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    offset = (
        fields["offset"] if inst.encoding == "FLAT" else _signed(fields["offset"], 13)
    )
    if offset:
        yield f"offset:{offset}"
    yield from (name for name in ("sc0", "nt", "sc1") if fields[name])


def _buffer_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    if inst.operand("srsrc") is None:
        return
    if not inst.fields.get("lds"):
        yield from _named(inst, "vdata")
    address = inst.operand("vaddr")
    yield operand_text(address) if address is not None else "off"
    yield from _named(inst, "srsrc", "soffset")


def _buffer_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    yield from (name for name in ("idxen", "offen") if fields[name])
    if fields["offset"]:
        yield f"offset:{fields['offset']}"
    yield from (name for name in ("sc0", "nt", "sc1", "lds") if fields.get(name))


def _no_modifiers(inst: Instruction) -> Iterator[str]:
    return iter(())


_Operands = Callable[[Instruction, "int | None"], Iterator[str]]
_Modifiers = Callable[[Instruction], Iterator[str]]
_FORMATS: dict[str, tuple[_Operands, _Modifiers]] = {
    "SOP1": (_scalar_operands, _no_modifiers),
    "SOP2": (_scalar_operands, _no_modifiers),
    "SOPC": (_scalar_operands, _no_modifiers),
    "SOPK": (_constant_operands, _no_modifiers),
    "SMEM": (_scalar_memory_operands, _scalar_memory_modifiers),
    "VOP1": (_vector_operands, _vector_modifiers),
    "VOP2": (_vector_operands, _vector_modifiers),
    "VOPC": (_vector_operands, _vector_modifiers),
    "VOP3": (_vector_operands, _vector_modifiers),
    "VOP3P": (_vector_operands, _vector_modifiers),
    "MFMA": (_vector_operands, _matrix_modifiers),
    "DS": (_lds_operands, _lds_modifiers),
    "FLAT": (_flat_operands, _flat_modifiers),
    "GLOBAL": (_flat_operands, _flat_modifiers),
    "SCRATCH": (_flat_operands, _flat_modifiers),
    "MUBUF": (_buffer_operands, _buffer_modifiers),
    "MTBUF": (_buffer_operands, _buffer_modifiers),
}
