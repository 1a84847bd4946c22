"""Division and square roots as the compiler expands them are correctly rounded, on every edge.

The sequences are clang 22's code for ``x / y`` and ``sqrt(x)`` on gfx942, with subnormals. They
test v_div_scale, v_div_fmas, v_div_fixup, v_rcp, v_rsq and v_sqrt together: an error in one shows
as a wrong quotient.
"""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from cupygemm.emulator.units.vector.division import two_over_pi
from tests.emulator import float_reference as ref
from tests.emulator.float_reference import NAN, canonical, value
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import (
    FLOAT_EDGES,
    M32,
    columns,
    evaluate,
    execute,
    fresh_state,
    get,
    get_mask,
    mismatches,
    put,
)

# v4 / v6 to v0, from v2 and v4 on as scratch.
DIVIDE = {
    32: """
        v_div_scale_f32 v8, s[2:3], v4, v4, v2
        v_rcp_f32_e32 v9, v8
        v_div_scale_f32 v10, vcc, v2, v4, v2
        v_fma_f32 v11, -v8, v9, 1.0
        v_fmac_f32_e32 v9, v11, v9
        v_mul_f32_e32 v11, v10, v9
        v_fma_f32 v12, -v8, v11, v10
        v_fmac_f32_e32 v11, v12, v9
        v_fma_f32 v8, -v8, v11, v10
        v_div_fmas_f32 v8, v8, v9, v11
        v_div_fixup_f32 v0, v8, v4, v2
    """,
    64: """
        v_div_scale_f64 v[8:9], s[2:3], v[4:5], v[4:5], v[2:3]
        v_rcp_f64_e32 v[10:11], v[8:9]
        v_div_scale_f64 v[12:13], vcc, v[2:3], v[4:5], v[2:3]
        v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
        v_fmac_f64_e32 v[10:11], v[10:11], v[14:15]
        v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
        v_fmac_f64_e32 v[10:11], v[10:11], v[14:15]
        v_mul_f64 v[14:15], v[12:13], v[10:11]
        v_fma_f64 v[8:9], -v[8:9], v[14:15], v[12:13]
        v_div_fmas_f64 v[8:9], v[8:9], v[10:11], v[14:15]
        v_div_fixup_f64 v[0:1], v[8:9], v[4:5], v[2:3]
    """,
    16: """
        v_cvt_f32_f16_e32 v8, v4
        v_cvt_f32_f16_e32 v9, v2
        v_rcp_f32_e32 v8, v8
        v_mul_f32_e32 v9, v9, v8
        v_fma_mix_f32 v10, -v4, v9, v2 op_sel_hi:[1,0,1]
        v_fmac_f32_e32 v9, v10, v8
        v_fma_mix_f32 v10, -v4, v9, v2 op_sel_hi:[1,0,1]
        v_mul_f32_e32 v8, v10, v8
        v_and_b32_e32 v8, 0xff800000, v8
        v_add_f32_e32 v8, v8, v9
        v_cvt_f16_f32_e32 v8, v8
        v_div_fixup_f16 v0, v8, v4, v2
    """,
}
ROOT = {
    32: """
        v_mov_b32_e32 v9, 0x260
        v_mul_f32_e32 v8, 0x4f800000, v2
        v_mov_b32_e32 v10, 0xf800000
        v_cmp_gt_f32_e32 vcc, v10, v2
        v_cndmask_b32_e32 v2, v2, v8, vcc
        v_sqrt_f32_e32 v8, v2
        v_add_u32_e32 v10, -1, v8
        v_add_u32_e32 v11, 1, v8
        v_fma_f32 v12, -v10, v8, v2
        v_fma_f32 v13, -v11, v8, v2
        v_cmp_ge_f32_e64 s[0:1], 0, v12
        v_cndmask_b32_e64 v8, v8, v10, s[0:1]
        v_cmp_lt_f32_e64 s[0:1], 0, v13
        v_cndmask_b32_e64 v8, v8, v11, s[0:1]
        v_mul_f32_e32 v10, 0x37800000, v8
        v_cndmask_b32_e32 v8, v8, v10, vcc
        v_cmp_class_f32_e32 vcc, v2, v9
        v_cndmask_b32_e32 v0, v8, v2, vcc
    """,
    64: """
        v_mov_b32_e32 v4, 0
        v_mov_b32_e32 v5, 0x10000000
        v_mov_b32_e32 v8, 0x100
        v_mov_b32_e32 v9, 0xffffff80
        v_mov_b32_e32 v10, 0x260
        v_cmp_gt_f64_e32 vcc, v[4:5], v[2:3]
        v_cndmask_b32_e32 v8, 0, v8, vcc
        v_ldexp_f64 v[2:3], v[2:3], v8
        v_rsq_f64_e32 v[12:13], v[2:3]
        v_cndmask_b32_e32 v11, 0, v9, vcc
        v_cmp_class_f64_e32 vcc, v[2:3], v10
        v_mul_f64 v[14:15], v[2:3], v[12:13]
        v_mul_f64 v[12:13], v[12:13], 0.5
        v_fma_f64 v[16:17], -v[12:13], v[14:15], 0.5
        v_fmac_f64_e32 v[14:15], v[14:15], v[16:17]
        v_fmac_f64_e32 v[12:13], v[12:13], v[16:17]
        v_fma_f64 v[16:17], -v[14:15], v[14:15], v[2:3]
        v_fmac_f64_e32 v[14:15], v[16:17], v[12:13]
        v_fma_f64 v[16:17], -v[14:15], v[14:15], v[2:3]
        v_fmac_f64_e32 v[14:15], v[16:17], v[12:13]
        v_ldexp_f64 v[12:13], v[14:15], v11
        v_cndmask_b32_e32 v1, v13, v3, vcc
        v_cndmask_b32_e32 v0, v12, v2, vcc
    """,
}
DIVIDE_UNSIGNED = """
    v_cvt_f32_u32_e32 v8, v4
    v_sub_u32_e32 v9, 0, v4
    v_rcp_iflag_f32_e32 v8, v8
    v_mul_f32_e32 v8, 0x4f7ffffe, v8
    v_cvt_u32_f32_e32 v8, v8
    v_mul_lo_u32 v9, v9, v8
    v_mul_hi_u32 v9, v8, v9
    v_add_u32_e32 v8, v8, v9
    v_mul_hi_u32 v8, v2, v8
    v_mul_lo_u32 v9, v8, v4
    v_sub_u32_e32 v2, v2, v9
    v_add_u32_e32 v10, 1, v8
    v_cmp_ge_u32_e32 vcc, v2, v4
    v_sub_u32_e32 v9, v2, v4
    v_cndmask_b32_e32 v8, v8, v10, vcc
    v_cndmask_b32_e32 v2, v2, v9, vcc
    v_add_u32_e32 v9, 1, v8
    v_cmp_ge_u32_e32 vcc, v2, v4
    v_cndmask_b32_e32 v0, v8, v9, vcc
"""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def hard_floats(width: int, count: int, seed: int) -> list[int]:
    """Return floats with extreme exponents and mantissas of few or nearly all ones."""
    rng = random.Random(seed)
    digits = {16: 10, 32: 23, 64: 52}[width]
    top = ref.infinity(width) >> digits
    result = []
    for _ in range(count):
        exponent = rng.choice([rng.randrange(top), rng.randrange(3), top - 1 - rng.randrange(3)])
        mantissa = rng.choice([rng.getrandbits(digits), rng.randrange(4), -1 - rng.randrange(4)])
        sign = rng.getrandbits(1) << width - 1
        result.append(sign | exponent << digits | mantissa & (1 << digits) - 1)
    return result


@pytest.mark.parametrize("width", [16, 32, 64])
def test_quotients_are_correctly_rounded(width: int) -> None:
    edges = FLOAT_EDGES[width]
    rows = [(a, b) for a in edges for b in edges]
    count = 4096 - len(rows)
    rows += zip(hard_floats(width, count, 1), hard_floats(width, count, 2), strict=True)
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, *assemble_all(lines(DIVIDE[width])))
    got = [canonical(bits, width) for bits in get(state, 0, width)]
    assert not mismatches(got, [ref.divide(*row, width) for row in rows], rows)


@pytest.mark.parametrize("width", [32, 64])
def test_roots_are_correctly_rounded(width: int) -> None:
    rows = [(a,) for a in FLOAT_EDGES[width]]
    rows += [(a & ~ref.sign_bit(width),) for a in hard_floats(width, 1024 - len(rows), 3)]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    execute(state, *assemble_all(lines(ROOT[width])))
    got = [canonical(bits, width) for bits in get(state, 0, width)]
    assert not mismatches(got, [ref.square_root(*row, width) for row in rows], rows)


def test_integer_division() -> None:
    rows = [(a, b or 1) for a, b in columns([32, 32], count=1024)]
    state = fresh_state(len(rows) // 64)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, *assemble_all(lines(DIVIDE_UNSIGNED)))
    assert not mismatches(get(state, 0, 32), [a // b for a, b in rows], rows)


def test_scale_says_when_the_quotient_must_be_moved_back() -> None:
    (scale,) = assemble_all(["v_div_scale_f32 v0, s[4:5], v4, v4, v2"])
    one, big, small = (ref.bits_of(x, 32) for x in (1.0, 2.0**100, 2.0**-20))
    rows = [(one, one), (big, small), (small, big), (one, 0)] * 16
    state = fresh_state(1)
    put(state, 2, [row[0] for row in rows])
    put(state, 4, [row[1] for row in rows])
    execute(state, scale)
    # 2**120 is near the largest number: the denominator moves up. 2**-120 is a normal quotient.
    moved = ref.bits_of(2.0**-20 * 2.0**64, 32)
    assert get(state, 0, 32)[:3] == [one, moved, big]
    assert canonical(get(state, 0, 32)[3], 32) == NAN
    assert get_mask(state, 4) == [0, 1, 0, 0] * 16


@pytest.mark.parametrize("width", [16, 32, 64])
def test_fixup_of_special_operands(width: int) -> None:
    name = f"v_div_fixup_f{width}"
    registers = "v[0:1], v[2:3], v[4:5], v[6:7]" if width == 64 else "v0, v2, v4, v6"
    (fixup,) = assemble_all([f"{name} {registers}"])
    specials = [0, ref.infinity(width), ref.bits_of(1.0, width), ref.infinity(width) | 1]
    specials += [bits | ref.sign_bit(width) for bits in specials]
    third = ref.divide(ref.bits_of(1.0, width), ref.bits_of(3.0, width), width)
    assert isinstance(third, int)
    rows = [(third, denominator, numerator) for denominator in specials for numerator in specials]

    def expected(quotient: int, denominator: int, numerator: int) -> ref.Result:
        exact = ref.divide(numerator, denominator, width)
        ordinary = exact != NAN and abs(value(exact, width)) == 1.0
        sign = (numerator ^ denominator) & ref.sign_bit(width)
        return quotient | sign if ordinary else exact

    got = [canonical(bits, width) for bits in evaluate(fixup, rows, width)]
    assert not mismatches(got, [expected(*row) for row in rows], rows)


def test_two_over_pi() -> None:
    # The first hexadecimal digits of 2/pi, as every table of Payne and Hanek's reduction has them.
    digits = "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E0"
    assert f"{two_over_pi() >> 1201 - 4 * len(digits):X}" == digits


@pytest.mark.parametrize("exponent", [0, 60, 200, 944, 945, 1000])
def test_trigonometric_reduction_takes_segments_of_two_over_pi(exponent: int) -> None:
    (preop,) = assemble_all(["v_trig_preop_f64 v[0:1], v[2:3], v4"])
    number = 1.25 * 2.0**exponent
    segments = [index % 3 for index in range(64)]  # the compiler's reduction takes three
    rows = [(ref.bits_of(number, 64), segment) for segment in segments]
    got = [value(bits, 64) for bits in evaluate(preop, rows, 64)]
    skipped = max(exponent + 1023 - 1077, 0)
    unscale = 128 if exponent + 1023 >= 1968 else 0
    # Segments are consecutive digits: together they are 2/pi without what the exponent skips.
    total = sum(Fraction(got[segment]) for segment in range(3)) / Fraction(2) ** unscale
    digits = skipped + 3 * 53
    pi_part = two_over_pi() & (1 << 1201 - skipped) - 1
    assert total == Fraction(pi_part >> 1201 - digits, 1 << digits)


def test_quotients_of_many_waves_are_the_same_as_of_one() -> None:
    rows = list(zip(hard_floats(32, 4096, 5), hard_floats(32, 4096, 6), strict=True))
    program = assemble_all(lines(DIVIDE[32]))
    results = []
    for waves in (1, 64):
        part: list[int] = []
        for start in range(0, len(rows), 64 * waves):
            state = fresh_state(waves)
            chunk = rows[start : start + 64 * waves]
            put(state, 2, [row[0] for row in chunk])
            put(state, 4, [row[1] for row in chunk])
            execute(state, *program)
            part += get(state, 0, 32)
        results.append(np.array(part, np.uint32) & np.uint32(M32))
    assert np.array_equal(*results)
