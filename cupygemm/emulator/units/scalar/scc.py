"""Which instructions read and set SCC, the scalar condition code."""

from __future__ import annotations

import functools

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.scalar.arithmetic import PAIRS, SINGLES

_COMPARES = ("s_cmp_", "s_cmpk_", "s_bitcmp")
_READS_SCC = ("s_cbranch_scc", "s_cselect_", "s_cmov", "s_addc_", "s_subb_")


def reads_scc(inst: Instruction) -> bool:
    """Return whether an instruction depends on SCC."""
    special = any(op.kind == "special" and op.index == 253 for op in inst.src)
    return special or inst.mnemonic.startswith(_READS_SCC)


@functools.cache
def _sets_scc(name: str) -> bool:
    one, flag = np.zeros(1, np.uint32), np.zeros(1, bool)
    if name in PAIRS:
        pair, width, counts = PAIRS[name]
        wide = np.zeros(1, np.uint64 if width == 64 else np.uint32)
        _, scc = pair(wide, one if counts else wide, flag)
        return scc is not None
    if name in SINGLES:
        single, width = SINGLES[name]
        _, scc = single(np.zeros(1, np.uint64 if width == 64 else np.uint32))
        return scc is not None
    return name.startswith("s_addk_") or "_saveexec_" in name or "_wrexec_" in name


def writes_scc(inst: Instruction) -> bool:
    """Return whether an instruction sets SCC."""
    if inst.mnemonic.startswith(_COMPARES):
        return True
    return inst.encoding in ("SOP1", "SOP2", "SOPK") and _sets_scc(inst.mnemonic)
