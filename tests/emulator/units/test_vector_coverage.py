"""Every vector instruction that decodes for a target can be executed there, and respects EXEC."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tinygrad.runtime.autogen.amd.cdna import enum

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units import bind
from tests.emulator.harness import set_exec
from tests.emulator.vector_cases import execute, fresh_state

# Omitted instructions, and why.
WITHOUT = {
    "v_screen_partition_4se_b32": "a table of screen tiles per shader engine, for graphics alone",
}
MATRIX = ("v_mfma_", "v_smfmac_", "v_accvgpr_")  # the matrix unit's
TARGETS = ("gfx90a", "gfx942", "gfx950")
ENCODINGS = {
    "VOP1Op": (0x7E000000, 9),
    "VOP2Op": (0x00000000, 25),
    "VOPCOp": (0x7C000000, 17),
    "VOP3Op": (0xD0000000, 16),
    "VOP3SDOp": (0xD0000000, 16),
    "VOP3POp": (0xD3800000, 16),
}
VGPR, V2, V4, V8, V40 = 256, 256 + 2, 256 + 4, 256 + 8, 40
SDWA, DPP = 249, 250
MASK = 0x00FF_F0F0_CCCC_7FFE


def words(name: str, opcode: int) -> Iterator[int]:
    """Return encodings of an instruction: its own, and SDWA and DPP if they exist."""
    base, shift = ENCODINGS[name]
    first = base | opcode << shift
    if name.startswith("VOP3"):
        yield first | V40 | V2 << 32 | V4 << 41 | V8 << 50
        return
    rest = 0 if name == "VOPCOp" else V40 << 17
    rest |= 4 << 9 if name != "VOP1Op" else 0
    yield first | rest | V2 | 0x3FC00000 << 32
    yield first | rest | SDWA | (2 | 5 << 8 | 4 << 16 | 6 << 24) << 32
    if name != "VOPCOp":
        yield first | rest | DPP | (2 | 0x111 << 8 | 0xFF << 24) << 32


def instructions(target: str) -> Iterator[Instruction]:
    for name in ENCODINGS:
        for member in getattr(enum, name):
            for word in words(name, member.value):
                try:
                    yield decode(word.to_bytes(8, "little") + bytes(8), target=target)
                except UnsupportedInstruction:
                    continue


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_vector_instruction_executes(target: str) -> None:
    seen, refused = set(), set()
    state = fresh_state(2, target)
    registers, scalars = state.vgpr.copy(), state.sgpr & 0x3F  # lane numbers and the like
    off = np.array([[not MASK >> lane & 1 for lane in range(64)], [True] * 64])
    for instruction in instructions(target):
        name = instruction.mnemonic
        if name.startswith(MATRIX):
            continue
        try:
            bind(instruction, state.target)
        except UnsupportedInstruction:
            refused.add(name)  # or no such variant of it
            continue
        seen.add(name)
        state.vgpr[:], state.sgpr[:] = registers, scalars
        set_exec(state, [MASK, 0])
        execute(state, instruction)
        if name != "v_writelane_b32":
            assert (state.vgpr[:128, off] == registers[:128, off]).all(), instruction
    assert refused - seen == set(WITHOUT)
    assert len(seen) > 450


def test_targets_lack_what_came_later() -> None:
    later = {"gfx90a": "v_mov_b64", "gfx942": "v_bitop3_b32"}
    names = {target: {inst.mnemonic for inst in instructions(target)} for target in TARGETS}
    for target, name in later.items():
        assert name not in names[target]
        assert name in names["gfx950"]
    # One decoded without a target is refused when it is bound for one.
    (bitop3,) = (i for i in instructions("") if i.mnemonic == "v_bitop3_b32")
    with pytest.raises(UnsupportedInstruction, match="gfx942"):
        bind(bitop3, fresh_state(1, "gfx942").target)
