"""The kernel for products of float32 inside panels, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._backends.solver_kernels import PANEL_PRODUCT
from cupygemm._solvers.common import kernels, updates
from tests.hopper_model.device import HostKernel, Model


@pytest.mark.parametrize(("m", "n", "k"), [(70, 33, 160), (5, 3, 7)])
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("pitch", [37, 38])
def test_a_product_of_blocks(m, n, k, replaces, pitch):
    """It is as exact as sums of float32: with one term of each number, errors exceed 1e-3."""
    generator, batches = np.random.default_rng(m), 2
    a, b, c = (
        generator.standard_normal(shape).astype("f")
        for shape in ((batches, m, k + 4 - k % 4), (batches, k, 36), (batches, m, pitch))
    )
    product = a[..., :k].astype("d") @ b[..., :n].astype("d")
    expected = c.astype("d")
    expected[..., :n] = product if replaces else expected[..., :n] - product
    multiply(a, b, c, (m, n, k), replaces=replaces)
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)


def test_what_is_subtracted_from_does_not_lose_bits_of_one_sign():
    """C must be added to by instructions that round: mma.sync truncates what it adds to.

    The mean error of 2048 elements is about zero then. If products begin with C, it is 18 units.
    """
    generator, (m, n, k) = np.random.default_rng(5), (64, 32, 128)
    a, b = (generator.standard_normal((1, *shape)).astype("f") / 64 for shape in ((m, k), (k, 36)))
    c = generator.uniform(1, 2, (1, m, n)).astype("f")
    expected = c.astype("d") - a.astype("d") @ b[..., :n].astype("d")
    multiply(a, b, c, (m, n, k), replaces=False)
    assert abs((c - expected).mean()) < 0.1 * np.finfo("f").eps


def multiply(a, b, c, extents, *, replaces):
    """Store products of blocks in C, or subtract them, for stacks of C-contiguous matrices."""
    m, n, k = extents
    stages = 4 if k > 32 else 2
    shared_bytes = updates.product_bytes(stages)
    constants = {
        "threads": 128,
        "depth": 32,
        "stages": stages,
        "replaces": replaces,
        "pairs": c.shape[2] % 2 == 0,
        "shared_bytes": shared_bytes,
    }
    text = kernels.source(PANEL_PRODUCT, "f", constants)
    strides = (a.shape[2], 1, b.shape[2], c.shape[2], a[0].size, b[0].size, c[0].size)
    places = (each.ctypes.data for each in (a, b, c))
    packed = struct.pack(PANEL_PRODUCT.arguments, *places, *strides, m, n, k, 0)
    kernel = HostKernel(Model(), text, PANEL_PRODUCT.entry)
    kernel.max_dynamic_shared_size_bytes = shared_bytes
    argument = ctypes.create_string_buffer(packed, len(packed))
    tiles = -(-m // 64) * -(-n // 64)
    grid = (tiles, len(a), 1)
    kernel.launch(grid, (128, 1, 1), shared_bytes, ctypes.addressof(argument))
