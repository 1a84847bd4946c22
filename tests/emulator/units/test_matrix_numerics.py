"""Matrix instructions round as the hardware does.

Random bits against the published model, and the cases that distinguish the generations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import formats
from tests.emulator import mfma_reference as reference
from tests.emulator.harness import make_state, run
from tests.emulator.mfma_cases import CASES, find, instruction
from tests.emulator.mfma_layout import (
    BITS,
    Case,
    encode,
    pack_input,
    pack_output,
    unpack_output,
)

FLOATS = [
    case
    for case in CASES
    if case.a != "i8" and ("f8f6f4" not in case.mnemonic or "scale" in case.mnemonic)
]
SCALE_EXPONENTS = (3, -5)


def model(case: Case) -> reference.Dot:
    """Return the arithmetic of an instruction."""
    if case.a in ("f32", "f64"):
        return reference.sequential_fma(double=case.a == "f64")
    if case.target == "gfx90a":
        return reference.pairwise_dot(case.a, 4 if case.a == "f16" or "_1k" in case.mnemonic else 2)
    group = {"xf32": 4, "f16": min(8, case.k), "bf16": min(8, case.k)}.get(case.a, 16)
    scale = sum(SCALE_EXPONENTS) if "scale" in case.mnemonic else 0
    fnuz = TARGETS[case.target].fp8_fnuz
    return reference.fused_dot(case.a, case.b, group, fnuz=fnuz, scale=scale)


@np.errstate(invalid="ignore")  # signalling NaN
def decoded(kind: str, codes: NDArray[np.uint64], fnuz: bool) -> NDArray[np.float64]:
    """Return the values of element codes."""
    match kind:
        case "f64":
            return codes.view(np.float64)
        case "f32" | "xf32":
            return codes.astype(np.uint32).view(np.float32).astype(np.float64)
        case "f16":
            return codes.astype(np.uint16).view(np.float16).astype(np.float64)
        case "bf16":
            return formats.bf16_to_f32(codes).astype(np.float64)
    by_name = {"fp6": formats.FP6, "bf6": formats.BF6, "fp4": formats.FP4}
    fmt = by_name[kind] if kind in by_name else formats.fp8_format(kind, fnuz)  # type: ignore[arg-type]
    return formats.decode(codes.astype(np.int64), fmt).astype(np.float64)


def random_codes(
    kind: str, shape: tuple[int, ...], spread: str, rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Return random element codes: arbitrary bits, or normal deviates of a wide range of sizes."""
    if spread == "any bits" or BITS[kind] < 16:
        codes = rng.integers(0, 1 << BITS[kind], shape, np.uint64, endpoint=False)
        if spread != "any bits":  # no Inf and NaN, in the encodings of either kind of target
            finite = np.isfinite(decoded(kind, codes, True)) & np.isfinite(
                decoded(kind, codes, False)
            )
            codes[~finite] = 0x35
        return codes
    low, high = {"near one": (-4, 4), "wide": (-12, 12), "tiny": (-24, -8)}[spread]
    if kind != "f16":
        low, high = (5 * low, 5 * high) if spread != "near one" else (low, high)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(low, high, shape)
    values[rng.random(shape) < 0.1] = 0
    codes = encode(kind, values, True)
    return codes.view(np.uint64) if kind == "f64" else codes


def execute(case: Case, codes_a: Any, codes_b: Any, c: NDArray[Any]) -> NDArray[Any]:
    """Return D (waves, blocks, m, n) of element codes (waves, blocks, rows, k)."""
    state = make_state(waves=len(c), target=case.target)
    for register, kind, codes in ((64, case.a, codes_a), (96, case.b, codes_b)):
        packed = pack_input(case, kind, codes)
        state.vgpr[register : register + len(packed)] = packed
    state.vgpr[128 : 128 + case.d_registers] = pack_output(case, c)
    state.vgpr[180], state.vgpr[181] = (127 + exponent for exponent in SCALE_EXPONENTS)
    run(state, instruction(case))
    return unpack_output(case, state.vgpr[: case.d_registers], c.dtype.type)


def assert_same_floats(found: Any, expected: Any, context: str = "") -> None:
    """Compare bits, where any NaN equals any NaN."""
    found, expected = np.asarray(found), np.asarray(expected, np.asarray(found).dtype)
    both_nan = np.isnan(found) & np.isnan(expected)
    bits = {4: np.uint32, 8: np.uint64}[found.dtype.itemsize]
    same = both_nan | (found.view(bits) == expected.view(bits))
    assert same.all(), f"{context}: {found[~same][:4]} where the model has {expected[~same][:4]}"


@pytest.mark.covering
@pytest.mark.parametrize("spread", ["any bits", "near one", "wide", "tiny"])
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_matches_the_published_model(case: Case, spread: str) -> None:
    rng = np.random.default_rng([case.k, case.m, len(spread)])
    fnuz = TARGETS[case.target].fp8_fnuz
    shape_a = (1, case.blocks, case.m, case.k)
    codes_a = random_codes(case.a, shape_a, spread, rng)
    codes_b = random_codes(case.b, shape_a, spread, rng)
    wide = np.float64 if case.a == "f64" else np.float32
    c_kind = "f64" if case.a == "f64" else "f32"
    c_codes = random_codes(c_kind, (1, case.blocks, case.m, case.n), spread, rng)
    c = (c_codes if wide is np.float64 else c_codes.astype(np.uint32)).view(wide)

    d = execute(case, codes_a, codes_b, c)

    dot = model(case)
    a, b = decoded(case.a, codes_a, fnuz), decoded(case.b, codes_b, fnuz)
    for block in range(min(case.blocks, 2)):
        for row, column in zip(
            rng.integers(0, case.m, 24), rng.integers(0, case.n, 24), strict=True
        ):
            expected = dot(
                a[0, block, row].tolist(),
                b[0, block, column].tolist(),
                float(c[0, block, row, column]),
            )
            assert_same_floats(d[0, block, row, column], expected, f"{case} [{row}, {column}]")


# ---- Single sums --------------------------------------------------------------------------------

BF16 = {
    "gfx90a": "v_mfma_f32_16x16x16bf16_1k",
    "gfx942": "v_mfma_f32_16x16x16_bf16",
    "gfx950": "v_mfma_f32_16x16x16_bf16",
}
F16 = {
    target: re.sub("_?bf16(_1k)?", "f16" if target == "gfx90a" else "_f16", name)
    for target, name in BF16.items()
}


def dot(case: Case, a: Sequence[float], b: Sequence[float], c: float = 0.0) -> float:
    """Return D[0, 0] where row 0 of A and column 0 of B begin with those values, all else zero."""
    fnuz = TARGETS[case.target].fp8_fnuz
    values = np.zeros((2, 1, case.blocks, case.m, case.k))
    values[0, 0, 0, 0, : len(a)] = a
    values[1, 0, 0, 0, : len(b)] = b
    addend = np.zeros((1, case.blocks, case.m, case.n), np.float32)
    addend[0, 0, 0, 0] = c
    codes_a, codes_b = encode(case.a, values[0], fnuz), encode(case.b, values[1], fnuz)
    return float(execute(case, codes_a, codes_b, addend)[0, 0, 0, 0])


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("target", "kept"), [("gfx90a", False), ("gfx942", True), ("gfx950", True)]
)
def test_only_cdna2_flushes_subnormals(target: str, kept: bool, name: str) -> None:
    case = find(target, {"f16": F16, "bf16": BF16}[name][target])
    subnormal = {"f16": 2.0**-15, "bf16": 2.0**-127}[name]
    assert dot(case, [subnormal], [1.0]) == (subnormal if kept else 0.0)  # inputs
    assert dot(case, [0.0], [1.0], 2.0**-130) == (2.0**-130 if kept else 0.0)  # C


@pytest.mark.parametrize(("target", "kept"), [("gfx90a", False), ("gfx942", True)])
def test_only_cdna2_flushes_a_subnormal_result(target: str, kept: bool) -> None:
    case = find(target, BF16[target])
    expected = 2.0**-127 if kept else 0.0
    assert dot(case, [2.0**-100], [2.0**-27]) == expected  # a product of normal numbers
    assert dot(case, [-(2.0**-100)], [2.0**-26], 1.5 * 2.0**-126) == expected  # a sum


def test_cdna3_drops_what_lies_far_below_the_largest_product() -> None:
    a, b = [2.0**14, -(2.0**14), 15.0], [2.0**14, 2.0**14, 1.0]
    assert dot(find("gfx90a", F16["gfx90a"]), a, b) == 15.0
    assert dot(find("gfx942", F16["gfx942"]), a, b) == 0.0  # 2**28 leaves bits from 2**4 on
    a[2] = 31.0
    assert dot(find("gfx942", F16["gfx942"]), a, b) == 16.0


def test_cdna3_cuts_products_towards_zero_and_c_downwards() -> None:
    case = find("gfx942", F16["gfx942"])
    assert dot(case, [2.0**14, -(2.0**14), -15.0], [2.0**14, 2.0**14, 1.0]) == 0.0
    assert dot(case, [1.0], [1.0], 2.0**-30) == 1.0
    assert dot(case, [1.0], [1.0], -(2.0**-30)) == 1.0 - 2.0**-24


def test_cdna3_sums_eight_products_at_a_time() -> None:
    case = find("gfx942", F16["gfx942"])
    large, small = 2.0**14, 2.0**-5
    within = [large, -large, small] + [0.0] * 5
    apart = [large, -large] + [0.0] * 6 + [small]
    ones = [large, large, 1.0] + [1.0] * 6
    assert dot(case, within, ones) == 0.0
    assert dot(case, apart, ones) == small


def test_cdna3_rounds_each_group_to_nearest_even() -> None:
    case = find("gfx942", F16["gfx942"])
    assert dot(case, [2.0**-12], [2.0**-12], 1.0) == 1.0  # half an ulp: to even
    assert dot(case, [2.0**-12], [2.0**-12], 1.0 + 2.0**-23) == 1.0 + 2.0**-22
    assert dot(case, [2.0**-12] * 2, [2.0**-12] * 2, 1.0) == 1.0 + 2.0**-23
    groups = [2.0**-12] + [0.0] * 7 + [2.0**-12]
    assert dot(case, groups, groups, 1.0) == 1.0


def test_fp8_sums_even_and_odd_products_apart() -> None:
    case = find("gfx942", "v_mfma_f32_16x16x32_bf8_bf8")
    big, tiny = 2.0**15, 2.0**-12
    # 2**30 and its opposite in one half cancel; in two halves as well, but the tiny product of the
    # half without a big one survives only in the first.
    assert dot(case, [big, tiny, -big, 0.0], [big, tiny, big, 0.0]) == 0.0
    assert dot(case, [0.0, tiny, 0.0, tiny], [0.0, tiny, 0.0, tiny]) == 2.0**-23
    assert dot(case, [1.0], [1.0], -(2.0**-30)) == 1.0  # a much smaller C has no effect


def test_xf32_truncates_its_inputs() -> None:
    case = find("gfx942", "v_mfma_f32_16x16x8_xf32")
    assert dot(case, [1.0 + 2.0**-10 + 2.0**-11], [1.0]) == 1.0 + 2.0**-10
    assert dot(case, [-1.0 - 2.0**-11], [1.0]) == -1.0


@pytest.mark.parametrize("target", TARGETS)
def test_inf_and_nan(target: str) -> None:
    case = find(target, BF16[target])
    inf, nan = math.inf, math.nan
    assert dot(case, [inf], [2.0]) == inf
    assert dot(case, [inf], [-2.0], 1.0) == -inf
    assert dot(case, [1.0], [1.0], inf) == inf
    assert math.isnan(dot(case, [inf], [0.0]))
    assert math.isnan(dot(case, [inf, inf], [1.0, -1.0]))
    assert math.isnan(dot(case, [inf], [1.0], -inf))
    assert math.isnan(dot(case, [nan], [0.0]))
    assert math.isnan(dot(case, [1.0], [1.0], nan))
    assert dot(case, [2.0**127], [2.0]) == inf  # a finite product beyond float32
    assert math.isnan(dot(case, [2.0**127, 2.0**127], [2.0, -2.0]))
    assert dot(case, [2.0**127, 2.0**127], [1.0, 1.0]) == inf  # a sum


def test_fp8_nan_differs_between_fnuz_and_ocp() -> None:
    for target, code in (("gfx942", 0x80), ("gfx950", 0x7F)):
        case = find(target, "v_mfma_f32_16x16x32_fp8_fp8")
        codes = np.zeros((1, 1, 16, 32), np.uint64)
        codes[0, 0, 3, 5] = code
        d = execute(case, codes, codes * 0, np.zeros((1, 1, 16, 16), np.float32))
        assert np.isnan(d[0, 0, 3]).all()
        assert not np.isnan(np.delete(d[0, 0], 3, axis=0)).any()


@pytest.mark.parametrize(
    ("target", "mnemonic", "expected"),
    [
        ("gfx942", F16["gfx942"], 0.0),
        ("gfx90a", F16["gfx90a"], 0.0),
        ("gfx942", "v_mfma_f32_16x16x4_f32", 0.0),
    ],
)
def test_minus_zero_plus_zero_products(target: str, mnemonic: str, expected: float) -> None:
    found = dot(find(target, mnemonic), [0.0], [1.0], -0.0)
    assert (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))


def test_f32_keeps_minus_zero_where_every_term_is_one() -> None:
    case = find("gfx942", "v_mfma_f32_16x16x4_f32")
    found = dot(case, [-0.0] * 4, [1.0] * 4, -0.0)
    assert (found, math.copysign(1, found)) == (0.0, -1.0)


def test_a_nan_result_is_the_quiet_one() -> None:
    for target, mnemonic in (
        ("gfx942", BF16["gfx942"]),
        ("gfx90a", BF16["gfx90a"]),
        ("gfx942", "v_mfma_f32_16x16x4_f32"),
    ):
        case = find(target, mnemonic)
        zeros = np.zeros((1, 1, 16, case.k), np.uint64)
        c = np.full((1, 1, 16, 16), -np.nan, np.float32)
        bits = execute(case, zeros, zeros, c).view(np.uint32)
        assert (bits == 0x7FC00000).all()


def test_block_scales_multiply_exactly_and_nan_poisons() -> None:
    case = next(case for case in CASES if "scale_f32_16x16x128" in case.mnemonic)
    state = make_state(target=case.target)
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (1, 1, 16, 128)).astype(np.float64)
    b = rng.integers(-2, 3, (1, 1, 16, 128)).astype(np.float64)
    for register, kind, values in ((64, case.a, a), (96, case.b, b)):
        packed = pack_input(case, kind, encode(kind, values, False))
        state.vgpr[register : register + len(packed)] = packed
    exponents = rng.integers(-3, 4, (2, 4, 16))  # (side, k / 32, row): lane 16 * (k / 32) + row
    state.vgpr[180:182, 0] = (exponents + 127).reshape(2, 64)
    run(state, instruction(case))
    scaled_a = a[0, 0] * 2.0 ** np.repeat(exponents[0].T, 32, axis=1)
    scaled_b = b[0, 0] * 2.0 ** np.repeat(exponents[1].T, 32, axis=1)
    d = unpack_output(case, state.vgpr[:4], np.float32)[0, 0]
    np.testing.assert_array_equal(d, scaled_a @ scaled_b.T)

    state.vgpr[180, 0, 16 * 2 + 7] = 0xFF
    run(state, instruction(case))
    d = unpack_output(case, state.vgpr[:4], np.float32)[0, 0]
    assert np.isnan(d[7]).all()
    assert not np.isnan(np.delete(d, 7, axis=0)).any()
