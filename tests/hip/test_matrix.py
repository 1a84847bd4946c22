"""One product by every kind of MFMA, with small integers that every type holds exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(9)
SHAPES = {
    "f16_32x32x8": (np.float16, 32, 8),
    "f16_16x16x16": (np.float16, 16, 16),
    "bf16_32x32x8": (ml_dtypes.bfloat16, 32, 8),
    "bf16_16x16x16": (ml_dtypes.bfloat16, 16, 16),
    "f32_32x32x2": (np.float32, 32, 2),
    "f32_16x16x4": (np.float32, 16, 4),
    "f64_16x16x4": (np.float64, 16, 4),
}
ONLY = {
    "gfx90a": {
        "bf16_32x32x4": (ml_dtypes.bfloat16, 32, 4),
        "i8_32x32x8": (np.int8, 32, 8),
        "i8_16x16x16": (np.int8, 16, 16),
    },
    "gfx942": {
        "i8_32x32x16": (np.int8, 32, 16),
        "i8_16x16x32": (np.int8, 16, 32),
        "fp8_32x32x16": (ml_dtypes.float8_e4m3fnuz, 32, 16),
        "bf8_16x16x32": (ml_dtypes.float8_e5m2fnuz, 16, 32),
        "xf32_32x32x4": (np.float32, 32, 4),
    },
    "gfx950": {
        "i8_32x32x16": (np.int8, 32, 16),
        "i8_16x16x32": (np.int8, 16, 32),
        "fp8_32x32x16": (ml_dtypes.float8_e4m3fn, 32, 16),
        "bf8_16x16x32": (ml_dtypes.float8_e5m2, 16, 32),
        "f16_16x16x32": (np.float16, 16, 32),
        "bf16_32x32x16": (ml_dtypes.bfloat16, 32, 16),
        "i8_16x16x64": (np.int8, 16, 64),
    },
}


@pytest.mark.parametrize("_round", range(2))
def test_products(program, variant, _round) -> None:
    run = program("matrix.hip")
    shapes = SHAPES | ONLY[variant[0]]
    assert set(run.code.kernels) == set(shapes)
    for name, (dtype, m, k) in shapes.items():
        a, b = RNG.integers(-4, 5, (m, k)).astype(dtype), RNG.integers(-4, 5, (k, m)).astype(dtype)
        sums = {"i8": np.int32, "f6": np.float64}.get(name[:2], np.float32)
        c = np.full((m, m), -1, sums)
        run(name, (1, 1, 1), (64, 1, 1), a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64), name)
