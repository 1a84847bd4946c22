"""Kernels that give each SM the tile of its number, on the modelled GPU.

With an even seed, two blocks of the model run on each SM after each other: half of the tiles are
left for the last block. With an odd one, each SM has a block.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.hopper import product
from cupygemm._backends.hopper.choice.by_sm import runs_by_sm
from cupygemm._backends.hopper.choice.configurations import transposed_widths
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, NARROW_CONFIGS, TRANSPOSED_CONFIGS
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._backends.hopper.launch import GemmLaunch
from cupygemm._backends.hopper.plan import choose
from tests.backends.hopper.test_hopper_plan import layout_of

BF16 = np.dtype(ml_dtypes.bfloat16)
ALONE = [
    config
    for config in (*CONFIGS, *NARROW_CONFIGS, *TRANSPOSED_CONFIGS, *transposed_widths()[::4])
    if config.cluster_size == 1
]
WORDS = 9


@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize("config", ALONE, ids=lambda config: config.name)
def test_each_tile_is_computed_whatever_sms_the_blocks_run_on(cp, model, config):
    rows, columns = config.tile_m + 21, 2 * config.tile_n + 24
    m, n = (columns, rows + 3) if config.transposed_c else (rows, columns)
    k = config.tile_k * 3 + 8
    choice = choose(layout_of((m, k), (k, n), BF16), HopperArch(), config)
    num_sms = config.num_units(choice.problem) + 3
    x1, x2 = testing.integer_operands((m, k), (k, n), BF16)
    a, b, c = cp.asarray(x1), cp.asarray(x2), cp.zeros((m, n), BF16)
    choice = replace(choice, by_sm=True)
    sizes = {"units": num_sms - 3, "num_sms": num_sms, "by_sm": True}
    launch = GemmLaunch(product.load(choice.gemm), choice.geometry(), config, **sizes)
    words = np.zeros(WORDS, np.uint32)
    operands = (b, a) if config.transposed_c else (a, b)
    addresses = [array.data.ptr for array in (*operands, c)]
    for seed, marks in enumerate((words.ctypes.data, words.ctypes.data, 0)):
        model.seed = seed
        c[...] = 7
        launch(*addresses, b"", marks)
        testing.assert_gemm_exact(c, x1, x2)
        assert not words.any()


def test_every_such_kernel_has_an_sm_for_itself():
    problem = layout_of((64, 4096), (4096, 4096), BF16).problem
    for config in ALONE:
        for major in ("k", "n"):
            assert config.shared_bytes(2, major) > 114 << 10, config.name
    assert not runs_by_sm(CONFIGS[2], shapes_of(problem), HopperArch(places_by_sm=False))
