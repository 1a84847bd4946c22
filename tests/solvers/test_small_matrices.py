"""Stacks of matrices that one workgroup factors in registers, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from cupygemm._backends.cdna.compile import compile_source
from cupygemm._backends.hopper.compilation.compile import compile_cubin
from cupygemm._backends.solver_kernels import FACTOR_TILE
from cupygemm._solvers.common import blocks, errors, kernels, reports, small
from cupygemm._solvers.common.blocks import Limits
from tests.solvers.conftest import assert_like, unit
from tests.solvers.test_accuracy import MATRICES, inverse_error
from tests.solvers.test_systems import TYPES, definite

N = 41
"""Six groups of columns, of which the last has one, and two rows in some lanes."""


def swept(default):
    """Types; those not named run only in the sweeps, since each type compiles its own kernels."""
    marks = {True: (), False: pytest.mark.sweep}
    return [pytest.param(dtype, marks=marks[dtype in default]) for dtype in TYPES]


def general(draw, count, n, dtype):
    """Matrices whose largest elements are anywhere, so that rows are swapped."""
    return draw((count, n, n), dtype)


@pytest.mark.parametrize("dtype", swept("d"))
def test_factors_are_those_of_lapack(cp, draw, dtype):
    a = general(draw, 2, N, dtype)
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    for i in range(len(a)):
        expected, order = scipy.linalg.lu_factor(a[i])
        assert (pivots[i].get() == order).all()
        assert_like(lu[i], expected, factor=4000)


@pytest.mark.parametrize("n", [15, 64])  # matrices that share a warp, and two rows in a lane
def test_pivots_are_compared_to_the_last_bit(cp, draw, n):
    a = general(draw, 3, n, "d")
    a[0, :, 0] = 1 + np.arange(n) * 2.0**-50
    a[1, :, 0] = (-1.0) ** np.arange(n)  # the first of equal ones
    lu, pivots = linalg.lu_factor(cp.asarray(a))
    assert pivots[:2, 0].get().tolist() == [n - 1, 0]
    for i in range(len(a)):
        expected, order = scipy.linalg.lu_factor(a[i])
        assert (pivots[i].get() == order).all()
        assert_like(lu[i], expected, factor=4000)


@pytest.mark.parametrize("dtype", swept("fd"))
def test_an_infinite_pivot_divides_to_zeros(cp, dtype):
    a = np.diag([2, np.inf, 3]).astype(dtype)
    lu, pivots = linalg.lu_factor(cp.asarray(a), check_finite=False)
    assert (lu.get() == a).all()
    assert pivots.get().tolist() == [0, 1, 2]
    assert_like(linalg.inv(cp.asarray(a)), np.linalg.inv(a))
    assert linalg.solve(cp.asarray(a), cp.asarray(a[2])).get().tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", swept("fD"))
@pytest.mark.parametrize("columns", [pytest.param(1, marks=pytest.mark.sweep), 3])
def test_systems(cp, draw, dtype, columns):
    a, x = general(draw, 3, N, dtype), draw((3, N, columns), dtype)
    b = a @ x
    got = linalg.solve(cp.asarray(a), cp.asarray(b)).get()
    unit = np.finfo(dtype).eps
    size = np.abs(a).sum(axis=2).max() * np.abs(got).max()
    assert np.abs(a @ got - b).max() <= 10 * unit * size


@pytest.mark.slow
@pytest.mark.parametrize("n", [N, 48])  # rows of 48 are read 16 bytes at a time
@pytest.mark.parametrize("dtype", swept("FD"))
def test_cholesky_reads_one_triangle(cp, draw, dtype, n):
    a = definite(draw, (2, n, n), dtype)
    lower = np.where(np.tri(n, dtype=bool), a, np.nan)
    assert_like(linalg.cholesky(cp.asarray(lower)), np.linalg.cholesky(a), factor=1000)


def test_matrices_that_share_a_workgroup(cp, draw):
    a = definite(draw, (5, 7, 7), "d")  # eight in a workgroup, so that it has places left
    assert_like(linalg.cholesky(cp.asarray(a)), np.linalg.cholesky(a))
    assert_like(linalg.det(cp.asarray(a)), np.linalg.det(a), factor=1000)


def test_the_first_failure_of_a_stack_is_named(cp, draw):
    a = general(draw, 2, N, "d")
    a[1, :, 7] = 0
    x = cp.asarray(a)
    with pytest.raises(np.linalg.LinAlgError, match=r"number 1 of the stack.*pivot 7 is zero"):
        linalg.solve(x, x[..., :1])


@pytest.mark.parametrize(("dtype", "row"), [("d", 20), ("D", 35)])
def test_the_first_minor_that_is_not_positive_is_named(cp, dtype, row):
    definite = np.stack([np.eye(N, dtype=dtype), np.eye(N, dtype=dtype)])
    definite[1, row:, row:] *= -1
    with pytest.raises(np.linalg.LinAlgError, match=rf"number 1 .*order {row + 1} is not"):
        linalg.cholesky(cp.asarray(definite))


@pytest.mark.parametrize("dtype", swept("fD"))
def test_stacks_of_larger_matrices(cp, draw, monkeypatch, dtype):
    """A workgroup factors each block on the diagonal; the first minor that fails is named."""
    monkeypatch.setattr(blocks, "LIMITS", Limits(whole=16, substituted=16))
    a = definite(draw, (3, N, N), dtype)
    assert_like(linalg.cholesky(cp.asarray(a)), np.linalg.cholesky(a), factor=3000)
    a[1, 18:, 18:] *= -1
    with pytest.raises(np.linalg.LinAlgError, match=r"number 1 .*order 19 is not"):
        linalg.cholesky(cp.asarray(a))


@pytest.mark.parametrize(("char", "n"), [("d", 16), ("f", 13)])
def test_pivots_of_matrices_that_share_a_warp(cp, char, n):
    """The largest elements of each half are equal in some columns, or nearly."""
    rng = np.random.default_rng(n)
    a = rng.integers(-2, 3, (5, n, n)).astype(char) + 3 * np.eye(n, dtype=char)
    a[1] += np.finfo(char).eps * rng.integers(0, 3, (n, n)).astype(char)
    a[3] = np.eye(n)[::-1]
    x = cp.asarray(a)
    lu, pivots = linalg.lu_factor(x)
    for i in range(len(a)):
        expected, order = scipy.linalg.lu_factor(a[i])
        assert (pivots[i].get() == order).all()
        assert_like(lu[i], expected, factor=4000)
    b = a @ np.ones((n, 1), char)
    assert_like(linalg.solve(x, cp.asarray(b)), np.linalg.solve(a, b), factor=20000)


@pytest.mark.parametrize("n", [7, N])
def test_inverses_of_a_stack(cp, draw, n):
    a = general(draw, 3, n, "d")
    assert_like(linalg.inv(cp.asarray(a)), np.linalg.inv(a), factor=4000)
    a[1, :, 5] = 0
    with pytest.raises(np.linalg.LinAlgError, match=r"number 1 of the stack.*pivot 5 is zero"):
        linalg.inv(cp.asarray(a))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", swept("FD"))
@pytest.mark.parametrize("n", [20, pytest.param(64, marks=pytest.mark.sweep)])
def test_inverses_of_other_types(cp, draw, dtype, n):
    """A lane has all rows of a matrix of 64, and stores 16 bytes at a time."""
    a = general(draw, 2, n, dtype)
    assert_like(linalg.inv(cp.asarray(a)), np.linalg.inv(a), factor=20000)


@pytest.mark.parametrize("name", MATRICES)
def test_inverses_of_hard_matrices_are_backward_stable(cp, name):
    """The kernel multiplies the inverses of both factors."""
    a = MATRICES[name](N)
    x = cp.asarray(a)
    if name == "singular":
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            linalg.inv(x)
        return
    assert inverse_error(a, linalg.inv(x).get()) <= 10 * N * unit("d")


@pytest.mark.slow
def test_a_failure_does_not_return(cp, draw):
    """Kernels write to words in host memory, which are zero again when the next call begins."""
    a = general(draw, 3, 7, "d")
    singular = a.copy()
    singular[2, :, 3] = 0
    for function in (linalg.inv, lambda x: linalg.solve(x, x)):
        with pytest.raises(np.linalg.LinAlgError, match="number 2"):
            function(cp.asarray(singular))
        function(cp.asarray(a))


def test_a_call_that_is_interrupted_leaves_no_words(cp, draw, monkeypatch):
    """Its kernel may still write to them, so the next call uses other words."""
    a = cp.asarray(general(draw, 2, 7, "d"))
    linalg.inv(a)
    before = reports._of_thread.words

    def interrupted(address):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reports.reported(2, interrupted)
    linalg.inv(a)
    assert reports._of_thread.words.address != before.address


def test_what_was_found_is_copied_before_it_is_waited_for(cp):
    """Its memory may then be reused, and the words are zeros when the next call begins."""
    found = np.array([0, 3, 0, 1], "int32")
    info, before = cp.asarray(found), list(reports._awaited)
    first, second = reports.pending(info), reports.pending(cp.zeros(2, "int32"))
    info.fill(0)
    assert (first() == found).all()
    assert second() is None
    assert reports._awaited == before
    assert not reports._of_thread.words.values.any()
    with errors.unchecked():
        assert reports.pending(cp.asarray(found))() is None


@pytest.mark.parametrize("scale", [1e-310, 1e307])
def test_pivots_whose_inverses_overflow_or_vanish(cp, draw, scale):
    a = definite(draw, (1, 9, 9), "d") / 64
    assert_like(linalg.cholesky(cp.asarray(a * scale)), np.linalg.cholesky(a * scale))
    lu, _ = linalg.lu_factor(cp.asarray(a * scale))
    expected, _ = scipy.linalg.lu_factor(a[0])  # OpenBLAS is inexact with pivots of 1e-310
    got = np.tril(lu[0].get(), -1) + np.triu(lu[0].get()) / scale
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)  # of subnormal numbers


def test_a_workgroup_has_whole_matrices():
    for n in range(1, 129):
        shape = small.shape_of(n)
        assert 0 <= 8 * shape.groups - n < 8
        assert 0 <= shape.lanes * shape.rows - n < shape.lanes
        assert shape.threads % (32 * shape.groups) == 0
        assert shape.threads <= 512


def source(kind, char, n, **config):
    shape = small.shape_of(n)
    constants = {"threads": shape.threads, "rows": shape.rows, "groups": shape.groups}
    return kernels.source(kind, char, constants | config)


KINDS = [
    (kernels.SMALL_CHOLESKY, {}),
    (kernels.SMALL_LU, {"right_sides": 1}),
    (kernels.SMALL_INVERSE, {}),
]
SPILLED = {kernels.SMALL_CHOLESKY: 8, kernels.SMALL_LU: 24, kernels.SMALL_INVERSE: 96}
"""Bytes of a thread in memory, so that more workgroups are resident: less than a row, of 128."""
SPILLED_OF_COMPLEX = 160
"""The same of complex types, of which a thread has 128 or 256 bytes of a matrix of 64 rows."""
SPILLED_OF_TILES = 112
"""The same where the device has tiles: less than what a thread holds of 64 rows in float32."""


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("char", "fdFD")
def test_rows_stay_in_registers_on_hopper(kind, config, char):
    cubin = compile_cubin(source(kind, char, 64, **config), kind.entry)
    most = SPILLED_OF_COMPLEX if char in "FD" else SPILLED[kind]
    assert cubin.resources().local_bytes <= most


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("n", [32, 64, 96, 128])
def test_tiles_stay_in_registers_on_hopper(n, char):
    text = kernels.source(FACTOR_TILE, char, {"threads": 2 * n})
    assert compile_cubin(text, FACTOR_TILE.entry).resources().local_bytes <= SPILLED_OF_TILES


@pytest.mark.usefixtures("cdna_compiler")
@pytest.mark.covering
@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_rows_stay_in_registers_on_cdna(kind, config, target):
    text = source(kind, "d", 128, **config)
    assert compile_source(text, target, kind.entry).resources.scratch_bytes == 0
