"""Sums of partial products in their order: all widths of a thread, and results of any type."""

import ml_dtypes
import numpy as np
import pytest

from cupygemm._distributed import sums
from tests.tables import swept

BF16 = np.dtype(ml_dtypes.bfloat16)
HALF, SINGLE = np.dtype("f2"), np.dtype("f4")
RNG = np.random.default_rng(0)


def drawn(shape, dtype):
    if dtype.kind in "iu":
        return RNG.integers(0, 100, shape).astype(dtype)
    values = RNG.standard_normal(shape)
    if dtype.kind == "c":
        values = values + 1j * RNG.standard_normal(shape)
    return (values * 5).astype(dtype)


def in_order(parts, dtype):
    total = parts[0].astype(dtype)
    for part in parts[1:]:
        total = total + part.astype(dtype)
    return total


@pytest.mark.parametrize("shape", [(4, 8, 32), (3, 5, 7), (2, 16, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i1", "u1", "i4"])
def test_sums_are_added_from_first_to_last(cp, dtype, shape):
    parts = drawn(shape, np.dtype(dtype))
    total = sums.added_in_order(cp.asarray(parts), parts.dtype)
    assert total.get().tobytes() == in_order(parts, parts.dtype).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 7])
@pytest.mark.parametrize(
    ("travelling", "result"),
    [
        (BF16, HALF),
        (HALF, SINGLE),
        (SINGLE, BF16),
        *swept((BF16, BF16), (HALF, HALF), (SINGLE, SINGLE), width=2),
        *swept((BF16, SINGLE), (HALF, BF16), (SINGLE, HALF), width=2),
    ],
    ids=str,
)
def test_sums_of_halves_are_rounded_once(cp, travelling, result, width):
    parts = drawn((3, 8, width), travelling)
    exact = in_order(parts, np.float32).astype(result)
    for out in (
        cp.empty((8, width), result),
        cp.empty((width, 8), result).T,
        cp.empty(8 * width + 1, result)[1:].reshape(8, width),
    ):
        sums._add(cp.asarray(parts), np.dtype("f4"), out)
        assert np.ascontiguousarray(out.get()).tobytes() == exact.tobytes()
