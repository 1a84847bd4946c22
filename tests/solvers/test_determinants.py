"""The kernel that multiplies the diagonals of factored matrices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm._solvers.common.matrices import Matrices
from cupygemm._solvers.determinants import of_factors
from tests.solvers.conftest import unit

N, COUNT = 300, 5
"""More pivots than a group of threads loads at once, and more matrices than a workgroup has."""


SIGNS = np.array([1, -1, 1, -1, 1])


def factors(cp, diagonals):
    """Return factors with these diagonals, and pivots whose swaps have the signs `SIGNS`."""
    pivots = np.tile(np.arange(N, dtype="int32"), (COUNT, 1))
    for i in range(COUNT):
        pivots[i, : 7 * i] += 1
    u = np.full((COUNT, N, N + 3), np.nan, diagonals.dtype)
    u[:, range(N), range(N)] = diagonals
    return Matrices(cp.asarray(u), N), cp.asarray(pivots)


@pytest.mark.parametrize("dtype", "fdFD")
def test_logarithms(cp, draw, dtype):
    """Of numbers from the smallest subnormal to the largest, whose product is not representable."""
    largest = 125 if dtype in "fF" else 1020
    exponents = np.linspace(-largest - 20, largest, N)
    diagonals = (draw((COUNT, N), dtype) * 2.0**exponents).astype(dtype)
    wide = diagonals.astype("G")  # more bits of exponents, so that |x| does not overflow
    size = np.abs(wide)
    signs, logs = of_factors(*factors(cp, diagonals), logarithms=True)
    expected = np.log(size).sum(axis=1)
    bound = 10 * N * unit(dtype) * np.abs(np.log(size)).sum(axis=1)
    assert (np.abs(logs.get() - expected) <= bound).all()
    units = SIGNS * (wide / size).prod(axis=1)
    assert (np.abs(signs.get() - units) <= 10 * N * unit(dtype)).all()


@pytest.mark.parametrize("dtype", "fdFD")
def test_products(cp, draw, dtype):
    """The product of the first half overflows, and the whole one does not."""
    half = draw((COUNT, N // 2), dtype) * 2.0 ** (20 if dtype in "fF" else 500)
    diagonals = np.concatenate([half, 1 / half], axis=1).astype(dtype)
    found, _ = of_factors(*factors(cp, diagonals), logarithms=False)
    pairs = diagonals.astype("G").reshape(COUNT, 2, -1).prod(axis=1)
    expected = SIGNS * pairs.prod(axis=1)
    assert (np.abs(found.get() - expected) <= 10 * N * unit(dtype) * np.abs(expected)).all()


@pytest.mark.parametrize("exponent", [-1080, -1070, -1022, 1022, 1030])
def test_results_near_the_limits(cp, exponent):
    """A subnormal product is rounded once; others overflow or vanish."""
    diagonals = np.ones((COUNT, N))
    diagonals[:, 7] = diagonals[:, 40] = 1.2345678 * 2.0 ** (exponent // 2)
    found, _ = of_factors(*factors(cp, diagonals), logarithms=False)
    with np.errstate(over="ignore", under="ignore"):
        assert (found.get() == SIGNS * diagonals[:, 7] * diagonals[:, 40]).all()
