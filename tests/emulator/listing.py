"""The stored listing of machine code with LLVM's text, and the registers that the text names.

`entries(target)` reads ``instructions.txt``. `expected_masks` derives the registers that an
instruction reads and writes from LLVM's text alone: the text gives every register and its width,
and the rules here say which operands are results. It shares no code with the decoder.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

LISTING = Path(__file__).with_name("instructions.txt")
TARGETS = ("gfx90a", "gfx942", "gfx950")
VCC, M0, EXEC = 106, 124, 126
_NAMED = {
    "flat_scratch": (102, 2),
    "xnack_mask": (104, 2),
    "vcc": (106, 2),
    "exec": (126, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
    "vcc_lo": (106, 1),
    "vcc_hi": (107, 1),
    "m0": (124, 1),
    "exec_lo": (126, 1),
    "exec_hi": (127, 1),
    "src_vccz": (106, 2),
}


class Entry(NamedTuple):
    """One line of the listing."""

    code: bytes
    text: str


class Masks(NamedTuple):
    """Masks of registers read and written: VGPRs from bit 0, AGPRs from 256; scalars by code."""

    vector_reads: int
    vector_writes: int
    scalar_reads: int
    scalar_writes: int


@functools.cache
def entries(target: str) -> tuple[Entry, ...]:
    """Return the lines that hold for `target`."""
    column = TARGETS.index(target)
    lines = (line.split(" ", 2) for line in LISTING.read_text().splitlines())
    return tuple(
        Entry(bytes.fromhex(code), text)
        for targets, code, text in (line for line in lines if line[0] != "#")
        if targets[column] != "."
    )


# -- which operands are results --------------------------------------------------------------------

_NO_RESULT = re.compile(
    r"s_cmp_|s_cmpk_|s_bitcmp|s_setreg|s_setpc|s_setvskip|s_set_gpr_idx|s_(buffer_|scratch_)?store_"
    r"|s_dcache|ds_write|ds_nop|t?buffer_(store|wb|inv)|(flat|global|scratch)_store"
    r"|(global|scratch)_load_lds_|v_nop|v_clrexcp"
)
_TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_div_scale_|v_mad_[ui]64_|v_swap_|v_permlane.*_swap"
)
_READS_RESULT = re.compile(
    r"v_f?mac_|v_pk_fmac|v_dot\d+c_|v_smfmac|s_addk|s_mulk|s_cmov|s_bitset|v_swap_|v_permlane.*_swap"
    r"|v_cvt_pkaccum_"
)


def _num_results(mnemonic: str, words: set[str]) -> int:
    if _NO_RESULT.match(mnemonic) or "lds" in words:
        return 0
    if mnemonic.startswith("ds_"):
        return int(bool(re.search(r"_rtn_|read|swizzle|permute|consume|append", mnemonic)))
    if "_atomic_" in mnemonic:
        in_place = mnemonic.startswith(("buffer", "s_"))  # the data operand is also the result
        return 0 if in_place else int(bool(words & {"sc0", "glc"}))
    return 2 if _TWO_RESULTS.match(mnemonic) else 1


def expected_masks(text: str) -> Masks:
    """Return what an instruction reads and writes, by LLVM's text for it."""
    mnemonic, _, rest = text.partition(" ")
    mnemonic = re.sub(r"_(e32|e64|sdwa|dpp)$", "", mnemonic)
    operands = re.split(r", (?![^\[(|]*[\])])", rest) if rest else []
    modifiers = set(rest.split()) - {operand.split()[0] for operand in operands}
    operands = [operand.split()[0] for operand in operands]
    masks = dict.fromkeys(("vr", "vw", "sr", "sw"), 0)

    def note(access: str, operand: str, halve: bool = False) -> None:
        file, first, count = _registers(operand)
        if file:
            count = count // 2 if halve else count
            masks[file + access] |= ((1 << count) - 1) << first

    results = _num_results(mnemonic, modifiers)
    for operand in operands[:results]:
        note("w", operand)
    sources = operands if _READS_RESULT.match(mnemonic) else operands[results:]
    for operand in sources:
        note("r", operand)
    if "_atomic_" in mnemonic and not results and modifiers & {"sc0", "glc"}:
        note("w", operands[0], halve="cmpswap" in mnemonic)
    for pattern, access, register in _IMPLIED:
        if re.search(pattern, mnemonic):
            note(access, register)
    if "lds" in modifiers:
        note("r", "m0")
    return Masks(masks["vr"], masks["vw"], masks["sr"], masks["sw"])


_IMPLIED = (
    (r"^v_cmpx_", "w", "exec"),
    (r"_saveexec_|_wrexec_", "r", "exec"),
    (r"_saveexec_|_wrexec_", "w", "exec"),
    (r"^v_div_fmas_", "r", "vcc"),
    (r"^s_cbranch_vcc", "r", "vcc"),
    (r"^s_set_gpr_idx_(on|idx|mode)", "w", "m0"),
    (r"^s_movrel|_load_lds_|_addtid_|^ds_(append|consume)", "r", "m0"),
)


def _registers(operand: str) -> tuple[str, int, int]:
    """Return file ("v", "s" or "" for a constant), first register and count."""
    name = re.sub(r"^(neg|sext)\(|[-|()]", "", operand)
    if name in _NAMED:
        return ("s", *_NAMED[name])
    match = re.fullmatch(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])", name)
    if match is None:
        return "", 0, 0
    file, single, first, last = match.groups()
    start = int(single or first)
    count = 1 if single else int(last) - start + 1
    offset = {"v": 0, "a": 256, "s": 0, "ttmp": 108}[file]
    return ("v" if file in "va" else "s"), start + offset, count
