"""Floating-point operations of the vector ALU against exact fractions, in every float mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.emulator import float_reference as ref
from tests.emulator.float_reference import NAN, Result, canonical, value
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    DEFAULT_MODE,
    FLOAT_EDGES,
    columns,
    evaluate,
    mismatches,
    signed,
)

WIDTHS = {"f16": 16, "f32": 32, "f64": 64}
REGISTERS = {
    16: ("v0", "v2", "v4", "v6"),
    32: ("v0", "v2", "v4", "v6"),
    64: ("v[0:1]", "v[2:3]", "v[4:5]", "v[6:7]"),
}


def text(name: str, width: int, count: int, pattern: str = "{}", suffix: str = "") -> str:
    """Return an instruction over `count` sources, each formatted by a pattern such as ``-|{}|``."""
    result, *sources = REGISTERS[width][: count + 1]
    return f"{name} {result}, {', '.join(pattern.format(source) for source in sources)}{suffix}"


def check(
    instruction_text: str,
    count: int,
    width: int,
    compute: Callable[..., Result],
    *,
    others: tuple[str, ...] = (),
    mode: int = DEFAULT_MODE,
    target: str = "gfx942",
    old: int = 0,
    rows: list[tuple[int, ...]] | None = None,
) -> None:
    """Compare an instruction with `compute` on the edges of floats and random bits."""
    texts = others or (instruction_text,)
    instruction = assemble_all(texts, target)[texts.index(instruction_text)]
    rows = rows or columns([width] * count, floats=range(count))
    got = evaluate(instruction, rows, width, mode=mode, target=target, old=old)
    expected = [compute(*row) for row in rows]
    assert not mismatches([canonical(bits, width) for bits in got], expected, rows)


# -- arithmetic ------------------------------------------------------------------------------------

ARITHMETIC: dict[str, tuple[int, Callable[..., Result]]] = {
    "v_add": (2, ref.add),
    "v_sub": (2, lambda a, b, w, m: ref.add(a, b ^ ref.sign_bit(w), w, m)),
    "v_subrev": (2, lambda a, b, w, m: ref.add(b, a ^ ref.sign_bit(w), w, m)),
    "v_mul": (2, ref.multiply),
    "v_fma": (3, ref.fma),
}
ARITHMETIC_TEXTS = tuple(
    text(f"{name}_{kind}", width, count)
    for name, (count, _) in ARITHMETIC.items()
    for kind, width in WIDTHS.items()
    if (name, kind) not in (("v_sub", "f64"), ("v_subrev", "f64"))
)


@pytest.mark.parametrize("rounding", range(4), ids=("nearest", "up", "down", "to_zero"))
@pytest.mark.parametrize("instruction", ARITHMETIC_TEXTS)
def test_arithmetic_rounds_once(instruction: str, rounding: int) -> None:
    stem, _, kind = instruction.split(maxsplit=1)[0].rpartition("_")
    count, compute = ARITHMETIC[stem]
    width = WIDTHS[kind]
    mode = DEFAULT_MODE | rounding << (0 if width == 32 else 2)
    check(instruction, count, width, lambda *row: compute(*row, width, rounding),
          others=ARITHMETIC_TEXTS, mode=mode)  # fmt: skip


@pytest.mark.parametrize("kept", range(4), ids=("none", "inputs", "results", "both"))
@pytest.mark.parametrize("instruction", ARITHMETIC_TEXTS)
def test_subnormals_follow_the_mode(instruction: str, kept: int) -> None:
    stem, _, kind = instruction.split(maxsplit=1)[0].rpartition("_")
    count, compute = ARITHMETIC[stem]
    width = WIDTHS[kind]
    shift = 4 if width == 32 else 6
    mode = DEFAULT_MODE & ~(3 << shift) | kept << shift

    def flushing(*row: int) -> Result:
        inputs = row if kept & 1 else [ref.flushed(bits, width) for bits in row]
        result = compute(*inputs, width, ref.NEAREST)
        return result if kept & 2 or result == NAN else ref.flushed(result, width)

    check(instruction, count, width, flushing, others=ARITHMETIC_TEXTS, mode=mode)


FUSED = {
    "v_fmac_f32 v0, v2, v4": (32, lambda a, b, old: ref.fma(a, b, old, 32)),
    "v_fmac_f64 v[0:1], v[2:3], v[4:5]": (64, lambda a, b, old: ref.fma(a, b, old, 64)),
    "v_fmamk_f32 v0, v2, 0x40490fdb, v4": (32, lambda a, b, _: ref.fma(a, 0x40490FDB, b, 32)),
    "v_fmaak_f32 v0, v2, v4, 0x40490fdb": (32, lambda a, b, _: ref.fma(a, b, 0x40490FDB, 32)),
}


@pytest.mark.parametrize("instruction", FUSED)
def test_fused_forms(instruction: str) -> None:
    width, compute = FUSED[instruction]
    old = ref.bits_of(-0.75, width)
    check(instruction, 2, width, lambda a, b: compute(a, b, old), others=tuple(FUSED), old=old)


def unfused_half(a: int, b: int, c: int) -> Result:
    product = ref.multiply(a, b, 16)
    return NAN if product == NAN else ref.add(product, c, 16)


UNFUSED = {
    "v_mad_f16 v0, v2, v4, v6": unfused_half,
    "v_mad_legacy_f16 v0, v2, v4, v6": unfused_half,
    "v_fma_legacy_f16 v0, v2, v4, v6": lambda a, b, c: ref.fma(a, b, c, 16),
}


@pytest.mark.parametrize("instruction", UNFUSED)
def test_half_multiply_add(instruction: str) -> None:
    check(instruction, 3, 16, UNFUSED[instruction], others=tuple(UNFUSED))


@pytest.mark.parametrize("instruction", ["v_mac_f16 v0, v2, v4", "v_madmk_f16 v0, v2, 0x3555, v4"])
def test_half_multiply_accumulate(instruction: str) -> None:
    def compute(a: int, b: int) -> Result:
        return unfused_half(a, 0x3555, b) if "mk" in instruction else unfused_half(a, b, 0x3555)

    check(instruction, 2, 16, compute, old=0x3555)


UNFUSED_F32 = {
    "v_mad_f32 v0, v2, v4, v6": 3,
    "v_mad_legacy_f32 v0, v2, v4, v6": 3,
    "v_mac_f32 v0, v2, v4": 2,
    "v_madmk_f32 v0, v2, 0x40490fdb, v4": 2,
    "v_madak_f32 v0, v2, v4, 0x40490fdb": 2,
}


@pytest.mark.parametrize("instruction", UNFUSED_F32)
def test_unfused_multiply_add_of_gfx90a(instruction: str) -> None:
    old, literal = 0x3EAAAAAB, 0x40490FDB

    def mad(a: int, b: int, c: int) -> Result:
        a, b, c = (ref.flushed(bits, 32) for bits in (a, b, c))
        product = ref.multiply(a, b, 32)
        if "legacy" in instruction and 0 in (value(a, 32), value(b, 32)):
            product = 0  # even times Inf or NaN
        result = NAN if product == NAN else ref.add(ref.flushed(int(product), 32), c, 32)
        return NAN if result == NAN else ref.flushed(int(result), 32)

    def compute(*row: int) -> Result:
        if "mk" in instruction:
            return mad(row[0], literal, row[1])
        if "ak" in instruction:
            return mad(*row, literal)
        return mad(*row) if len(row) == 3 else mad(*row, old)

    check(instruction, UNFUSED_F32[instruction], 32, compute,
          others=tuple(UNFUSED_F32), target="gfx90a", old=old)  # fmt: skip


def test_legacy_multiply_has_no_nan_from_zero() -> None:
    def compute(a: int, b: int) -> Result:
        zero = value(a, 32) == 0 or value(b, 32) == 0
        return 0 if zero else ref.multiply(a, b, 32)

    check("v_mul_legacy_f32 v0, v2, v4", 2, 32, compute)


# -- modifiers -------------------------------------------------------------------------------------

MODIFIED = tuple(
    text(f"v_add_{kind}_e64" if kind != "f64" else "v_add_f64", width, 2, pattern)
    for kind, width in WIDTHS.items()
    for pattern in ("-{}", "|{}|", "-|{}|")
)


@pytest.mark.parametrize("instruction", MODIFIED)
def test_sign_modifiers(instruction: str) -> None:
    width = WIDTHS[instruction.split(maxsplit=1)[0].split("_")[2]]
    sign = ref.sign_bit(width)

    def compute(a: int, b: int) -> Result:
        if "|" in instruction:
            a, b = a & ~sign, b & ~sign
        if "-" in instruction:
            a, b = a ^ sign, b ^ sign
        return ref.add(a, b, width)

    check(instruction, 2, width, compute, others=MODIFIED)


CLAMPED = tuple(
    text(f"v_add_{kind}_e64" if kind != "f64" else "v_add_f64", width, 2, suffix=" clamp")
    for kind, width in WIDTHS.items()
)


@pytest.mark.parametrize("dx10", [True, False])
@pytest.mark.parametrize("instruction", CLAMPED)
def test_clamp_to_unit_range(instruction: str, dx10: bool) -> None:
    width = WIDTHS[instruction.split(maxsplit=1)[0].split("_")[2]]

    def compute(a: int, b: int) -> Result:
        total = ref.add(a, b, width)
        if total == NAN:
            return 0 if dx10 else NAN
        return 0 if value(total, width) <= 0 else min(total, ref.bits_of(1.0, width))

    mode = DEFAULT_MODE if dx10 else DEFAULT_MODE & ~0x100
    check(instruction, 2, width, compute, others=CLAMPED, mode=mode)


def test_half_overflow_saturates_if_mode_says_so() -> None:
    def compute(a: int, b: int) -> Result:
        total = ref.add(a, b, 16)
        infinite = [bits & 0x7FFF == ref.infinity(16) for bits in (a, b)]
        if total != NAN and int(total) & 0x7FFF == ref.infinity(16) and not any(infinite):
            return int(total) - 1
        return total

    check("v_add_f16 v0, v2, v4", 2, 16, compute, mode=DEFAULT_MODE | 1 << 23)


SCALED = {"mul:2": 2, "mul:4": 4, "div:2": Fraction(1, 2)}
SCALED_TEXTS = tuple(f"v_mul_f32_e64 v0, v2, v4 {scale}" for scale in SCALED)


@pytest.mark.parametrize("instruction", SCALED_TEXTS)
def test_output_modifier_needs_flushed_subnormals(instruction: str) -> None:
    factor = ref.bits_of(float(SCALED[instruction.rsplit(maxsplit=1)[-1]]), 32)

    def scaled(a: int, b: int) -> Result:
        product = ref.multiply(ref.flushed(a, 32), ref.flushed(b, 32), 32)
        if product == NAN:
            return NAN
        return ref.multiply(ref.flushed(product, 32), factor, 32)

    # Whether a subnormal product is scaled or flushed first is not documented: leave those out.
    rows = [
        row
        for row in columns([32, 32], floats=(0, 1), count=2000)
        if (product := ref.multiply(*row, 32)) == NAN
        or value(product, 32) == 0
        or not ref.is_subnormal(product, 32)
    ][:512]
    check(instruction, 2, 32, scaled, others=SCALED_TEXTS, mode=DEFAULT_MODE & ~0x30, rows=rows)
    check(instruction, 2, 32, lambda a, b: ref.multiply(a, b, 32), others=SCALED_TEXTS)


# -- minima and maxima -----------------------------------------------------------------------------

PICKS = tuple(
    text(f"v_{name}_{kind}", width, 2)
    for name in ("min", "max")
    for kind, width in WIDTHS.items()
)  # fmt: skip
PICKS3 = tuple(
    text(f"v_{name}_{kind}", WIDTHS[kind], 3)
    for name in ("min3", "max3", "med3")
    for kind in ("f32", "f16")
)


@pytest.mark.parametrize("instruction", PICKS)
def test_minimum_and_maximum(instruction: str) -> None:
    _, name, kind = instruction.split(maxsplit=1)[0].split("_")
    width = WIDTHS[kind]
    check(instruction, 2, width, lambda a, b: ref.pick(a, b, width, name == "max"), others=PICKS)


@pytest.mark.parametrize("instruction", PICKS3)
def test_minimum_maximum_and_median_of_three(instruction: str) -> None:
    _, name, kind = instruction.split(maxsplit=1)[0].split("_")
    width = WIDTHS[kind]
    quiet = ref.infinity(width) | ref.infinity(width) >> 1 & ~ref.infinity(width)

    def nested(a: int, b: int, c: int, larger: bool) -> Result:
        first = ref.pick(a, b, width, larger)
        return ref.pick(quiet if first == NAN else first, c, width, larger)

    def compute(a: int, b: int, c: int) -> Result:
        if name != "med3":
            return nested(a, b, c, name == "max3")
        if NAN in (canonical(bits, width) for bits in (a, b, c)):
            return nested(a, b, c, False)
        return sorted((a, b, c), key=lambda bits: ref.order(bits, width))[1]

    check(instruction, 3, width, compute, others=PICKS3)


@pytest.mark.parametrize("larger", [False, True])
def test_minimum3_of_gfx950_propagates_nan(larger: bool) -> None:
    def compute(a: int, b: int, c: int) -> Result:
        if NAN in (canonical(bits, 32) for bits in (a, b, c)):
            return NAN
        return (max if larger else min)(a, b, c, key=lambda bits: ref.order(bits, 32))

    name = "maximum3" if larger else "minimum3"
    check(f"v_{name}_f32 v0, v2, v4, v6", 3, 32, compute, target="gfx950")


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
    "v_frexp_mant_f32 v0, v2", "v_frexp_mant_f64 v[0:1], v[2:3]", "v_frexp_mant_f16 v0, v2",
    "v_frexp_exp_i32_f32 v0, v2", "v_frexp_exp_i32_f64 v0, v[2:3]", "v_frexp_exp_i16_f16 v0, v2",
)  # fmt: skip


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
    "v_rcp_iflag_f32 v0, v2", "v_exp_legacy_f32 v0, v2", "v_log_legacy_f32 v0, v2",
    *(f"v_{name}_f64 v[0:1], v[2:3]" for name in ("rcp", "rsq", "sqrt")),
)  # fmt: skip


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
    # What LLVM's expansions of exp2f, log2f, sqrtf and 1/x scale around.
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
