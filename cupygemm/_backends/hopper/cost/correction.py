"""A small network that corrects the cost model; it is trained on measured times of kernels.

The cost model knows the bottleneck of a kernel, but not how its parts interact, for example how
well a ring of few stages hides the latency of a cluster. The network's
inputs are properties of a kernel and of its product (`FEATURES`), and its output is the logarithm
of a factor for the modelled cycles. ``python -m benchmarks.fit hopper`` trains it on measured times
and writes the weights to ``correction.json``; a quarter of the products is held out for validation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cupygemm._backends.hopper.config import SLAB_BYTES, HopperArch
from cupygemm._backends.hopper.cost.model import Cost, Pieces
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Number, Rows, Shapes, entries
from cupygemm._backends.network import Features, Network, read_network, written_network

PATH = Path(__file__).with_name("correction.json")
"""The file of the weights."""
OF_CONFIGS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "one consumer",
    "three consumers",
    "cluster_m",
    "cluster_n",
    "stages",
    "one buffer",
    "transposed",
    "ping-pong",
    "stream_k",
    "k is split",
    "cluster_k",
    "8-bit floats",
)
"""The network's inputs that do not depend on extents. Extents, counts and ratios are logarithms."""
_OF_PRODUCTS = (
    "m",
    "n",
    "k",
    "a along k",
    "b along k",
    "a crosses",
    "b crosses",
    "a camps",
    "b camps",
    "size",
    "out size",
    "batch",
    "memory",
)
_OF_COST = ("cold", "memory over all", "cycles")
FEATURES = (
    *OF_CONFIGS,
    "split_k",
    "active",
    "uneven",
    "rounds",
    "steps",
    "mma over L2",
    "useful m",
    "useful n",
    "by SM",
    "cut evenly",
    *_OF_PRODUCTS,
    *_OF_COST,
)
"""All inputs of the network; the last ones differ between warm and cold operands."""


@functools.cache
def network() -> Network:
    """Return the network with the weights in the package."""
    return from_json(PATH.read_text())


def from_json(text: str) -> Network:
    """Return the network that `to_json` has written."""
    return read_network(text, FEATURES, "python -m benchmarks.fit network --write")


def to_json(weights: Network, origin: Mapping[str, Any]) -> str:
    """Return a network as text; `origin` says on what it was trained."""
    return written_network(weights, FEATURES, origin)


def config_features(configs: ConfigColumns, shapes: Shapes) -> Features:
    """Return a row of `OF_CONFIGS` for each kernel; only the element size of `shapes` matters."""
    c = configs
    values = (
        np.log2(c.tile_m / 64),
        c.tile_n / 128,
        np.log2(c.tile_k * shapes.size / SLAB_BYTES),
        c.num_consumers == 1,
        c.num_consumers == 3,
        np.log2(c.cluster_m),
        np.log2(c.cluster_n),
        np.log2(c.num_stages) - 2.5,
        c.epilogue_buffers == 1,
        c.transposed_c,
        c.ping_pong,
        c.stream_k > 0,
        c.split_k > 1,
        np.log2(c.cluster_k),
        c.promote & (shapes.size == 1),
    )
    return np.stack(values, axis=1).astype(np.float32)


def product_features(shapes: Shapes, arch: HopperArch) -> tuple[Number, ...]:
    """Return the inputs that depend only on the product and the GPU, or columns of them."""
    s = shapes
    log2 = np.log2 if isinstance(s.m, np.ndarray) else math.log2  # which is faster for a number
    return (
        log2(s.m) / 3 - 3,
        log2(s.n) / 3 - 4,
        log2(s.k) / 2 - 5,
        s.a_along_k,
        s.b_along_k,
        s.a_crosses,
        s.b_crosses,
        s.a_camps,
        s.b_camps,
        log2(s.size) - 1,
        log2(s.out_size) - 1,
        s.has_batch,
        math.log2(arch.hbm_bytes_per_clock / 2048),
    )


def features(
    configs: ConfigColumns,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    of_cost: Features,
    *,
    by_sm: Number = False,
    of_configs: Features | None = None,
    of_products: Features | None = None,
    rows: Rows = slice(None),
) -> Features:
    """Return a row of `FEATURES` for kernels; values are at most about one in magnitude.

    Parameters
    ----------
    configs : ConfigColumns
    shapes : Shapes
    arch : HopperArch
    of : Pieces
    of_cost : numpy.ndarray
        Rows of `cost_features`.
    by_sm : numpy.ndarray or bool
        Which of the kernels assign each SM the tile of its number.
    of_configs, of_products : numpy.ndarray, optional
        Rows of `config_features` and of `product_features`, if known.
    rows : numpy.ndarray or slice
        The selected kernels of `configs`, `shapes` and `of`. The other arguments have only these.
    """
    c, tiles, tile = configs.at(rows), of.tiles, of.tile
    m, n, active, whole, clusters, units, steps, evenly, mma, l2 = entries(
        (
            *(shapes.m, shapes.n, of.active, of.whole, tiles.clusters, tiles.units, of.steps),
            *(of.evenly, tile.mma, tile.l2),
        ),
        rows,
    )
    of_m, of_n = c.tile_m * c.cluster_m, c.tile_n * c.cluster_n
    values: tuple[Number, ...] = (
        np.log2(c.split_k),
        active / arch.num_sms,
        whole * clusters / units - 1,
        np.log2(whole) / 2,
        np.log2(steps) / 2 - 3,
        np.minimum(2, np.maximum(-2, np.log2(mma / l2))),
        m / (-(-m // of_m) * of_m),
        n / (-(-n // of_n) * of_n),
        by_sm,
        evenly,
    )
    table = np.empty((len(c.rows), len(FEATURES)), np.float32)
    first, last = len(OF_CONFIGS), len(FEATURES) - len(_OF_COST)
    table[:, :first] = (
        config_features(c, entries(shapes, rows)) if of_configs is None else of_configs
    )
    if of_products is None:
        values += product_features(entries(shapes, rows), arch)
    else:
        table[:, last - len(_OF_PRODUCTS) : last] = of_products
    for column, value in enumerate(values, first):
        table[:, column] = value
    table[:, last:] = of_cost
    return table


def cost_features(cost: Cost, *, cold: Number, rows: Rows = slice(None)) -> Features:
    """Return the features that depend on the modelled cost, the last ones of `FEATURES`.

    They are along a new last axis, after the axes of the costs; the last axis of the costs is the
    kernels'.
    """
    cycles, memory = cost.cycles[..., rows], cost.memory[..., rows]
    table = np.empty((*cycles.shape, len(_OF_COST)), np.float32)
    table[..., 0] = cold
    table[..., 1] = np.minimum(2, np.maximum(-4, np.log2(memory / cycles) + 1)) / 2
    table[..., 2] = np.log2(cycles) / 3 - 5
    return table
