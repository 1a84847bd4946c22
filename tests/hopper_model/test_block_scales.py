"""`scaled_matmul` with scales for blocks of k on the modelled GPU: one launch, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.hopper.choice.tile_shapes import SCALED_CONFIGS
from cupygemm._backends.hopper.other_products import block_scales
from cupygemm._plan.table import PLANS
from cupygemm._products import blas

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
F32 = np.dtype(np.float32)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def one_launch(monkeypatch):
    """Refuse products of parts of k, which would be launches of their own."""
    PLANS.clear()
    monkeypatch.setattr(blas, "matmul", None)
    yield
    PLANS.clear()


def spread(scales, extents, blocks):
    for axis, (extent, block) in enumerate(zip(extents, blocks, strict=True)):
        if scales.shape[axis] not in (1, extent):
            scales = np.repeat(scales, block, axis=axis)
    return scales[: extents[0], : extents[1]]


def check_product(
    cp, m, n, k, shape_a, shape_b, block=128, orders="CF", scale_order="C", **options
):
    """Scales are powers of two, of which every sum is exact."""
    x1, x2 = (RNG.integers(-3, 4, shape).astype(E4M3).astype(F32) for shape in ((m, k), (k, n)))
    scale_a, scale_b = (
        2.0 ** RNG.integers(-2, 3, shape).astype(F32) for shape in (shape_a, shape_b)
    )
    codes = [
        cp.asarray(np.array(x.astype(E4M3).view(np.uint8), order=order))
        for x, order in zip((x1, x2), orders, strict=True)
    ]
    result = cupygemm.scaled_matmul(
        *codes,
        cp.asarray(np.array(scale_a, order=scale_order)),
        cp.asarray(scale_b),
        format_a="e4m3fn",
        format_b="e4m3fn",
        block=block,
        **options,
    )
    expected = (x1 * spread(np.atleast_2d(scale_a.T).T, (m, k), (block, block))) @ (
        x2 * spread(np.atleast_2d(scale_b), (k, n), (block, block))
    )
    return np.array(result, subok=False), expected


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize(
    ("columns", "config"),
    [
        pytest.param(columns, config, id=f"{columns}-{config.name}")
        for columns in ("blocks", "columns")
        for config in SCALED_CONFIGS
    ],
)
def test_each_configuration_is_exact(cp, model, monkeypatch, config, columns):
    monkeypatch.setattr(block_scales, "SCALED_CONFIGS", (config,))
    model.seed = list(SCALED_CONFIGS).index(config)
    m, n = config.tile_m * config.cluster_m + 21, config.tile_n * config.cluster_n + 40
    result, expected = check_product(
        cp, m, n, 300, (m, 3), (3, -(-n // 128) if columns == "blocks" else n), dtype=F32
    )
    np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("m", [279, 276, 130])
def test_scales_that_are_adjacent_along_the_rows(cp, monkeypatch, m):
    """The copy engine copies those of a tile where they begin and end at 16 bytes."""
    tall = next(config for config in SCALED_CONFIGS if config.tile_m == 256)
    monkeypatch.setattr(block_scales, "SCALED_CONFIGS", (tall,))
    result, expected = check_product(cp, m, 136, 300, (m, 3), (3, 2), scale_order="F", dtype=F32)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_results_are_8_bit_floats(cp, dtype):
    result, expected = check_product(cp, 70, 200, 300, (70, 3), (3, 2), dtype=dtype.name)
    assert result.dtype == np.uint8
    largest = float(ml_dtypes.finfo(dtype).max)
    np.testing.assert_array_equal(
        result.view(dtype).astype(F32),
        np.clip(expected, -largest, largest).astype(dtype).astype(F32),
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("shape_a", "shape_b", "block"),
    [
        ((70, 5), (5, 2), 128),
        ((1, 5), (5, 200), 128),
        ((70, 5), (200,), 128),
        ((), (5, 2), 128),
        ((1, 3), (3, 1), 256),
        ((70, 1), (5, 2), 128),
    ],
)
def test_shapes_of_scales(cp, shape_a, shape_b, block):
    for orders in ("CF", "FC"):
        result, expected = check_product(
            cp, 70, 200, 600, shape_a, shape_b, block, orders, dtype=F32
        )
        np.testing.assert_array_equal(result, expected)


def test_parts_of_k_and_other_options(cp):
    """With k in parts, the sum gets the epilogue; for a result in columns, the operands swap."""
    bias = cp.asarray(RNG.integers(-3, 4, 40).astype(F32))
    for k in (300, 6000):
        blocks = -(-k // 128)
        out = cp.zeros((40, 24), np.float16).T
        result, expected = check_product(
            cp,
            24,
            40,
            k,
            (24, blocks),
            (blocks, 1),
            bias=bias,
            activation="relu",
            out=out,
            casting="same_kind",
        )
        np.testing.assert_array_equal(result, np.maximum(expected + bias, 0).astype(np.float16))


def test_other_blocks_are_parts(cp, monkeypatch):
    """Blocks that a step of the kernel would lie across."""
    monkeypatch.undo()
    result, expected = check_product(cp, 20, 24, 200, (20, 4), (4, 24), 64, dtype=F32)
    np.testing.assert_array_equal(result, expected)
