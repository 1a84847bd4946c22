"""Solvers on the targets that other tests do not use, each in a separate process."""

from __future__ import annotations

import pytest

PROGRAM = """
import cupy as cp
import numpy as np
from cupygemm import linalg
from cupygemm._solvers.common import blocks

rng, n = np.random.default_rng(3), 45 if ALL else 8
if ALL:
    blocks.LIMITS = blocks.Limits(
        threads=32,
        cluster_threads=32,
        registers=32,
        width=4,
        alone=1,
        team=8,
        outer=16,
        half=8,
        wide=46,
        substituted=8,
        vector=4,
        ahead=4,
        ahead_of_qr=4,
        whole=0,
    )
for dtype in DTYPES:
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, 3))
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.standard_normal((n, n))
    a, b = a.astype(dtype), b.astype(dtype)
    definite = a @ a.conj().T + np.eye(n, dtype=dtype)
    unit = float(np.finfo(dtype).eps) / 2
    x = linalg.solve(cp.asarray(a), cp.asarray(b)).get()
    scale = np.abs(a).sum(1).max() * np.abs(x).sum(1).max()
    assert np.abs(a @ x - b).sum(1).max() <= 10 * n * unit * scale, dtype
    lower = linalg.cholesky(cp.asarray(definite)).get()
    error = np.abs(definite - lower @ lower.conj().T).max()
    assert error <= 10 * n * unit * np.abs(definite).max(), dtype
    inverse = linalg.inv(cp.asarray(a)).get()
    scale = np.abs(a).sum(1).max() * np.abs(inverse).sum(1).max()
    assert np.abs(a @ inverse - np.eye(n)).sum(1).max() <= 10 * n * unit * scale, dtype
    sign, log = (each.get() for each in linalg.slogdet(cp.asarray(a)))
    found, scale = np.linalg.slogdet(a), np.linalg.cond(a)
    assert max(abs(sign - found[0]), abs(log - found[1])) <= 10 * n * unit * scale, dtype
    if ALL:
        lower, factor = cp.asarray(np.tril(definite)), cp.asarray(definite)
        for got in (
            linalg.lu_solve(linalg.lu_factor(factor), cp.asarray(b)),
            linalg.cho_solve(linalg.cho_factor(factor), cp.asarray(b)),
            linalg.solve(factor, cp.asarray(b), assume_a="pos"),
            linalg.pinv(factor) @ cp.asarray(b),
        ):
            error = np.abs(definite @ got.get() - b).max()
            scale = np.linalg.cond(definite) * np.abs(b).max()
            assert error <= 10 * n * unit * scale, dtype
        y = linalg.solve_triangular(lower, cp.asarray(b), lower=True).get()
        scale = np.abs(lower.get()).sum(1).max() * np.abs(y).max()
        assert np.abs(lower.get() @ y - b).max() <= 10 * n * unit * scale, dtype
        determinant = linalg.det(cp.asarray(a)).get()
        error = abs(determinant / np.linalg.det(a) - 1)
        assert error <= 10 * n * unit * np.linalg.cond(a), dtype
        q, r = (each.get() for each in linalg.qr(cp.asarray(a)))
        assert np.abs(q @ r - a).max() <= 10 * n * unit * np.abs(a).max(), dtype
        solution, _, rank, _ = linalg.lstsq(cp.asarray(a), cp.asarray(b))
        assert rank == n, dtype
        if dtype == "d":
            _, info = linalg.solve(
                cp.asarray(a), cp.asarray(b), precision="float16", full_output=True
            )
            assert info.path == "refined"
"""


@pytest.mark.usefixtures("cdna_compiler", "emulated_targets")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
@pytest.mark.parametrize(
    ("dtypes", "everything"),
    [("d", False), pytest.param("fdFD", True, marks=pytest.mark.sweep)],
)
def test_solvers_without_a_finding(run_python, target, dtypes, everything):
    code = PROGRAM.replace("DTYPES", repr(dtypes)).replace("ALL", repr(everything))
    run_python(code, target=target)
