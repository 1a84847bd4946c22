"""`grouped_matmul` on the modelled GPU: products of different shapes in one launch, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.tile_shapes import TRANSPOSED_CONFIGS
from cupygemm._backends.hopper.other_products import grouped
from cupygemm._backends.runners import SharedLaunch
from cupygemm._plan.table import PLANS

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, I8, I32 = map(np.dtype, (np.float16, np.float32, np.int8, np.int32))
SHAPES = [(70, 72, 40), (3, 8, 136), (200, 64, 8), (5, 200, 72), (64, 136, 64), (129, 24, 264)]


@pytest.fixture
def launches(monkeypatch):
    """Count the products of each launch."""
    seen = []
    launch = SharedLaunch.__call__

    def counting(self, *args):
        seen.append(len(self.numbers))
        return launch(self, *args)

    monkeypatch.setattr(SharedLaunch, "__call__", counting)
    return seen


def check_products(cp, shapes, dtype=F16, result=None, orders="CC", **options):
    """Multiply small integers of shapes (m, k, n), and compare to the bit."""
    pairs = [
        testing.integer_operands((m, k), (k, n), dtype, seed=index)
        for index, (m, k, n) in enumerate(shapes)
    ]
    lists = [
        [cp.asarray(np.array(pair[which], order=order)) for pair in pairs]
        for which, order in enumerate(orders)
    ]
    given = cupygemm.grouped_matmul(*lists, dtype=result, **options)
    for (x1, x2), product in zip(pairs, given, strict=True):
        testing.assert_gemm_exact(product, x1, x2)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize("config", configs_for("f16"), ids=lambda config: config.name)
def test_each_configuration_is_exact(cp, model, launches, monkeypatch, config):
    """Tiles, clusters and lower boxes of each product among those of the others."""
    choose = grouped.choose_config
    monkeypatch.setattr(grouped, "choose_config", lambda *args: (config, choose(*args)[1]))
    number = configs_for("f16").index(config)
    model.seed = number
    PLANS.clear()
    check_products(cp, SHAPES, (F16, BF16)[number % 2], orders=("CC", "CF", "FC", "FF")[number % 4])
    assert launches == [len(SHAPES)]
    PLANS.clear()


@pytest.mark.slow
@pytest.mark.one_in(7)
@pytest.mark.parametrize("config", TRANSPOSED_CONFIGS[::4], ids=lambda config: config.name)
def test_turned_configurations_are_exact(cp, model, launches, monkeypatch, config):
    choose = grouped.choose_config
    monkeypatch.setattr(grouped, "choose_config", lambda *args: (config, choose(*args)[1]))
    for seed, orders in enumerate(("CC", "CF")):
        model.seed = seed
        PLANS.clear()
        check_products(cp, SHAPES, (F16, BF16)[seed], orders=orders)
    assert launches == [len(SHAPES)] * 2
    PLANS.clear()


def test_more_products_than_a_launch_takes(cp, launches):
    shapes = [(8 + index % 3, 16, 8 * (1 + index % 2)) for index in range(70)]
    check_products(cp, shapes, result=F32)
    assert launches == [35, 35]


@pytest.mark.slow
def test_what_lies_otherwise_takes_another_launch(cp, launches):
    """Results that TMA cannot write, and operands that are copied, which share launches, too."""
    shapes = [(20, 33, 40), (9, 40, 33), (30, 72, 24), (40, 31, 31), (0, 8, 8), (8, 0, 8)]
    check_products(cp, shapes)
    assert launches == [2, 2]


@pytest.mark.slow
def test_bytes_and_results_in_columns(cp, launches):
    shapes = [(20, 64, 48), (70, 16, 16), (3, 5, 7)]
    check_products(cp, shapes, I8, I32)
    check_products(cp, shapes, I8)
    outs = [cp.zeros((n, m), F16).T for m, _, n in shapes]
    check_products(cp, shapes, out=outs)
    assert launches == [2, 2, 3]  # of bytes, two results have rows that TMA can write


@pytest.mark.slow
def test_deep_products_are_launched_alone(cp, launches):
    """Alone, parts of their k run on all SMs; in a group, one tile would delay all others."""
    shapes = [(64, 8192, 64), (64, 64, 64), (64, 64, 128)]
    check_products(cp, shapes)
    assert launches == [2]


def test_repeated_calls_pack_nothing(cp, monkeypatch):
    pairs = [testing.integer_operands((m, k), (k, n), F16) for m, k, n in SHAPES]
    a, b = ([cp.asarray(pair[which]) for pair in pairs] for which in (0, 1))
    outs = [cp.zeros((m, n), F16) for m, _, n in SHAPES]
    cupygemm.grouped_matmul(a, b, outs)
    for out in outs:
        out[...] = 7
    monkeypatch.setattr(grouped, "pack", None)
    cupygemm.grouped_matmul(a, b, outs)
    for (x1, x2), out in zip(pairs, outs, strict=True):
        testing.assert_gemm_exact(out, x1, x2)
