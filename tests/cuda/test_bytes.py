"""Results of single bytes from Hopper's kernels: integers that wrap or saturate, 8-bit floats."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.choice.configurations import configs_for
from tests.cuda.test_epilogue import options
from tests.cuda.variants import BF16, E4M3, E5M2, F16, F32, I8, I32, Variant, multiply
from tests.products.test_epilogue_calls import on_device

U8 = np.dtype(np.uint8)


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
@pytest.mark.parametrize(
    ("first", "second"),
    [((70, 200), (200, 80)), ((129, 77), (77, 131)), ((2, 3, 9, 40), (3, 40, 33)), ((5,), (5,))],
)
def test_integers_wrap_as_numpys(cp, dtype, first, second):
    generator = np.random.default_rng(7)
    x1, x2 = (generator.integers(0, 256, shape, U8).view(dtype) for shape in (first, second))
    a, b = cp.asarray(x1), cp.asarray(x2)
    explanation = cupygemm.explain(a, b)
    assert explanation.backend == "cupygemm"
    result = cupygemm.matmul(a, b)
    assert result.dtype == dtype
    np.testing.assert_array_equal(cp.asnumpy(result), np.matmul(x1, x2))


@pytest.mark.parametrize("pitch", [188, 193, 208])
def test_nothing_is_written_beside_the_result(cp, pitch):
    """Rows begin at each offset within 16 bytes, or all at one offset, or where TMA stores them."""
    x1, x2 = testing.integer_operands((70, 90), (90, 161), I8)
    memory = cp.full((80, pitch), 7, I8)
    for column in (0, 8, 11):
        out = memory[5:75, column : column + 161]
        cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out)
        testing.assert_gemm_exact(out, x1, x2)
        out[...] = 7
        assert (memory == 7).all()


def numbers_to_round(dtype):
    """Return all numbers of an 8-bit format, those halfway between two, and what lies beyond."""
    codes = np.arange(256, dtype=U8).view(dtype).astype(np.float64)
    values = np.unique(codes[np.isfinite(codes)])
    half = (values[1:] + values[:-1]) / 2
    sides = [half + side * np.abs(half) / 512 for side in (-1, 1)]
    largest = values[-1]
    beyond = np.array([1.01, 1.5, 100]) * largest
    beyond = [*beyond, *-beyond, np.inf, -np.inf, np.nan]
    return np.concatenate([values, half, *sides, beyond])


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_rounding_is_to_nearest_even_and_saturates(cp, dtype, fused):
    """All sums occur; the operands compensate a factor of 1/2."""
    numbers = numbers_to_round(dtype)
    x1 = np.concatenate([numbers, np.ones(-len(numbers) % 8)])[:, None].astype(BF16)
    epilogue = {"alpha": 0.5} if fused else {}
    x2 = np.full((1, 24), 2.0 if fused else 1.0, BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert cupygemm.explain(a, b, dtype=dtype.name, **epilogue).backend == "cupygemm"
    codes = cp.asnumpy(cupygemm.matmul(a, b, dtype=dtype.name, **epilogue))
    assert codes.dtype == U8
    result = codes.view(dtype).astype(np.float64)
    sums = x1.astype(np.float64)
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(sums, -largest, largest).astype(F32).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(result, np.broadcast_to(expected, result.shape))
    assert np.isnan(result).sum() == 24


@pytest.mark.covering
@pytest.mark.parametrize("kind", ["", "columns", "rows"])
@pytest.mark.parametrize("dtype", [I8, U8, I32], ids=str)
def test_integers_after_an_epilogue_saturate(cp, dtype, kind):
    """Ties go to even, and NaN becomes 0."""
    numbers = [0.5, 1.5, -2.5, 126.5, 127.5, 255.5, 300, -300, -128.5, np.inf, -np.inf, np.nan]
    x1 = np.array(numbers, F16)[:, None]
    a, b = cp.asarray(x1), cp.ones((1, 40), F16)
    epilogue = {
        "": {"alpha": 1.0, "scale_out": cp.ones((), F32)},
        "columns": {"scale_b": cp.ones(40, F32)},
        "rows": {"scale_a": cp.ones(12, F32)},
    }[kind]
    explanation = cupygemm.explain(a, b, dtype=dtype, casting="unsafe", **epilogue)
    assert explanation.backend == "cupygemm"
    result = cp.asnumpy(cupygemm.matmul(a, b, dtype=dtype, casting="unsafe", **epilogue))
    info = np.iinfo(dtype)
    expected = np.clip(np.rint(np.nan_to_num(x1.astype(np.float64), nan=0)), info.min, info.max)
    np.testing.assert_array_equal(result, np.broadcast_to(expected, result.shape))


KINDS = [
    (I8, I8, "i8"),
    (I8, U8, "i8"),
    (E4M3, E4M3, "e4m3fn"),
    (E5M2, E4M3, "e5m2"),
    (F16, E5M2, "f16"),
    (BF16, I8, "bf16"),
    (F16, U8, "f16"),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("number", range(len(KINDS)), ids=lambda i: "-".join(map(str, KINDS[i])))
def test_every_part_of_an_epilogue(cp, number):
    """Results are stored with and without TMA, from whole tiles, parts of k and cut tiles."""
    dtype, result, name = KINDS[number]
    configs = [
        c for c in configs_for(name) if c.num_consumers < 3 and c.tile_m * c.tile_n < 1 << 14
    ]
    config = configs[number % len(configs)]
    changes = [{}, {"stream_k": 4 // config.cluster_size}]
    if dtype != I8:
        changes.append({"split_k": 3})
    for turn, change in enumerate(changes):
        m, n, k = 150, 176 - (turn + number) % 2, 700
        x1, x2 = testing.integer_operands((m, k), (k, n), dtype, seed=turn)
        variant = Variant(replace(config, **change), dtype, result, "CF", aligned=True)
        a, b = (
            cp.asarray(np.array(x.view(U8) if x.dtype in (E4M3, E5M2) else x, order=order))
            for x, order in zip((x1, x2), variant.orders, strict=True)
        )
        given = options(m, n, (F32, F16)[turn % 2])
        testing.assert_gemm_exact(multiply(variant, a, b, **on_device(cp, given)), x1, x2, **given)
