"""Native forms made from the record of another instruction are those that would be made anew."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.native import alu, salu, templates, valu
from cupygemm.emulator.units.native.form import NativeAlu
from tests.emulator.harness import assemble_all

# The bits that tell the encoding, and those that are drawn.
ENCODINGS = {
    "SOP1": (0xBE80_0000, 0x007F_FFFF),
    "SOP2": (0x8000_0000, 0x3FFF_FFFF),
    "SOPC": (0xBF00_0000, 0x007F_FFFF),
    "VOP1": (0x7E00_0000, 0x01FF_FFFF),
    "VOP2": (0x0000_0000, 0x7FFF_FFFF),
    "VOPC": (0x7C00_0000, 0x01FF_FFFF),
    "VOP3": (0xD000_0000, 0x03FF_FFFF | 0xFFFF_FFFF << 32),
    "VOP3P": (0xD380_0000, 0x007F_FFFF | 0xFFFF_FFFF << 32),
}


def words(encoding: str, count: int, seed: int) -> Iterator[bytes]:
    """Yield instructions of an encoding: one, two with other registers, one with other modifiers.

    The low bits of the registers are changed alone, so that they stay in their files.
    """
    fixed, drawn = ENCODINGS[encoding]
    is_wide = encoding.startswith("VOP3")
    modifiers = 0xFF00 | 0x1F << 59 if is_wide else 0
    registers = 0x3F | 0x3F << 32 | 0x3F << 41 | 0x3F << 50 if is_wide else 0x3F
    registers |= 0x3F << 17 if encoding in ("VOP1", "VOP2") else 0
    chosen = random.Random(seed)
    for _ in range(count):
        word = chosen.getrandbits(64) & drawn & ~modifiers | fixed
        for changed in (0, registers, registers, modifiers):
            word = word & ~changed | chosen.getrandbits(64) & changed
            yield word.to_bytes(8, "little")


def anew(inst: Instruction, target: str) -> NativeAlu | None:
    """Return the native form without a template."""
    scalar = inst.encoding.startswith("SOP")
    return salu.bind(inst) if scalar else valu.bind(inst, TARGETS[target])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_templates_give_the_records_that_binding_gives(target: str, encoding: str) -> None:
    compared = 0
    for word in words(encoding, 300, seed=len(encoding)):
        try:
            inst = decode(word, 0, target)
            expected = anew(inst, target)
        except UnsupportedInstruction:
            continue
        found = alu.bind(inst, TARGETS[target])
        assert (found is None) == (expected is None), inst.text
        if found is None or expected is None:
            continue
        assert bytes(found.record) == bytes(expected.record), inst.text
        others = ("function", "mode_mask", "mode_value")
        assert [getattr(found, name) for name in others] == [
            getattr(expected, name) for name in others
        ], inst.text
        compared += 1
    assert compared > 100


def test_instructions_that_differ_in_registers_share_a_template() -> None:
    lines = [f"v_fma_f32 v{place}, v{place + 1}, s{place}, v9" for place in range(8)]
    first, *others = assemble_all(lines)
    alu.bind(first, TARGETS["gfx942"])
    before = len(templates._templates)
    for inst in others:
        alu.bind(inst, TARGETS["gfx942"])
    assert len(templates._templates) == before


def test_a_refused_operand_is_named_by_its_own_number() -> None:
    # v_cndmask_b32 v0, v1, v2, v3: src2 must be a pair of SGPRs.
    word = (0xD100_0000 | 257 << 32 | 258 << 41 | 259 << 50).to_bytes(8, "little")
    with pytest.raises(UnsupportedInstruction, match=r"operand 3 \(v\) is not a lane mask"):
        alu.bind(decode(word, 0, "gfx942"), TARGETS["gfx942"])
