"""Comparisons of the vector ALU: v_cmp and v_cmpx over integers and floats, and v_cmp_class.

The result is one bit per lane in VCC or a scalar register pair, with 0 for inactive lanes. v_cmpx
also writes EXEC. If an operand is NaN, all float comparisons except the negated ones are false.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cupygemm.emulator.isa.instruction import EXEC, Instruction
from cupygemm.emulator.units import float_mode
from cupygemm.emulator.units.constants import FLOATS, WIDTH
from cupygemm.emulator.units.lanewise import Function, Step, apply, source_operands
from cupygemm.emulator.units.operands import Fetch, source
from cupygemm.emulator.units.vector.functions import Array
from cupygemm.emulator.waves.state import Group, pack_mask


def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _never(a: Array, b: Array) -> Array:
    return np.zeros((1, 1), np.bool_)


def _always(a: Array, b: Array) -> Array:
    return np.ones((1, 1), np.bool_)


def _negated(compare: Function) -> Function:
    return lambda a, b: ~compare(a, b)


_RELATIONS: dict[str, Function] = {
    "f": _never,
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "t": _always,
    "tru": _always,
    # of floats
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~_unordered(a, b),
    "u": _unordered,
    "nge": _negated(np.greater_equal),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": _negated(np.greater),
    "nle": _negated(np.less_equal),
    "neq": np.not_equal,
    "nlt": _negated(np.less),
}


def bind(inst: Instruction) -> Step | None:
    """Return the step of a comparison in any of its encodings, or None if it is not one."""
    prefix, _, rest = inst.mnemonic.partition("_cmp")
    if prefix != "v" or not rest:
        return None
    rest = rest.removeprefix("x").removeprefix("_")
    relation, _, kind = rest.rpartition("_")
    left, right, *_ = source_operands(inst)
    if relation == "class":
        value = source(inst, left, f"u{WIDTH[kind]}", signed=True)
        compute = _class_test(value, source(inst, right, "u32"), kind)
    elif relation in _RELATIONS:
        fetches = [source(inst, op, kind) for op in (left, right)]
        compute = _comparison(_RELATIONS[relation], fetches, kind)
    else:
        return None
    targets = [op.index for op in inst.dst]
    if len(targets) == 1 and targets[0] != EXEC:
        (index,) = targets
        return lambda group: group.set_lane_mask(index, compute(group))

    def step(group: Group) -> None:
        bits = pack_mask(compute(group) & group.mask)
        for index in sorted(targets):  # EXEC last: it changes the mask
            group.set_s64(index, bits)

    return step


def _comparison(relation: Function, fetches: list[Fetch], kind: str) -> Callable[[Group], Array]:
    plain = apply(relation, fetches)
    if kind not in FLOATS:
        return plain
    bits = float_mode.relevant_bits([kind])
    default = float_mode.DEFAULT & bits

    def compare(group: Group) -> Array:
        mode = group.state.mode
        if mode & bits == default:
            result: Array = plain(group)
        else:
            arguments = [fetch(group) for fetch in fetches]
            result = float_mode.apply_in_mode(relation, [kind, kind], "mask", arguments, mode)
        return result

    return compare


# -- classes ---------------------------------------------------------------------------------------

_EXPONENT_BITS = {"f16": 5, "f32": 8, "f64": 11}


def _class_test(value: Fetch, wanted: Fetch, kind: str) -> Callable[[Group], Array]:
    """Return a function that tests whether a value belongs to one of the wanted classes.

    The bits of the second operand select classes: 0 signalling NaN, 1 quiet NaN, 2 -Inf, 3 -normal,
    4 -subnormal, 5 -0, 6 +0, 7 +subnormal, 8 +normal, 9 +Inf.
    """
    width = WIDTH[kind]
    mantissa_bits = width - 1 - _EXPONENT_BITS[kind]
    word = {16: np.uint16, 32: np.uint32, 64: np.uint64}[width]
    magnitude_mask = word((1 << width - 1) - 1)
    infinity = word((1 << _EXPONENT_BITS[kind]) - 1 << mantissa_bits)
    smallest_normal, quiet = word(1 << mantissa_bits), word(1 << mantissa_bits - 1)

    def test(group: Group) -> Array:
        bits = value(group)
        magnitude = bits & magnitude_mask
        negative = bits > magnitude_mask
        # Distance from the middle of the table: 0 zero, 1 subnormal, 2 normal, 3 infinite.
        size = (magnitude > 0).astype(np.uint32)
        size += magnitude >= smallest_normal
        size += magnitude >= infinity
        index = np.where(negative, np.uint32(5) - size, np.uint32(6) + size)
        nan = magnitude > infinity
        index = np.where(nan, ((bits & quiet) != 0).astype(np.uint32), index)
        result: Array = (wanted(group) >> index & np.uint32(1)) != 0
        return result

    return test
