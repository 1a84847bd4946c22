"""Epilogues in the Hopper kernels, on the modelled GPU: every part, tile, store and tail.

What an epilogue means is tested by ``tests/epilogue/test_epilogue.py``, which runs here too (`make
test-modelled`), and on a GPU as these kernels are (``tests/cuda/test_epilogue.py``).
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.choice import tf32x3
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, NARROW_CONFIGS, PART_CONFIGS
from tests.cuda.test_epilogue import options, takes_an_epilogue
from tests.cuda.variants import BF16, F16, F32, F64, I8, I32, ORDERS, Variant, multiply
from tests.epilogue.test_epilogue import ULPS
from tests.epilogue.test_epilogue import (
    test_activations_by_the_unit_in_the_last_place as by_the_unit_in_the_last_place,
)
from tests.products.test_epilogue_calls import on_device

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
WHOLE = [
    config for config in (*CONFIGS, *NARROW_CONFIGS, *PART_CONFIGS) if takes_an_epilogue(config)
]
RESULTS = ((F32, F16), (F16, F32), (BF16, F16), (F16, F16), (BF16, F32))  # with the type of c


def assert_exact(cp, variant, m, n, k, given):
    x1, x2 = testing.integer_operands((m, k), (k, n), variant.dtype, seed=m + n + k)
    a, b = (
        cp.asarray(np.array(x, order=order))
        for x, order in zip((x1, x2), variant.orders, strict=True)
    )
    result = multiply(variant, a, b, **on_device(cp, given))
    testing.assert_gemm_exact(result, x1, x2, **given)


@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize(
    ("config", "result", "c_dtype", "orders"),
    [
        pytest.param(config, *RESULTS[number % 5], ORDERS[number % 4], id=config.name)
        for number, config in enumerate(WHOLE)
    ],
)
def test_each_configuration_is_exact(cp, model, config, result, c_dtype, orders):
    number = WHOLE.index(config)
    m, n = config.tile_m * config.cluster_m + 21, config.tile_n * config.cluster_n + 40
    variant = Variant(config, F16, result, orders, aligned=number % 4 != 1)
    for seed, (rows, columns) in enumerate([(m, n - number % 2), (8, 16), (m, 64)]):
        model.seed = seed
        given = options(rows, columns, c_dtype)
        k = max(2, config.cluster_k) * config.tile_k + 8
        assert_exact(cp, variant, rows, columns, k, given)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("result", [F32, F16, BF16], ids=str)
def test_the_sum_of_parts_is_exact(cp, model, result):
    config = replace(CONFIGS[-1], split_k=3)
    for seed, n in enumerate((72, 75)):
        model.seed = seed
        variant = Variant(config, F16, result, "CC", aligned=True)
        assert_exact(cp, variant, 70, n, 640, options(70, n, F16))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("result", "columns", "split"), [(F64, 75, 2), (F64, 72, 1), (F32, 75, 1)])
def test_fp64_is_computed_in_fp64(cp, model, result, columns, split):
    config = replace(configs_for("f64")[3], split_k=split)
    for seed, c_dtype in enumerate((F64, F32)):
        model.seed = seed
        variant = Variant(config, F64, result, "CF", aligned=columns == 72)
        given = options(70, columns, c_dtype)
        assert_exact(cp, variant, 70, columns, 100, given)
    x1, x2 = testing.random_operands((70, 100), (100, columns), F64)
    a, b, bias = cp.asarray(x1), cp.asarray(x2), np.arange(columns) / 7
    for activation in ("gelu", "silu"):
        result = cupygemm.matmul(a, b, bias=cp.asarray(bias), activation=activation)
        testing.assert_gemm_close(result, x1, x2, bias=bias, activation=activation)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("result", [F32, F16, BF16, I32], ids=str)
def test_int8_is_scaled_from_its_exact_sums(cp, model, result):
    variant = Variant(configs_for("i8")[-1], I8, result, "CF", aligned=True)
    assert_exact(cp, variant, 70, 72, 300, options(70, 72, F32))


def test_8_bit_floats(cp, model):
    x1, x2 = testing.integer_operands((70, 200), (200, 72), E4M3)
    a, b = (cp.asarray(x.view(np.uint8)) for x in (x1, x2))
    given = options(70, 72, F32)
    formats = {"format_a": "e4m3fn", "format_b": "e4m3fn"}
    arrays = on_device(cp, given)
    assert cupygemm.explain(a, b, dtype=BF16, **formats, **arrays).backend == "cupygemm"
    result = cupygemm.matmul(a, b, dtype=BF16, **formats, **arrays)
    testing.assert_gemm_exact(result, x1, x2, **given)


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", ["C", "F"])
def test_in_place_and_nothing_beside(cp, model, order, seed):
    model.seed = seed
    x1, x2 = testing.integer_operands((70, 96), (96, 72), F16)
    memory = cp.asarray((np.arange(80 * 84) % 64).reshape(80, 84).astype(F32), order=order)
    before = memory.get()
    out = memory[5:75, 4:76]
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, c=out, activation="relu")
    testing.assert_gemm_exact(out, x1, x2, c=before[5:75, 4:76], activation="relu")
    out[...] = before[5:75, 4:76]
    np.testing.assert_array_equal(memory.get(), before)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_biases(cp, model, seed):
    model.seed = seed
    x1, x2 = testing.integer_operands((3, 2, 70, 96), (2, 96, 72), BF16)
    given = {
        "bias": np.arange(3 * 72, dtype=F32).reshape(3, 1, 1, 72),
        "scale_a": 2.0,
        "scale_b": np.float32(2.0) ** (np.arange(144) % 4).reshape(2, 1, 72),
    }
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=F32, **on_device(cp, given))
    testing.assert_gemm_exact(result, x1, x2, **given)


def test_numbers_in_device_memory(cp, model):
    x1, x2 = testing.integer_operands((70, 64), (64, 72), F16)
    given = {
        "scale_a": np.array(0.5, F32),
        "scale_b": np.array(4, F32),
        "c": np.array(3, F16),
        "bias": np.array(1, F32),
        "scale_out": np.array(2, F32),
    }
    arrays = on_device(cp, given)
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert "scale_a (f32)" in cupygemm.explain(a, b, dtype=F32, **arrays).epilogue
    result = cupygemm.matmul(a, b, dtype=F32, **arrays)
    testing.assert_gemm_exact(result, x1, x2, **given)


@pytest.mark.parametrize("activation", ULPS)
def test_activations_by_the_unit_in_the_last_place(cp, device, activation):
    by_the_unit_in_the_last_place(cp, device, activation)


def test_an_epilogue_of_products_of_tf32_terms(cp, monkeypatch):
    monkeypatch.setattr(tf32x3, "require", lambda *_: None)  # cuBLAS is sooner with so small ones
    m, n, k = 140, 72, 96
    x1, x2 = testing.integer_operands((m, k), (k, n), F32, seed=5)
    given = options(m, n, F32)
    a, b, arrays = cp.asarray(x1), cp.asarray(x2), on_device(cp, given)
    explained = cupygemm.explain(a, b, precision="tf32x3", **arrays)
    assert "by CuPy" not in explained.epilogue
    result = cupygemm.matmul(a, b, precision="tf32x3", **arrays)
    testing.assert_gemm_exact(result, x1, x2, **given)
