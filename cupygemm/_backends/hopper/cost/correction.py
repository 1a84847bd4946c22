"""A small network that corrects the cost model; it is trained on measured times of kernels.

The cost model knows the bottleneck of a kernel, but not how its parts interact, for example how
well a ring of few stages hides the latency of a cluster. The network's inputs are properties of a
kernel and of its product (`FEATURES`), and its output is the logarithm of a factor for the modelled
cycles. ``python -m benchmarks.fit hopper`` trains it on measured times and writes the weights to
``correction.json``; a quarter of the products is held out for validation.
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
from cupygemm._backends.network import (
    Features,
    Layers,
    Network,
    filled,
    read_network,
    written_network,
)

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
OF_KERNELS = (
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
)
"""The inputs that depend on a kernel and the extents."""
OF_PRODUCTS = (
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
"""The inputs that depend on the product alone."""
_OF_COST = ("cold", "memory over all", "cycles")
FEATURES = (*OF_CONFIGS, *OF_KERNELS, *OF_PRODUCTS, *_OF_COST)
"""All inputs of the network; the last ones differ between warm and cold operands."""
_TRANSPOSED = OF_CONFIGS.index("transposed")
_PRODUCT = slice(len(OF_CONFIGS) + len(OF_KERNELS), len(FEATURES) - len(_OF_COST))


@functools.cache
def network() -> Network:
    """Return the network with the weights in the package."""
    return from_json(PATH.read_text(encoding="utf-8"))


def from_json(text: str) -> Network:
    """Return the network that `to_json` has written."""
    return read_network(text, FEATURES, "python -m benchmarks.fit network --write")


def to_json(weights: Network, origin: Mapping[str, Any]) -> str:
    """Return a network as text; `origin` says on what it was trained."""
    return written_network(weights, FEATURES, origin)


def layers_of_product(weights: Network, products: Features) -> Layers:
    """Return the weights for kernels of one product, whose features are replaced by a 1.

    Parameters
    ----------
    weights : Network
    products : numpy.ndarray
        Rows of `product_features`: of the product, and of its transpose if some of the kernels
        compute that.
    """
    hidden = weights.layers.hidden  # the bias, and the weights of all features
    first, last = 1 + _PRODUCT.start, 1 + _PRODUCT.stop
    of_products = products @ hidden[first:last]
    bias = hidden[:1] + of_products[:1]
    of_kernels = np.concatenate([hidden[1:first], bias, hidden[last:]])
    of_kernels[_TRANSPOSED] += of_products[-1] - of_products[0]
    return weights.layers._replace(hidden=of_kernels)


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
    return filled(np.empty((len(c.tile_m), 0), np.float32), *values)


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


def kernel_features(
    configs: ConfigColumns,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    *,
    by_sm: Number = False,
    rows: Rows = slice(None),
) -> tuple[Number, ...]:
    """Return the inputs that depend on a kernel and the extents, as columns.

    Parameters
    ----------
    configs : ConfigColumns
    shapes : Shapes
    arch : HopperArch
    of : Pieces
    by_sm : numpy.ndarray or bool
        Which of the selected kernels assign each SM the tile of its number.
    rows : numpy.ndarray or slice
        The selected kernels.
    """
    c, tiles, tile = configs, of.tiles, of.tile
    m, n, of_m, of_n, split_k, active, whole, clusters, units, steps, evenly, mma, l2 = entries(
        (
            *(shapes.m, shapes.n, c.span_m, c.span_n, c.split_k, of.active, of.whole),
            *(tiles.clusters, tiles.units, of.steps, of.evenly, tile.mma, tile.l2),
        ),
        rows,
    )
    return (
        np.log2(split_k),
        active / arch.num_sms,
        whole * clusters / units - 1,
        np.log2(whole) / 2,
        np.log2(steps) / 2 - 3,
        np.minimum(2.0, np.maximum(-2.0, np.log2(mma / l2))),
        m / (np.ceil(m / of_m) * of_m),
        n / (np.ceil(n / of_n) * of_n),
        by_sm,
        evenly,
    )


def cost_features(
    cost: Cost, *, cold: Number, rows: Rows = slice(None)
) -> tuple[Number, Number, Number]:
    """Return the inputs that depend on the modelled cost of the selected kernels, as columns."""
    cycles, memory = cost.cycles[rows], cost.memory[rows]
    share = np.maximum(-2.0, np.log2(memory / cycles) / 2 + 0.5)  # at most 0.5
    return cold, share, np.log2(cycles) / 3 - 5


def features(
    configs: ConfigColumns,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    cost: Cost,
    *,
    cold: bool,
    by_sm: Number = False,
) -> Features:
    """Return a row of `FEATURES` for each kernel; values are at most about one in magnitude."""
    return filled(
        config_features(configs, shapes),
        *kernel_features(configs, shapes, arch, of, by_sm=by_sm),
        *product_features(shapes, arch),
        *cost_features(cost, cold=cold),
    )
