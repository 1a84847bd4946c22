"""Train the network that corrects Hopper's cost model, `hopper.cost.correction`.

The loss of a product has three parts: the errors of the corrected logarithms of its kernels' times
relative to each other; their common error, with a small weight, because it changes no choice; and
the regret of a soft choice that prefers kernels with shorter predicted times. Kernels that are much
slower than the fastest have small weights. L-BFGS minimises the sum.

Several networks are trained from different random weights, and their mean is used, so that their
random errors cancel.

Products whose kernels were all measured as the selector would run them count three times.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.fit import fitting
from benchmarks.fit.design import KINDS
from benchmarks.fit.fitting import COLD, Row
from benchmarks.fit.hopper import Columns, Subject, columns_of_subjects
from benchmarks.fit.samples import Product
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.cost.correction import FEATURES, features
from cupygemm._backends.hopper.cost.model import costs, pieces
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from cupygemm._backends.network import Network

LEAST_GAIN = 1e-3
"""By how much less the regret of new weights must be, for them to be written."""
HIDDEN, NETWORKS = 32, 4
STEPS = 600
_PRIOR = 3e-4  # penalty on each squared weight
_OF_DEVIATIONS, _OF_MEANS, _OF_REGRET = 8.0, 0.4, 6.0
_SHARPNESS = 0.03  # difference of predicted logarithms that the soft choice distinguishes
_LEAST_WEIGHT, _SLOW = 0.05, 4.0  # of a kernel, by its logarithm above the fastest's
_AS_THEY_RUN = (KINDS, "shared")  # groups whose kernels run by SM where the selector's would
_COUNT_OF_THESE = 3.0  # the weight of their products; others have weight 1
Array = NDArray[Any]


@dataclass(frozen=True)
class Table:
    """The network's inputs: one row for each kernel.

    Attributes
    ----------
    features : numpy.ndarray
    modelled, measured : numpy.ndarray
        Logarithms of cycles.
    product : numpy.ndarray
        The number of the kernel's product. Warm and cold times, and those of different GPUs, count
        as different products.
    counts : numpy.ndarray
        The weight of each product.
    """

    features: Array
    modelled: Array
    measured: Array
    product: Array
    counts: Array


def table_of(rows: Sequence[Row], constants: KernelConstants) -> Table:
    """Return the table of kernels, without those of fp64, which are not corrected."""
    rows = [row for row in rows if not row.subject.config.mma_sync]
    subjects: list[Subject] = [row.subject for row in rows]
    found, modelled = np.empty((len(rows), len(FEATURES))), np.empty(len(rows))
    for part in columns_of_subjects(subjects):
        found[part.places], modelled[part.places] = _of_part(part, constants)
    numbers: dict[tuple[Product, HopperArch], int] = {}
    keys = [(row.product, row.subject.arch) for row in rows]
    product = [numbers.setdefault(key, len(numbers)) for key in keys]
    counts = [
        _COUNT_OF_THESE if each.group.removesuffix(COLD) in _AS_THEY_RUN else 1.0
        for each, _ in numbers
    ]
    measured = np.log([row.measured for row in rows])
    return Table(found, modelled, measured, np.array(product), np.array(counts))


def _of_part(part: Columns, constants: KernelConstants) -> tuple[Array, Array]:
    configs, shapes, arch = part.configs, part.shapes, part.arch
    of = pieces(configs, shapes, arch, constants)
    cost = costs(shapes, of, constants, cold=part.cold)
    found = features(configs, shapes, arch, of, cost, cold=part.cold, by_sm=part.by_sm)
    return found, np.log(cost.cycles)


def train(
    rows: Sequence[Row],
    constants: KernelConstants,
    *,
    steps: int = STEPS,
    seed: int = 0,
    first: Network | None = None,
    only: str | None = None,
) -> Network:
    """Train a network on the rows that are not held out.

    Training starts from the weights of `first`, or from random ones. With the name of a feature in
    `only`, no weights but its own change.
    """
    table = table_of(fitting.split(rows)[0], constants)
    free = None if only is None else _weights_of(only)
    return train_table(table, steps=steps, seed=seed, first=first, free=free)


def train_table(
    table: Table,
    *,
    steps: int,
    seed: int = 0,
    hidden: int = HIDDEN,
    first: Network | None = None,
    free: NDArray[np.bool_] | None = None,
) -> Network:
    """Train a network on a table, with as many `hidden` units unless it starts from `first`.

    Without `free`, all weights change, and otherwise those of the packed ones that it tells.
    """
    if first is None:
        mean, deviation = table.features.mean(0), table.features.std(0) + 1e-3
    else:
        mean, deviation = first.mean, first.deviation
    inputs = (table.features - mean) / deviation
    count, loss = inputs.shape[1], _Loss(table, inputs)
    start = _random(seed, count, hidden) if first is None else _packed(first)
    changing = np.ones(len(start), bool) if free is None else free

    def loss_of_free(weights: Array) -> tuple[float, Array]:
        value, slope = loss(_changed(start, changing, weights))
        return value, slope[changing]

    options = {"maxiter": steps, "maxcor": 20}
    found = minimize(loss_of_free, start[changing], jac=True, method="L-BFGS-B", options=options)
    *layers, bias = _unpacked(_changed(start, changing, found.x), count)
    return Network(mean, deviation, *layers, float(bias))


def _weights_of(feature: str) -> NDArray[np.bool_]:
    """Return which of the packed weights are those of a feature to the hidden units."""
    row = FEATURES.index(feature)
    found = np.zeros((len(FEATURES) + 2) * HIDDEN + 1, bool)
    found[HIDDEN * row : HIDDEN * (row + 1)] = True
    return found


def _changed(weights: Array, which: NDArray[np.bool_], values: Array) -> Array:
    """Return weights of which some have other values."""
    found = weights.copy()
    found[which] = values
    return found


def rows_with(rows: Sequence[Row], constants: KernelConstants, feature: str) -> list[Row]:
    """Return the rows of kernels for which a feature is not 0."""
    rows = [row for row in rows if not row.subject.config.mma_sync]
    has = table_of(rows, constants).features[:, FEATURES.index(feature)] != 0
    return list(itertools.compress(rows, has))


def joined(networks: Sequence[Network]) -> Network:
    """Join networks to one with the units of all, whose result is the mean of theirs."""
    first = networks[0]
    return Network(
        first.mean,
        first.deviation,
        hidden=np.concatenate([each.hidden for each in networks], axis=1),
        hidden_bias=np.concatenate([each.hidden_bias for each in networks]),
        out=np.concatenate([each.out for each in networks]) / len(networks),
        bias=float(np.mean([each.bias for each in networks])),
    )


def parts(network: Network) -> list[Network]:
    """Return the networks that `joined` has combined."""
    count = len(network.out) // HIDDEN
    columns = [slice(HIDDEN * part, HIDDEN * (part + 1)) for part in range(count)]
    return [
        replace(
            network,
            hidden=network.hidden[:, each],
            hidden_bias=network.hidden_bias[each],
            out=network.out[each] * count,
        )
        for each in columns
    ]


def _random(seed: int, count: int, hidden: int) -> Array:
    """Return random weights for `count` features and `hidden` units."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            rng.standard_normal(count * hidden) * 0.5 / np.sqrt(count),
            np.zeros(hidden),
            rng.standard_normal(hidden) * 0.02,
            np.zeros(1),
        ]
    )


def _packed(network: Network) -> Array:
    """Return the weights of a network as one vector, for `_unpacked`."""
    weights = (network.hidden.ravel(), network.hidden_bias, network.out, [network.bias])
    return np.concatenate(weights).astype(np.float64)


def _unpacked(weights: Array, count: int) -> tuple[Array, Array, Array, Array]:
    units = (len(weights) - 1) // (count + 2)
    hidden, hidden_bias, out, bias = np.split(weights, np.cumsum([count * units, units, units]))
    return hidden.reshape(count, units), hidden_bias, out, bias[0]


class _Loss:
    """The loss as a function of the weights, and its gradient."""

    def __init__(self, table: Table, inputs: Array) -> None:
        self.inputs, self.modelled, self.measured = inputs, table.modelled, table.measured
        self.product, self.counts = table.product, table.counts
        least = np.full(len(self.counts), np.inf)
        np.minimum.at(least, self.product, self.measured)
        self.gap = self.measured - least[self.product]
        self.weight = np.maximum(_LEAST_WEIGHT, np.exp(-_SLOW * self.gap))
        self.of_product = np.bincount(self.product, self.weight)

    def __call__(self, weights: Array) -> tuple[float, Array]:
        hidden, hidden_bias, out, bias = _unpacked(weights, self.inputs.shape[1])
        activity = np.tanh(self.inputs @ hidden + hidden_bias)
        predicted = self.modelled + activity @ out + bias
        product, weight, counts = self.product, self.weight, self.counts
        of_kernel = counts[product]
        errors = predicted - self.measured
        means = np.bincount(product, weight * errors) / self.of_product
        deviations = errors - means[product]
        loss = _OF_DEVIATIONS * (of_kernel * weight * deviations**2).sum()
        loss += _OF_MEANS * (counts * means**2).sum()
        slope = 2 * _OF_DEVIATIONS * weight * deviations
        slope += 2 * _OF_MEANS * means[product] * weight / self.of_product[product]
        least = np.full(len(counts), np.inf)
        np.minimum.at(least, product, predicted)
        chances = np.exp((least[product] - predicted) / _SHARPNESS)
        chances /= np.bincount(product, chances)[product]
        regret = np.bincount(product, chances * self.gap)
        loss += _OF_REGRET * (counts * regret).sum()
        slope -= _OF_REGRET * chances / _SHARPNESS * (self.gap - regret[product])
        slope *= of_kernel / counts.sum()
        before = (slope[:, None] * out) * (1 - activity**2)
        gradient = np.concatenate(
            [
                (self.inputs.T @ before).ravel(),
                before.sum(0),
                activity.T @ slope,
                [slope.sum()],
            ]
        )
        prior = _PRIOR * (weights**2).sum()
        return float(loss / counts.sum() + prior), gradient + 2 * _PRIOR * weights


def regrets(
    rows: Sequence[Row], constants: KernelConstants, network: Network | None
) -> dict[str, list[float]]:
    """Return the regret of the choice for each product on each GPU, by type and group.

    The choice is the selector's: by the mean of the warm and the cold logarithm, where both were
    measured. Without a network it is the model's own. A kernel that was measured several times
    counts with the mean of its logarithms.
    """
    rows = [row for row in rows if not row.subject.config.mma_sync]
    table = table_of(rows, constants)
    predicted = table.modelled + (0 if network is None else network(table.features))
    logarithms = np.stack([predicted, table.measured], axis=1)
    by_state: dict[Any, dict[Any, dict[bool, list[Array]]]] = {}
    for row, pair in zip(rows, logarithms, strict=True):
        subject = row.subject
        product = row.product.with_group(row.product.group.removesuffix(COLD)), subject.arch
        kernel = by_state.setdefault(product, {}).setdefault((subject.config, subject.by_sm), {})
        kernel.setdefault(subject.cold, []).append(pair)
    found: dict[str, list[float]] = {}
    for (product, _), kernels in by_state.items():
        states = set().union(*kernels.values())
        means = [
            np.mean([np.mean(pairs, axis=0) for pairs in kernel.values()], axis=0)
            for kernel in kernels.values()
            if kernel.keys() == states
        ]
        chosen = min(means, key=lambda each: each[0])[1]
        regret = np.exp(chosen - min(each[1] for each in means))
        found.setdefault(f"{product.operands}, {product.group}", []).append(float(regret))
    return found


def mean_regret(found: dict[str, list[float]]) -> float:
    """Return the geometric mean over all products."""
    return float(np.exp(np.mean(np.log([each for group in found.values() for each in group]))))


@dataclass(frozen=True)
class Outcome:
    """The result of training.

    Attributes
    ----------
    network : Network
    without, present, new : mapping of str to list of float
        The regrets of held-out products, by type and group: of the model alone, with the weights
        in the package, and with the new ones.
    """

    network: Network
    without: dict[str, list[float]]
    present: dict[str, list[float]]
    new: dict[str, list[float]]

    @property
    def is_better(self) -> bool:
        return mean_regret(self.new) < mean_regret(self.present) - LEAST_GAIN

    def __str__(self) -> str:
        ways = (self.without, self.present, self.new)
        lines = ["regret of products held out: model alone, with present weights, with new ones"]
        for group, values in sorted(self.without.items()):
            means = [f"{mean_regret({group: found[group]}):.4f}" for found in ways]
            lines.append(f"  {group:28s} {'  '.join(means)}  ({len(values)} products)")
        lines.append(f"  {'all':28s} {'  '.join(f'{mean_regret(found):.4f}' for found in ways)}")
        verdict = "better than" if self.is_better else "not better than"
        return "\n".join([*lines, f"the new weights are {verdict} the present ones"])


def retrain(
    rows: Sequence[Row],
    constants: KernelConstants,
    present: Network | None,
    *,
    resume: bool = False,
    only: str | None = None,
    **options: Any,
) -> Outcome:
    """Train networks on the rows that are not held out, and evaluate them on the others.

    Without present weights, the new ones are compared with the model alone. With `resume`, training
    starts from the present weights instead of random ones. With the name of a feature in `only`,
    the weights of this feature alone are trained, on the rows for which it is not 0.
    """
    if only is not None:
        rows = rows_with(rows, constants, only)
    starts = parts(present) if resume and present is not None else [None] * NETWORKS
    trained = joined(
        [
            train(rows, constants, seed=seed, first=first, only=only, **options)
            for seed, first in enumerate(starts)
        ]
    )
    held_out = fitting.split(rows)[1]
    without, old, new = (
        regrets(held_out, constants, network) for network in (None, present, trained)
    )
    return Outcome(trained, without, old, new)
