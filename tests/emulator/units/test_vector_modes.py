"""Effects of MODE and M0 on vector instructions: relative registers, and vskip."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import Fault, KernelFault, UnsupportedInstruction
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import assemble_all, make_state, run

# -- relative registers --


def indexed(kinds: str, instruction: str, target: str = "gfx942") -> Any:
    """Run an instruction in two waves whose M0 adds 3 and 5 to registers; return the state."""
    state = make_state(waves=2, target=target)
    state.vgpr[:] = np.arange(512, dtype=np.uint32)[:, None, None]
    state.sgpr[4] = [3, 5]
    lines = [f"s_set_gpr_idx_on s4, gpr_idx({kinds})", instruction, "s_set_gpr_idx_off"]
    run(state, *assemble_all(lines, target))
    return state


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_reads_of_accumulators_are_indexed(target: str) -> None:
    state = indexed("SRC0", "v_accvgpr_read_b32 v2, a10", target)
    assert state.vgpr[2, :, 0].tolist() == [256 + 13, 256 + 15]
    state = indexed("DST", "v_accvgpr_read_b32 v20, a10", target)
    assert [state.vgpr[20 + index, wave, 0] for wave, index in enumerate((3, 5))] == [266, 266]
    state = indexed("SRC1", "v_accvgpr_read_b32 v2, a10", target)
    assert state.vgpr[2, :, 0].tolist() == [266, 266]


def test_writes_and_moves_of_accumulators_are_indexed() -> None:
    state = indexed("DST", "v_accvgpr_write_b32 a10, v7")
    assert [state.vgpr[266 + index, wave, 0] for wave, index in enumerate((3, 5))] == [7, 7]
    assert state.vgpr[266, :, 0].tolist() == [266, 266]
    state = indexed("SRC0", "v_accvgpr_write_b32 a10, v7")
    assert state.vgpr[266, :, 0].tolist() == [10, 12]
    state = indexed("SRC0,DST", "v_accvgpr_mov_b32 a10, a20")
    assert [state.vgpr[266 + index, wave, 0] for wave, index in enumerate((3, 5))] == [279, 281]


def test_an_index_past_the_accumulators_is_a_fault() -> None:
    with pytest.raises(Fault, match="src0 a252 plus the index 5 of M0 reaches a257"):
        indexed("SRC0", "v_accvgpr_read_b32 v2, a252")


def test_an_indexed_matrix_instruction_is_not_modelled() -> None:
    mfma = "v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[4:5], 0"
    with pytest.raises(UnsupportedInstruction, match="between s_set_gpr_idx_on and"):
        indexed("SRC0", mfma)
    state = make_state()
    run(state, *assemble_all(["s_set_gpr_idx_on 0, gpr_idx(SRC0)", mfma], "gfx942"))


# -- vskip --

# A wave skips the next instructions if bit 1 of its number is set; each stores its result.
SKIPPING = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_readfirstlane_b32 s8, v0
s_lshr_b32 s8, s8, 6
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 10
s_mov_b32 s9, 20
s_waitcnt lgkmcnt(0)
s_setvskip s8, 1
s_nop 1
v_mov_b32 v2, 11
s_mov_b32 s9, 21
v_add_u32 v2, s9, v2
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
ds_read_b32 v2, v1
s_waitcnt lgkmcnt(0)
s_setvskip 0, 0
s_nop 1
v_add_u32 v2, s9, v2
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize("order", ["lockstep", "forward", "reverse"])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_waves_skip_vector_instructions_each_by_its_own_bit(order: Any, target: str) -> None:
    memory = Memory()
    body = SKIPPING.replace("global_load_dword v2, v1, s[4:5]\n", "").replace(
        "ds_read_b32 v2, v1\n", ""
    )
    kernel = load_kernel(body, memory, arguments=[8], target=target)
    out = memory.malloc(1024)
    stats = launch(
        kernel, (1, 1, 1), (256, 1, 1), 0, [struct.pack("<Q", out)], memory, TARGETS[target],
        order=order,
    )  # fmt: skip
    words = np.frombuffer(memory.read(out, 1024), np.uint32).reshape(4, 64)
    # Scalar instructions are executed either way.
    assert words.tolist() == [[wave] * 64 for wave in (53, 53, 31, 31)]
    assert stats.mnemonics["v_mov_b32"] == 4 + 2


def test_skipped_memory_instructions_touch_nothing() -> None:
    memory = Memory()
    kernel = load_kernel(
        SKIPPING.replace("s_setvskip s8, 1", "s_setvskip -1, 1"), memory, arguments=[8]
    )
    out = memory.malloc(256)  # never written, so that loads from it would be faults
    arguments = [struct.pack("<Q", out)]
    launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
    assert np.frombuffer(memory.read(out, 256), np.uint32).tolist() == [31] * 64


def test_setreg_sets_vskip_too() -> None:
    body = SKIPPING.replace("s_setvskip s8, 1", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 28, 1), 1")
    memory = Memory()
    kernel = load_kernel(body, memory, arguments=[8])
    out = memory.malloc(256)
    arguments = [struct.pack("<Q", out)]
    launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
    assert np.frombuffer(memory.read(out, 256), np.uint32).tolist() == [31] * 64


# v2 and v3 are undefined, then v3 is written by its number, less 2, in M0.
INDEXED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 3, v0
v_mov_b32 v4, 7
s_waitcnt lgkmcnt(0)
global_load_dwordx2 v[2:3], v1, s[4:5]
s_waitcnt vmcnt(0)
s_set_gpr_idx_on 1, gpr_idx(DST)
v_mov_b32 v2, v4
s_set_gpr_idx_off
s_set_gpr_idx_on 1, gpr_idx(SRC0)
v_add_u32 v5, v2, v4
s_set_gpr_idx_off
global_store_dword v1, v5, s[4:5]
s_endpgm
"""


def test_undefined_bits_follow_indexed_registers() -> None:
    memory = Memory()
    out = memory.malloc(512)
    arguments = [struct.pack("<Q", out)]
    kernel = load_kernel(INDEXED, memory, arguments=[8])
    launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
    assert np.frombuffer(memory.read(out, 512), np.uint32)[::2].tolist() == [14] * 64
    memory.poison(out, 512)
    kernel = load_kernel(
        INDEXED.replace("idx_on 1, gpr_idx(SRC0)", "idx_on 0, gpr_idx(SRC0)"),
        memory,
        arguments=[8],
    )
    with pytest.raises(KernelFault, match=r"v5 is stored .* depends on global memory"):
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, arguments, memory, TARGETS["gfx942"])
