"""rocRAND's distributions, as functions of a generator's numbers.

The formulas are those of rocrand_uniform.h, rocrand_normal.h, rocrand_discrete.h and poisson.hpp in
rocRAND's sources. Uniform numbers equal rocRAND's bit for bit; log, sin, cos and exp are the
host's, so normal numbers may differ from a GPU's in their last bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MRG_NORM = 2.3283065498378288e-10  # one over the first prime
_MRG_UINT_NORM = 1.000000048661607  # from there to all 32-bit numbers
_TURN_32 = np.float32(1.46291807e-09)  # two pi / 2**32
_SQRT_2 = np.float32(1.4142135)
_POISSON_IS_NORMAL = 4000.0


@dataclass(frozen=True)
class Distribution:
    """A distribution.

    Attributes
    ----------
    inputs, outputs : int
        Numbers and results of a group.
    dtype : str
    apply : callable
        From numbers (groups, inputs) to results (groups, outputs).
    """

    inputs: int
    outputs: int
    dtype: str
    apply: Callable[[Array], Array]


def mrg_integers(numbers: Array) -> Array:
    """Return MRG32k3a's numbers, from 1 to its first prime, as 32-bit integers."""
    return ((numbers - np.uint32(1)) * _MRG_UINT_NORM).astype(np.uint32)


def integers(kind: str) -> Distribution:
    """Return 32-bit integers.

    Parameters
    ----------
    kind : {"word", "mrg", "sobol"}
        The kind of the generator's numbers.

    Returns
    -------
    Distribution
    """

    def apply(numbers: Array) -> Array:
        if kind == "mrg":
            return mrg_integers(numbers)
        return (numbers >> np.uint64(32) if numbers.dtype == np.uint64 else numbers).astype("u4")

    return Distribution(1, 1, "u4", apply)


def uniform(kind: str, dtype: str) -> Distribution:
    """Return uniform numbers in (0, 1]; parameters as for `integers`."""
    inputs = 2 if kind == "word" and dtype == "f8" else 1
    return Distribution(inputs, 1, dtype, functools.partial(_uniform, kind, dtype))


def _uniform(kind: str, dtype: str, numbers: Array) -> Array:
    if kind == "mrg":
        return (numbers * _MRG_NORM).astype(dtype)
    if dtype == "f4":
        words = numbers >> np.uint64(32) if numbers.dtype == np.uint64 else numbers
        step = np.float32(2.0**-32)
        return step + words.astype(np.float32) * step
    if numbers.dtype == np.uint64:
        return 2.0**-53 + (numbers >> np.uint64(11)).astype("f8") * 2.0**-53
    if kind == "sobol":
        return 2.0**-32 + numbers.astype("f8") * 2.0**-32
    wide = numbers.astype(np.uint64)
    joined: Array = wide[:, :1] | (wide[:, 1:] >> np.uint64(11)) << np.uint64(32)
    return 2.0**-53 + joined.astype("f8") * 2.0**-53


def normal(kind: str, dtype: str, mean: float, deviation: float, *, log: bool) -> Distribution:
    """Return normal numbers, or their exponentials.

    Parameters
    ----------
    kind : {"word", "mrg", "sobol"}
    dtype : {"f4", "f8"}
    mean, deviation : float
    log : bool

    Returns
    -------
    Distribution
    """
    real = np.dtype(dtype).type

    def apply(numbers: Array) -> Array:
        standard = (_of_sobol if kind == "sobol" else _box_muller)(kind, dtype, numbers)
        scaled: Array = real(mean) + standard * real(deviation)
        return np.exp(scaled) if log else scaled

    if kind == "sobol":
        return Distribution(1, 1, dtype, apply)
    return Distribution(4 if kind == "word" and dtype == "f8" else 2, 2, dtype, apply)


def _box_muller(kind: str, dtype: str, numbers: Array) -> Array:
    """Return two normal numbers for each group, by the Box-Muller transform."""
    if kind == "mrg":
        u, v = _uniform(kind, "f4", numbers).T.astype(dtype)
        angle = v * np.float32(6.2831855) if dtype == "f4" else v * 2.0 * math.pi
    elif dtype == "f4":
        u = _uniform(kind, "f4", numbers[:, 0])
        angle = _TURN_32 + numbers[:, 1].astype("f4") * _TURN_32
    else:
        wide = numbers.astype(np.uint64)
        first = wide[:, 0] ^ wide[:, 1] << np.uint64(21)
        second = wide[:, 2] ^ wide[:, 3] << np.uint64(21)
        u = 2.0**-53 + first.astype("f8") * 2.0**-53
        angle = (2.0**-52 + second.astype("f8") * 2.0**-52) * math.pi
    size = np.sqrt(np.dtype(dtype).type(-2) * np.log(u))
    return np.stack([np.sin(angle) * size, np.cos(angle) * size], axis=1)


def _of_sobol(kind: str, dtype: str, numbers: Array) -> Array:
    """Return one normal number for each number, by rocRAND's approximate inverse of erf."""
    real: Any = np.dtype(dtype).type
    x = real(2) * _uniform("sobol", dtype, numbers) - real(1)
    pi = real(np.float32(3.141592653)) if dtype == "f4" else math.pi
    logarithm = np.log((real(1) - x) * (real(1) + x))
    first = real(2) / (pi * real(0.147)) + real(0.5) * logarithm
    second = real(1) / real(0.147) * logarithm
    inverse = np.where(x < 0, real(-1), real(1)) * np.sqrt(-first + np.sqrt(first * first - second))
    inverse = np.where(np.isinf(logarithm), real(0), inverse)
    found: Array = real(_SQRT_2) * inverse
    return found


def poisson(kind: str, mean: float) -> Distribution:
    """Return Poisson numbers.

    Parameters
    ----------
    kind : {"word", "mrg", "sobol"}
    mean : float

    Returns
    -------
    Distribution
    """

    def apply(numbers: Array) -> Array:
        words = mrg_integers(numbers) if kind == "mrg" else numbers
        if mean > _POISSON_IS_NORMAL:
            standard = _of_sobol("sobol", "f8", words)
            return np.floor(math.sqrt(mean) * standard + mean + 0.5).astype(np.uint32)
        chance, alias, cumulated, offset = _poisson_table(mean)
        x = words * (2.0**-64 if words.dtype == np.uint64 else 2.0**-32)
        if kind == "sobol":  # the alias method would break the order
            place = np.minimum(np.searchsorted(cumulated, x), len(cumulated) - 1)
            return (offset + place).astype(np.uint32)
        scaled = len(chance) * x
        place = np.floor(scaled).astype(np.int64)
        kept = scaled - place < chance[place]
        return (offset + np.where(kept, place, alias[place])).astype(np.uint32)

    return Distribution(1, 1, "u4", apply)


@functools.lru_cache(maxsize=16)
def _poisson_table(mean: float) -> tuple[Array, Array, Array, int]:
    """Return Walker's alias table, the cumulative probabilities, and the first one's number."""
    capacity = 2 * int(16.0 * (2.0 + math.sqrt(mean)))
    left = math.floor(mean) - capacity // 2

    def probability(place: int) -> float:
        x = float(left + place)
        if x < 0:
            return 0.0
        return math.exp(x * math.log(mean) - math.lgamma(x + 1.0) - mean)

    low = capacity // 2
    while low > 0 and probability(low - 1) >= 1e-12:
        low -= 1
    high = capacity // 2
    while high < capacity - 1 and probability(high + 1) >= 1e-12:
        high += 1
    chances = [probability(place) for place in range(low, high + 1)]
    total = sum(chances)
    chances = [each / total for each in chances]
    size, average = len(chances), 1.0 / len(chances)
    cumulated = np.cumsum(chances)
    large = [place for place, each in enumerate(chances) if each >= average]
    small = [place for place, each in enumerate(chances) if each < average]
    kept, alias = np.ones(size), np.zeros(size, np.int64)
    while small and large:
        less, more = small.pop(), large.pop()
        kept[less], alias[less] = chances[less] * size, more
        chances[more] = (chances[more] + chances[less]) - average
        (large if chances[more] >= average else small).append(more)
    return kept, alias, cumulated, left + low
