"""`qr`, `lstsq` and `pinv` against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import linalg
from tests.solvers.conftest import assert_like, unit
from tests.solvers.test_systems import MOST_TYPES, TYPES


@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", MOST_TYPES)
@pytest.mark.parametrize(("m", "n"), [(9, 9), (21, 6), (6, 21), (1, 1)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
def test_qr(cp, draw, dtype, m, n, mode):
    a = draw((m, n), dtype)
    expected, got = np.linalg.qr(a, mode), linalg.qr(cp.asarray(a), mode)
    if mode == "r":
        expected, got = (expected,), (got,)
    for one, other in zip(got, expected, strict=True):
        assert_like(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 3), (600, 40)])  # the latter by products of columns
def test_signs_below_a_zero_are_lapacks(cp, draw, shape):
    a = draw(shape)
    a[0, 0] = 0
    for one, other in zip(linalg.qr(cp.asarray(a)), np.linalg.qr(a), strict=True):
        assert_like(one, other, factor=2000)


@pytest.mark.slow
@pytest.mark.one_in(13)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("m", "n"), [(45, 40), (40, 50), (70, 18)])
def test_qr_in_small_blocks(cp, draw, small_blocks, dtype, m, n):
    a = draw((2, m, n), dtype)
    q, r = (x.get() for x in linalg.qr(cp.asarray(a)))
    k = min(m, n)
    bound = 10 * n * unit(dtype)
    assert np.abs(q @ r - a).max() <= bound * np.abs(a).max()
    assert np.abs(q.conj().swapaxes(1, 2) @ q - np.eye(k)).max() <= bound
    assert (np.tril(r, -1) == 0).all()
    assert_like(linalg.qr(cp.asarray(a), "r"), np.linalg.qr(a, "r"), factor=2000)


@pytest.mark.parametrize("scale", [1e-170, 1e170])
def test_squares_that_overflow_or_vanish(cp, draw, scale):
    a = draw((9, 5)) * scale
    q, r = linalg.qr(cp.asarray(a))
    expected = np.linalg.qr(a)
    assert_like(q, expected[0])
    assert_like(r, expected[1])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 3, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_empty_matrices(cp, shape, mode):
    expected, got = np.linalg.qr(np.ones(shape), mode), linalg.qr(cp.ones(shape), mode)
    for one, other in zip(
        got if mode != "r" else (got,), expected if mode != "r" else (expected,), strict=True
    ):
        assert_like(one, other)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("m", "n"), [(12, 5), (5, 12), (8, 8)])
@pytest.mark.parametrize("rank", [2, 5])
def test_least_squares(cp, draw, dtype, m, n, rank):
    a = (draw((m, rank)) @ draw((rank, n))).astype(dtype)
    b = draw((m, 3), dtype)
    cutoff = 1e-3
    for right in (b, b[:, 0]):
        expected = np.linalg.lstsq(a, right, rcond=cutoff)
        x, residuals, got_rank, s = linalg.lstsq(cp.asarray(a), cp.asarray(right), cutoff)
        assert_like(x, expected[0], factor=20000)
        assert_like(residuals, expected[1], factor=20000)
        assert got_rank == expected[2]
        assert_like(s, expected[3])


@pytest.mark.parametrize(
    ("m", "n", "columns"), [(4, 2, 0), (2, 4, 0), (4, 0, 2), (4, 0, 0), (0, 4, 2), (0, 0, 0)]
)
def test_least_squares_without_elements(cp, draw, m, n, columns):
    a, b = draw((m, n)), draw((m, columns))
    expected = np.linalg.lstsq(a, b, rcond=None)
    got = linalg.lstsq(cp.asarray(a), cp.asarray(b))
    assert got[2] == expected[2]
    for one, other in zip(got[:2] + got[3:], expected[:2] + expected[3:], strict=True):
        assert_like(one, other)


def test_a_negative_cutoff_is_machine_precision(cp):
    a = np.diag([1.0, 0.5, 0])
    for cutoff in (-3.0, np.asarray(-1), cp.asarray(-1.0)):
        x, _, rank, _ = linalg.lstsq(cp.asarray(a), cp.ones(3), cutoff)
        assert rank == 2
    np.testing.assert_allclose(x.get(), [1, 2, 0], rtol=1e-14)
    for factor in (0.25, 0.75):  # LAPACK's is half of NumPy's eps
        a = np.diag([1.0, factor * 2.0**-52])
        expected = np.linalg.lstsq(a, np.ones(2), rcond=-1)
        assert linalg.lstsq(cp.asarray(a), cp.ones(2), -1)[2] == expected[2]


@pytest.mark.covering
@pytest.mark.parametrize("dtype", MOST_TYPES)
@pytest.mark.parametrize(("m", "n"), [(7, 4), (4, 7)])
def test_pseudo_inverse(cp, draw, dtype, m, n):
    a = draw((2, m, n), dtype)
    assert_like(linalg.pinv(cp.asarray(a)), np.linalg.pinv(a), factor=2000)
    a[1, :, -1] = a[1, :, 0]
    a[1, -1, :] = a[1, 0, :]
    got = linalg.pinv(cp.asarray(a), rtol=cp.asarray([1e-5, 1e-4]))
    assert_like(got, np.linalg.pinv(a, rtol=np.array([1e-5, 1e-4])), factor=20000)


def test_singular_values_of_many_rows(cp, draw, monkeypatch):
    """A matrix that has one launch per round of rotations."""
    from cupygemm._solvers.qr import singular_values

    monkeypatch.setattr(singular_values, "_ALONE", 4)
    a = draw((2, 11, 9))
    assert_like(linalg.pinv(cp.asarray(a)), np.linalg.pinv(a), factor=2000)


def test_errors(cp):
    a = cp.ones((3, 2))
    with pytest.raises(ValueError, match="mode is 'full'"):
        linalg.qr(a, mode="full")
    with pytest.raises(np.linalg.LinAlgError, match="stack of matrices"):
        linalg.qr(cp.ones(3))
    with pytest.raises(np.linalg.LinAlgError, match="they must be"):
        linalg.lstsq(a, cp.ones(2))
    with pytest.raises(ValueError, match="both given"):
        linalg.pinv(a, 1e-3, rtol=1e-3)
    with pytest.raises(TypeError, match="lstsq: rcond is 'warn'; it must be a real number or None"):
        linalg.lstsq(a, cp.ones(3), "warn")
    with pytest.raises(TypeError, match="pinv: rcond or rtol is 'x'"):
        linalg.pinv(a, "x")
    with pytest.raises(ValueError, match=r"shape \(3,\), which does not broadcast to \(2,\)"):
        linalg.pinv(cp.ones((2, 3, 2)), cp.ones(3))
    x, residuals, rank, s = linalg.lstsq(cp.ones((0, 2)), cp.ones(0))
    assert (x.shape, residuals.shape, rank, s.shape) == ((2,), (0,), 0, (0,))
