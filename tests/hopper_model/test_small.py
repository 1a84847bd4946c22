"""The kernel for batches of small matrices, on the modelled GPU."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.device import device as device_of
from cupygemm._backends.hopper.small_config import SmallConfig
from cupygemm._tuning.product import Product
from tests.hopper_model.device import ModelError

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = (BF16, np.dtype("f2"), np.dtype("f4"), np.dtype("f8"))
ONE_WARP = SmallConfig(
    tile_m=16, tile_n=16, tile_k=16, warps_m=1, warps_n=1, num_teams=2, num_stages=1
)
RING = replace(ONE_WARP, num_stages=3)
TEAMS = replace(RING, tile_m=32, tile_n=32, warps_m=2, num_stages=2)


def multiplied(cp, shape, dtype, layout, config):
    """Return a product by a configuration, and the operands."""
    *batch, m, n, k = shape
    x1, x2 = testing.integer_operands((*batch, m, k), (*batch, k, n), dtype)
    request = Product(shape, dtype, None, layout).request
    arrays = [
        cp.asarray(x) if letter == "N" else cp.asarray(x.swapaxes(-1, -2).copy()).swapaxes(-1, -2)
        for x, letter in zip((x1, x2), layout, strict=True)
    ]
    backend = device_of(0).backends[0]
    return backend.launch(request, backend.compile(request, config))(*arrays, None), x1, x2


CASES = [  # whole tiles, and extents below, between and beyond them, with rows that begin anywhere
    ((5, 16, 16, 16), "NN", ONE_WARP),
    ((3, 13, 15, 7), "TT", RING),
    ((2, 33, 18, 24), "NT", TEAMS),
    ((3, 32, 32, 32), "TN", TEAMS),
]


@pytest.mark.covering
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("shape", "layout", "config"), CASES)
def test_products_are_exact(cp, model, dtype, shape, layout, config):
    model.seed = len(layout) + shape[0]
    testing.assert_gemm_exact(*multiplied(cp, shape, dtype, layout, config))


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("copy_async_wait<stages - 2>();", ""),
        ("copy_async_wait<stages - 2>();", "copy_async_wait<stages>();"),
        (
            "team_sync<Config>(team);\n            const u32 before",
            "const u32 before",
        ),
    ],
    ids=["no wait for a slab", "a wait for too few slabs", "no barrier after the wait"],
)
def test_a_fault_of_the_ring_is_found(cp, model, text, instead):
    def changed(whole):
        assert text in whole
        return whole.replace(text, instead)

    model.fault = changed
    found = []
    for model.seed in range(4):
        try:
            multiplied(cp, (2, 32, 32, 64), np.dtype("f4"), "NN", TEAMS)
        except ModelError as err:
            found.append(str(err))
    assert any("into which a copy has not landed" in text for text in found)


def test_several_batch_axes_and_broadcasting(cp):
    x1, x2 = testing.integer_operands((12, 1, 16, 8), (8, 8, 16), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    explanation = cupygemm.explain(a, b)
    assert isinstance(explanation.config, SmallConfig)
    assert len(explanation.problem.batch) == 2
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)


def test_what_lies_beside_the_matrices_does_not_matter(cp):
    """NaN beside k and beyond the last row or column of a view."""
    wide = np.full((2, 16, 24), np.nan, np.float32)
    tall = np.full((2, 24, 16), np.nan, np.float32)
    x1, x2 = testing.integer_operands((2, 13, 9), (2, 9, 14), np.dtype("f4"))
    wide[:, :13, :9], tall[:, :9, :14] = x1, x2
    a, b = cp.asarray(wide)[:, :13, :9], cp.asarray(tall)[:, :9, :14]
    assert isinstance(cupygemm.explain(a, b).config, SmallConfig)
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)


@pytest.mark.parametrize("dtype", [BF16, np.dtype("f4"), np.dtype("f8")], ids=str)
def test_the_whole_epilogue(cp, dtype):
    rng = np.random.default_rng(1)
    x1, x2 = testing.integer_operands((96, 16, 16), (96, 16, 16), dtype)
    options = {
        "alpha": 0.5,
        "bias": rng.integers(-3, 4, 16).astype(dtype),
        "c": rng.integers(-3, 4, (96, 16, 16)).astype(dtype),
        "beta": 2.0,
        "activation": "relu",
    }
    given = {
        name: cp.asarray(value) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    a, b = cp.asarray(x1), cp.asarray(x2)
    explanation = cupygemm.explain(a, b, **given)
    assert isinstance(explanation.config, SmallConfig)
    assert explanation.epilogue is not None
    testing.assert_gemm_close(cupygemm.matmul(a, b, **given), x1, x2, **options)


@pytest.mark.parametrize("out", ["float32", "float8_e4m3fn"])
def test_results_of_other_types(cp, out):
    x1, x2 = testing.integer_operands((96, 16, 16), (96, 16, 16), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert isinstance(cupygemm.explain(a, b, dtype=out).config, SmallConfig)
    result = cupygemm.matmul(a, b, dtype=out)
    if out == "float8_e4m3fn":
        expected = (x1.astype("f4") @ x2.astype("f4")).astype(ml_dtypes.float8_e4m3fn)
        np.testing.assert_array_equal(cp.asnumpy(result), expected.view(np.uint8))
    else:
        testing.assert_gemm_exact(result, x1, x2)


def test_large_products_have_other_kernels(cp):
    for dtype in TYPES:
        operands = [cp.asarray(np.zeros((2, 1024, 1024), dtype))] * 2
        if dtype != np.dtype("f4"):
            assert not isinstance(cupygemm.explain(*operands).config, SmallConfig)
