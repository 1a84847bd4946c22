"""What the encoding and the mnemonic of an instruction say about its operands.

The encoding tables leave this open. Few kinds of instructions occur, so it is found once for each.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cupygemm.emulator.isa.encodings import OperandForm

# Instructions that read their destination, although the tables have no source operand for it.
_READS_DESTINATION = (
    "v_fmac_",
    "v_mac_",
    "v_pk_fmac_",
    "v_dot2c_",
    "v_dot4c_",
    "v_dot8c_",
    "v_swap_",
    "v_smfmac_",
    "v_permlane16_swap",
    "v_permlane32_swap",
    "v_cvt_pkaccum_",
    "s_addk_",
    "s_mulk_",
    "s_cmov",
    "s_bitset",
)
# Instructions whose destination field is only a source.
_ONLY_READS = ("s_cmpk_", "s_setreg_", "s_cbranch_i_fork")
# Instructions that read a carry or a mask from VCC in their 32-bit encoding.
_READS_VCC = ("v_cndmask_", "v_addc_", "v_subb_", "v_subbrev_", "v_div_fmas_")
_WRITES_VCC = ("v_add_co_", "v_sub_co_", "v_subrev_co_", "v_addc_", "v_subb_", "v_subbrev_")
_EXEC_MASK_OPS = ("_saveexec_", "_wrexec_")


class Implied(NamedTuple):
    """What the mnemonic of an instruction says about its operands."""

    reads_destination: bool
    only_reads: bool
    reads_vcc: bool
    writes_vcc: bool
    reads_any_vcc: bool
    compares_exec: bool
    masks_exec: bool
    tests_vcc: bool
    sets_index: bool
    moves_relative: bool
    swaps: bool


@functools.cache
def implied_by(name: str) -> Implied:
    """Return the implied operands of a mnemonic."""
    return Implied(
        reads_destination=name.startswith(_READS_DESTINATION),
        only_reads=name.startswith(_ONLY_READS),
        reads_vcc=name.startswith(_READS_VCC),
        writes_vcc=name.startswith(_WRITES_VCC),
        reads_any_vcc=name.startswith("v_div_fmas"),
        compares_exec=name.startswith("v_cmpx"),
        masks_exec=any(part in name for part in _EXEC_MASK_OPS),
        tests_vcc=name in ("s_cbranch_vccz", "s_cbranch_vccnz"),
        sets_index=name.startswith("s_set_gpr_idx_") and name != "s_set_gpr_idx_off",
        moves_relative=name.startswith("s_movrel"),
        swaps=name.startswith("v_swap_") or "_swap_b32" in name,
    )


class AluOperand(NamedTuple):
    """An operand of an ALU instruction: the field, and what does not depend on its value.

    Attributes
    ----------
    field, canonical, bits, fmt
        As in `OperandForm`.
    base : int
        256 if the value is the number of a vector register.
    is_matrix : bool
        Whether it is an operand of a matrix instruction, whose other fields say more of it.
    is_agpr : bool
        Whether its vector registers are AGPRs.
    is_written : bool
    """

    field: str
    canonical: str
    bits: int
    fmt: str
    base: int
    is_matrix: bool
    is_agpr: bool
    is_written: bool


class Kind(NamedTuple):
    """What instructions of the same encoding and mnemonic have in common."""

    encoding: str
    variant: str
    implied: Implied
    operands: tuple[AluOperand, ...]


@functools.cache
def kind_of(cls: str, mnemonic: str, forms: tuple[OperandForm, ...]) -> Kind:
    """Return what instructions of an encoding of the tables with this mnemonic have in common."""
    implied = implied_by(mnemonic)
    if cls in ("VOP3P_MFMA", "VOP3PX2") or mnemonic.startswith(("v_mfma", "v_smfmac")):
        encoding, variant = "MFMA", ""
    else:
        encoding = cls.partition("_")[0].replace("VOP3SD", "VOP3")
        variant = "SDWA" if "SDWA" in cls else "DPP" if "DPP" in cls else ""
    operands = []
    for name, canonical, bits, fmt, kind in forms:
        if name == "simm16" or (mnemonic == "s_set_gpr_idx_on" and name == "ssrc1"):
            continue
        lane = canonical == "vdst" and kind.startswith("OPR_SREG")  # v_readlane
        is_vector = name in ("vsrc1", "vdst") and cls != "VOP3_SDST" and not lane
        operands.append(
            AluOperand(
                field=name,
                canonical=canonical,
                bits=bits,
                fmt=fmt,
                base=256 if is_vector else 0,
                is_matrix=encoding == "MFMA" and kind != "OPR_SIMM4",
                is_agpr="ACCVGPR" in kind and "VGPR_OR" not in kind,
                is_written=canonical in ("vdst", "sdst") and not implied.only_reads,
            )
        )
    return Kind(encoding, variant, implied, tuple(operands))
