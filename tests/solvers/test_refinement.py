"""`solve` with factors of a lower precision: the backward error of the operands' type."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from cupygemm import linalg
from cupygemm._solvers.refinement import refine
from tests.solvers.conftest import assert_like
from tests.solvers.test_accuracy import backward_error
from tests.tables import swept

SWEPT = ("float32", "tf32x3", "tf32", "bfloat16")
PRECISIONS = (
    "float16",
    "int8",
    *(pytest.param(name, marks=pytest.mark.sweep) for name in SWEPT),
)
N = 24


def graded(a):
    """Rows and columns from 1 to 1e-30, which overflow and underflow in float16 without scaling."""
    scale = 10.0 ** -np.linspace(0, 30, len(a))
    return scale[:, None] * a * scale[::-1]


def conditioned(a, condition):
    u, _, v = np.linalg.svd(a)
    return u * np.geomspace(1, 1 / condition, len(a)) @ v


def refined(cp, a, b, precision, **options):
    x, info = linalg.solve(
        cp.asarray(a), cp.asarray(b), precision=precision, full_output=True, **options
    )
    return x.get(), info


@pytest.mark.one_in(2)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "kind",
    ["random", *(pytest.param(kind, marks=pytest.mark.sweep) for kind in ("graded", "ill"))],
)
def test_precisions_reach_the_error_of_float64(cp, draw, small_blocks, precision, kind):
    random, b = draw((N, N)), draw((N, 2))
    low = "float32" if precision in ("float32", "tf32x3", "int8") else "float16"
    ill = conditioned(random, {"float32": 1e6, "float16": 1e2}[low])
    a = {"random": random, "graded": graded(random), "ill": ill}[kind]
    x, info = refined(cp, a, b, precision)
    assert info.path == "refined"
    assert info.precision == precision
    assert info.waits >= 2
    assert info.backward_error.shape == ()
    assert backward_error(a, x, b) <= 2e-15


@pytest.mark.sweep
def test_half_precision_needs_more_iterations(cp, draw, small_blocks):
    """This shows that the factors have the requested precision."""
    a, b = conditioned(draw((N, N)), 30), draw(N)
    _, single = refined(cp, a, b, "float32")
    _, half = refined(cp, a, b, "bfloat16")
    assert half.iterations > single.iterations


@pytest.mark.slow
def test_after_too_many_iterations_a_matrix_is_factored_in_float64(cp, monkeypatch):
    a, b = scipy.linalg.hilbert(N), np.arange(1.0, N + 1)
    monkeypatch.setattr(refine, "_MOST_ITERATIONS", 2)
    x, info = refined(cp, a, b, "float16")
    assert info.path == "fallback"
    assert info.precision == "float64"
    assert (info.iterations, info.waits) == (2, 3)
    assert (x == linalg.solve(cp.asarray(a), cp.asarray(b)).get()).all()


@pytest.mark.sweep
def test_gmres_converges_for_a_hilbert_matrix(cp, small_blocks):
    """With the factors in float16 it takes some 35 iterations."""
    a, b = scipy.linalg.hilbert(N), np.arange(1.0, N + 1)[:, None]
    x, info = refined(cp, a, b, "float16")
    assert info.path == "refined"
    assert info.iterations > 16
    assert backward_error(a, x, b) <= 2e-15


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float16", *swept("int8")])
def test_singular_matrices_raise(cp, small_blocks, precision):
    a = np.ones((2, N, N))
    a[0] = np.eye(N)
    with pytest.raises(np.linalg.LinAlgError, match=r"Singular matrix \(number 1 of the stack\)"):
        linalg.solve(cp.asarray(a), cp.asarray(a), precision=precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision",
    ["float16", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("float32", "int8"))],
)
def test_positive_definite_matrices(cp, draw, small_blocks, precision):
    a = draw((N, N))
    scale = 10.0 ** -np.linspace(0, 30, N)
    a = scale[:, None] * (a @ a.T + np.eye(N)) * scale
    b = draw((N, 1))
    x, info = refined(cp, np.tril(a), b, precision, assume_a="pos", lower=True)
    assert info.path == "refined"
    assert backward_error(a, x, b) <= 2e-15
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        refined(cp, -a, b, precision, assume_a="pos")


@pytest.mark.sweep
def test_complex_matrices_and_stacks(cp, draw, small_blocks):
    a, b = draw((2, N, N), "D"), draw((3, 1, N, 2), "D")
    x, info = refined(cp, a, b, "float32", transposed=True)
    assert info.path == "refined"
    assert info.backward_error.shape == (3, 2)
    assert_like(x, np.linalg.solve(a.swapaxes(1, 2), b), factor=20000)


@pytest.mark.sweep
def test_float32(cp, draw, small_blocks):
    a, b = draw((N, N), "f"), draw((3, N, 2), "f")
    x, info = refined(cp, a, b, "bfloat16")
    assert info.path == "refined"
    assert x.dtype == np.float32
    assert max(backward_error(a, each, one) for each, one in zip(x, b, strict=True)) <= 5e-7


@pytest.mark.slow
def test_calls_that_are_not_refined(cp):
    eye = cp.eye(3)
    for options in ({}, {"precision": "float16", "assume_a": "diagonal"}):
        x, info = linalg.solve(eye, eye, full_output=True, **options)
        assert (info.path, info.precision, info.iterations) == ("direct", "float64", 0)
        assert (x == eye).all()
    _, info = linalg.solve(eye.astype("f"), eye.astype("f"), precision="float32", full_output=True)
    assert info.path == "direct"
    assert linalg.solve(eye, cp.zeros(3), precision="float16").get().tolist() == [0, 0, 0]
    assert linalg.solve(cp.ones((0, 0)), cp.ones((0, 2)), precision="float16").shape == (0, 2)
    with pytest.raises(ValueError, match="precision is 'half'; it must be None or one of"):
        linalg.solve(eye, eye, precision="half")
    with pytest.raises(ValueError, match="which has no complex products"):
        linalg.solve(eye.astype("D"), eye, precision="tf32")
    with pytest.raises(ValueError, match="which has no complex products"):
        linalg.solve(eye.astype("D"), eye, precision="int8")
    with pytest.raises(ValueError, match="infs or NaNs"):
        linalg.solve(eye * cp.nan, eye, precision="float16", check_finite=True)


@pytest.mark.sweep
def test_results_are_the_same_bits_each_time(cp, draw, small_blocks):
    a, b = draw((N, N)), draw(N)
    first, _ = refined(cp, a, b, "float16")
    assert (refined(cp, a, b, "float16")[0] == first).all()
