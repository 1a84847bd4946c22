"""The kernel that factors a stack of small matrices as tiles, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._backends.solver_kernels import FACTOR_TILE
from cupygemm._solvers.common import kernels
from tests.hopper_model.device import HostKernel, Model
from tests.hopper_model.test_solve_tiles import stacked


def run(whole, n, factors=None, info=None):
    """Launch the kernel as the solvers do, for matrices (batches, n, pitch)."""
    factors = whole if factors is None else factors
    threads = -(-n // 16) * 32
    text = kernels.source(FACTOR_TILE, whole.dtype.char, {"threads": threads})
    places = [(x.ctypes.data, x.shape[2], x[0].size) for x in (whole, factors)]
    address = info.ctypes.data if info is not None else 0
    packed = struct.pack(FACTOR_TILE.arguments, *places[0], *places[1], address, n, 0)
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel = HostKernel(Model(), text, FACTOR_TILE.entry)
    kernel.launch((len(whole), 1, 1), (threads, 1, 1), 0, ctypes.addressof(argument))


def positive(batches, n):
    x = np.random.default_rng(n).standard_normal((batches, n, n))
    return x @ x.swapaxes(-1, -2) / n + np.eye(n)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("n", [5, 33, 64, 90, 128])
def test_factors(n, dtype):
    """Nothing above the diagonal is read, and it becomes zero; nothing past rows changes."""
    matrix = positive(2, n)
    whole, a = stacked((2, n, n), dtype)
    a[...] = np.where(np.tri(n, dtype=bool), matrix, np.nan)
    info = np.zeros(2, np.int32)
    run(whole, n, info=info)
    assert not info.any()
    np.testing.assert_allclose(a, np.linalg.cholesky(matrix), rtol=0, atol=n * np.finfo(dtype).eps)
    assert np.isnan(whole[:, :, n:]).all()


@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("n", [47, 48])
def test_factors_elsewhere(n, dtype):
    matrix = positive(3, n).astype(dtype)
    kept, factors = matrix.copy(), np.full_like(matrix, np.nan)
    run(matrix, n, factors)
    expected = np.linalg.cholesky(kept.astype("d"))
    np.testing.assert_allclose(factors, expected, rtol=0, atol=n * np.finfo(dtype).eps)
    np.testing.assert_array_equal(matrix, kept)


@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("reports", [False, True])
def test_matrices_that_are_not_positive_definite(dtype, reports):
    """Each reports its first such column, if there is a place for it."""
    n = 40
    a = np.stack([np.eye(n, dtype=dtype)] * 3)
    a[1, 11, 11] = a[1, 35, 35] = a[2, 0, 0] = -1
    info = np.zeros(3, np.int32)
    run(a, n, info=info if reports else None)
    assert info.tolist() == ([0, 12, 1] if reports else [0, 0, 0])
    np.testing.assert_array_equal(a[0], np.eye(n))
