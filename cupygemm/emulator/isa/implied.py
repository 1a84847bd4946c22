"""What the mnemonic of an instruction says about its operands, beyond the encoding tables."""

from __future__ import annotations

import functools
from typing import NamedTuple

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
