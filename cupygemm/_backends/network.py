"""A small network that corrects a cost model; it is trained on measured times.

It has one hidden layer. Its inputs are properties of a kernel and of its product, and its output is
the logarithm of a factor for the modelled cycles. The weights are kept as JSON, with the names of
the inputs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Features = NDArray[np.float32]
_ROWS = 64  # at a time: for larger products BLAS would wake other cores, which takes longer


class Layers(NamedTuple):
    """The weights of the network for features that are not normalised, in float32.

    Attributes
    ----------
    hidden, out : numpy.ndarray
        One of the features is always 1: its weights are the bias of the hidden units.
    bias : float
    """

    hidden: Features
    out: Features
    bias: float

    def __call__(self, features: Features, *others: Features) -> Matrix:
        """Return the logarithms of factors for rows of features.

        Parameters
        ----------
        features : numpy.ndarray
            A row for each candidate.
        *others : numpy.ndarray
            Other values of the last features. The result is the mean of the logarithms with
            `features` and with each of these instead.
        """
        count = others[0].shape[-1] if others else 0
        states = np.empty((1 + len(others), len(features), len(self.out)), np.float32)
        first, rest = states[0], states[1:]
        _multiply(features, self.hidden, first)
        for state, other in zip(rest, others, strict=True):
            np.matmul(other - features[:, -count:], self.hidden[-count:], out=state)
        rest += first
        np.tanh(states, out=states)
        for state in rest:
            np.add(first, state, out=first)
        sums = np.empty(len(features), np.float32)
        _multiply(first, self.out, sums)
        return sums.astype(np.float64) / len(states) + self.bias


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
        """Return the logarithms of factors for rows of features, see `Layers`."""
        return self.layers(np.insert(features, 0, 1, axis=1), *others)

    @functools.cached_property
    def layers(self) -> Layers:
        """The weights for a 1, followed by the features."""
        hidden = self.hidden / self.deviation[:, None]
        hidden = np.insert(hidden, 0, self.hidden_bias - self.mean @ hidden, axis=0)
        return Layers(hidden.astype(np.float32), self.out, self.bias)


def _multiply(rows: Features, weights: Features, out: Features) -> None:
    """Store the product of rows and weights in `out`, as many rows at a time as one core takes."""
    for first in range(0, len(rows), _ROWS):
        some = slice(first, first + _ROWS)
        np.matmul(rows[some], weights, out=out[some])


def filled(first: Features, *columns: Any) -> Features:
    """Return rows that begin with those of `first` and continue with columns or numbers."""
    count, begun = first.shape
    table = np.empty((count, begun + len(columns)), np.float32)
    table[:, :begun] = first
    for number, column in enumerate(columns, begun):
        table[:, number] = column
    return table


def read_network(text: str, names: Sequence[str], refit: str) -> Network:
    """Return the network that `written_network` has written.

    Raises
    ------
    ValueError
        Its inputs are not those of `names`; the message tells to run the command `refit`.
    """
    found = json.loads(text)
    if found["features"] != list(names):
        raise ValueError(
            f"the weights were fitted to other features, {found['features']}; refit them with "
            f"{refit}"
        )
    weights = ("hidden", "hidden_bias", "out")
    return Network(
        mean=np.array(found["mean"]),
        deviation=np.array(found["deviation"]),
        bias=found["bias"],
        **{name: np.array(found[name], np.float32) for name in weights},
    )


def written_network(weights: Network, names: Sequence[str], origin: Mapping[str, Any]) -> str:
    """Return a network as text, with four significant digits of each weight.

    `origin` describes the origin of the weights: device, date, and size of the samples.
    """

    def rounded(values: NDArray[Any]) -> Any:
        return [float(f"{value:.4g}") for value in values]

    record = {
        "origin": dict(origin),
        "features": list(names),
        "mean": rounded(weights.mean),
        "deviation": rounded(weights.deviation),
        "hidden": [rounded(row) for row in weights.hidden],
        "hidden_bias": rounded(weights.hidden_bias),
        "out": rounded(weights.out),
        "bias": float(f"{weights.bias:.4g}"),
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record.items())
    return "{\n" + lines.replace("], [", "],\n [") + "\n}\n"
