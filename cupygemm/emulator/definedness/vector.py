"""Undefined bits through vector instructions: each is executed a second time, on these bits.

In the second run, a rule (see `rules`) replaces the operation. Sources are fetched (DPP, SDWA,
halves) and results are written (lane masks, preserved halves) as for the values. An instruction
without a rule of its own gives a completely undefined result in each lane in which any bit that it
reads is undefined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupygemm.emulator.definedness.bits import anywhere
from cupygemm.emulator.definedness.rules import Rule, either, rule_of
from cupygemm.emulator.isa.instruction import EXEC, Instruction, Operand
from cupygemm.emulator.units.constants import WIDTH
from cupygemm.emulator.units.lanewise import source_operands
from cupygemm.emulator.units.operands import (
    Fetch,
    always,
    destination,
    kind_of,
    lane_mask,
    source,
)
from cupygemm.emulator.units.vector import cross_lane
from cupygemm.emulator.units.vector import unit as vector
from cupygemm.emulator.waves.marks import ALL, Marks
from cupygemm.emulator.waves.state import LANES, Group

_U32 = np.uint32
_BOOL = np.dtype(bool)


class ShadowGroup(Group):
    """A group whose registers are the undefined bits, for the second run of an instruction."""

    __slots__ = ()

    def __init__(self, group: Group, marks: Marks) -> None:
        self.state = SimpleNamespace(  # type: ignore[assignment]
            vgpr=marks.undefined,
            sgpr=marks.undefined_scalar,
            mode=0,
            num_waves=marks.undefined.shape[1],
        )
        self.waves, self.count = group.waves, group.count
        self._whole = group.count == marks.undefined.shape[1]
        self.mask, self.full = group.mask, group.full

    def refresh_mask(self) -> None:
        """Keep EXEC; `uses` checks the undefined bits of a new one."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """The second run of an instruction.

    Attributes
    ----------
    run : callable
        Takes the shadow group and the group itself, before the instruction executes.
    moves : bool
        The instruction only moves bits.
    """

    run: Callable[[ShadowGroup, Group], None]
    moves: bool


# -- binding ---------------------------------------------------------------------------------------


def shadow_of(inst: Instruction) -> Shadow:
    """Return the second run of a vector instruction."""
    name = inst.mnemonic
    if name in SPECIAL:
        return Shadow(SPECIAL[name](inst), moves=True)
    if is_packed(inst):
        return Shadow(_packed(inst), moves=name == "v_pk_mov_b32")
    rule, moves = rule_of(inst)
    return Shadow(_lanewise(inst, rule), moves)


def unsigned_kinds(inst: Instruction, operands: list[Operand]) -> list[str]:
    """Return unsigned kinds as wide as those that the operation reads."""
    op = vector.OPS.get(inst.mnemonic)
    named = op.sources.split() if op is not None else []
    kinds = named or [kind_of(operand) for operand in operands]
    return [kind if kind == "mask" else f"u{WIDTH[kind]}" for kind in kinds]


def _fetch(inst: Instruction, op: Operand, kind: str) -> Fetch:
    """Return a function that fetches the undefined bits of a source."""
    if kind == "mask":
        return lane_mask(op) if op.kind == "s" else always(np.zeros((1, 1), bool))
    dtype = {"u16": np.uint16, "u32": np.uint32, "u64": np.uint64}[kind]
    if op.kind not in ("v", "s"):
        return always(np.zeros((1, 1), dtype))
    return source(inst, op, kind)


def _lanewise(inst: Instruction, rule: Rule) -> Callable[[ShadowGroup, Group], None]:
    operands = source_operands(inst)
    kinds = unsigned_kinds(inst, operands)
    fetches = [_fetch(inst, op, kind) for op, kind in zip(operands, kinds, strict=True)]
    reals = [source(inst, op, kind) for op, kind in zip(operands, kinds, strict=True)]
    results = sorted(inst.dst, key=lambda op: op.field != "vdst")
    op = vector.OPS.get(inst.mnemonic)
    keep = op.keep_high if op is not None else False
    written = [result for result in results if (result.kind, result.index) != ("s", EXEC)]
    puts = [_put(inst, result, keep=keep) for result in written]

    def run(shadow: ShadowGroup, group: Group) -> None:
        bits = [fetch(shadow) for fetch in fetches]
        values: list[Callable[[], Any]] = [functools.partial(real, group) for real in reals]
        result = rule(bits, values)
        flags = result if getattr(result, "dtype", None) is _BOOL else either(bits, values)
        for put in puts:
            put(shadow, result, flags)

    return run


def _put(inst: Instruction, op: Operand, *, keep: bool) -> Callable[[ShadowGroup, Any, Any], None]:
    """Return a function that writes undefined bits to a destination."""
    if op.kind == "s" and op.count == 2:  # a lane mask

        def put_mask(shadow: ShadowGroup, _result: Any, flags: Any) -> None:
            shadow.set_lane_mask(op.index, np.broadcast_to(flags, (shadow.count, LANES)))

        return put_mask
    part = part_of_register(inst, op)
    kind = "u32" if part != ALL else {16: "u16", 64: "u64"}.get(op.bits, "u32")
    if inst.mnemonic == "v_bitop3_b16":
        kind = "u16"
    dtype = np.dtype({"u16": np.uint16, "u32": np.uint32, "u64": np.uint64}[kind])
    write = destination(inst, op, kind, keep_high=keep) if op.count <= 2 else None

    def put(shadow: ShadowGroup, result: Any, _flags: Any) -> None:
        bits = anywhere(result, dtype) if result.dtype == bool else result.astype(dtype)
        bits = np.ascontiguousarray(np.broadcast_to(bits, (shadow.count, LANES)))
        if part != ALL:
            bits = bits & _U32(part) | shadow.v(op.index) & _U32(~part & ALL)
        if write is not None:
            write(shadow, bits)
            return
        for register in range(op.index, op.index + op.count):
            shadow.set_v(register, anywhere(bits, np.uint32))

    return put


_WRITES_HALF = (
    "v_cvt_pk_fp8_",
    "v_cvt_pk_bf8_",
    "v_cvt_scalef32_pk_fp8_",
    "v_cvt_scalef32_pk_bf8_",
)


def part_of_register(inst: Instruction, op: Operand) -> int:
    """Return the bits of a register that a conversion or a mixed-precision operation writes."""
    name, opsel = inst.mnemonic, inst.fields.get("opsel", 0)
    if op.count > 1 or not name.startswith(("v_cvt_", "v_fma_mix", "v_mad_mix")):
        return ALL
    if name.endswith(("mixlo_f16", "mixhi_f16")):
        return 0xFFFF0000 if "hi" in name else 0xFFFF
    if "_sr_fp8_" in name or "_sr_bf8_" in name:
        return 0xFF << 8 * (opsel >> 2 & 3)
    if name.startswith(_WRITES_HALF):
        return 0xFFFF << 16 * (opsel >> 3 & 1)
    if name.startswith("v_cvt_scalef32_pk_fp4_"):
        return 0xFF << 8 * (opsel >> 2 & 3)
    return ALL


# -- packed ----------------------------------------------------------------------------------------


def is_packed(inst: Instruction) -> bool:
    """Tell whether each half of the result depends on the halves that op_sel selects."""
    return inst.mnemonic.startswith("v_pk_") and inst.dst[0].count <= 2 and inst.encoding == "VOP3P"


def selected(inst: Instruction) -> set[tuple[str, int]]:
    """Return the registers of pairs that a packed instruction reads, by file and number."""
    fields = inst.fields
    high = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    found: set[tuple[str, int]] = set()
    for where, op in enumerate(source_operands(inst)):
        halves = (fields["opsel"] >> where & 1, high >> where & 1)
        if op.count != 2 or op.field == "vdst":
            halves = (0, op.count - 1)
        elif inst.mnemonic == "v_pk_mov_b32":
            halves = (halves[0], halves[0])
        found |= {(op.kind, op.index + half) for half in halves}
    return found


def _packed(inst: Instruction) -> Callable[[ShadowGroup, Group], None]:
    """Return the second run of a packed instruction.

    Each half of the result, or each register of a pair, depends on the halves that op_sel selects.
    """
    operands = source_operands(inst)
    fields, count, index = inst.fields, inst.dst[0].count, inst.dst[0].index
    high = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    moves = inst.mnemonic == "v_pk_mov_b32"

    def picked(shadow: ShadowGroup, place: int) -> Any:
        found: Any = _U32(0)
        for where, op in enumerate(operands):
            chosen = (high if place else fields["opsel"]) >> where & 1
            if op.field == "vdst":
                chosen = place
            if moves:
                chosen = fields["opsel"] >> where & 1
            if op.kind not in ("v", "s") or (moves and where != place):
                continue
            register = op.index + (chosen if op.count == 2 else 0)
            bits = shadow.v(register) if op.kind == "v" else shadow.s(register)[:, None]
            if op.count == 1:
                bits = bits >> _U32(16 * chosen) & _U32(0xFFFF)
            found = found | bits
        return np.broadcast_to(found, (shadow.count, LANES))

    def run(shadow: ShadowGroup, _group: Group) -> None:
        first, second = (np.array(picked(shadow, place)) for place in (0, 1))
        if count == 2:
            for place, bits in enumerate((first, second)):
                shadow.set_v(index + place, bits if moves else anywhere(bits, np.uint32))
            return
        low, top = (anywhere(bits, np.uint32) for bits in (first, second))
        shadow.set_v(index, low & _U32(0xFFFF) | top & _U32(0xFFFF0000))

    return run


# -- between lanes ---------------------------------------------------------------------------------


def _like_the_values(inst: Instruction) -> Callable[[ShadowGroup, Group], None]:
    step = cross_lane.bind(inst)
    assert step is not None
    return lambda shadow, _group: step(shadow)


def _read_lane(inst: Instruction) -> Callable[[ShadowGroup, Group], None]:
    operand, selector = source_operands(inst)[:2]
    bits, lane = _fetch(inst, operand, "u32"), source(inst, selector, "u32")
    unsure, index = _fetch(inst, selector, "u32"), inst.dst[0].index

    def run(shadow: ShadowGroup, group: Group) -> None:
        lanes = np.broadcast_to(bits(shadow), (group.count, LANES))
        chosen = (lane(group)[:, 0] & _U32(LANES - 1)).astype(np.intp)
        unknown = anywhere(unsure(shadow)[:, 0], np.uint32)
        shadow.set_s(index, lanes[np.arange(group.count), chosen] | unknown)

    return run


def _write_lane(inst: Instruction) -> Callable[[ShadowGroup, Group], None]:
    operand, selector = source_operands(inst)[:2]
    bits, lane = _fetch(inst, operand, "u32"), source(inst, selector, "u32")
    index = inst.dst[0].index

    def run(shadow: ShadowGroup, group: Group) -> None:
        chosen = lane(group) & _U32(LANES - 1)
        mask = np.broadcast_to(chosen == np.arange(LANES), (group.count, LANES))
        shadow.set_v(index, bits(shadow), mask)

    return run


SPECIAL = {
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    **dict.fromkeys(
        ("v_readfirstlane_b32", "v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32"),
        _like_the_values,
    ),
}
