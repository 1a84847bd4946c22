"""Where the instructions of one target differ from the encoding tables.

The tables (tinygrad's, made from AMD's CDNA3 and CDNA4 instruction sets) are the union of gfx942
and gfx950. This module names what a target lacks of it, and what the tables lack: gfx90a's own
opcodes and the xf32 MFMA of gfx942. Facts from AMD's CDNA2, CDNA3 and CDNA4 ISA guides; the tests
hold every opcode against LLVM's disassembler.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Mfma(NamedTuple):
    """An MFMA that the tables lack: the 32-bit registers of D and C, and of A and B."""

    mnemonic: str
    accumulators: int
    inputs: int


class Alias(NamedTuple):
    """An instruction of gfx90a, and the opcode of one in the tables that has the same operands."""

    mnemonic: str
    opcode: int


# By VOP3P opcode. gfx90a means other instructions by some of the opcodes that gfx942 has.
CDNA2_MFMA = {
    0x54: Mfma("v_mfma_i32_32x32x8i8", 16, 1),
    0x55: Mfma("v_mfma_i32_16x16x16i8", 4, 1),
    0x63: Mfma("v_mfma_f32_32x32x4bf16_1k", 32, 2),
    0x64: Mfma("v_mfma_f32_16x16x4bf16_1k", 16, 2),
    0x65: Mfma("v_mfma_f32_4x4x4bf16_1k", 4, 2),
    0x66: Mfma("v_mfma_f32_32x32x8bf16_1k", 16, 2),
    0x67: Mfma("v_mfma_f32_16x16x16bf16_1k", 4, 2),
    0x68: Mfma("v_mfma_f32_32x32x2bf16", 32, 1),
    0x69: Mfma("v_mfma_f32_16x16x2bf16", 16, 1),
    0x6B: Mfma("v_mfma_f32_4x4x2bf16", 4, 1),
    0x6C: Mfma("v_mfma_f32_32x32x4bf16", 16, 1),
    0x6D: Mfma("v_mfma_f32_16x16x8bf16", 4, 1),
}
CDNA3_MFMA = {
    0x3E: Mfma("v_mfma_f32_16x16x8_xf32", 4, 2),
    0x3F: Mfma("v_mfma_f32_32x32x4_xf32", 16, 2),
}

# gfx90a's own meaning of an opcode: the bits that tell the encoding, where the opcode is and its
# width, then opcode to alias.
CDNA2_ALIASES: tuple[tuple[int, int, int, int, dict[int, Alias]], ...] = (
    (0x80000000, 0x00000000, 25, 6, {  # VOP2
        0x16: Alias("v_mac_f32", 0x3B),
        0x17: Alias("v_madmk_f32", 0x17),
        0x18: Alias("v_madak_f32", 0x18),
    }),
    (0xFC000000, 0xD0000000, 16, 10, {  # VOP3
        0x116: Alias("v_mac_f32", 0x13B),
        0x1C0: Alias("v_mad_legacy_f32", 0x1CB),
        0x1C1: Alias("v_mad_f32", 0x1CB),
    }),
    (0xFC000000, 0xE0000000, 18, 7, {  # MUBUF
        0x29: Alias("buffer_invl2", 0x28),
        0x3E: Alias("buffer_wbinvl1", 0x28),
        0x3F: Alias("buffer_wbinvl1_vol", 0x28),
    }),
)  # fmt: skip

_SINCE_GFX940 = re.compile(
    r"v_mov_b64|v_lshl_add_u64|v_smfmac_|v_mfma_.*(_(xf32|b?f8|fp8|f8f6f4|fp8_.*|bf8_.*)|x16_i8|x32_i8)$"
    r"|v_cvt_(pk_|sr_)?(f32_)?(fp8|bf8)|v_mfma_.*_bf16$"
    r"|flat_atomic_(add_f32|pk_add)|global_atomic_pk_add_bf16|(global|scratch)_load_lds_"
)
_SINCE_GFX950 = re.compile(
    r"v_prng_|v_permlane(16|32)_swap|v_cvt_f32_bf16|v_dot2c?_f32_bf16|v_bitop3_|v_cvt_scalef32_|v_ashr_pk_"
    r"|v_cvt_(pk|sr)_b?f16_f32|v_(pk_)?(minimum|maximum)3_|v_mfma_ld_scale|v_mfma_.*f8f6f4"
    r"|v_mfma_f32_(16x16x32|32x32x16)_b?f16|v_mfma_i32_(16x16x64|32x32x32)_i8"
    r"|v_smfmac_f32_(16x16x64|32x32x32)_b?f16|v_smfmac_i32_(16x16x128|32x32x64)_i8"
    r"|v_smfmac_f32_(16x16x128|32x32x64)_[bf]|global_load_lds_dwordx|ds_read_b\d+_tr_"
    r"|buffer_atomic_pk_add_bf16"
)


def lacks(target: str, mnemonic: str) -> bool:
    """Return whether an instruction of the tables does not exist on `target`."""
    if target == "gfx950":
        return "xf32" in mnemonic
    if target == "gfx942":
        return _SINCE_GFX950.match(mnemonic) is not None
    if target == "gfx90a":
        return any(table.match(mnemonic) for table in (_SINCE_GFX940, _SINCE_GFX950))
    return False
