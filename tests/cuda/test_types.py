"""8-bit floats, tf32 and float64 on a Hopper GPU: exact sums, random ones, odd values."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.choice import fp64, tf32x3

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
F64 = np.dtype(np.float64)
SHAPES = [
    ((304, 592), (592, 528)),
    ((129, 77), (77, 131)),
    ((3, 64, 100), (100, 40)),
    ((64, 5000), (5000, 64)),
    ((2, 3, 70, 36), (3, 36, 200)),
]


def on_device(cp, array, order):
    if order == "F":
        return cp.asarray(np.ascontiguousarray(array.swapaxes(-1, -2))).swapaxes(-1, -2)
    return cp.asarray(array)


def assert_ours(*arguments, **options):
    assert cupygemm.explain(*arguments, **options).backend == "cupygemm"


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(("first", "second"), SHAPES)
@pytest.mark.parametrize("formats", list(itertools.product((E4M3, E5M2), repeat=2)))
def test_8_bit_floats_are_exact(cp, orders, first, second, formats):
    x1, x2 = testing.integer_operands(first, second, E5M2, seed=4)
    x1, x2 = x1.astype(formats[0]), x2.astype(formats[1])
    a, b = (
        on_device(cp, x.view(np.uint8), order) for x, order in zip((x1, x2), orders, strict=True)
    )
    options = {"format_a": formats[0].name, "format_b": formats[1].name}
    assert_ours(a, b, **options)
    result = cupygemm.matmul(a, b, **options)
    assert result.dtype == F32
    testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.parametrize("k", [64, 256, 1000, 65536])
@pytest.mark.parametrize("out", [BF16, F16, F32])
def test_sums_of_8_bit_floats(cp, k, out):
    """Tensor cores keep 14 bits of a sum of 256; between those, sums are those of fp32."""
    x1, x2 = testing.random_operands((200, k), (k, 136), E4M3)
    a, b = (cp.asarray(x.view(np.uint8)) for x in (x1, x2))
    result = cupygemm.matmul(a, b, dtype=out, format_a="e4m3fn", format_b="e4m3fn")
    reference = testing.reference_matmul(x1, x2)
    magnitude = testing.reference_matmul(np.abs(x1), np.abs(x2))
    bound = (2.0**-11 + testing.gamma(k)) * magnitude + testing.half_ulp(reference, out)
    assert (np.abs(cp.asnumpy(result).astype(np.float64) - reference) <= bound).all()


def test_8_bit_infinities_and_nan(cp):
    x1, x2 = testing.integer_operands((70, 64), (64, 72), E5M2)
    x1[x1 == 0] = 1
    x1[17, 5], x2[9, 30] = np.nan, np.inf
    a, b = (cp.asarray(x.view(np.uint8)) for x in (x1, x2))
    result = cp.asnumpy(cupygemm.matmul(a, b, format_a="e5m2", format_b="e5m2"))
    assert np.isnan(result[17]).all()
    assert np.isinf(np.delete(result[:, 30], 17)).all()
    assert np.isfinite(np.delete(np.delete(result, 17, 0), 30, 1)).all()


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_tf32(cp, orders, first, second):
    x1, x2 = testing.integer_operands(first, second, F32, seed=5)
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    assert_ours(a, b, precision="tf32")
    testing.assert_gemm_exact(cupygemm.matmul(a, b, precision="tf32"), x1, x2)
    x1, x2 = testing.random_operands(first, second, F32)
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    for out in (F32, BF16):
        result = cupygemm.matmul(a, b, dtype=out, casting="unsafe", precision="tf32")
        reference = testing.reference_matmul(x1, x2)
        magnitude = testing.reference_matmul(np.abs(x1), np.abs(x2))
        # Both factors are rounded to 11 bits.
        bound = 2.0**-10 * magnitude + testing.half_ulp(reference, out)
        assert (np.abs(cp.asnumpy(result).astype(np.float64) - reference) <= bound).all()


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((70, 16), (16, 91)),
        ((300, 592), (592, 501)),
        ((2, 3, 90, 1000), (3, 1000, 44)),
    ],
)
def test_tf32x3_is_as_exact_as_fp32(cp, monkeypatch, orders, first, second):
    monkeypatch.setattr(tf32x3, "require", lambda *_: None)  # cuBLAS is faster here
    x1, x2 = testing.random_operands(first, second, F32)
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    assert_ours(a, b, precision="tf32x3")
    testing.assert_gemm_close(cupygemm.matmul(a, b, precision="tf32x3"), x1, x2)


def test_tf32x3_keeps_sums_of_positive_numbers(cp):
    """Sums that tensor cores cut short, always down, would lie a thousand units off."""
    x1, x2 = (np.abs(x) for x in testing.random_operands((600, 30000), (30000, 600), F32))
    result = cp.asnumpy(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), precision="tf32x3"))
    reference = testing.reference_matmul(x1, x2)
    assert (np.abs(result - reference) / reference).max() < 100 * 2.0**-24


def test_tf32x3_infinities_and_nan(cp):
    x1, x2 = testing.random_operands((1024, 1024), (1024, 1024), F32)
    x1[17, 5], x1[40, 6], x2[9, 300] = np.nan, -np.inf, np.inf
    result = cp.asnumpy(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), precision="tf32x3"))
    reference = testing.reference_matmul(x1, x2)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(reference))
    infinite = np.isinf(reference)
    np.testing.assert_array_equal(result[infinite], reference[infinite])
    assert np.isfinite(result[np.isfinite(reference)]).all()


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_fp64(cp, monkeypatch, orders, first, second):
    monkeypatch.setattr(fp64, "require", lambda *_: None)  # cuBLAS is faster here
    x1, x2 = testing.integer_operands(first, second, F64, seed=6)
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    assert_ours(a, b)
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    x1, x2 = testing.random_operands(first, second, F64)
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    for out in (F64, F32):
        result = cupygemm.matmul(a, b, dtype=out)
        assert result.dtype == out
        testing.assert_gemm_close(result, x1, x2)


def test_fp64_infinities_and_nan(cp, monkeypatch):
    monkeypatch.setattr(fp64, "require", lambda *_: None)
    x1, x2 = testing.random_operands((2, 300, 200), (200, 300), F64)
    x1[0, 17, 5], x1[0, 40, 6], x2[9, 250] = np.nan, -np.inf, np.inf
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert_ours(a, b)
    result = cp.asnumpy(cupygemm.matmul(a, b))
    reference = np.matmul(x1, x2)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(reference))
    infinite = np.isinf(reference)
    np.testing.assert_array_equal(result[infinite], reference[infinite])
    assert np.isfinite(result[np.isfinite(reference)]).all()


def test_fp64_with_an_epilogue(cp):
    x1, x2 = testing.random_operands((150, 333), (333, 271), F64)
    bias, c = np.arange(271) / 7, np.ones((150, 271))
    options = {"bias": cp.asarray(bias), "c": cp.asarray(c), "beta": 0.5, "activation": "gelu"}
    a, b = cp.asarray(x1), cp.asarray(x2)
    explanation = cupygemm.explain(a, b, **options)
    assert explanation.backend == "cupygemm"
    assert explanation.epilogue == "beta * c (f64), bias per column (f64), gelu"
    result = cupygemm.matmul(a, b, **options)
    testing.assert_gemm_close(result, x1, x2, bias=bias, c=c, beta=0.5, activation="gelu")


def test_float32_is_exact_without_being_asked(cp):
    x1, x2 = testing.random_operands((300, 200), (200, 100), F32)
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert cupygemm.explain(a, b).backend == "cuBLASLt"
    testing.assert_gemm_close(cupygemm.matmul(a, b), x1, x2)
    small = cp.asarray(x1[:3, :4]), cp.asarray(x2[:4])
    assert "less exact" in cupygemm.explain(*small, precision="tf32x3").why
    testing.assert_gemm_close(cupygemm.matmul(*small, precision="tf32x3"), x1[:3, :4], x2[:4])
