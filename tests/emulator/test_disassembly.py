"""The disassembler's text is LLVM's, for every mnemonic and for whole compiled kernels.

LLVM has its say in two ways that need nothing beyond what the package needs: its text is stored in
``instructions.txt``, and its assembler, which the toolchain carries, must turn our text back into
the same bytes.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cupygemm._toolchain import find_toolchain
from cupygemm.emulator.disassembly import format_instruction, mnemonic_with_suffix
from cupygemm.emulator.isa import decode
from tests.emulator.listing import TARGETS, entries

_BRANCH = re.compile(r"s_c?branch|s_call")


def listing_text(code: bytes, target: str) -> str:
    """Return the text with a branch's operand as LLVM's listing has it, the encoded immediate."""
    inst = decode(code, 0, target)
    text = format_instruction(inst)
    if _BRANCH.match(text):
        return re.sub(r"pc[+-]0x[0-9a-f]+$", str(inst.fields["simm16"]), text)
    return text


def text_section(code_object: Path) -> bytes:
    """Return the machine code of a code object."""
    section = ELFFile(io.BytesIO(code_object.read_bytes())).get_section_by_name(".text")
    return bytes(section.data())


@pytest.mark.parametrize("target", TARGETS)
def test_every_mnemonic(target: str) -> None:
    wrong = [
        (text, found)
        for code, text in entries(target)
        if (found := listing_text(code, target)) != text
    ]
    assert wrong == []


@pytest.mark.parametrize("target", TARGETS)
def test_mnemonics_carry_their_suffix(target: str) -> None:
    for code, text in entries(target):
        assert mnemonic_with_suffix(decode(code, 0, target)) == text.split()[0]


@pytest.mark.parametrize("target", TARGETS)
def test_assembler_agrees_with_the_listing(target: str, tmp_path: Path) -> None:
    """The stored pairs are what LLVM's assembler makes of the text."""
    source, output = tmp_path / "all.s", tmp_path / "all.hsaco"
    source.write_text(".text\n" + "\n".join(text for _, text in entries(target)) + "\n")
    find_toolchain().assemble(source, output, target=target)
    assert text_section(output) == b"".join(code for code, _ in entries(target))
