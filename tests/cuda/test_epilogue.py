"""Epilogues in the Hopper kernels: exact for each configuration, whole and split, and each store.

What an epilogue means is tested by ``tests/epilogue/test_epilogue.py``, which runs on Hopper as
well; here are the tiles, tails and alignments that its small products do not meet.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.device import device
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, NARROW_CONFIGS, PART_CONFIGS
from cupygemm._request.epilogue import epilogue_arguments
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from tests.products.test_epilogue_calls import on_device

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, I8, I32 = map(np.dtype, ("f2", "f4", "i1", "i4"))
M, N = 328, 536
RESULTS = ((F32, F16, N), (F16, F32, N), (BF16, F16, N), (F32, F32, N - 1), (BF16, F16, N - 3))


def options(m, n, c_dtype):
    """Return an epilogue in which every step is exact."""
    return {
        "alpha": 0.5,
        "scale_a": np.float32(2.0) ** (np.arange(m) % 3),
        "scale_b": np.float32(2.0) ** -(np.arange(n) % 2),
        "beta": 2,
        "c": (np.arange(m * n) % 64).reshape(m, n).astype(c_dtype),
        "bias": (np.arange(n) % 50 - 25).astype(F16),
        "activation": "relu",
        "clamp": (1, 1000),
    }


def takes_an_epilogue(config):
    """Whether the threads have registers for it beside their sums."""
    wide_parts = config.cluster_k > 1 < config.num_consumers and config.accumulators >= 96
    return config.num_consumers < 3 and config.accumulators <= 128 and not wide_parts


@pytest.mark.parametrize(
    ("config", "split"),
    [
        pytest.param(config, split, id=f"{config.name}-{split}")
        for config in (*CONFIGS, *NARROW_CONFIGS, *PART_CONFIGS)
        for split in (1, 3)[: 2 if config.cluster_k == 1 else 1]
        if takes_an_epilogue(config) or split > 1
    ],
)
def test_each_configuration_is_exact(cp, config, split):
    b_order = "F" if config.tile_n % 16 else "C"  # odd multiples of 8 columns are of a k-major B
    for dtype, c_dtype, n in RESULTS:
        x1, x2 = testing.integer_operands((M, 400), (400, n), F16)
        given = options(M, n, c_dtype)
        arguments = epilogue_arguments(**on_device(cp, given))
        a, b = cp.asarray(x1), cp.asarray(x2, order=b_order)
        operands = [Operand(x.shape, x.strides, x.dtype, x.data.ptr) for x in (a, b)]
        options_of_plan = Options(dtype=np.dtype(dtype), epilogue=arguments.request)
        request, backend = make_request(*operands, options=options_of_plan), device(0).kernels
        compiled = backend.compile(request, replace(config, split_k=split))
        result = backend.launch(request, compiled)(a, b, None, arguments)
        testing.assert_gemm_exact(result, x1, x2, **given)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, I32], ids=str)
def test_int8_is_scaled_from_its_exact_sums(cp, dtype, order):
    rng = np.random.default_rng(0)
    x1, x2 = rng.integers(-9, 9, (M, 256), I8), rng.integers(-9, 9, (256, N), I8)
    given = options(M, N, F32)
    out = cp.zeros((M, N), dtype, order=order)
    arrays = on_device(cp, given)
    assert cupygemm.explain(cp.asarray(x1), cp.asarray(x2), out, **arrays).backend == "cupygemm"
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, **arrays)
    testing.assert_gemm_exact(out, x1, x2, **given)


def test_in_place_and_nothing_beside(cp):
    x1, x2 = testing.integer_operands((M, 400), (400, N), F16)
    memory = cp.asarray((np.arange((M + 9) * (N + 8)) % 64).reshape(M + 9, N + 8).astype(F32))
    before = memory.get()
    out = memory[5 : 5 + M, 4 : 4 + N]
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, c=out, activation="relu")
    testing.assert_gemm_exact(out, x1, x2, c=before[5 : 5 + M, 4 : 4 + N], activation="relu")
    out[...] = cp.asarray(before[5 : 5 + M, 4 : 4 + N])
    np.testing.assert_array_equal(memory.get(), before)


def test_a_batch_of_biases(cp):
    x1, x2 = testing.integer_operands((3, 2, 130, 96), (2, 96, 200), BF16)
    given = {
        "bias": np.arange(3 * 200, dtype=F32).reshape(3, 1, 1, 200),
        "scale_a": 2.0,
        "scale_b": np.float32(2.0) ** (np.arange(400) % 4).reshape(2, 1, 200),
    }
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=F32, **on_device(cp, given))
    testing.assert_gemm_exact(result, x1, x2, **given)
