"""Decoding: every mnemonic of every target, with exact sizes, operands and register masks."""

from __future__ import annotations

import gc
import random

import pytest

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.disassembly import format_instruction
from cupygemm.emulator.isa.operands import build_instruction
from cupygemm.emulator.programs.program import Program
from cupygemm.emulator.targets import TARGETS as MODELS
from cupygemm.emulator.waves.entry import Entry
from tests.emulator.listing import TARGETS, entries, expected_masks

PAD = bytes.fromhex("000080bf") * 4  # s_nop 0


@pytest.mark.parametrize("target", TARGETS)
def test_sizes(target: str) -> None:
    wrong = [
        (text, size)
        for code, text in entries(target)
        if (size := decode(code + PAD, 0, target).size) != len(code)
    ]
    assert wrong == []


@pytest.mark.parametrize("target", TARGETS)
def test_register_masks(target: str) -> None:
    wrong = []
    for code, text in entries(target):
        inst = decode(code, 0, target)
        found = (inst.vector_reads, inst.vector_writes, inst.scalar_reads, inst.scalar_writes)
        if found != expected_masks(text):
            wrong.append((text, [f"{mask:x}" for mask in found]))
    assert wrong == []


@pytest.mark.parametrize("target", TARGETS)
def test_masks_are_those_of_the_operands(target: str) -> None:
    for code, text in entries(target):
        inst = decode(code, 0, target)
        for operands, kind, mask in (
            (inst.src, "v", inst.vector_reads),
            (inst.dst, "v", inst.vector_writes),
            (inst.src, "s", inst.scalar_reads),
            (inst.dst, "s", inst.scalar_writes),
        ):
            union = 0
            for op in operands:
                if op.kind == kind:
                    union |= ((1 << op.count) - 1) << op.index
            assert union == mask, text


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_first_four_bytes_decide_whether_there_are_more(target: str) -> None:
    rng = random.Random(0)
    heads = {code[:4] for code, _ in entries(target)} | {rng.randbytes(4) for _ in range(5000)}
    tails = [bytes(4), b"\xff" * 4, PAD[:4], *(rng.randbytes(4) for _ in range(3))]
    tails += [bytes.fromhex("0000add3"), bytes.fromhex("0000acd3")]  # halves of a scaled MFMA
    short = 0
    for head in sorted(heads):
        found = [_facts_or_none(head + tail + PAD[:8], target) for tail in tails]
        if any(each is not None and each[0] == 4 for each in found):
            assert len(set(found)) == 1, head.hex()
            short += 1
    assert short > 500


def _facts_or_none(code: bytes, target: str) -> tuple[object, ...] | None:
    """Decode an instruction again and return all facts that determine it; None if invalid."""
    scaled = code[2:4] == bytes.fromhex("acd3")
    try:
        inst = build_instruction(code[: 16 if scaled else 8], target, format_instruction)
    except UnsupportedInstruction:
        return None
    return inst.size, inst.mnemonic, inst.dst, inst.src, tuple(inst.fields.items())


def test_an_instruction_of_four_bytes_is_decoded_once() -> None:
    one, other = bytes.fromhex("0000807e"), PAD[:4]  # whose upper halves differ
    assert decode(other + one, 0, "gfx942") is decode(other + other, 0, "gfx942")
    assert decode(other + one, 0, "gfx942") is not decode(other + one, 0, "gfx90a")


# Widths that are easily mistaken, by hand from the ISA guides: (bytes, operand, registers).
WIDTHS = {
    "v_lshlrev_b64 v[0:1], v2, v[4:5]": ("00008fd202090200", {"vdst": 2, "src0": 1, "src1": 2}),
    "ds_read2_b64 v[0:3], v1 offset1:2": ("0002eed801000000", {"vdst": 4, "addr": 1}),
    "global_atomic_cmpswap v0, v2, v[4:5], s[2:3] sc0": (
        "008005dd02040200",
        {"vdst": 1, "addr": 1, "data": 2, "saddr": 2},
    ),
    "buffer_load_dwordx3 v[0:2], v4, s[8:11], 0 offen": (
        "001058e004000280",
        {"vdata": 3, "vaddr": 1, "srsrc": 4},
    ),
    "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]": (
        "0040b0d302091a1c",
        {"vdst": 2, "src0": 2, "src1": 2, "src2": 2},
    ),
    "s_load_dwordx16 s[16:31], s[0:1], 0x0": ("000412c000000000", {"sdata": 16, "sbase": 2}),
    "v_cvt_pk_f32_fp8_e32 v[0:1], v2": ("02ad007e", {"vdst": 2, "src0": 1}),
    "v_cndmask_b32_e64 v0, v1, v2, s[4:5]": (
        "000000d101051200",
        {"vdst": 1, "src0": 1, "src1": 1, "src2": 2},
    ),
}


@pytest.mark.parametrize("text", WIDTHS)
def test_widths(text: str) -> None:
    code, counts = WIDTHS[text]
    inst = decode(bytes.fromhex(code), 0, "gfx942")
    assert inst.text == text
    for name, count in counts.items():
        operand = inst.operand(name)
        assert operand is not None
        assert operand.count == count, name


@pytest.mark.parametrize(
    ("text", "code"),
    {
        "global_load_short_d16_hi v0, v2, s[2:3]": "008094dc02000200",
        "v_mov_b32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD": (
            "f902007e01150600"
        ),
        "v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xa bank_mask:0xf": "fa02007e011101af",
        "v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]": "0040a2d201050200",
        "v_writelane_b32 v0, s1, s2": "00008ad201040000",
    }.items(),
)
def test_a_part_that_survives_is_not_read(text: str, code: str) -> None:
    """The rest of the register may never have been written: reading it is no error."""
    inst = decode(bytes.fromhex(code), 0, "gfx942")
    assert inst.text == text
    assert inst.vector_writes & 1
    assert not inst.vector_reads & 1


# -- targets ---------------------------------------------------------------------------------------


def test_a_target_refuses_what_it_lacks() -> None:
    """Instructions that a target lacks, by LLVM, are refused there."""
    refused = 0
    for target in TARGETS:
        known = {text.split()[0] for _, text in entries(target)}
        codes = {code for code, _ in entries(target)}
        for other in TARGETS:
            for code, text in entries(other):
                name = text.split()[0]
                if target == "gfx90a" or name in known or code in codes or other == "gfx90a":
                    continue  # gfx90a spells many names in its own way: see below
                with pytest.raises(UnsupportedInstruction):
                    decode(code, 0, target)
                refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    "text",
    [
        "v_mov_b64_e32",
        "v_cvt_pk_fp8_f32",
        "v_mfma_f32_32x32x16_fp8_fp8",
        "v_lshl_add_u64",
        "v_smfmac_f32_16x16x32_f16",
        "v_bitop3_b32",
        "v_mfma_f32_16x16x32_bf16",
        "v_permlane16_swap_b32_e32",
        "v_cvt_f32_fp8_e32",
        "v_mfma_i32_32x32x16_i8",
        "v_mfma_f32_32x32x8_bf16",
    ],
)
def test_gfx90a_refuses_what_came_later(text: str) -> None:
    code = next(code for code, line in entries("gfx950") if line.split()[0] == text)
    with pytest.raises(UnsupportedInstruction, match=r"gfx90a has no|no CDNA instruction"):
        decode(code, 0, "gfx90a")


@pytest.mark.parametrize(
    ("code", "on_gfx90a", "on_gfx942"),
    [
        (
            "0080e6d300050204",
            "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]",
            "v_smfmac_f32_16x16x32_bf16 a[0:3], v[0:1], v[2:5], v0",
        ),
        (
            "0205003000008040",
            "v_madak_f32 v0, v2, v2, 0x40800000",
            "v_fmaak_f32 v0, v2, v2, 0x40800000",
        ),
        ("0000a4e000000000", "buffer_invl2", "buffer_inv"),
        (
            "00a050dc00000400",
            "global_load_dword v0, s[4:5] lds",
            "global_load_dword v0, v0, s[4:5]",
        ),
        ("004050dc00000400", "scratch_load_dword v0, off, s4", "scratch_load_dword v0, off, s4"),
        ("004050dc00007f00", "scratch_load_dword v0, v0, off", "scratch_load_dword v0, off, off"),
    ],
)
def test_opcodes_that_changed_their_meaning(code: str, on_gfx90a: str, on_gfx942: str) -> None:
    for target, text in (("gfx90a", on_gfx90a), ("gfx942", on_gfx942)):
        assert decode(bytes.fromhex(code), 0, target).text == text


@pytest.mark.parametrize("code", ["ffffffff", "003f80be", "0000fce1", "fa04007c"])
def test_no_instruction(code: str) -> None:
    with pytest.raises(UnsupportedInstruction):
        decode(bytes.fromhex(code) + PAD, 0, "gfx942")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((0xD0CA0086, 0x00020300), "v_cmp_eq_u32: vdst 134 is not a writable register"),
        ((0xD0CA007F, 0x00020300), "v_cmp_eq_u32: vdst of 2 registers starts at the last 1"),
        ((0xDC5C0000, 0xFE7F0001), "flat_load_dwordx4: vdst of 4 registers starts at the last 2"),
    ],
)
def test_results_that_have_no_register_are_refused(words: tuple[int, int], message: str) -> None:
    code = b"".join(word.to_bytes(4, "little") for word in words)
    with pytest.raises(UnsupportedInstruction, match=message):
        decode(code, 0, "gfx942")


def test_a_block_is_decoded_up_to_its_branch() -> None:
    code = bytes.fromhex("000080bf 000080bf feff82bf 000081bf")
    program = Program(code, MODELS["gfx942"])
    program.decode_block(0)
    assert list(program.entries) == [0, 4, 8]


@pytest.mark.parametrize("collecting", [True, False])
def test_no_garbage_is_looked_for_inside_a_block(
    monkeypatch: pytest.MonkeyPatch, collecting: bool
) -> None:
    during: list[bool] = []
    decode_one = Program._decode

    def watched(self: Program, pc: int) -> Entry:
        during.append(gc.isenabled())
        return decode_one(self, pc)

    monkeypatch.setattr(Program, "_decode", watched)
    was = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        Program(bytes.fromhex("000080bf 000081bf"), MODELS["gfx942"]).decode_block(0)
        assert gc.isenabled() == collecting
        with pytest.raises(UnsupportedInstruction):
            Program(bytes.fromhex("ffffffff"), MODELS["gfx942"]).decode_block(0)
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if was else gc.disable)()
    assert during == [False] * 3


def test_what_no_wave_may_reach_is_no_error_of_a_block() -> None:
    program = Program(bytes.fromhex("000080bf ffffffff"), MODELS["gfx942"])
    program.decode_block(0)
    assert list(program.entries) == [0]
    with pytest.raises(UnsupportedInstruction):
        program.entry(4)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("fe1efe87800086be", id="s_or_b64 exec, src_lds_direct, s[30:31]"),
        pytest.param("fe8a0468001d0000", id="v_add_u32 v2, src_lds_direct, v69"),
        pytest.param("050000d1070b0204", id="v_cndmask_b32 v5, v7, v5, v[0:1]"),
    ],
)
def test_a_source_that_is_not_emulated_is_refused_before_it_executes(code: str) -> None:
    with pytest.raises(UnsupportedInstruction):
        Program(bytes.fromhex(code), MODELS["gfx942"]).entry(0)
