"""The disassembler's text is LLVM's, for every mnemonic and for whole compiled kernels.

The comparison with LLVM works in two ways that need only the package's own dependencies: LLVM's
text is stored in ``instructions.txt``, and its assembler, which is part of the toolchain, must turn
our text back into the same bytes. If an llvm-objdump of LLVM 22 or later is installed, its listing
of the compiled kernels is compared as well.
"""

from __future__ import annotations

import functools
import io
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.isa.decode import decode, disassemble
from cupygemm.emulator.isa.disassembly import format_instruction, mnemonic_with_suffix
from cupygemm.emulator.isa.instruction import LITERAL, Instruction
from tests.emulator.listing import TARGETS, entries
from tests.hip.harness import SAMPLE, SOURCES, VARIANTS, compile_source

_BRANCH = re.compile(r"s_c?branch|s_call")


def listing_text(inst: Instruction) -> str:
    """Return the text with a branch's operand as LLVM's listing has it, the encoded immediate."""
    text = format_instruction(inst)
    if _BRANCH.match(text):
        return re.sub(r"pc[+-]0x[0-9a-f]+$", str(inst.fields["simm16"]), text)
    return text


def text_section(code_object: Path) -> bytes:
    """Return the machine code of a code object."""
    section = ELFFile(io.BytesIO(code_object.read_bytes())).get_section_by_name(".text")
    return bytes(section.data())


@functools.cache
def instructions(path: Path, target: str) -> list[tuple[bytes, str]]:
    """Return the bytes and the text of each instruction of a code object."""
    code = text_section(path)
    found, offset = [], 0
    while offset < len(code):
        inst = decode(code, offset, target)
        found.append((code[offset : offset + inst.size], listing_text(inst)))
        offset += inst.size
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_mnemonic(target: str) -> None:
    wrong = [
        (text, found)
        for code, text in entries(target)
        if (found := listing_text(decode(code, 0, target))) != text
    ]
    assert wrong == []


@pytest.mark.parametrize("target", TARGETS)
def test_mnemonics_carry_their_suffix(target: str) -> None:
    for code, text in entries(target):
        assert mnemonic_with_suffix(decode(code, 0, target)) == text.split()[0]


@pytest.mark.parametrize("target", TARGETS)
def test_assembler_agrees_with_the_listing(target: str, tmp_path: Path) -> None:
    """LLVM's assembler turns the stored texts into the stored bytes."""
    source, output = tmp_path / "all.s", tmp_path / "all.hsaco"
    source.write_text(".text\n" + "\n".join(text for _, text in entries(target)) + "\n")
    find_toolchain().assemble(source, output, target=target)
    assert text_section(output) == b"".join(code for code, _ in entries(target))


# -- compiled kernels ------------------------------------------------------------------------------


def compiled(target: str, variants: Iterable[tuple[str, str]]) -> list[Path]:
    """Return the code objects of the HIP corpus for a target."""
    return [
        compile_source(name, *variant)
        for name in SOURCES
        for variant in variants
        if variant[0] == target
        if not (name == "narrow.hip" and target == "gfx90a")  # it has no 8-bit floats
    ]


def without_ignored_bits(code: bytes, target: str) -> bytes:
    """Clear the half of a 16-bit operand's literal that the hardware and LLVM ignore."""
    inst = decode(code, 0, target)
    ignored = any(op.kind == "imm" and op.index == LITERAL and op.bits == 16 for op in inst.src)
    return code[:6] + bytes(2) if ignored and inst.encoding.startswith("VOP") else code


of_compiled_kernels = pytest.mark.parametrize(
    ("variants", "least"),
    [(SAMPLE, 3_000), pytest.param(VARIANTS, 10_000, marks=pytest.mark.sweep)],
    ids=["sample", "all"],
)


@pytest.mark.slow
@of_compiled_kernels
@pytest.mark.parametrize("target", TARGETS)
def test_compiled_kernels_assemble_to_the_same_bytes(
    target: str, variants: Iterable[tuple[str, str]], least: int, tmp_path: Path
) -> None:
    parts = [part for path in compiled(target, variants) for part in instructions(path, target)]
    assert len(parts) > least
    source, output = tmp_path / "kernels.s", tmp_path / "kernels.hsaco"
    source.write_text(".text\n" + "\n".join(text for _, text in parts) + "\n")
    find_toolchain().assemble(source, output, target=target)
    expected = b"".join(without_ignored_bits(code, target) for code, _ in parts)
    assert text_section(output) == expected


def test_listing_with_targets_and_data() -> None:
    code = bytes.fromhex("000080bffeff82bfffffffff000081bf")
    assert list(disassemble(code, base=0x100, target="gfx942")) == [
        (0x100, "s_nop 0"),
        (0x104, "s_branch 0x100"),
        (0x108, ".long 0xffffffff"),
        (0x10C, "s_endpgm"),
    ]


OBJDUMP = [path for name in ("llvm-objdump-22", "llvm-objdump") if (path := shutil.which(name))]


def objdump_is_recent(path: str) -> bool:
    """Whether this is LLVM 22 or later."""
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"LLVM version (\d+)", text)
    return found is not None and int(found[1]) >= 22


@of_compiled_kernels
@pytest.mark.parametrize("target", TARGETS)
def test_compiled_kernels_against_objdump(
    target: str, variants: Iterable[tuple[str, str]], least: int
) -> None:
    """This test needs a recent llvm-objdump; the tests above compare with the assembler alone."""
    for objdump in [path for path in OBJDUMP if objdump_is_recent(path)][:1]:
        for path in compiled(target, variants):
            command = [objdump, "-d", f"--mcpu={target}", str(path)]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            listed = [re.sub(r"\s*//.*", "", x).strip() for x in text.splitlines() if x[:1] == "\t"]
            found = [text for _, text in instructions(path, target)]
            assert found == [" ".join(line.split()) for line in listed]
