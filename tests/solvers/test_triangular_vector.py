"""Triangular systems with few right-hand sides, in one launch of several workgroups."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import linalg
from cupygemm._solvers.common import blocks

N = 39


def lower(draw, dtype, within):
    """Return a lower triangle with large elements in its diagonal blocks, if `within` is large."""
    t = np.tril(draw((N, N), dtype), -1) / 8
    first, leaf = np.arange(N), blocks.LIMITS.vector
    in_block = np.tril(first[:, None] // leaf == first // leaf, -1)
    t[in_block] = within
    return t + np.eye(N, dtype=dtype) * (1 + abs(draw(N, dtype)))


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["d", "f", "F"])
@pytest.mark.parametrize("within", [0.5, 60.0], ids=["inverted", "substituted"])
@pytest.mark.parametrize("k", [1, 3])
def test_each_element_has_a_small_backward_error(cp, draw, small_blocks, dtype, within, k):
    """Inverses of blocks of the second kind would be inaccurate. Some numbers are exact zeros."""
    t, b = lower(draw, dtype, within), draw((N, k), dtype)
    b[:9] = 0
    on_device = cp.asarray(t)
    for trans, matrix in ((0, t), (1, t.T), (2, t.T.conj())):
        rhs = b if trans == 0 else b[::-1].copy()
        x = linalg.solve_triangular(on_device, cp.asarray(rhs), trans=trans, lower=True).get()
        exact, x = matrix.astype("D"), x.astype("D")
        scale = abs(exact) @ abs(x) + abs(rhs)
        assert (abs(exact @ x - rhs) <= 12 * N * np.finfo(dtype).eps * scale).all()
        zero = x[:9] if trans == 0 else x[-9:]
        assert (zero == 0).all()


def test_a_zero_on_the_diagonal_is_no_number(cp, draw, small_blocks):
    """The others of its block are not numbers either, but no workgroup waits forever."""
    t = lower(draw, "d", 0.5)
    t[20, 20] = 0
    lu, pivots = cp.asarray(t.T), cp.arange(N, dtype="int32")
    x = linalg.lu_solve((lu, pivots), cp.ones(N)).get()
    assert not np.isfinite(x[20])
    assert np.isfinite(x[20 + blocks.LIMITS.vector :]).all()
