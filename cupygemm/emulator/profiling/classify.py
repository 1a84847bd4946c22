"""Classify instructions, and count their floating-point operations.

An MFMA does 2*M*N*K FLOP per block, regardless of EXEC. A sparse one (SMFMAC) counts the K in its
name, zeros included. The FLOP of the vector ALU are counted for the active lanes: 2 for a fused
multiply-add; 1 for an addition, a product or a transcendental function; 0 for a comparison, a
conversion, a minimum or a move. Integer MFMA operations count as FLOP.
"""

from __future__ import annotations

import re

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.profiling.occupancy import SIMDS
from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.matrix.unit import Shape
from cupygemm.emulator.waves.state import LANES

CATEGORIES = (
    "MFMA",
    "VALU",
    "SALU",
    "VMEM",
    "LDS",
    "SMEM",
    "branch",
    "waitcnt",
    "barrier",
    "other",
)

_BRANCHES = ("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_rfe")
_UNITS = {
    "MFMA": "MFMA",
    "VOP1": "VALU",
    "VOP2": "VALU",
    "VOP3": "VALU",
    "VOP3P": "VALU",
    "VOPC": "VALU",
    "SOP1": "SALU",
    "SOP2": "SALU",
    "SOPC": "SALU",
    "SOPK": "SALU",
    "DS": "LDS",
    "SMEM": "SMEM",
    "FLAT": "VMEM",
    "GLOBAL": "VMEM",
    "SCRATCH": "VMEM",
    "MUBUF": "VMEM",
    "MTBUF": "VMEM",
}
_ONE = "add|sub|subrev|mul|mul_legacy|rcp|rcp_iflag|rsq|sqrt|exp|log|sin|cos"
_TWO = "fma|fmac|mac|mad|fmaak|fmamk|madak|madmk|mad_legacy|mac_legacy|fma_legacy|div_fmas"
_VALU = re.compile(rf"v_(pk_)?(?:({_ONE})|({_TWO}))_(f16|f32|f64)")
_DOT = re.compile(r"v_(?:dot2c?_f32_(?:f16|bf16)|fma_mix(?:lo|hi)?_f(?:16|32))")


def category(inst: Instruction) -> str:
    """Return the category of an instruction, one of `CATEGORIES`."""
    name = inst.mnemonic
    if name == "s_waitcnt":
        return "waitcnt"
    if name == "s_barrier":
        return "barrier"
    if name.startswith(_BRANCHES):
        return "branch"
    if name.startswith("v_accvgpr_"):
        return "VALU"
    return _UNITS.get(inst.encoding, "other")


def matrix_flop(inst: Instruction) -> tuple[int, str]:
    """Return the FLOP of a wave's MFMA and the type of its operands, a key of `Part`'s rates.

    Returns
    -------
    flop : int
        0 if the instruction is not an MFMA.
    type : str
    """
    if inst.encoding != "MFMA" or inst.mnemonic.startswith("v_accvgpr_"):
        return 0, ""
    shape = Shape.of(inst.mnemonic)
    blocks = inst.dst[0].count * LANES // (shape.m * shape.n * (2 if shape.a == "f64" else 1))
    kind = "fp8" if shape.a == "bf8" else shape.a
    if kind == "f8f6f4":  # formats 0 and 1 are 8 bits wide; one such operand halves the rate
        kind = "fp8" if min(inst.fields["cbsz"], inst.fields["blgp"]) < 2 else "fp6, fp4"
    return 2 * shape.m * shape.n * shape.k * blocks, kind


def matrix_cycles(inst: Instruction, target: str) -> int:
    """Return the cycles for which an MFMA occupies its SIMD's matrix pipe; 0 for anything else.

    The cycles are the FLOP divided by the part's rate, but at least those needed to write the
    result: an instruction of an older generation does not become faster (CDNA4 runs 16x16x16 bf16
    at half rate). A sparse MFMA executes half of the FLOP that it counts.
    """
    flop, kind = matrix_flop(inst)
    if not flop:
        return 0
    shape = Shape.of(inst.mnemonic)
    rate = PARTS[target].matrix_flop_per_clock[kind] // SIMDS
    if inst.mnemonic.startswith("v_smfmac"):
        flop //= 2
    results = inst.dst[0].count * LANES // (2 if shape.a == "f64" else 1)
    if shape.m == 4:
        least = 16 if shape.a == "f64" else 8
    elif TARGETS[target].generation == 2:
        least = 2 * shape.m
    else:
        least = max(16, results // 32)
    return max(flop // rate, least)


def vector_flop(inst: Instruction) -> tuple[int, str]:
    """Return the FLOP of a vector ALU instruction per active lane, and their type."""
    name = inst.mnemonic
    if (match := _VALU.fullmatch(name)) is not None:
        packed, one, _, kind = match.groups()
        return (1 if one else 2) * (2 if packed else 1), kind
    if _DOT.fullmatch(name):
        return (4 if "dot2" in name else 2), "f32"
    return 0, ""
