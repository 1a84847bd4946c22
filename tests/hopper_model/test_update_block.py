"""The kernel for updates inside panels of fp64, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._backends.solver_kernels import UPDATE_BLOCK
from cupygemm._solvers.common import kernels, updates
from tests.hopper_model.device import HostKernel, Model


@pytest.mark.parametrize(
    ("m", "n", "k", "depth", "column"),
    [(70, 34, 32, 32, 34), (70, 34, 16, 16, 34), (70, 33, 32, 32, 34), (5, 2, 7, 16, 35)],
)
def test_a_block_of_the_same_matrix_is_updated(m, n, k, depth, column):
    """Pairs of elements of C are aligned or not, and the last one may be half of a pair."""
    pitch = 208
    a = np.random.default_rng(m).standard_normal((140, pitch))
    left, right, target = (10, 0), (100, 144), (10, column)
    expected = a.copy()
    product = a[10 : 10 + m, :k] @ a[100 : 100 + k, 144 : 144 + n]
    expected[10 : 10 + m, column : column + n] -= product
    shared_bytes = 8 * updates.BLOCK_ELEMENTS
    constants = {"threads": 128, "depth": depth, "pairs": column % 2 == 0}
    constants["shared_bytes"] = shared_bytes
    text = kernels.source(UPDATE_BLOCK, "d", constants)
    places = [a.ctypes.data + 8 * (row * pitch + column) for row, column in (left, right, target)]
    strides = (pitch, 1, pitch, pitch, 0, 0, 0)
    packed = struct.pack(UPDATE_BLOCK.arguments, *places, *strides, m, n, k, 0)
    kernel = HostKernel(Model(), text, UPDATE_BLOCK.entry)
    kernel.max_dynamic_shared_size_bytes = shared_bytes
    argument = ctypes.create_string_buffer(packed, len(packed))
    tiles = -(-m // 64) * -(-n // 64)
    kernel.launch((tiles, 1, 1), (128, 1, 1), shared_bytes, ctypes.addressof(argument))
    np.testing.assert_allclose(a, expected, rtol=0, atol=1e-13)
