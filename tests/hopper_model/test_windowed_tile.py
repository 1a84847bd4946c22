"""The kernel for tiles with pivots from a window, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
import scipy.linalg

from cupygemm._solvers.common import kernels
from cupygemm._solvers.refinement import windowed_lu
from tests.hopper_model.device import HostKernel, Model

ENTRY = 'extern "C" __global__ void __launch_bounds__(512)\n    '  # the macro
TILE, NONE = windowed_lu.TILE, 0xFFFFFFFF


@pytest.mark.parametrize("equal", [False, True])
def test_a_tile_has_the_pivots_of_its_window(equal):
    """Of elements of equal size, as those of small integers are, the first is the pivot."""
    count, kind = 160, kernels.WINDOWED_TILE
    generator = np.random.default_rng(3)
    window = generator.standard_normal((count, TILE)).astype("f")
    if equal:
        window[:, :40] = generator.integers(-1, 2, (count, 40))
    lower, upper = np.zeros((2, TILE, TILE), "f")
    moves, info = np.zeros((512, 2), "uint32"), np.zeros(1, "int32")
    places = window.ctypes.data, TILE, lower.ctypes.data, upper.ctypes.data, TILE
    packed = struct.pack(kind.arguments, *places, moves.ctypes.data, info.ctypes.data, 0, count)
    text = kernels.source(kind, "f", {"threads": 512, "rows": 5, "groups": 16})
    text = text.replace("CUPYGEMM_KERNEL(cupygemm::Config::threads)\n", ENTRY)
    kernel = HostKernel(Model(), text, kind.entry)
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel.launch((1, 1, 1), (512, 1, 1), 0, ctypes.addressof(argument))
    order = np.arange(count)
    for to, source in moves[moves[:, 0] != NONE]:
        order[to] = source
    assert sorted(order) == list(range(count))
    assert info == 0
    assert abs(lower @ window[order[:TILE]] @ upper - np.eye(TILE)).max() < 1e-2
    if not equal:
        _, pivots = scipy.linalg.lu_factor(window)
        of_lapack = np.arange(count)
        for row, other in enumerate(pivots):
            of_lapack[[row, other]] = of_lapack[[other, row]]
        assert (order[:TILE] == of_lapack[:TILE]).all()
    else:
        assert order[0] == np.flatnonzero(window[:, 0])[0]
