"""A small network that corrects the cost model; it is trained on measured times of kernels.

The cost model knows the bottleneck of a kernel, but not how its parts interact, for example how
well a ring of few stages hides the latency of a cluster. The network has one hidden layer. Its
inputs are properties of a kernel and of its product (`FEATURES`), and its output is the logarithm
of a factor for the modelled cycles. ``python -m benchmarks.fit hopper`` trains it on measured times
and writes the weights to ``correction.json``; a quarter of the products is held out for validation.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.config import SLAB_BYTES, HopperArch
from cupygemm._backends.hopper.cost.model import Cost, Pieces
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Number, Rows, Shapes, entries

Matrix = NDArray[np.float64]
Features = NDArray[np.float32]
_ROWS = 48  # at a time: for larger products BLAS would wake other cores, which takes longer
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


@dataclass(frozen=True, eq=False)
class Network:
    """The weights of the network.

    Attributes
    ----------
    mean, deviation : numpy.ndarray
        Mean and standard deviation of each feature, (features,).
    hidden, hidden_bias : numpy.ndarray
        (features, units) and (units,), in float32, which takes less time.
    out : numpy.ndarray
        (units,), of float32.
    bias : float
    """

    mean: Matrix
    deviation: Matrix
    hidden: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]
    out: NDArray[np.float32]
    bias: float

    def __call__(self, features: Features, *others: Features) -> Matrix:
        """Return the logarithms of factors for rows of features.

        Parameters
        ----------
        features : numpy.ndarray
            Rows of `FEATURES`.
        *others : numpy.ndarray
            Other values of the features that depend on the cost. The result is the mean of the
            logarithms with `features` and with each of these instead.
        """
        hidden, hidden_bias, out = self._of_features
        count = len(_OF_COST)
        changes = [other - features[:, -count:] for other in others]
        states = np.empty((1 + len(others), len(features), len(out)), np.float32)
        _multiply(features, hidden, states[0])
        states[0] += hidden_bias
        for number, change in enumerate(changes, 1):
            _multiply(change, hidden[-count:], states[number])
        states[1:] += states[0]
        with np.errstate(over="ignore"):  # of exp, whose reciprocal is 0 then
            np.exp(states, out=states)
        states += 1
        np.reciprocal(states, out=states)
        sums = np.empty(len(features), np.float32)
        _multiply(states.sum(axis=0), out, sums)
        return sums.astype(np.float64) / len(states) + (self.bias + float(self.out.sum()))

    @functools.cached_property
    def _of_features(self) -> tuple[NDArray[np.float32], ...]:
        """Return the weights and the bias for features that are not normalised.

        tanh(x) is 1 - 2 / (exp(2 x) + 1), and numpy's exp takes less time than its tanh. So the
        weights of the hidden units are doubled, and those of the output multiplied by -2.
        """
        hidden = self.hidden / self.deviation[:, None]
        bias = self.hidden_bias - self.mean @ hidden
        return (
            (2 * hidden).astype(np.float32),
            (2 * bias).astype(np.float32),
            (-2 * self.out).astype(np.float32),
        )


def _multiply(rows: Features, weights: Features, out: Features) -> None:
    """Store the product of rows and weights in `out`, as many rows at a time as one core takes."""
    for first in range(0, len(rows), _ROWS):
        some = slice(first, first + _ROWS)
        np.matmul(rows[some], weights, out=out[some])


@functools.cache
def network() -> Network:
    """Return the network with the weights in the package."""
    return from_json(PATH.read_text())


def from_json(text: str) -> Network:
    """Return the network that `to_json` has written."""
    found = json.loads(text)
    if tuple(found["features"]) != FEATURES:
        raise ValueError(
            f"the weights were fitted to other features, {found['features']}; refit them with "
            "python -m benchmarks.fit network --write"
        )
    weights = ("hidden", "hidden_bias", "out")
    return Network(
        mean=np.array(found["mean"]),
        deviation=np.array(found["deviation"]),
        bias=found["bias"],
        **{name: np.array(found[name], np.float32) for name in weights},
    )


def to_json(weights: Network, origin: Mapping[str, Any]) -> str:
    """Return a network as text, with four significant digits of each weight.

    `origin` describes the origin of the weights: device, date, and size of the samples.
    """

    def rounded(values: NDArray[Any]) -> Any:
        return [float(f"{value:.4g}") for value in values]

    record = {
        "origin": dict(origin),
        "features": FEATURES,
        "mean": rounded(weights.mean),
        "deviation": rounded(weights.deviation),
        "hidden": [rounded(row) for row in weights.hidden],
        "hidden_bias": rounded(weights.hidden_bias),
        "out": rounded(weights.out),
        "bias": float(f"{weights.bias:.4g}"),
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record.items())
    return "{\n" + lines.replace("], [", "],\n [") + "\n}\n"


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
