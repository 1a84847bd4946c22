"""A small network that corrects the cost model; it is trained on measured times of kernels.

The cost model knows what binds a kernel, but not how the pieces meet: how well a ring of few stages
hides the latency of a cluster, for example. The network has one hidden layer. It takes properties
of a kernel and of its product (`FEATURES`), and gives the logarithm of a factor of the modelled
cycles. ``python -m benchmarks.fit hopper`` trains it on measured times and writes the weights to
``correction.json``; a quarter of the products is held out and says what it is worth.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.config import SLAB_BYTES, HopperArch
from cupygemm._backends.hopper.cost import Cost, Pieces
from cupygemm._backends.hopper.cost_shapes import ConfigColumns, Number, Shapes

Matrix = NDArray[np.float64]
_UNITS = 32  # at a time: BLAS would wake other cores for larger products, which takes longer
PATH = Path(__file__).with_name("correction.json")
"""Where the weights are."""
FEATURES = (
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
    "split_k",
    "k is split",
    "active",
    "uneven",
    "rounds",
    "steps",
    "mma over L2",
    "memory over all",
    "cycles",
    "m",
    "n",
    "k",
    "useful m",
    "useful n",
    "a along k",
    "b along k",
    "a crosses",
    "b crosses",
    "a camps",
    "b camps",
    "size",
    "out size",
    "batch",
    "cold",
    "cluster_k",
    "memory",
    "by SM",
)
"""The inputs of the network. Extents, counts and ratios are logarithms."""
_COLD = FEATURES.index("cold")
_COST_COLUMNS = FEATURES.index("memory over all"), FEATURES.index("cycles")


@dataclass(frozen=True, eq=False)
class Network:
    """The weights of the network.

    Attributes
    ----------
    mean, deviation : numpy.ndarray
        Mean and standard deviation of each feature, (features,).
    hidden, hidden_bias : numpy.ndarray
        (features, units) and (units,), of float32, in which they take less time.
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

    def __call__(self, features: Matrix) -> Matrix:
        """Return the logarithms of factors for rows of features."""
        inputs = ((features - self.mean) / self.deviation).astype(self.hidden.dtype)
        total = np.full(len(inputs), self.bias)
        for first in range(0, len(self.out), _UNITS):
            units = slice(first, first + _UNITS)
            activity = inputs @ self.hidden[:, units]
            activity += self.hidden_bias[units]
            np.tanh(activity, out=activity)
            total += activity @ self.out[units]
        return total


@functools.cache
def network() -> Network:
    """Return the network of the weights in the package."""
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

    `origin` says what the weights come from: device, date, and size of the samples.
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


def features(
    configs: ConfigColumns,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    cost: Cost,
    *,
    cold: bool,
    by_sm: Number = False,
) -> Matrix:
    """Return a row of `FEATURES` for each kernel, of at most about one in size.

    `by_sm` says which kernels give each SM the tile of its number.
    """
    c, s = configs, shapes
    rows, columns = c.tile_m * c.cluster_m, c.tile_n * c.cluster_n
    values = (
        np.log2(c.tile_m / 64),
        c.tile_n / 128,
        np.log2(c.tile_k * s.size / SLAB_BYTES),
        c.num_consumers == 1,
        c.num_consumers == 3,
        np.log2(c.cluster_m),
        np.log2(c.cluster_n),
        np.log2(c.num_stages) - 2.5,
        c.epilogue_buffers == 1,
        c.transposed_c,
        c.ping_pong,
        c.stream_k > 0,
        np.log2(c.split_k),
        c.split_k > 1,
        of.active / arch.num_sms,
        of.whole * of.clusters / of.units - 1,
        np.log2(of.whole) / 2,
        np.log2(of.steps) / 2 - 3,
        np.clip(np.log2(of.tile.mma / of.tile.l2), -2, 2),
        *_of_cost(cost),
        np.log2(s.m) / 3 - 3,
        np.log2(s.n) / 3 - 4,
        np.log2(s.k) / 2 - 5,
        s.m / (-(-s.m // rows) * rows),
        s.n / (-(-s.n // columns) * columns),
        s.a_along_k,
        s.b_along_k,
        s.a_crosses,
        s.b_crosses,
        s.a_camps,
        s.b_camps,
        np.log2(s.size) - 1,
        np.log2(s.out_size) - 1,
        s.has_batch,
        cold,
        np.log2(c.cluster_k),
        np.log2(arch.hbm_bytes_per_clock / 2048),
        by_sm,
    )
    table = np.empty((len(c.rows), len(FEATURES)))
    for column, value in enumerate(values):
        table[:, column] = value
    return table


def cold_features(warm: Matrix, cost: Cost) -> Matrix:
    """Return the features of kernels with cold operands, by those with warm ones and the cost."""
    table = warm.copy()
    table[:, _COLD] = True
    for column, value in zip(_COST_COLUMNS, _of_cost(cost), strict=True):
        table[:, column] = value
    return table


def _of_cost(cost: Cost) -> tuple[Number, Number]:
    """Return the features that depend on the modelled cost."""
    memory = np.clip(np.log2(cost.memory / cost.cycles) + 1, -4, 2) / 2
    return memory, np.log2(cost.cycles) / 3 - 5
