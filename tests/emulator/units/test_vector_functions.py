"""Rounding, exponents and transcendental functions of the vector ALU against references."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.emulator import float_reference as ref
from tests.emulator.float_cases import WIDTHS, check, text
from tests.emulator.float_reference import NAN, Result, canonical, value
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    FLOAT_EDGES,
    columns,
    evaluate,
    mismatches,
    signed,
)

# -- integers and exponents ------------------------------------------------------------------------

ROUNDINGS = tuple(
    text(f"v_{name}_{kind}", width, 1)
    for name in ("trunc", "ceil", "floor", "rndne")
    for kind, width in WIDTHS.items()
)


@pytest.mark.parametrize("instruction", ROUNDINGS)
def test_rounding_to_integers(instruction: str) -> None:
    _, name, kind = instruction.split(maxsplit=1)[0].split("_")
    width = WIDTHS[kind]
    function = ref.rounding_function(name)

    def compute(a: int) -> Result:
        x = value(a, width)
        return canonical(a, width) if not math.isfinite(x) else ref.bits_of(function(x), width)

    check(instruction, 1, width, compute, others=ROUNDINGS)


FRACTIONS = tuple(text(f"v_fract_{kind}", width, 1) for kind, width in WIDTHS.items())


@pytest.mark.parametrize("instruction", FRACTIONS)
def test_fraction_is_below_one(instruction: str) -> None:
    width = WIDTHS[instruction.split(maxsplit=1)[0].split("_")[2]]
    one = ref.bits_of(1.0, width)

    def compute(a: int) -> Result:
        x = value(a, width)
        if not math.isfinite(x):
            return NAN
        part = Fraction(x) - math.floor(x)
        return min(ref.rounded(part, width), one - 1) if part else 0

    check(instruction, 1, width, compute, others=FRACTIONS)


EXPONENTS = (
    "v_frexp_mant_f32 v0, v2",
    "v_frexp_mant_f64 v[0:1], v[2:3]",
    "v_frexp_mant_f16 v0, v2",
    "v_frexp_exp_i32_f32 v0, v2",
    "v_frexp_exp_i32_f64 v0, v[2:3]",
    "v_frexp_exp_i16_f16 v0, v2",
)


@pytest.mark.parametrize("instruction", EXPONENTS)
def test_mantissa_and_exponent(instruction: str) -> None:
    name = instruction.split(maxsplit=1)[0]
    width = WIDTHS[name.rpartition("_")[2]]
    (inst,) = assemble_all([instruction])
    rows = columns([width], floats=(0,))
    if "mant" in name:
        got = [canonical(bits, width) for bits in evaluate(inst, rows, width)]
        expected = [
            ref.bits_of(math.frexp(x)[0], width) if math.isfinite(x) else canonical(a, width)
            for (a,) in rows
            for x in (value(a, width),)
        ]
    else:
        result = 16 if width == 16 else 32
        got = [signed(bits, result) for bits in evaluate(inst, rows, result)]
        expected = [
            math.frexp(x)[1] if math.isfinite(x) else 0 for (a,) in rows for x in (value(a, width),)
        ]
    assert not mismatches(got, expected, rows)


LDEXP = ("v_ldexp_f32 v0, v2, v4", "v_ldexp_f64 v[0:1], v[2:3], v4", "v_ldexp_f16 v0, v2, v4")


@pytest.mark.parametrize("instruction", LDEXP)
def test_scaling_by_powers_of_two(instruction: str) -> None:
    width = WIDTHS[instruction.split(maxsplit=1)[0].split("_")[2]]
    inst = assemble_all(LDEXP)[LDEXP.index(instruction)]
    amounts = [0, 1, -1, 5, -10, 14, -24, 100, -149, -150, 1000, -1074, 0x7FFF, -0x8000]
    rows = [(a, n & 0xFFFFFFFF) for a in FLOAT_EDGES[width] for n in amounts]
    rows += rows[: -len(rows) % 64]

    def compute(a: int, amount: int) -> Result:
        x, n = value(a, width), signed(amount, 16 if width == 16 else 32)
        if not math.isfinite(x) or x == 0:
            return canonical(a, width)
        return ref.rounded(Fraction(x) * Fraction(2) ** n, width)

    got = [canonical(bits, width) for bits in evaluate(inst, rows, width)]
    assert not mismatches(got, [compute(*row) for row in rows], rows)


# -- transcendentals -------------------------------------------------------------------------------


def _reciprocal(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _log2(x: float) -> float:
    return math.nan if x < 0 else -math.inf if x == 0 else math.log2(x)


def _exp2(x: float) -> float:
    return math.inf if x >= 1024 else 0.0 if x < -1100 else math.exp2(x)


def _rsq(x: float) -> float:
    return math.nan if x < 0 else _reciprocal(math.copysign(math.sqrt(abs(x)), x))


def _turns(function: Callable[[float], float], outside: float) -> Callable[[float], float]:
    def compute(x: float) -> float:
        if math.isinf(x):
            return math.nan
        return outside if abs(x) > 256 else function(2 * math.pi * (x - round(x)))

    return compute


CURVES: dict[str, Callable[[float], float]] = {
    "exp": _exp2,
    "log": _log2,
    "rcp": _reciprocal,
    "rsq": _rsq,
    "sqrt": lambda x: math.nan if x < 0 else math.sqrt(x),
    "sin": _turns(math.sin, 0.0),
    "cos": _turns(math.cos, 1.0),
}
CURVE_TEXTS = (
    *(f"v_{name}_{kind} v0, v2" for name in CURVES for kind in ("f32", "f16")),
    "v_rcp_iflag_f32 v0, v2",
    "v_exp_legacy_f32 v0, v2",
    "v_log_legacy_f32 v0, v2",
    *(f"v_{name}_f64 v[0:1], v[2:3]" for name in ("rcp", "rsq", "sqrt")),
)


@pytest.mark.parametrize("instruction", CURVE_TEXTS)
def test_transcendental_within_an_ulp(instruction: str) -> None:
    name, kind = (
        instruction.split(maxsplit=1)[0].split("_")[1],
        instruction.split(maxsplit=1)[0].rpartition("_")[2],
    )
    width = WIDTHS[kind]
    flush = ref.flushed if kind == "f32" else lambda bits, _: bits
    inst = assemble_all(CURVE_TEXTS)[CURVE_TEXTS.index(instruction)]
    rows = columns([width], floats=(0,))
    rows += [(ref.bits_of(k / 8 if width > 16 else k / 4, width),) for k in range(-320, 320)]
    for (a,), bits in zip(rows, evaluate(inst, rows, width), strict=True):
        x = value(flush(a, width), width)
        exact = math.nan if math.isnan(x) else CURVES[name](x)
        if math.isnan(exact):
            assert canonical(bits, width) == NAN, hex(a)
            continue
        if math.isinf(exact) or exact == 0:
            nearest = ref.bits_of(exact, width)
        else:
            nearest = flush(ref.rounded(Fraction(exact), width), width)
        distance = abs(ref.order(bits, width) - ref.order(nearest, width))
        assert distance <= 1, f"{hex(a)}: got {bits:#x}, expected {nearest:#x}"


def test_f32_transcendentals_flush_subnormals() -> None:
    # Values around which LLVM's expansions of exp2f, log2f, sqrtf and 1/x scale.
    texts = ("v_rcp_f32 v0, v2", "v_log_f32 v0, v2", "v_exp_f32 v0, v2")
    rcp, log, exp = assemble_all(texts)
    subnormal, huge = [(0x00400000,)] * 64, [(0x7F000001,)] * 64
    assert set(evaluate(rcp, subnormal, 32)) == {0x7F800000}
    assert set(evaluate(rcp, huge, 32)) == {0}
    assert set(evaluate(log, subnormal, 32)) == {0xFF800000}
    assert set(evaluate(exp, [(ref.bits_of(-126.5, 32),)] * 64, 32)) == {0}


# -- cube maps -------------------------------------------------------------------------------------


def _cube(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """Return face, s, t and twice the major axis."""
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        return (5.0, -x, -y, 2 * z) if z < 0 else (4.0, x, -y, 2 * z)
    if abs(y) >= abs(x):
        return (3.0, x, -z, 2 * y) if y < 0 else (2.0, x, z, 2 * y)
    return (1.0, z, -y, 2 * x) if x < 0 else (0.0, -z, -y, 2 * x)


CUBES = tuple(f"v_cube{part}_f32 v0, v2, v4, v6" for part in ("id", "sc", "tc", "ma"))


@pytest.mark.parametrize("part", range(4))
def test_cube_maps(part: int) -> None:
    corners = [ref.bits_of(x, 32) for x in (-2.0, -1.0, -0.5, 0.25, 1.0, 2.0)]
    rows = [(x, y, z) for x in corners for y in corners for z in corners]
    rows += rows[: -len(rows) % 64]

    def compute(a: int, b: int, c: int) -> Result:
        return ref.bits_of(_cube(*(value(bits, 32) for bits in (a, b, c)))[part], 32)

    check(CUBES[part], 3, 32, compute, others=CUBES, rows=rows)
