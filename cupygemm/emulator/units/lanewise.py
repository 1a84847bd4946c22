"""Lane-wise vector operations: how a mnemonic is described, and how it becomes a step.

An `Op` states what a mnemonic computes on typed arrays. The operand kinds come from the ISA tables
unless the entry overrides them. `bind` adds what all operations share: fetch, float mode, compute,
output modifier and clamp, write. A function returns an array of its result's kind (float32 values
for f16). For an instruction with a carry, it returns a pair of that array and a lane mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units import float_mode
from cupygemm.emulator.units.constants import FLOATS, WIDTH
from cupygemm.emulator.units.operands import Fetch, destination, kind_of, source
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.waves.state import Group

Function = Callable[..., Any]
Step = Callable[[Group], None]
_NUMPY: dict[str, Any] = {
    "u32": np.uint32,
    "i32": np.int32,
    "u16": np.uint16,
    "i16": np.int16,
    "f32": np.float32,
}


@dataclass(frozen=True)
class Op:
    """The operation of a mnemonic.

    Attributes
    ----------
    function : callable or None
        Takes one array per source, in the order src0, src1, src2, vcc, vdst.
    sources : str
        The kinds of the sources, separated by blanks. If empty, the ISA tables determine them.
    result : str
        The kind of the result. If empty, the ISA tables determine it.
    make : callable or None
        ``make(inst, target)`` returns the function if it depends on the two.
    exact : bool
        The operation is on floats, and MODE does not influence it.
    keep_high : bool
        A 16-bit result preserves the other half of the register instead of clearing it.
    signed : bool
        The abs and neg modifiers apply although the sources are held as bits, not as floats.
    """

    function: Function | None = None
    sources: str = ""
    result: str = ""
    make: Callable[[Instruction, Target], Function] | None = None
    exact: bool = False
    keep_high: bool = False
    signed: bool = False


_ORDER = {"src0": 0, "src1": 1, "src2": 2, "vcc": 3, "vdst": 4}


def source_operands(inst: Instruction) -> list[Operand]:
    """Return the sources in the order src0, src1, src2, vcc (a mask), vdst (an accumulator)."""
    # A VCC that is not a lane mask is the implicit operand of src_vccz.
    used = [
        op for op in inst.src if op.field in _ORDER and not (op.field == "vcc" and op.fmt == "B64")
    ]
    used.sort(key=_place)
    return used


def _place(op: Operand) -> int:
    return _ORDER[op.field]


def bind(inst: Instruction, op: Op, target: Target) -> Step:
    """Return the step of a lane-wise operation."""
    function = op.make(inst, target) if op.make is not None else op.function
    assert function is not None
    operands = source_operands(inst)
    kinds = op.sources.split() or [kind_of(operand) for operand in operands]
    fetches = [
        source(inst, operand, kind, signed=op.signed)
        for operand, kind in zip(operands, kinds, strict=True)
    ]
    results = sorted(inst.dst, key=lambda operand: operand.field != "vdst")
    result = op.result or kind_of(results[0])
    puts = [
        destination(inst, operand, result if i == 0 else "mask", keep_high=op.keep_high)
        for i, operand in enumerate(results)
    ]
    is_float = result in FLOATS
    if inst.fields.get("clmp") and not is_float and len(results) == 1:  # carries clamp themselves
        function = _saturating(function, result)
    finish = float_mode.finisher(inst, result) if is_float else None
    bits = 0 if op.exact else float_mode.relevant_bits([*kinds, result])
    compute = _computation(function, fetches, kinds, result, bits)
    step = _storing(compute, puts, finish)
    simple = len(fetches) == 2 and not inst.variant and WIDTH[result] == 32 and finish is None
    if simple and isinstance(function, np.ufunc):
        return _in_place(function, fetches, results[0].index, result, bits, step)
    return step


def _in_place(
    function: np.ufunc, fetches: list[Fetch], index: int, kind: str, bits: int, otherwise: Step
) -> Step:
    """Return a step that computes directly into the register if every lane is active."""
    first, second = fetches
    dtype, default = _NUMPY[kind], float_mode.DEFAULT & bits

    def step(group: Group) -> None:
        if group.full and type(group.waves) is slice and group.state.mode & bits == default:
            function(first(group), second(group), out=group.v(index).view(dtype))
        else:
            otherwise(group)

    return step


def _computation(
    function: Function, fetches: list[Fetch], kinds: list[str], result: str, bits: int
) -> Callable[[Group], Any]:
    """Return a closure that fetches and computes, with the float mode if it depends on `bits`."""
    plain = apply(function, fetches)
    if not bits:
        return plain
    default = float_mode.DEFAULT & bits

    def compute(group: Group) -> Any:
        mode = group.state.mode
        if mode & bits == default:
            return plain(group)
        arguments = [fetch(group) for fetch in fetches]
        return float_mode.apply_in_mode(function, kinds, result, arguments, mode)

    return compute


def apply(function: Function, fetches: list[Fetch]) -> Callable[[Group], Any]:
    """Return a closure that applies `function` to the fetched sources."""
    if len(fetches) == 1:
        (first,) = fetches
        return lambda group: function(first(group))
    if len(fetches) == 2:
        first, second = fetches
        return lambda group: function(first(group), second(group))
    if len(fetches) == 3:
        first, second, third = fetches
        return lambda group: function(first(group), second(group), third(group))
    return lambda group: function(*[fetch(group) for fetch in fetches])


def _storing(
    compute: Callable[[Group], Any],
    puts: list[Callable[[Group, Array], None]],
    finish: float_mode.Finish | None,
) -> Step:
    put = puts[0]
    if len(puts) == 1:
        if finish is None:
            return lambda group: put(group, compute(group))
        finish_one = finish
        return lambda group: put(group, finish_one(compute(group), group.state.mode))

    put_mask = puts[1]

    def step(group: Group) -> None:
        value, mask = compute(group)
        put(group, value if finish is None else finish(value, group.state.mode))
        put_mask(group, mask)

    return step


def _saturating(function: Function, kind: str) -> Function:
    """Return `function` computed in 64 bits and clamped to the range of its result."""
    if WIDTH[kind] > 32:
        return function
    dtype = _NUMPY[kind]
    limits = np.iinfo(dtype)

    def clamped(*arguments: Array) -> Any:
        wide = [value if value.dtype == bool else value.astype(np.int64) for value in arguments]
        return np.clip(function(*wide), int(limits.min), int(limits.max)).astype(dtype)

    return clamped
