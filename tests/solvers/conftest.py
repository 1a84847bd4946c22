"""Fixtures and helpers of the solvers' tests."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.blocks import Limits


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks that are small enough for matrices of a few dozen rows to take every path."""
    monkeypatch.setattr(
        blocks,
        "LIMITS",
        Limits(
            threads=32,
            cluster_threads=32,
            registers=32,
            width=4,
            alone=1,
            team=8,
            outer=16,
            part=8,
            half=8,
            wide=46,
            tail=13,
            tail_before_others=12,
            few=3,
            substituted=8,
            vector=4,
            ahead=4,
            blocks_of_part=2,
            beside_lu_block=600,
            beside_lu=150,
            beside_lu_of_others=600,
            begun_early=0,
            after=3,
            ahead_of_qr=4,
            formed_beside=30,
            beside_qr=4000,
            reflected=32,
            reflected_of_float64=32,
            strip=10,
            whole=0,
        ),
    )


@pytest.fixture
def draw():
    """Draw a random array of a type."""
    generator = np.random.default_rng(20)

    def drawn(shape, dtype="d"):
        a = generator.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            a = a + 1j * generator.standard_normal(shape)
        return a.astype(dtype)

    return drawn


def unit(dtype):
    """Return the unit roundoff of a type."""
    return float(np.finfo(dtype).eps) / 2


def assert_like(got, expected, *, factor=200):
    """Compare a result with NumPy's: shape, type, and elements within a multiple of roundoff."""
    expected = np.asarray(expected)
    got = got.get() if hasattr(got, "get") else np.asarray(got)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if expected.size:
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-300)
        dtype = expected.dtype if expected.dtype.kind in "fc" else np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=factor * scale * unit(dtype))
