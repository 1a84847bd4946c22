"""The 8-bit floats: FNUZ on gfx942, OCP on gfx950."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.hip.harness import VARIANTS

RNG = np.random.default_rng(10)
FORMATS = {
    "gfx942": (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
    "gfx950": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
}


@pytest.fixture(params=[v for v in VARIANTS if v[0] in FORMATS], ids="".join)
def variant(request):
    """The targets that have 8-bit floats."""
    return request.param


def test_rounding_to_fp8(program, variant) -> None:
    fp8, bf8 = FORMATS[variant[0]]
    x = (RNG.normal(0, 1, (64, 4)) * 2.0 ** RNG.integers(-9, 6, (64, 4))).astype(np.float32)
    out = np.zeros((2, 64, 4), np.uint8)
    program("narrow.hip")("to_fp8", (1, 1, 1), (64, 1, 1), x, out[0], out[1])
    np.testing.assert_array_equal(out[0].view(fp8).astype(np.float32), x.astype(fp8))
    np.testing.assert_array_equal(out[1].view(bf8).astype(np.float32), x.astype(bf8))


def test_all_codes(program, variant) -> None:
    fp8, bf8 = FORMATS[variant[0]]
    codes = np.arange(256, dtype=np.uint8)
    out = np.zeros((2, 256), np.float32)
    program("narrow.hip")("from_fp8", (1, 1, 1), (64, 1, 1), codes, out[0], out[1])
    np.testing.assert_array_equal(out[0], codes.view(fp8).astype(np.float32))
    np.testing.assert_array_equal(out[1], codes.view(bf8).astype(np.float32))


def test_stochastic_rounding(program, variant) -> None:
    """Random bits of 0 round towards zero, and any bits to one of the two neighbours."""
    fp8, bf8 = FORMATS[variant[0]]
    x = RNG.uniform(0.5, 8, 64).astype(np.float32)
    bits = RNG.integers(0, 2**32, 64, dtype=np.uint32)
    out = np.zeros((64, 4), np.uint8)
    program("narrow.hip")("stochastic", (1, 1, 1), (64, 1, 1), x, bits, out)
    grid = np.arange(128, dtype=np.uint8)
    values = np.sort(grid.view(fp8).astype(np.float32))
    values = values[np.isfinite(values)]
    below = values[np.searchsorted(values, x, "right") - 1]
    above = values[np.searchsorted(values, x, "left")]
    chosen, floor = (out[:, i].copy().view(fp8).astype(np.float32) for i in (0, 1))
    assert ((chosen == below) | (chosen == above)).all()
    assert (chosen == below).any()
    assert (chosen == above).any()
    np.testing.assert_array_equal(floor, below)
    wide = np.sort(grid.view(bf8).astype(np.float32))
    wide = wide[np.isfinite(wide)]
    ceiling = out[:, 2].copy().view(bf8).astype(np.float32)
    np.testing.assert_array_equal(ceiling, wide[np.searchsorted(wide, x, "left")])
