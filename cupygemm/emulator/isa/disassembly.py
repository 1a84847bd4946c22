"""Format decoded instructions as LLVM's disassembler does.

An instruction is a mnemonic, operands and modifiers. Each encoding has one function that yields the
operand texts in LLVM's order; the modifiers are in `disassembly_modifiers`. Error messages and
listings show the text, and the tests compare it with LLVM's word by word. There is one intended
difference: a branch names the byte offset of its target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cupygemm.emulator.isa.disassembly_modifiers import (
    buffer_modifiers,
    flat_modifiers,
    gpr_index_text,
    hardware_register_text,
    lds_modifiers,
    matrix_modifiers,
    typed_buffer_modifiers,
    vector_modifiers,
    waitcnt_text,
)
from cupygemm.emulator.isa.instruction import AGPR0, LITERAL, Instruction, Operand, signed
from cupygemm.emulator.isa.targets import is_cdna2

_SCALAR_NAMES = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}
_FLOATS = {
    240: "0.5",
    241: "-0.5",
    242: "1.0",
    243: "-1.0",
    244: "2.0",
    245: "-2.0",
    246: "4.0",
    247: "-4.0",
}
# The bits of the same constants, and of 1/(2 pi), as 32-bit floats.
_SINGLES = {
    0x3F000000: "0.5",
    0xBF000000: "-0.5",
    0x3F800000: "1.0",
    0xBF800000: "-1.0",
    0x40000000: "2.0",
    0xC0000000: "-2.0",
    0x40800000: "4.0",
    0xC0800000: "-4.0",
    0x3E22F983: "0.15915494",
}
# The same constants as the bits of a half. LLVM prints these in an integer operand of 16 bits.
_HALVES = {
    240: "0x3800",
    241: "0xb800",
    242: "0x3c00",
    243: "0xbc00",
    244: "0x4000",
    245: "0xc000",
    246: "0x4400",
    247: "0xc400",
}
_SPECIAL = {
    235: "src_shared_base",
    236: "src_shared_limit",
    237: "src_private_base",
    238: "src_private_limit",
    239: "src_pops_exiting_wave_id",
    251: "src_vccz",
    252: "src_execz",
    253: "src_scc",
    254: "src_lds_direct",
}
_COMPACT = ("VOP1", "VOP2", "VOPC")
_NEVER_SUFFIXED = (
    "v_fmamk",
    "v_fmaak",
    "v_madmk",
    "v_madak",
    "v_readfirstlane",
    "v_swap_b32",
    "v_nop",
    "v_clrexcp",
    "v_accvgpr_mov",
)
_WITHOUT_OPERANDS = (
    "s_endpgm",
    "s_endpgm_saved",
    "s_endpgm_ordered_ps_done",
    "s_barrier",
    "s_wakeup",
    "s_icache_inv",
    "s_set_gpr_idx_off",
    "s_ttracedata",
)
_CDNA2_MFMA_NAME = re.compile(r"(v_mfma_.*x\d+)_(?:\d+b_)?(f32|f16|i8|f64)$")


def format_instruction(inst: Instruction, pc: int | None = None) -> str:
    """Return the assembly text of `inst`.

    Parameters
    ----------
    inst : Instruction
    pc : int, optional
        Byte offset of the instruction. With it, a branch target is an absolute byte offset,
        ``0x1c0``; without it, the target is relative to the branch, ``pc+0x1c``.
    """
    if inst.encoding == "SOPP":
        return f"{inst.mnemonic} {_program_control(inst, pc)}".rstrip()
    operands, modifiers = _FORMATS[inst.encoding]
    listed = ", ".join(operands(inst, pc))
    return " ".join(filter(None, (mnemonic_with_suffix(inst), listed, *modifiers(inst))))


def mnemonic_with_suffix(inst: Instruction) -> str:
    """Return LLVM's mnemonic, with its suffix ``_e32``, ``_e64``, ``_sdwa`` or ``_dpp`` if any."""
    mnemonic = inst.mnemonic
    if is_cdna2(inst.target):
        if inst.encoding == "MFMA":
            return _CDNA2_MFMA_NAME.sub(r"\1\2", mnemonic)
        mnemonic = mnemonic.replace("_load_lds_", "_load_")  # a modifier there
    if inst.variant and mnemonic != "v_nop":
        return f"{mnemonic}_{inst.variant.lower()}"
    if mnemonic.startswith(_NEVER_SUFFIXED):
        return mnemonic
    if inst.encoding in _COMPACT:
        return f"{mnemonic}_e32"
    # VOP3 opcodes below 0x1c0 are the long forms of the compact encodings'.
    twin = inst.encoding == "VOP3" and inst.fields["op"] < 0x1C0
    return f"{mnemonic}_e64" if twin else mnemonic


# -- operands --------------------------------------------------------------------------------------


def operand_text(op: Operand) -> str:
    """Return a register, constant or special source by name."""
    if op.kind == "v":
        file, first = ("a", op.index - AGPR0) if op.index >= AGPR0 else ("v", op.index)
        return f"{file}{first}" if op.count == 1 else f"{file}[{first}:{first + op.count - 1}]"
    if op.kind == "s":
        return _scalar_text(op.index, op.count)
    if op.index == LITERAL:
        return _literal_text(op.literal, op.bits)
    return _constant_text(op)


def _literal_text(value: int, bits: int = 32) -> str:
    """Return a literal, in ``lit()`` if the assembler would make it an inline constant."""
    inline = value <= 64 or (bits <= 32 and (value >= 0xFFFFFFF0 or value in _SINGLES))
    return f"lit(0x{value:x})" if inline and bits != 16 else f"0x{value:x}"


def _immediate_text(value: int) -> str:
    """Return a 32-bit value that has no operand code, in decimal if it is short."""
    if value <= 64 or value >= 0xFFFFFFF0:
        return str(signed(value, 32))
    return _SINGLES.get(value) or f"0x{value:x}"


def _scalar_text(index: int, count: int) -> str:
    if index == 124:
        return "m0"
    if index < 102 or 108 <= index < 124:
        file, first = ("s", index) if index < 102 else ("ttmp", index - 108)
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"
    name = _SCALAR_NAMES.get(index & ~1, f"s{index}")
    return name if count == 2 else f"{name}_{'hi' if index & 1 else 'lo'}"


def _constant_text(op: Operand) -> str:
    code = op.index
    if 128 <= code <= 208:
        return str(code - 128 if code <= 192 else 192 - code)
    if code == 248:
        return "0.15915494309189532" if op.fmt.endswith("64") else "0.15915494"
    return _FLOATS.get(code) or _SPECIAL.get(code) or f"invalid_{code}"


def _named(inst: Instruction, *names: str) -> Iterator[str]:
    for name in names:
        if (op := inst.operand(name)) is not None:
            yield operand_text(op)


def _or_off(op: Operand | None) -> str:
    return "off" if op is None else operand_text(op)


def _integer(value: int) -> str:
    return str(value) if value <= 64 else _hex(value)


def _hex(value: int) -> str:
    return f"-0x{-value:x}" if value < 0 else f"0x{value:x}"


# -- scalar instructions ---------------------------------------------------------------------------


def _program_control(inst: Instruction, pc: int | None) -> str:
    mnemonic, simm16 = inst.mnemonic, inst.fields["simm16"]
    if mnemonic == "s_waitcnt":
        return waitcnt_text(simm16)
    if mnemonic.startswith(("s_branch", "s_cbranch")):
        return _branch_target(inst, pc)
    if mnemonic == "s_set_gpr_idx_mode":
        return gpr_index_text(simm16)
    if mnemonic in _WITHOUT_OPERANDS:
        return str(simm16) if simm16 else ""
    return _integer(simm16)


def _branch_target(inst: Instruction, pc: int | None) -> str:
    return f"pc{inst.jump:+#x}" if pc is None else f"{pc + inst.jump:#x}"


def _scalar_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    if inst.mnemonic == "s_set_gpr_idx_on":
        yield from _named(inst, "src0")
        yield gpr_index_text(inst.fields["ssrc1"])
        return
    yield from _named(inst, "sdst", "src0", "src1")


def _constant_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    simm16, mnemonic = inst.fields["simm16"], inst.mnemonic
    if mnemonic.startswith("s_setreg"):
        yield hardware_register_text(simm16, inst.target)
        if mnemonic == "s_setreg_imm32_b32":
            yield _immediate_text(inst.fields["literal"])
    yield from _named(inst, "sdst")
    if mnemonic == "s_getreg_b32":
        yield hardware_register_text(simm16, inst.target)
    elif mnemonic in ("s_call_b64", "s_cbranch_i_fork"):
        yield _branch_target(inst, pc)
    elif not mnemonic.startswith("s_setreg"):
        yield f"0x{simm16:x}"


def _scalar_memory_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    fields = inst.fields
    if inst.mnemonic.startswith("s_atc_probe"):
        yield _integer(fields["sdata"])
    elif "_atomic_" in inst.mnemonic:  # the data operand, not the result, which may be narrower
        yield operand_text(next(op for op in inst.src if op.field == "sdata"))
    else:
        yield from _named(inst, "sdata")
    yield from _named(inst, "sbase")
    if inst.operand("sbase") is None:
        return
    if (offset := inst.operand("soffset")) is not None:
        yield operand_text(offset)
    elif fields["imm"]:
        yield _hex(signed(fields["offset"], 21))


def _scalar_memory_modifiers(inst: Instruction) -> Iterator[str]:
    fields = inst.fields
    if inst.operand("sbase") is None:
        return
    if fields["soffset_en"] and fields["imm"]:
        yield f"offset:{_hex(signed(fields['offset'], 21))}"
    if fields["glc"]:
        yield "glc"


# -- vector ALU ------------------------------------------------------------------------------------


def _vector_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    mnemonic = inst.mnemonic
    compact = inst.encoding in _COMPACT
    yield from _named(inst, "vdst")
    if (explicit := inst.operand("sdst")) is not None:
        yield operand_text(explicit)
    elif compact and inst.operand("vcc") in inst.dst:
        yield "vcc"
    sources = [op for name in ("src0", "src1", "src2") if (op := inst.operand(name)) is not None]
    texts = [_with_input_modifiers(inst, op, position) for position, op in enumerate(sources)]
    if mnemonic.startswith(("v_fmamk", "v_madmk", "v_fmaak", "v_madak")):
        texts.insert(1 if "mk_" in mnemonic else 2, _constant_of_fma(inst))
    yield from texts
    if compact and mnemonic.startswith(("v_cndmask", "v_addc", "v_subb")):
        yield "vcc"
    if "scale_src0" in inst.fields:
        yield from _named(inst, "scale_src0", "scale_src1")


def _constant_of_fma(inst: Instruction) -> str:
    literal = inst.fields["literal"]
    return f"0x{literal & 0xFFFF if inst.mnemonic.endswith('f16') else literal:x}"


def _with_input_modifiers(inst: Instruction, op: Operand, position: int) -> str:
    text, fields, mnemonic = operand_text(op), inst.fields, inst.mnemonic
    mixed = "fma_mix" in mnemonic
    if op.kind == "imm" and op.bits == 16 and op.fmt.endswith("16"):
        if op.index == LITERAL:
            text = f"0x{op.literal & 0xFFFF:x}"
        elif op.fmt in ("I16", "U16"):
            text = _HALVES.get(op.index, text)
    if (inst.encoding in ("VOP3P", "MFMA") and not mixed) or mnemonic.startswith("v_bitop3"):
        return text
    if inst.variant:
        negate, magnitude, extend = (
            fields.get(f"src{position}_{what}", 0) for what in ("neg", "abs", "sext")
        )
    else:
        negate = fields.get("neg", 0) >> position & 1
        magnitude = fields.get("neg_hi" if mixed else "abs", 0) >> position & 1
        extend = 0
    if magnitude:
        text = f"|{text}|"
    elif negate and op.kind == "imm":  # -1 would be another constant
        return f"neg({text})"
    if extend:
        text = f"sext({text})"
    return f"-{text}" if negate else text


# -- memory ----------------------------------------------------------------------------------------


def _lds_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    yield from _named(inst, "vdst", "addr", "data0", "data1")


def _flat_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    yield from _named(inst, "vdst")
    yield _or_off(inst.operand("addr"))
    yield from _named(inst, "data")
    if inst.encoding != "FLAT":
        yield _or_off(inst.operand("saddr"))


def _buffer_operands(inst: Instruction, pc: int | None) -> Iterator[str]:
    if inst.operand("srsrc") is None:
        return
    if "_atomic_" in inst.mnemonic:  # the data operand, not the result, which may be narrower
        yield operand_text(next(op for op in inst.src if op.field == "vdata"))
    elif not inst.fields.get("lds"):
        yield from _named(inst, "vdata")
    yield _or_off(inst.operand("vaddr"))
    yield from _named(inst, "srsrc", "soffset")


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
    "VOP1": (_vector_operands, vector_modifiers),
    "VOP2": (_vector_operands, vector_modifiers),
    "VOPC": (_vector_operands, vector_modifiers),
    "VOP3": (_vector_operands, vector_modifiers),
    "VOP3P": (_vector_operands, vector_modifiers),
    "MFMA": (_vector_operands, matrix_modifiers),
    "DS": (_lds_operands, lds_modifiers),
    "FLAT": (_flat_operands, flat_modifiers),
    "GLOBAL": (_flat_operands, flat_modifiers),
    "SCRATCH": (_flat_operands, flat_modifiers),
    "MUBUF": (_buffer_operands, buffer_modifiers),
    "MTBUF": (_buffer_operands, typed_buffer_modifiers),
}
