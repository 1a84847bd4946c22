"""Fit the constants of a cost model to measured times, and compute its errors.

Constants are fields of a dataclass: numbers, or tables of numbers. Each is fitted as a factor of
its present value, so it keeps its sign, and a 0 stays 0. The residuals are logarithms of modelled
over measured times. Those of a product are split into their mean and the deviations from it: the
mean is weighted less, because it does not change which kernel is chosen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import least_squares

from benchmarks.fit.samples import Product

COLD = ", cold"
"""What the group of a product ends with where its operands were cold."""
HELD_OUT = 4
"""One product of so many is held out of the fit, and the errors are those of these products."""
NEVER_FITTED = "held out"
"""The group of products that are all held out: layers of models that nothing is fitted to."""
RANGE = 1.2
"""How far a refit may move the logarithm of a constant, unless a narrower range is given."""
_WEIGHT_OF_MEAN = 0.4
_SLOW_WEIGHT = 0.3  # weight of kernels much slower than the fastest of their product
_NOISE = 0.05  # larger residuals count linearly, not by their square
_PRIOR = 1e-4  # for each row: constants that the samples do not determine keep their values
_DIGITS = 3
_STEP = 1e-3

Constants = TypeVar("Constants")


@dataclass(frozen=True)
class Row:
    """A kernel of a product, as input of a model.

    Attributes
    ----------
    product : Product
    subject : Any
        The input of the model's prediction, for example a configuration and a problem.
    measured : float
        In the unit of the model.
    """

    product: Product
    subject: Any
    measured: float


Predict = Callable[[Any, Sequence[Any]], Sequence[float]]
"""From constants and the subjects of rows to their times."""


@dataclass(frozen=True)
class Errors:
    """The errors of a model.

    Attributes
    ----------
    median, ninetieth : float
        Quantiles of the absolute logarithm of modelled divided by measured times.
    regret, worst_regret : float
        The measured time of the kernel that the model prefers divided by that of the fastest one:
        the geometric mean over products, and the largest ratio.
    products, kernels : int
    """

    median: float
    ninetieth: float
    regret: float
    worst_regret: float
    products: int
    kernels: int

    def __str__(self) -> str:
        return (
            f"|log ratio| median {self.median:.3f}, 90th percentile {self.ninetieth:.3f}; "
            f"regret {self.regret:.4f}, worst {self.worst_regret:.2f} "
            f"({self.products} products, {self.kernels} kernels)"
        )


def is_held_out(product: Product) -> bool:
    """Whether a product is held out for the errors; always the same ones, warm and cold."""
    warm = product.with_group(product.group.removesuffix(COLD))
    return warm.group == NEVER_FITTED or zlib.crc32(str(warm).encode()) % HELD_OUT == 0


def split(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows to fit, and those that are held out."""
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        parts[is_held_out(row.product)].append(row)
    return parts


def errors(constants: Any, rows: Sequence[Row], predict: Predict) -> Errors:
    """Return the errors of a model with these constants."""
    if not rows:
        raise ValueError("no products are held out: the sample has too few of them")
    predicted = np.asarray(predict(constants, [row.subject for row in rows]))
    measured = np.array([row.measured for row in rows])
    ratios = np.abs(np.log(predicted / measured))
    regrets = [
        measured[index[predicted[index].argmin()]] / measured[index].min()
        for index in _by_product(rows)
    ]
    return Errors(
        median=float(np.median(ratios)),
        ninetieth=float(np.quantile(ratios, 0.9)),
        regret=float(np.exp(np.mean(np.log(regrets)))),
        worst_regret=float(max(regrets)),
        products=len(regrets),
        kernels=len(rows),
    )


def is_better(new: Errors, old: Errors) -> bool:
    """Whether a fit is an improvement: better choices, or equally good ones and smaller errors."""
    if abs(new.regret - old.regret) > 1e-3:
        return new.regret < old.regret
    return new.median < old.median


def flatten(constants: Any, fixed: Iterable[str] = ()) -> dict[str, float]:
    """Return the constants that are fitted, by name; those of a table are ``name[key]``."""
    found: dict[str, float] = {}
    for field in fields(constants):
        value = getattr(constants, field.name)
        if field.name in fixed:
            continue
        if isinstance(value, Mapping):
            found |= {f"{field.name}[{key}]": each for key, each in value.items()}
        else:
            found[field.name] = value
    return {name: value for name, value in found.items() if value != 0 and name not in fixed}


def replaced(constants: Constants, values: Mapping[str, float]) -> Constants:
    """Return constants with new values, named as by `flatten`."""
    changed: dict[str, Any] = {}
    for field in fields(constants):  # type: ignore[arg-type]
        value = getattr(constants, field.name)
        if isinstance(value, Mapping):
            changed[field.name] = {
                key: values.get(f"{field.name}[{key}]", each) for key, each in value.items()
            }
        else:
            changed[field.name] = values.get(field.name, value)
    return replace(constants, **changed)  # type: ignore[type-var]


def rounded(constants: Constants) -> Constants:
    """Round constants to three significant digits, more than the samples determine."""
    values = flatten(constants)
    return replaced(constants, {k: float(f"{v:.{_DIGITS}g}") for k, v in values.items()})


def fit(
    constants: Constants,
    rows: Sequence[Row],
    predict: Predict,
    *,
    fixed: Iterable[str] = (),
    ranges: Mapping[str, float] | None = None,
    max_steps: int = 12,
) -> Constants:
    """Return the constants that fit the rows best, starting from the present ones.

    Parameters
    ----------
    constants : dataclass
    rows : sequence of Row
    predict : callable
    fixed : iterable of str
        Fields that keep their values.
    ranges : mapping of str to float, optional
        Bounds of the logarithm of the factor of a field, narrower than the usual.
    max_steps : int
        Steps of the optimisation. Each evaluates the model once for each constant.
    """
    start = flatten(constants, fixed)
    names = list(start)
    subjects = [row.subject for row in rows]
    weighted = _Residuals(rows)
    reach = np.array([(ranges or {}).get(name.partition("[")[0], RANGE) for name in names])

    values = np.array(list(start.values()))

    def at(factors: Any) -> Constants:
        scaled = values * np.exp(np.asarray(factors) - 1)
        return replaced(constants, dict(zip(names, map(float, scaled), strict=True)))

    def residuals(factors: Any) -> Any:
        predicted = np.asarray(predict(at(factors), subjects))
        prior = np.sqrt(_PRIOR * len(rows)) * (np.asarray(factors) - 1)
        return np.concatenate([weighted(predicted), prior])

    # The unknowns are 1 plus the logarithms, because the step of a derivative is relative.
    found = least_squares(
        residuals,
        np.ones(len(names)),
        bounds=(1 - reach, 1 + reach),
        diff_step=_STEP,
        loss="soft_l1",
        f_scale=_NOISE,
        max_nfev=max_steps,
    )
    return rounded(at(found.x))


class _Residuals:
    """Weighted residuals: the mean of each product's, and the deviations from it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        measured = np.array([row.measured for row in rows])
        self._log = np.log(measured)
        self._groups = _by_product(rows)
        self._group_of = np.empty(len(rows), np.int64)
        self._weights = np.empty(len(rows))
        for number, index in enumerate(self._groups):
            self._group_of[index] = number
            self._weights[index] = np.maximum(_SLOW_WEIGHT, measured[index].min() / measured[index])
        self._sizes = np.bincount(self._group_of)

    def __call__(self, predicted: Any) -> Any:
        ratios = np.log(predicted) - self._log
        means = np.bincount(self._group_of, ratios) / self._sizes
        deviations = self._weights * (ratios - means[self._group_of])
        return np.concatenate([deviations, _WEIGHT_OF_MEAN * np.sqrt(self._sizes) * means])


def _by_product(rows: Sequence[Row]) -> list[Any]:
    """Return the indices of each product's rows."""
    index: dict[Product, list[int]] = {}
    for number, row in enumerate(rows):
        index.setdefault(row.product, []).append(number)
    return [np.array(each) for each in index.values()]
