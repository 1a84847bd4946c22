"""The rules of manually inserted wait states: the subject and the source of each.

A violation of a rule in AMD's ISA guides is an error by default: the guides say that the hardware
does not check for these dependencies. A rule that only LLVM follows is a warning. No guide states
it, and AMD's own assembly violates it in kernels that are in use.

`wait_pairs` has the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_TABLE = 'CDNA3 ISA guide, section 4.5, "Manually Inserted Wait States", table 11'
_MATRIX = 'CDNA3 ISA guide, section 7.5, "Required Independent Instructions", table 37'


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    finds : str
        The two instructions that come too close.
    source : str
        Where the rule is stated.
    severity : {"error", "warn"}
        The default severity of a finding.
    """

    finds: str
    source: str
    severity: Literal["error", "warn"] = "error"


RULES: Mapping[str, Rule] = {
    "mfma_result": Rule(
        "an instruction that reads or overwrites the result of an MFMA, or an MFMA that reads it "
        "as A or B",
        f"{_MATRIX}; LLVM's checkMAIHazards90A and checkMAIVALUHazards",
    ),
    "mfma_accumulator": Rule(
        "an MFMA whose accumulator overlaps the result of an earlier one",
        f"{_MATRIX}; LLVM's checkMAIHazards90A",
    ),
    "mfma_overwrite": Rule(
        "a vector ALU instruction that overwrites an accumulator which an MFMA still reads",
        f"{_MATRIX}; LLVM's checkMAIVALUHazards",
    ),
    "mfma_overwrite_load": Rule(
        "a load that overwrites an accumulator which an MFMA still reads",
        "LLVM's checkMAIVALUHazards; the CDNA3 ISA guide, table 37, names the vector ALU only, and "
        "data arrive many cycles after the load",
        "warn",
    ),
    "mfma_operand": Rule(
        "an MFMA that reads a register which the vector ALU has written",
        f"{_MATRIX}; LLVM's checkMAIHazards90A",
    ),
    "exec": Rule(
        "DPP, MFMA or a lane access after the vector ALU has written EXEC",
        f"{_TABLE}; LLVM's checkDPPHazards, checkMAIHazards90A and checkVALUHazards",
    ),
    "dpp": Rule(
        "DPP that reads a register which the vector ALU has written",
        f"{_TABLE}; LLVM's checkDPPHazards",
    ),
    "div_fmas": Rule(
        "v_div_fmas after the vector ALU has written VCC",
        f"{_TABLE}; LLVM's checkDivFMasHazards",
    ),
    "lane_select": Rule(
        "v_readlane or v_writelane whose lane is an SGPR that the vector ALU has written",
        f"{_TABLE}; LLVM's checkRWLaneHazards",
    ),
    "lane_data": Rule(
        "v_readlane or v_readfirstlane of a register that the vector ALU has written (CDNA3, "
        "CDNA4)",
        f"{_TABLE}; LLVM's checkVALUHazards",
    ),
    "transcendental": Rule(
        "an instruction that reads the result of a transcendental one, and is none itself (CDNA3, "
        "CDNA4)",
        f"{_TABLE}; LLVM's checkVALUHazards",
    ),
    "sgpr_constant": Rule(
        "a vector ALU instruction that reads an SGPR or VCC as a constant, after another one has "
        "written it (CDNA3, CDNA4)",
        f"{_TABLE}; LLVM's checkVALUHazards",
    ),
    "lane_mask": Rule(
        "v_cndmask whose mask another vector ALU instruction has written (CDNA3, CDNA4)",
        "LLVM's checkVALUHazards; the CDNA3 ISA guide, table 11, states 0 for the same operand as "
        "a carry, and does not name v_cndmask",
        "warn",
    ),
    "sgpr_to_memory": Rule(
        "a vector memory instruction that reads an SGPR which the vector ALU has written",
        f"{_TABLE}; LLVM's checkVMEMHazards",
    ),
    "m0": Rule(
        "a global or scratch load to LDS, an LDS access by thread number or s_movrel, after the "
        "scalar ALU has written M0",
        f"{_TABLE}; LLVM's checkReadM0Hazards",
    ),
    "m0_buffer": Rule(
        "a buffer load to LDS after the scalar ALU has written M0",
        "LLVM's checkReadM0Hazards; the CDNA3 ISA guide, table 11, names global and scratch loads "
        "only, and AMD's assembly in ROCm/aiter has no wait state here",
        "warn",
    ),
    "hwreg": Rule(
        "s_getreg or s_setreg of a hardware register that has just been set",
        f"{_TABLE}; LLVM's checkGetRegHazards and checkSetRegHazards",
    ),
    "vskip": Rule(
        "a vector instruction after MODE.vskip has been set or cleared",
        _TABLE,
    ),
    "store_data": Rule(
        "a vector ALU instruction that overwrites what a store of more than 8 bytes still reads",
        f"{_TABLE}; LLVM's checkVALUHazardsHelper",
    ),
}
