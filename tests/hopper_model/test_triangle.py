"""`syrk` on the modelled GPU by the tiles of one triangle, to the bit."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.hopper import backend, product
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.other_products import triangle
from cupygemm._plan.table import NO_PLAN, PLANS
from tests.hopper_model.device import NUM_SMS
from tests.problems import problem_of

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, I8, I32 = map(np.dtype, (np.float16, np.float32, np.int8, np.int32))
PROBLEM = problem_of(8, 8, 16, "f16", "f32", majors="kk")
RNG = np.random.default_rng(0)


@pytest.fixture
def chosen(monkeypatch):
    """Compute a triangle regardless of the model; yield the list for its configuration."""
    configs = {}

    def estimate(config, problem, arch):
        return -1e12 if config == configs.get("config", config) else 0.0

    monkeypatch.setattr(triangle, "estimate", estimate)
    monkeypatch.setattr(backend, "MIN_TRIANGLE_ROWS", 1)
    PLANS.clear()
    return configs


def exact(array):
    return np.array(array, subok=False).astype(np.float64)


def integers(cp, shape, dtype):
    return cp.asarray(RNG.integers(-3, 4, shape).astype(dtype))


def check_product(cp, n, k, dtype, result=None, order="C", **options):
    values = RNG.integers(-3, 4, (n, k)).astype(dtype)
    a = cp.asarray(np.array(values, order=order))
    product = cupygemm.syrk(1, a, dtype=result, **options)
    expected = exact(values) @ exact(values).T
    if product.dtype.kind in "iu":  # alpha is given, so integers saturate
        limits = np.iinfo(product.dtype)
        expected = np.clip(expected, limits.min, limits.max)
    np.testing.assert_array_equal(exact(product), exact(expected.astype(product.dtype)))


@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize("config", configs_for("f16"), ids=lambda config: config.name)
def test_each_configuration_is_exact(cp, model, chosen, config):
    """Bands of several tiles, of which the last is lower, and tiles cut by the diagonal."""
    model.seed = number = configs_for("f16").index(config)
    chosen["config"] = config
    tile = max(config.tile_m * config.cluster_m, config.tile_n * config.cluster_n)
    check_product(cp, tile + 24, 72, (F16, BF16)[number % 2], F32, "CF"[number % 2])
    (plan,) = PLANS.of("syrk")
    assert plan is not NO_PLAN


@pytest.mark.one_in(4)
@pytest.mark.parametrize("shape", [(0, 1), (-1, 1), (-1, 2), (-1, 3)])
def test_nothing_above_the_diagonal_is_computed(cp, chosen, monkeypatch, shape):
    """Tiles wider than high, and square ones in bands of one to three."""
    index, group_m = shape
    config = replace(configs_for("f16")[index], group_m=group_m)
    rows, columns = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    monkeypatch.setattr(triangle, "configs_for", lambda dtype: (config,))
    monkeypatch.setattr(product.MirrorLaunch, "__call__", lambda self, c: None)
    for n in (64, 200, 330):
        a, out = integers(cp, (n, 16), F16), cp.full((n, n), np.nan, F32)
        cupygemm.syrk(1, a, dtype=F32, out=out)
        row, column = np.indices((n, n))
        above = column // columns * columns >= (row // rows + 1) * rows
        expected = np.where(above, np.nan, exact(a) @ exact(a).T)
        np.testing.assert_array_equal(exact(out), expected)
        problem = replace(PROBLEM, m=n, n=n, k=16)
        tiles = ~above[::rows, ::columns]
        assert triangle.num_units(config, problem) == tiles.sum()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("n", [1, 63, 130])
def test_results_that_tma_cannot_write_and_bytes(cp, chosen, n):
    check_product(cp, n, 33, F16)
    check_product(cp, n, 48, I8, I32)
    check_product(cp, n, 48, I8)
    out = cp.zeros((n, n), F16).T
    check_product(cp, n, 16, F16, out=out)
    wide = cp.full((n, n + 5), 7, F32)
    check_product(cp, n, 16, F16, F32, out=wide[:, 3 : 3 + n])
    assert (wide[:, :3] == 7).all()
    assert (wide[:, 3 + n :] == 7).all()


def test_factors_and_an_addend_that_is_not_symmetric(cp, chosen):
    a, c = integers(cp, (130, 16), F16), integers(cp, (130, 130), F32)
    square = exact(a) @ exact(a).T
    np.testing.assert_array_equal(exact(cupygemm.syrk(0.5, a, dtype=F32)), square / 2)
    expected = 2 * square - 3 * exact(c)
    np.testing.assert_array_equal(exact(cupygemm.syrk(2, a, -3, c, dtype=F32)), expected)
    assert cupygemm.syrk(2, a, -3, c, out=c) is c
    np.testing.assert_array_equal(exact(c), expected)
    assert len(PLANS.of("syrk")) == 3
    assert NO_PLAN not in PLANS.of("syrk")


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("n", [64, 131, 200])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_addends_of_any_shape_and_place(cp, chosen, n, dtype):
    """Rows, columns and matrices in either order are added; results start anywhere, or in place."""
    a, wide = integers(cp, (n, 24), dtype), cp.full((n, n + 3), 7, dtype)
    square = exact(a) @ exact(a).T
    out = wide[:, 1 : 1 + n]
    for c in (
        integers(cp, (n,), F32),
        integers(cp, (n, 1), dtype),
        integers(cp, (n, n), dtype).T,
        integers(cp, (n, n + 1), F32)[:, 1:],
    ):
        expected = square / 4 + exact(c)
        assert cupygemm.syrk(0.25, a, 1, c, out=out) is out
        np.testing.assert_array_equal(exact(out), exact(expected.astype(dtype)))
        assert (wide[:, [0, -1, -2]] == 7).all()
    c = integers(cp, (n, n), dtype).T
    expected = exact((square / 4 - exact(c)).astype(dtype))
    cupygemm.syrk(0.25, a, -1, c, out=c)
    np.testing.assert_array_equal(exact(c), expected)
    assert NO_PLAN not in PLANS.of("syrk")


def test_out_that_overlaps_the_operand(cp, chosen):
    block = cp.zeros((130, 160), F16)
    a, out = block[:, :16], block[:, 8:138]
    a[...] = integers(cp, (130, 16), F16)
    values = exact(a)
    assert cupygemm.syrk(1, a, out=out) is out
    np.testing.assert_array_equal(exact(out), values @ values.T)


@pytest.mark.slow
def test_the_model_takes_a_triangle_of_many_tiles_only(cp):
    PLANS.clear()
    for n in (512, 1536):
        check_product(cp, n, 8, F16)
    few, many = PLANS.of("syrk")
    assert NUM_SMS == 4
    assert few is NO_PLAN
    assert many is not NO_PLAN
