"""The matrix unit: dense and sparse MFMA of every target, and moves between VGPRs and AGPRs.

`bind` turns an instruction into a record that states what it multiplies, where its operands are
stored and which arithmetic the target uses. ``native/mfma.c`` executes the record for all waves of
the group, directly on the register file, because these instructions ignore EXEC. Several threads
share the work if there are many waves.

Layouts, modifiers and availability: AMD's matrix instruction calculator and ISA guides. Arithmetic:
MMA-Sim (Xie et al., arXiv 2511.10909); ``native/mfma_tiles.h`` lists the assumptions for CDNA4.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import formats
from cupygemm.emulator.units.constants import constant_bits
from cupygemm.emulator.units.matrix.step import MatrixStep
from cupygemm.emulator.units.structures import members
from cupygemm.emulator.waves.state import LANES, Group

Step = Callable[[Group], None]


class _Availability(NamedTuple):
    """Matrix instructions, and the first and last CDNA generation that have them."""

    names: str
    first: int
    last: int | None = None


_AVAILABLE = (
    _Availability(
        """
        v_mfma_f32_32x32x1_2b_f32 v_mfma_f32_16x16x1_4b_f32 v_mfma_f32_4x4x1_16b_f32
        v_mfma_f32_32x32x2_f32 v_mfma_f32_16x16x4_f32
        v_mfma_f32_32x32x4_2b_f16 v_mfma_f32_16x16x4_4b_f16 v_mfma_f32_4x4x4_16b_f16
        v_mfma_f32_32x32x8_f16 v_mfma_f32_16x16x16_f16
        v_mfma_i32_32x32x4_2b_i8 v_mfma_i32_16x16x4_4b_i8 v_mfma_i32_4x4x4_16b_i8
        v_mfma_f64_16x16x4_f64 v_mfma_f64_4x4x4_4b_f64
        """,
        first=2,
    ),
    _Availability(
        """
        v_mfma_f32_32x32x4bf16_1k v_mfma_f32_16x16x4bf16_1k v_mfma_f32_4x4x4bf16_1k
        v_mfma_f32_32x32x8bf16_1k v_mfma_f32_16x16x16bf16_1k
        v_mfma_f32_32x32x2bf16 v_mfma_f32_16x16x2bf16 v_mfma_f32_4x4x2bf16
        v_mfma_f32_32x32x4bf16 v_mfma_f32_16x16x8bf16
        v_mfma_i32_32x32x8i8 v_mfma_i32_16x16x16i8
        """,
        first=2,
        last=2,
    ),
    _Availability(
        """
        v_mfma_f32_32x32x4_2b_bf16 v_mfma_f32_16x16x4_4b_bf16 v_mfma_f32_4x4x4_16b_bf16
        v_mfma_f32_32x32x8_bf16 v_mfma_f32_16x16x16_bf16
        v_mfma_i32_32x32x16_i8 v_mfma_i32_16x16x32_i8
        v_mfma_f32_16x16x32_EIGHT_BIT v_mfma_f32_32x32x16_EIGHT_BIT
        v_smfmac_f32_16x16x32_f16 v_smfmac_f32_32x32x16_f16
        v_smfmac_f32_16x16x32_bf16 v_smfmac_f32_32x32x16_bf16
        v_smfmac_i32_16x16x64_i8 v_smfmac_i32_32x32x32_i8
        v_smfmac_f32_16x16x64_EIGHT_BIT v_smfmac_f32_32x32x32_EIGHT_BIT
        """,
        first=3,
    ),
    _Availability("v_mfma_f32_16x16x8_xf32 v_mfma_f32_32x32x4_xf32", first=3, last=3),
    _Availability(
        """
        v_mfma_f32_16x16x32_f16 v_mfma_f32_32x32x16_f16
        v_mfma_f32_16x16x32_bf16 v_mfma_f32_32x32x16_bf16
        v_mfma_i32_16x16x64_i8 v_mfma_i32_32x32x32_i8
        v_mfma_f32_16x16x128_f8f6f4 v_mfma_f32_32x32x64_f8f6f4
        v_mfma_scale_f32_16x16x128_f8f6f4 v_mfma_scale_f32_32x32x64_f8f6f4
        v_smfmac_f32_16x16x64_f16 v_smfmac_f32_32x32x32_f16
        v_smfmac_f32_16x16x64_bf16 v_smfmac_f32_32x32x32_bf16
        v_smfmac_i32_16x16x128_i8 v_smfmac_i32_32x32x64_i8
        v_smfmac_f32_16x16x128_EIGHT_BIT v_smfmac_f32_32x32x64_EIGHT_BIT
        """,
        first=4,
    ),
)
_EIGHT_BIT = ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
_NAME = re.compile(
    r"v_(?P<kind>mfma|smfmac)_(?P<scale>scale_)?(?P<d>f32|f64|i32)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+?)_?"
    r"(?:\d+b_)?(?P<a>xf32|f64|f32|f16|bf16|i8|fp8|bf8|f8f6f4)(?:_(?P<b>fp8|bf8))?(?P<tall>_1k)?"
)

# enum arithmetic of native/mfma_operands.h
_FUSED, _FUSED_FP8, _PAIRWISE, _FMA_F32, _FMA_F64, _INTEGER = range(6)
_SPECIAL = {"ieee": 0, "fn": 1, "fnuz": 2, "none": 3}


class _Format(ctypes.Structure):
    """``mfma_format`` of native/mfma_operands.h."""

    _fields_ = members("int32 bits mantissa_bits bias special")


_FORMATS = {
    "f16": _Format(bits=16, mantissa_bits=10, bias=15),
    "bf16": _Format(bits=16, mantissa_bits=7, bias=127),
    "xf32": _Format(bits=32, mantissa_bits=23, bias=127),
    "f32": _Format(bits=32, mantissa_bits=23, bias=127),
    "f64": _Format(bits=64, mantissa_bits=52, bias=1023),
    "i8": _Format(bits=8, mantissa_bits=0, bias=0),
}


class _Instruction(ctypes.Structure):
    """``mfma_op`` of native/mfma_operands.h, which explains the fields."""

    _fields_ = [
        *members("int32 arithmetic group m n k blocks"),
        ("a", _Format),
        ("b", _Format),
        *members("int32 truncate chunked_a chunked_b a_reg b_reg c_reg d_reg d_count"),
        ("constant", ctypes.c_uint32 * 2),
        *members("int32 negate scale_a scale_b scale_a_byte scale_b_byte index_reg index_shift"),
        ("a_block", ctypes.c_uint8 * 16),
        ("b_lane", ctypes.c_uint8 * LANES),
    ]


@functools.cache
def mnemonics(generation: int) -> frozenset[str]:
    """Return the matrix instructions of a CDNA generation."""
    names = [
        name
        for row in _AVAILABLE
        if row.first <= generation and (row.last is None or generation <= row.last)
        for name in row.names.split()
    ]
    return frozenset(name.replace("EIGHT_BIT", types) for name in names for types in _EIGHT_BIT)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape D (m, n) = A (m, k) B (k, n) + C and the types that a mnemonic states."""

    m: int
    n: int
    k: int
    a: str
    b: str
    sparse: bool
    tall: bool  # bf16 with 4 elements per lane (_1k); the older CDNA instructions have 2

    @classmethod
    @functools.cache  # bounded by the number of mnemonics
    def of(cls, mnemonic: str) -> Shape:
        """Parse a mnemonic."""
        found = _NAME.fullmatch(mnemonic)
        if found is None:
            raise ValueError(f"{mnemonic!r} is not a matrix instruction")
        return cls(
            m=int(found["m"]),
            n=int(found["n"]),
            k=int(found["k"]),
            a=found["a"],
            b=found["b"] or found["a"],
            sparse=found["kind"] == "smfmac",
            tall=found["tall"] is not None,
        )


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step that executes a matrix instruction or an AGPR move, or None.

    Raises
    ------
    UnsupportedInstruction
        The instruction has a modifier that the target does not define for it.
    """
    if inst.mnemonic.startswith("v_accvgpr_"):
        return _bind_move(inst)
    if inst.mnemonic not in mnemonics(target.generation):
        return None
    return MatrixStep(inst.text, describe(inst, target))


def _bind_move(inst: Instruction) -> Step:
    """Return the step of v_accvgpr_read, _write or _mov: a 32-bit move that obeys EXEC."""
    (destination,), source = inst.dst, inst.src[0]
    if source.kind == "imm":
        constant = np.uint32(constant_bits(source, "u32"))
        return lambda group: group.set_v(destination.index, constant)
    if source.kind == "s":
        return lambda group: group.set_v(destination.index, group.s(source.index)[:, None])
    if source.kind == "v":
        return lambda group: group.set_v(destination.index, group.v(source.index))
    raise UnsupportedInstruction(f"{inst.text}: AGPR moves have no such source")


def describe(inst: Instruction, target: Target) -> _Instruction:
    """Return the record of a matrix instruction, for C to execute."""
    shape = Shape.of(inst.mnemonic)
    a, b, d = inst.operand("src0"), inst.operand("src1"), inst.dst[0]
    if a is None or b is None or a.kind != "v" or b.kind != "v":
        raise UnsupportedInstruction(f"{inst.text}: A and B must be vector registers")
    op = _Instruction(m=shape.m, n=shape.n, k=shape.k, a_reg=a.index, b_reg=b.index)
    op.d_reg, op.d_count = d.index, d.count
    op.blocks = d.count * LANES // (shape.m * shape.n * (2 if shape.a == "f64" else 1))
    op.scale_a = op.scale_b = op.index_reg = -1
    op.b_lane[:] = list(range(LANES))
    op.a_block[:] = list(range(16))
    _choose_arithmetic(op, shape, inst, target)
    _choose_addend(op, shape, inst, d)
    _choose_modifiers(op, shape, inst, target)
    return op


def _choose_arithmetic(op: _Instruction, shape: Shape, inst: Instruction, target: Target) -> None:
    """Set how values are decoded and summed."""
    if shape.a == "f8f6f4":
        kinds = (formats.FP8, formats.BF8, formats.FP6, formats.BF6, formats.FP4)
        for side, field in (("a", "cbsz"), ("b", "blgp")):
            code = inst.fields[field]
            if code >= len(kinds):
                raise UnsupportedInstruction(f"{inst.text}: {field} {code} is not a format")
            setattr(op, side, _format(kinds[code]))
            setattr(op, f"chunked_{side}", int(kinds[code].bits == 8))
    else:
        op.a, op.b = _named_format(shape.a, target), _named_format(shape.b, target)
    if shape.a in ("f32", "f64"):
        op.arithmetic = _FMA_F32 if shape.a == "f32" else _FMA_F64
    elif shape.a == "i8":
        op.arithmetic = _INTEGER
    elif shape.a == "xf32":
        op.arithmetic, op.group, op.truncate = _FUSED, 4, 1
    elif shape.a in ("f16", "bf16") and target.mfma_flushes_subnormals:
        op.arithmetic = _PAIRWISE
        op.group = 2 if shape.a == "bf16" and not shape.tall else 4
    elif shape.a in ("f16", "bf16"):
        op.arithmetic, op.group = _FUSED, min(8, shape.k)
    else:
        op.arithmetic, op.group = _FUSED_FP8, 16


def _format(fmt: formats.Format) -> _Format:
    return _Format(
        bits=fmt.bits,
        mantissa_bits=fmt.mantissa_bits,
        bias=fmt.bias,
        special=_SPECIAL[fmt.special],
    )


def _named_format(name: str, target: Target) -> _Format:
    if name in ("fp8", "bf8"):
        return _format(formats.fp8_format(name, target.fp8_fnuz))  # type: ignore[arg-type]
    return _FORMATS[name]


def _choose_addend(op: _Instruction, shape: Shape, inst: Instruction, d: Operand) -> None:
    """Set where C is stored: in registers, as an inline constant, or in D itself if A is sparse."""
    third = inst.operand("src2")
    if third is None:
        raise UnsupportedInstruction(f"{inst.text}: no third operand")
    if shape.sparse:
        op.c_reg, op.index_reg = d.index, third.index
        # An index register holds several sets of pairs: the one that ABID selects, or with CBSZ
        # the first.
        pairs = shape.m * shape.k // 2 // LANES
        op.index_shift = 0 if inst.fields["cbsz"] else 2 * pairs * inst.fields["abid"]
        if op.index_shift + 2 * pairs > 32:
            abid = inst.fields["abid"]
            raise UnsupportedInstruction(f"{inst.text}: abid {abid} is beyond the index register")
    elif third.kind == "v":
        op.c_reg = third.index
    elif third.kind == "imm" and third.index != 255:
        op.c_reg = -1
        bits = constant_bits(third, "f64" if shape.a == "f64" else "u32")
        op.constant[:] = [bits & 0xFFFFFFFF, bits >> 32]
    else:
        raise UnsupportedInstruction(f"{inst.text}: C must be in vector registers or inline")


def _choose_modifiers(op: _Instruction, shape: Shape, inst: Instruction, target: Target) -> None:
    """Set broadcasts (CBSZ and ABID of A, BLGP of B), negation and block scales."""
    cbsz, abid, blgp = (inst.fields[name] for name in ("cbsz", "abid", "blgp"))
    if shape.a == "f8f6f4":
        scale_a, scale_b = inst.operand("scale_src0"), inst.operand("scale_src1")
        if scale_a is not None and scale_b is not None:
            low, high = inst.fields["opsel"], inst.fields["opsel_hi"]
            op.scale_a, op.scale_b = scale_a.index, scale_b.index
            op.scale_a_byte = (low & 1) | (high & 1) << 1
            op.scale_b_byte = (low >> 1 & 1) | (high >> 1 & 1) << 1
        return
    if shape.a == "f64" and target.f64_mfma_negates:
        op.negate, blgp = blgp, 0
    if shape.sparse:
        cbsz = abid = 0
    broadcasts_a = op.blocks > 1 and shape.a != "f64"
    broadcasts_b = broadcasts_a or shape.a in target.mfma_permutes_b
    if (blgp and not broadcasts_b) or ((cbsz or abid) and not broadcasts_a):
        raise UnsupportedInstruction(
            f"{inst.text}: {target.name} does not define cbsz {cbsz}, abid {abid}, blgp {blgp} here"
        )
    if op.blocks >> cbsz == 0 or abid >> cbsz:
        raise UnsupportedInstruction(
            f"{inst.text}: cbsz {cbsz} and abid {abid} select none of the {op.blocks} blocks"
        )
    op.a_block[:] = [(block >> cbsz << cbsz) + abid for block in range(16)]
    op.b_lane[:] = [_broadcast_lane(lane, blgp) for lane in range(LANES)]


def _broadcast_lane(lane: int, blgp: int) -> int:
    """Return the lane whose B `lane` uses; BLGP broadcasts 32 or 16 lanes, or rotates by 16."""
    if blgp in (1, 2):
        return lane % 32 + 32 * (blgp - 1)
    if blgp == 3:
        return (lane + 16) % LANES
    return lane % 16 + 16 * (blgp - 4) if blgp >= 4 else lane
