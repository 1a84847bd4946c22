"""Which batches of small matrices have a kernel of their own, by which configuration."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cupygemm._backends.hopper.backend import HopperBackend, config_of
from cupygemm._backends.hopper.compilation.source import small_text
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.small.select import (
    SMALL_CONFIGS,
    other_cycles,
    select_small,
    small_candidates,
)
from cupygemm._backends.hopper.small_config import SMALL_PRODUCTS, SmallConfig, check_small
from cupygemm._records.problem import Epilogue, GemmProblem
from cupygemm._tuning.product import Product

ARCH = HopperArch()


def problem(dtype, m, n, k, *batch, **more):
    fields = {"a_major": "k", "b_major": "n", "out_dtype": dtype} | more
    return GemmProblem(m=m, n=n, k=k, batch=batch, a_dtype=dtype, b_dtype=dtype, **fields)


@pytest.mark.parametrize("dtype", SMALL_CONFIGS)
def test_every_row_computes_its_type(dtype):
    for config in SMALL_CONFIGS[dtype]:
        asked = problem(dtype, config.tile_m, config.tile_n, config.tile_k, 100)
        assert check_small(config, asked) is None
        assert f"static constexpr u32 tile_m = {config.tile_m};" in small_text(asked, config)


@pytest.mark.parametrize("dtype", SMALL_CONFIGS)
@pytest.mark.parametrize("size", [16, 24, 32, 48, 64])
def test_a_tile_holds_a_whole_matrix(dtype, size):
    selection = select_small(problem(dtype, size, size, size, 4096), ARCH)
    assert selection is not None
    assert selection.config.tile_m >= size
    assert selection.config.tile_m < size + 16
    assert "the fastest other kernel" in selection.reason


@pytest.mark.parametrize("dtype", SMALL_CONFIGS)
def test_every_type_of_results_has_a_cost(dtype):
    for has_epilogue in (False, True):
        epilogue = Epilogue(activation="relu") if has_epilogue else None
        for out in SMALL_PRODUCTS[dtype].of(has_epilogue=has_epilogue):
            asked = problem(dtype, 24, 1024, 1, out_dtype=out, epilogue=epilogue)
            assert small_candidates(asked, ARCH), out
            select_small(asked, ARCH)


@pytest.mark.parametrize("dtype", SMALL_CONFIGS)
@pytest.mark.parametrize(
    ("m", "n", "k", "batch"),
    [(4096, 4096, 4096, ()), (1024, 1024, 1024, (8,)), (1, 8192, 8192, ())],
)
def test_larger_products_have_other_kernels(dtype, m, n, k, batch):
    asked = problem(dtype, m, n, k, *batch)
    assert select_small(asked, ARCH) is None
    best = small_candidates(asked, ARCH)[0]
    assert best.cycles >= other_cycles(asked, ARCH)


@pytest.mark.parametrize(
    ("m", "n", "k", "batch", "is_small"),
    [  # microseconds of the small kernel and of the other on an H200 (measured, 2026-11-29)
        (1024, 1024, 64, 64, False),  # 64.5, 44.0: the results take as long as the operands
        (136, 80, 136, 36, False),  # 6.7, 2.7
        (128, 128, 64, 512, False),  # 10.5, 6.9
        (32, 32, 1360, 863, False),  # 78.3, 38.6: no copy is in flight during a product
        (100, 100, 100, 1000, True),  # 34.8, 54.2: the other copies rows of 200 bytes first
        (160, 116, 32, 1309, True),  # 45.4, 87.0
        (64, 64, 64, 4096, True),  # 26.7, 37.5
        (96, 48, 88, 397, False),  # 6.9, 4.7: there are tiles of exactly this size
        (91, 326, 256, 26, False),  # 10.6, 8.9: a slab arrives before the next is loaded
        (2654, 563, 51, 1, False),  # 11.1, 6.5: copies of 2 bytes are slow in large tiles
        (1216, 1314, 110, 1, False),  # 11.7, 7.2
        (640, 330, 101, 1, False),  # 5.3, 4.2: two slabs
    ],
)
def test_what_a_product_stores_and_copies_counts(m, n, k, batch, is_small):
    shape = (batch, m, n, k) if batch > 1 else (m, n, k)
    asked = Product(shape, np.dtype("f2"), None, "NN").request
    found = select_small(HopperBackend(ARCH).problem(asked), ARCH)
    assert (found is not None) == is_small


def test_objections():
    config = SMALL_CONFIGS["f32"][0]
    assert "no kernel for small" in check_small(config, problem("i8", 16, 16, 16, 9))
    bytes_out = problem("bf16", 16, 16, 16, 9, out_dtype="i8")
    assert "output of i8" in check_small(config, bytes_out)
    large = dataclasses.replace(config, num_teams=8)
    assert "shared memory exceed" in check_small(large, problem("f32", 16, 16, 16, 9))
    uneven = dataclasses.replace(config, tile_n=config.tile_n + 8)
    assert "whole blocks of 16 x 16" in check_small(uneven, problem("f32", 16, 16, 16, 9))


def test_a_tuned_configuration_is_made_of_its_fields():
    backend = HopperBackend(ARCH)
    request = Product((4096, 32, 32, 32), np.dtype("f2"), None, "NN").request
    kinds = set()
    for candidate in backend.candidates(request)[:40]:
        fields = dataclasses.asdict(candidate.config)
        assert config_of(**fields) == candidate.config
        kinds.add(type(candidate.config))
    assert kinds == {SmallConfig, HopperConfig}
    with pytest.raises(TypeError):
        config_of(algorithm=35)
