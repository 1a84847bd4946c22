"""CuPy's solvers inside `accelerate`: computed by this library, with CuPy's semantics."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import cupygemm
from tests.products.test_accelerate import recorded_calls
from tests.solvers.conftest import assert_like
from tests.solvers.test_systems import definite, well_conditioned


@pytest.fixture
def calls(monkeypatch):
    import cupyx.linalg
    import cupyx.scipy.linalg  # noqa: F401

    return recorded_calls(monkeypatch)


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", "dfFD")
def test_functions_of_cupy_linalg(cp, calls, draw, dtype):
    a, b = well_conditioned(draw, (5, 5), dtype), draw((5, 2), dtype)
    spd, tall = definite(draw, (4, 4), dtype), draw((6, 3), dtype)
    x, y, s, t = (cp.asarray(each) for each in (a, b, spd, tall))
    with cupygemm.accelerate():
        results = [
            (cp.linalg.cholesky(s), np.linalg.cholesky(spd)),
            (cp.linalg.solve(x, b=y), np.linalg.solve(a, b)),
            (cp.linalg.inv(a=x), np.linalg.inv(a)),
            (cp.linalg.det(x), np.linalg.det(a)),
            (cp.linalg.slogdet(x)[1], np.linalg.slogdet(a)[1]),
            (cp.linalg.qr(t, mode="r"), np.linalg.qr(tall, "r")),
            (cp.linalg.lstsq(t, t)[0], np.linalg.lstsq(tall, tall)[0]),
            (cp.linalg.pinv(t), np.linalg.pinv(tall)),
        ]
    assert calls == ["cholesky", "solve", "inv", "det", "slogdet", "qr", "lstsq", "pinv"]
    for got, expected in results:
        assert_like(got, expected, factor=2000)


@pytest.mark.slow
def test_functions_of_cupyx(cp, calls, draw):
    import cupyx.linalg
    import cupyx.scipy.linalg as theirs

    a, b, spd = well_conditioned(draw, (5, 5), "d"), draw((5, 2)), definite(draw, (4, 4), "F")
    x, y, s = cp.asarray(a), cp.asarray(b), cp.asarray(spd)
    with cupygemm.accelerate():
        factors = theirs.lu_factor(x)
        solution = theirs.lu_solve(factors, y, trans=1)
        triangular = theirs.solve_triangular(x, y, lower=True)
        p, lower, upper = theirs.lu(x)
        inverse = cupyx.linalg.invh(s)
        factor = cp.linalg.cholesky(s)
        identity = cupyx.linalg.cho_solve((factor, True), s)
    assert calls == [
        *("lu_factor", "lu_solve", "solve_triangular", "_lu_factor", "invh", "cholesky"),
        "cho_solve",
    ]
    assert_like(factors[0], scipy.linalg.lu_factor(a)[0])
    assert_like(solution, np.linalg.solve(a.T, b))
    assert_like(triangular, scipy.linalg.solve_triangular(a, b, lower=True))
    for got, expected in zip((p, lower, upper), scipy.linalg.lu(a), strict=True):
        assert_like(got, expected)
    assert_like(inverse, np.linalg.inv(spd), factor=2000)
    assert_like(identity, np.eye(4, dtype="F"), factor=2000)


@pytest.mark.slow
def test_functions_that_call_solvers(cp, calls, draw):
    a, points = well_conditioned(draw, (4, 4), "d"), np.arange(6.0)
    values = points**2 + 1
    x = cp.asarray(a)
    with cupygemm.accelerate():
        results = {
            "cond": (cp.linalg.cond(x, 1), np.linalg.cond(a, 1)),
            "tensorsolve": (
                cp.linalg.tensorsolve(x.reshape(2, 2, 4), x[0].reshape(2, 2)),
                np.linalg.solve(a, a[0]),
            ),
            "tensorinv": (cp.linalg.tensorinv(x, 1), np.linalg.inv(a)),
            "polyfit": (
                cp.polyfit(cp.asarray(points), cp.asarray(values), 2),
                np.polyfit(points, values, 2),
            ),
            "NumPy's": (np.linalg.solve(x, x[0]), np.linalg.solve(a, a[0])),
        }
    assert [name for name in calls if name != "dot"] == ["inv", "solve", "inv", "lstsq", "solve"]
    for name, (got, expected) in results.items():
        np.testing.assert_allclose(got.get(), expected, rtol=1e-9, atol=1e-9, err_msg=name)


def test_errstate_decides_whether_a_singular_matrix_raises(cp, calls):
    import cupyx

    ones, negative = cp.ones((3, 3)), -cp.eye(3)
    with cupygemm.accelerate():
        for function, matrix in ((cp.linalg.inv, ones), (cp.linalg.cholesky, negative)):
            assert not bool(cp.isfinite(function(matrix)).all())
            with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
                function(matrix)
    assert calls == ["inv", "inv", "cholesky", "cholesky"]


@pytest.mark.slow
def test_what_cupy_allows(cp, calls, draw):
    """Stacks of vectors, zeros on a diagonal, cut-offs beyond one; float16 has its error."""
    import cupyx.scipy.linalg as theirs

    a, b = well_conditioned(draw, (5, 5, 5), "d"), draw((5, 5))
    x, y = cp.asarray(a), cp.asarray(b)
    with cupygemm.accelerate():
        got = theirs.solve_triangular(x, y)
        expected = [scipy.linalg.solve_triangular(*each) for each in zip(a, b, strict=True)]
        assert_like(got, expected)
        assert not bool(cp.isfinite(theirs.solve_triangular(cp.zeros((2, 2)), cp.ones(2))).all())
        solution, _, rank, _ = cp.linalg.lstsq(x[0], y[0], 7.0)
        assert_like(solution, np.linalg.solve(a[0], b[0]), factor=2000)
        assert rank.shape == ()
        assert int(rank) == 5
        with pytest.warns(RuntimeWarning, match="exactly zero"):
            theirs.lu_factor(cp.ones((3, 3)))
        with pytest.raises(TypeError, match="float16"):
            cp.linalg.inv(cp.ones((2, 2), "float16"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16"])
@pytest.mark.parametrize("name", ["invh", "solve_triangular"])
def test_narrow_types_are_solved_in_the_type_of_cupys(cp, calls, dtype, name):
    import cupyx.linalg
    import cupyx.scipy.linalg as theirs

    a = cp.eye(3).astype(dtype)

    def called():
        return cupyx.linalg.invh(a) if name == "invh" else theirs.solve_triangular(a, a)

    outside = called()
    with cupygemm.accelerate():
        inside = called()
    assert calls == [name]
    assert inside.dtype == outside.dtype
    assert (inside == cp.eye(3)).all()
