"""Products by residues: the moduli, the reconstruction from residues, and the error bound.

The integers of a product are recovered modulo P, the product of the moduli, so they must be
smaller than P / 2. Weights are split so that sums of their high parts times residues are exact in
float64. (K. Ozaki, Y. Uchino and T. Imamura, "Ozaki Scheme II: A GEMM-oriented emulation of
floating-point matrix multiplication using an integer modular technique", 2025.)
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193)
"""Pairwise coprime, the largest first; as ``kernels/common/modular/moduli.hpp``."""
MOST_TERMS = (1 << 17) - 16
"""The most products of residues, each at most 128, whose sum int32 holds."""
_EXACT_BITS = 53
_RESIDUE_BITS, _SUM_BITS = 7, 4
_MARGIN = 1 - 2.0**-16
"""Leaves room for rounding in norms, and for the quotient that is computed from high parts."""


@dataclass(frozen=True)
class Constants:
    """Constants by which a product is reconstructed from its residues.

    Attributes
    ----------
    high, low : tuple of float
        The weights of the residues, as sums of two parts.
    product_high, product_low : float
        The product of the moduli, as the sum of two parts.
    inverse : float
        One over that product.
    """

    high: tuple[float, ...]
    low: tuple[float, ...]
    product_high: float
    product_low: float
    inverse: float


@functools.cache
def constants(count: int) -> Constants:
    """Return the constants of the first `count` moduli."""
    moduli = MODULI[:count]
    product = math.prod(moduli)
    weights = [
        product // modulus * pow(product // modulus, -1, modulus) % product for modulus in moduli
    ]
    dropped = max(product.bit_length() + _RESIDUE_BITS + _SUM_BITS - _EXACT_BITS, 0)
    high = [weight >> dropped << dropped for weight in (*weights, product)]
    low = [float(weight - part) for weight, part in zip((*weights, product), high, strict=True)]
    *of_weights, of_product = map(float, high)
    return Constants(tuple(of_weights), tuple(low[:-1]), of_product, low[-1], 1 / product)


def largest_norm(count: int, k: int) -> float:
    """Return the largest norm of a scaled vector of `k` elements before it is rounded.

    The product of the norms of two rounded vectors is then below half the product of the moduli.
    """
    rounded = math.sqrt(math.prod(MODULI[:count]) / 2) * _MARGIN
    return rounded - math.sqrt(k) / 2


def error_factor(count: int, k: int) -> float:
    """Return a bound on the error of an element, relative to the norms of its two vectors.

    A row of A is multiplied by a power of two and rounded to integers. This changes its elements by
    at most the norm of the row over `largest_norm`. Columns of B are treated likewise.
    """
    norm = largest_norm(count, k)
    return 2 * math.sqrt(k) / norm + k / norm**2


def of_products_by_residues(x1: Array, x2: Array, count: int) -> Array:
    """Return a bound on the error of each element of ``x1 @ x2``, without its last rounding.

    Parameters
    ----------
    x1, x2 : numpy.ndarray
        Real.
    count : int
        The number of residues.
    """
    rows, columns = (
        np.sqrt((x.astype(np.longdouble) ** 2).sum(axis=axis))
        for x, axis in ((x1, -1), (x2, -min(x2.ndim, 2)))
    )
    if x2.ndim > 1:
        rows, columns = rows[..., None], columns[..., None, :] if x1.ndim > 1 else columns
    return np.asarray(error_factor(count, x1.shape[-1]) * rows * columns)
