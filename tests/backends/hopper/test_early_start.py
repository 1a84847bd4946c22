"""Which kernels start when the previous work has ended, so that L2 keeps operands. No GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from cupygemm._backends.hopper import product
from cupygemm._backends.hopper.choice.early_start import starts_early
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, NARROW_CONFIGS
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.cuda import enqueue
from cupygemm._backends.hopper.plan import choose
from tests.backends.hopper.test_hopper_config import ARCH
from tests.backends.hopper.test_hopper_plan import layout_of

BF16 = np.dtype(ml_dtypes.bfloat16)


def config_of(tile_n):
    """Return the built configuration of a tile of 64 rows without a cluster, in steps of 64."""
    wanted = (64, tile_n, 64, 1)
    return next(
        config
        for config in (*CONFIGS, *NARROW_CONFIGS)
        if (config.tile_m, config.tile_n, config.tile_k, config.cluster_size) == wanted
    )


def early(m, n, k, config, *, b_major="k", arch=ARCH):
    """Return the answer for x @ w, with w stored (n, k) by default."""
    problem = replace(layout_of((m, k), (k, n), BF16).problem, b_major=b_major)
    return starts_early(config, problem, num_sms=arch.num_sms, l2_bytes=arch.l2_bytes)


def test_blocks_that_leave_many_sms_idle_start_in_order_where_l2_nearly_holds_the_operands():
    narrow, wide = config_of(48), config_of(64)
    assert not early(1, 4608, 4096, narrow)  # 96 blocks read 38 MB
    assert not early(16, 6144, 4096, wide)  # 96 blocks read 50 MB
    assert early(1, 6144, 4096, narrow)  # 128 blocks
    assert early(1, 4608, 3072, narrow)  # 28 MB: both halves of L2 hold them
    assert early(1, 4608, 8192, narrow)  # 75 MB: more than L2
    assert early(100, 4608, 4096, narrow)  # two rows of tiles


def test_a_smaller_l2_holds_less():
    narrow, smaller = config_of(48), HopperArch(l2_bytes=50 << 20)
    assert early(1, 4608, 3456, narrow)  # 32 MB
    assert not early(1, 4608, 3456, narrow, arch=smaller)
    assert early(1, 6144, 4352, config_of(64), arch=smaller)  # 53 MB


def test_divided_k_and_tiles_that_share_lines_start_early():
    narrow, wide = config_of(48), config_of(64)
    assert early(1, 4608, 4096, replace(narrow, split_k=2))
    assert early(1, 4608, 4096, replace(narrow, stream_k=132))
    assert early(1, 4608, 4096, narrow, b_major="n")
    assert not early(1, 4608, 4096, wide, b_major="n")


@pytest.mark.parametrize(
    ("columns", "marked", "starts"), [(4608, True, [False, True]), (1152, False, [True])]
)
def test_the_launch_starts_as_was_decided(monkeypatch, columns, marked, starts):
    """With marks, a launch starts early; the other one is for streams without marks."""
    made = []
    choice = choose(layout_of((1, 4096), (4096, columns), BF16), ARCH, config_of(64))
    modules = SimpleNamespace(alloc=None, get_current_stream=None)
    monkeypatch.setitem(sys.modules, "cupy.cuda", modules)
    monkeypatch.setattr(product, "load", lambda cubin: None)
    monkeypatch.setattr(
        product, "GemmLaunch", lambda *_, **__: made.append(enqueue._starts_early.get())
    )
    product.make_product(choice)
    assert choice.by_sm == marked
    assert made == starts
    assert made[0] == choice.starts_early
    assert enqueue._starts_early.get()
