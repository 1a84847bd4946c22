"""Products that are drawn, by kernels that share tiles in clusters, on the modelled GPU.

Extents about the tile's and far below, rows that begin and end anywhere, NaN around the operands,
and other numbers around the result, of which all memory is compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.device import device as device_of
from cupygemm._backends.hopper import plan
from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import HopperSelection
from cupygemm._backends.hopper.choice.tile_shapes import TRANSPOSED_CONFIGS
from cupygemm._plan.table import PLANS
from tests.cuda.variants import BF16, F16, I8

SQUARE = next(config for config in configs_for("f16") if config.name.startswith("128x128x64"))
WIDE = replace(SQUARE, tile_n=192, num_stages=4)
TURNED = next(config for config in TRANSPOSED_CONFIGS if config.name.startswith("128x96x64"))
TURNED_80 = replace(TURNED, tile_n=80, cluster_m=2, cluster_n=2)
KERNELS = {  # configuration, operands, memory orders, what the result's rows are multiples of
    "shares of both": (replace(SQUARE, cluster_m=2, cluster_n=4, stream_k=2), BF16, "CF", 8),
    "shares of k": (replace(SQUARE, tile_n=64, cluster_m=4, cluster_n=2), F16, "FC", 1),
    "three blocks": (replace(WIDE, cluster_m=3, split_k=2), F16, "CF", 1),
    "turned": (TURNED_80, BF16, "CC", 8),
    "turned, in rows that begin anywhere": (TURNED_80, BF16, "CC", 1),
    "bytes": (replace(SQUARE, tile_k=128, cluster_m=1, cluster_n=8), I8, "CC", 1),
}


class Drawn:
    """Draws extents, and arrays in wider ones."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def extent(self, tile: int) -> int:
        near = tile * self.random.integers(1, 3) + self.random.integers(-9, 10)
        return int(self.random.choice([self.random.integers(1, 17), near]))

    def around(
        self, cp: Any, extents: tuple[int, int], order: str, value: Any, unit: int = 1
    ) -> tuple[Any, Any]:
        """Return a block of a value, and a view of it, on the modelled GPU."""
        (above, left), (below, right) = self.random.choice([0, 1, 3, 8, 16], (2, 2)) * unit
        rows, columns = extents if order == "C" else extents[::-1]
        block = cp.asarray(np.full((above + rows + below, left + columns + right), value))
        view = block[above : above + rows, left : left + columns]
        return block, view if order == "C" else view.T


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KERNELS)
def test_a_drawn_product_is_exact_and_alone_is_written(cp, model, monkeypatch, name):
    config, dtype, orders, unit = KERNELS[name]
    drawn = Drawn(list(KERNELS).index(name))

    def select(asked: Any, arch: Any) -> HopperSelection:
        problem = as_computed(asked, transposed_c=config.transposed_c)
        ways = (config, replace(config, stream_k=0))  # tiles may fill the clusters evenly
        return HopperSelection(next(c for c in ways if check(c, problem, arch) is None), "")

    device_of(0)  # it asks its backends what they multiply, before the selector is replaced
    monkeypatch.setattr(plan, "select", select)
    nothing = np.array(99 if dtype == I8 else np.nan).astype(dtype)
    for seed in range(6):
        model.seed = seed
        PLANS.clear()
        rows, columns = config.tile_m, config.tile_n
        m, n = map(drawn.extent, (columns, rows) if config.transposed_c else (rows, columns))
        n = -(-n // unit) * unit
        k = int(drawn.random.integers(3, 8)) * config.tile_k - int(drawn.random.integers(0, 9))
        x1, x2 = testing.integer_operands((m, k), (k, n), dtype, seed=seed)
        views = []
        for x, order in zip((x1, x2), orders, strict=True):
            _, view = drawn.around(cp, x.shape, order, nothing)
            view[...] = x
            views.append(view)
        memory, out = drawn.around(cp, (m, n), "C", dtype.type(7), unit)
        cupygemm.matmul(*views, out)
        testing.assert_gemm_exact(out, x1, x2)
        out[...] = 7
        assert (memory == 7).all(), (m, n, k)
    PLANS.clear()
