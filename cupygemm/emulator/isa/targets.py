"""The differences between the instructions of a target and the encoding tables.

The tables are tinygrad's, generated from AMD's CDNA3 and CDNA4 instruction sets, and hold the union
of both. This module lists the instructions that a generation lacks, and those that the tables lack:
CDNA2's own opcodes and the xf32 MFMA of CDNA3. The facts are from AMD's CDNA2, CDNA3 and CDNA4 ISA
guides. The tests compare every opcode with LLVM's disassembler.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from cupygemm.emulator.targets import TARGETS


class Mfma(NamedTuple):
    """An MFMA that the tables lack: the 32-bit registers of D and C, and of A and B."""

    mnemonic: str
    accumulators: int
    inputs: int


class Alias(NamedTuple):
    """An instruction of CDNA2, and the opcode of one in the tables that has the same operands."""

    mnemonic: str
    opcode: int


class AliasedEncoding(NamedTuple):
    """An encoding in which CDNA2 gives some opcodes a meaning of their own.

    Attributes
    ----------
    mask, value : int
        A first word belongs to the encoding if its bits under `mask` are `value`.
    opcode_shift, opcode_bits : int
        Place of the opcode in the word.
    aliases : dict of int to Alias
        By opcode.
    """

    mask: int
    value: int
    opcode_shift: int
    opcode_bits: int
    aliases: dict[int, Alias]

    def replace(self, word: int) -> tuple[int, str]:
        """Return a first word with an opcode of the tables, and the mnemonic if it differs."""
        mask = (1 << self.opcode_bits) - 1
        alias = self.aliases.get(word >> self.opcode_shift & mask)
        if word & self.mask != self.value or alias is None:
            return word, ""
        return word & ~(
            mask << self.opcode_shift
        ) | alias.opcode << self.opcode_shift, alias.mnemonic


# By VOP3P opcode. Some opcodes are different instructions on CDNA2 and on CDNA3.
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

CDNA2_ALIASES = (
    AliasedEncoding(  # VOP2
        mask=0x80000000,
        value=0x00000000,
        opcode_shift=25,
        opcode_bits=6,
        aliases={
            0x16: Alias("v_mac_f32", 0x3B),
            0x17: Alias("v_madmk_f32", 0x17),
            0x18: Alias("v_madak_f32", 0x18),
        },
    ),
    AliasedEncoding(  # VOP3
        mask=0xFC000000,
        value=0xD0000000,
        opcode_shift=16,
        opcode_bits=10,
        aliases={
            0x116: Alias("v_mac_f32", 0x13B),
            0x1C0: Alias("v_mad_legacy_f32", 0x1CB),
            0x1C1: Alias("v_mad_f32", 0x1CB),
        },
    ),
    AliasedEncoding(  # MUBUF
        mask=0xFC000000,
        value=0xE0000000,
        opcode_shift=18,
        opcode_bits=7,
        aliases={
            0x29: Alias("buffer_invl2", 0x28),
            0x3E: Alias("buffer_wbinvl1", 0x28),
            0x3F: Alias("buffer_wbinvl1_vol", 0x28),
        },
    ),
)

_SINCE_CDNA3 = re.compile(
    r"v_mov_b64|v_lshl_add_u64|v_smfmac_|v_mfma_.*(_(xf32|b?f8|fp8|f8f6f4|fp8_.*|bf8_.*)|x16_i8|x32_i8)$"
    r"|v_cvt_(pk_|sr_)?(f32_)?(fp8|bf8)|v_mfma_.*_bf16$"
    r"|flat_atomic_(add_f32|pk_add)|global_atomic_pk_add_bf16|(global|scratch)_load_lds_"
)
_SINCE_CDNA4 = re.compile(
    r"v_prng_|v_permlane(16|32)_swap|v_cvt_f32_bf16|v_dot2c?_f32_bf16|v_bitop3_|v_cvt_scalef32_|v_ashr_pk_"
    r"|v_cvt_(pk|sr)_b?f16_f32|v_(pk_)?(minimum|maximum)3_|v_mfma_ld_scale|v_mfma_.*f8f6f4"
    r"|v_mfma_f32_(16x16x32|32x32x16)_b?f16|v_mfma_i32_(16x16x64|32x32x32)_i8"
    r"|v_smfmac_f32_(16x16x64|32x32x32)_b?f16|v_smfmac_i32_(16x16x128|32x32x64)_i8"
    r"|v_smfmac_f32_(16x16x128|32x32x64)_[bf]|global_load_lds_dwordx|ds_read_b\d+_tr_"
    r"|buffer_atomic_pk_add_bf16"
)
_SINCE = {3: _SINCE_CDNA3, 4: _SINCE_CDNA4}  # by generation


def is_cdna2(target: str) -> bool:
    """Return whether a target is of the second generation; ``""``, for any target, is not."""
    return target in TARGETS and TARGETS[target].generation == 2


@functools.cache
def lacks(target: str, mnemonic: str) -> bool:
    """Return whether a target lacks an instruction of the tables; ``""`` lacks none."""
    if target not in TARGETS:
        return False
    generation = TARGETS[target].generation
    if generation == 4 and "xf32" in mnemonic:
        return True
    newer = [table for since, table in _SINCE.items() if since > generation]
    return any(table.match(mnemonic) for table in newer)
