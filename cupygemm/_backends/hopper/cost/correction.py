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
from cupygemm._backends.hopper.cost.model import Cost, Pieces
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Number, Rows, Shapes, entries

Matrix = NDArray[np.float64]
Features = NDArray[np.float32]
_ROWS = 48  # at a time: BLAS would wake other cores for larger products, which takes longer
PATH = Path(__file__).with_name("correction.json")
"""Where the weights are."""
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
)
"""The inputs of the network that no extent changes. Extents, counts and ratios are logarithms."""
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
        hidden, hidden_bias = self._of_features
        count = len(_OF_COST)
        changes = [other - features[:, -count:] for other in others]
        result = np.empty(len(features))
        for first in range(0, len(features), _ROWS):
            rows = slice(first, first + _ROWS)
            sums = features[rows] @ hidden
            sums += hidden_bias
            states = [sums, *(sums + change[rows] @ hidden[-count:] for change in changes)]
            activity, *rest = (np.tanh(state, out=state) for state in states)
            for each in rest:
                activity += each
            result[rows] = activity @ self.out
        return result / (1 + len(others)) + self.bias

    @functools.cached_property
    def _of_features(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the weights and the bias of features that mean and deviation are not taken of."""
        hidden = self.hidden / self.deviation[:, None]
        bias = self.hidden_bias - self.mean @ hidden
        return hidden.astype(np.float32), bias.astype(np.float32)


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


def config_features(configs: ConfigColumns, shapes: Shapes) -> Features:
    """Return a row of `OF_CONFIGS` for each kernel; of `shapes`, only the size counts."""
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
    )
    return np.stack(values, axis=1).astype(np.float32)


def features(
    configs: ConfigColumns,
    shapes: Shapes,
    arch: HopperArch,
    of: Pieces,
    cost: Cost,
    *,
    cold: bool,
    by_sm: Number = False,
    of_configs: Features | None = None,
    rows: Rows = slice(None),
) -> Features:
    """Return a row of `FEATURES` for kernels, of at most about one in size.

    Parameters
    ----------
    configs : ConfigColumns
    shapes : Shapes
    arch : HopperArch
    of : Pieces
    cost : Cost
    cold : bool
    by_sm : numpy.ndarray or bool
        Which of the kernels give each SM the tile of its number.
    of_configs : numpy.ndarray, optional
        The rows of `config_features`, where they are known.
    rows : numpy.ndarray or slice
        The kernels that count, of those in `configs`, `shapes`, `of` and `cost`. The other
        arguments have only these.
    """
    c, tiles, tile = configs.at(rows), of.tiles, of.tile
    s, active, whole, clusters, units, steps, evenly, mma, l2 = entries(
        (
            *(shapes, of.active, of.whole, tiles.clusters, tiles.units, of.steps, of.evenly),
            *(tile.mma, tile.l2),
        ),
        rows,
    )
    of_m, of_n = c.tile_m * c.cluster_m, c.tile_n * c.cluster_n
    values = (
        np.log2(c.split_k),
        active / arch.num_sms,
        whole * clusters / units - 1,
        np.log2(whole) / 2,
        np.log2(steps) / 2 - 3,
        np.minimum(2, np.maximum(-2, np.log2(mma / l2))),
        s.m / (-(-s.m // of_m) * of_m),
        s.n / (-(-s.n // of_n) * of_n),
        by_sm,
        evenly,
        np.log2(s.m) / 3 - 3,
        np.log2(s.n) / 3 - 4,
        np.log2(s.k) / 2 - 5,
        s.a_along_k,
        s.b_along_k,
        s.a_crosses,
        s.b_crosses,
        s.a_camps,
        s.b_camps,
        np.log2(s.size) - 1,
        np.log2(s.out_size) - 1,
        s.has_batch,
        np.log2(arch.hbm_bytes_per_clock / 2048),
    )
    table = np.empty((len(c.rows), len(FEATURES)), np.float32)
    first = len(OF_CONFIGS)
    table[:, :first] = config_features(c, s) if of_configs is None else of_configs
    for column, value in enumerate(values, first):
        table[:, column] = value
    table[:, -len(_OF_COST) :] = cost_features(cost, cold=cold, rows=rows)
    return table


def cost_features(cost: Cost, *, cold: bool, rows: Rows = slice(None)) -> Features:
    """Return the features that depend on the modelled cost, the last ones of `FEATURES`."""
    cycles, memory = cost.cycles[rows], cost.memory[rows]
    table = np.empty((len(cycles), len(_OF_COST)), np.float32)
    table[:, 0] = cold
    table[:, 1] = np.minimum(2, np.maximum(-4, np.log2(memory / cycles) + 1)) / 2
    table[:, 2] = np.log2(cycles) / 3 - 5
    return table
