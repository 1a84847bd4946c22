"""How often the solvers wait for the device, counted by the emulated runtime."""

from __future__ import annotations

import pytest

PROGRAM = """
from tests.runtime_calls import counted, waits

counts = counted()
import cupygemm.emulator
cupygemm.emulator.enable("gfx942")
import cupy as cp, numpy as np
from cupygemm import linalg

rng = np.random.default_rng(0)
drawn = rng.standard_normal({shape})
definite = drawn @ drawn.swapaxes(-1, -2) + {n} * np.eye({n})
a, b, positive = cp.asarray(drawn), cp.ones({shape}[:-1] + (3,)), cp.asarray(definite)
lu, cho = linalg.lu_factor(a), linalg.cho_factor(positive)
CALLS = {{
    "cholesky": (1, lambda: linalg.cholesky(positive)),
    "solve": (1, lambda: linalg.solve(a, b)),
    "solve, finite": (1, lambda: linalg.solve(a, b, check_finite=True)),
    "solve, positive": (1, lambda: linalg.solve(positive, b, assume_a="pos")),
    "inv": (1, lambda: linalg.inv(a)),
    "det": (0, lambda: linalg.det(a)),
    "slogdet": (0, lambda: linalg.slogdet(a)),
    "qr": (0, lambda: linalg.qr(a)),
    "lu_factor": (1, lambda: linalg.lu_factor(a)),
    "lu_solve": (1, lambda: linalg.lu_solve(lu, b)),
    "cho_factor": (1, lambda: linalg.cho_factor(positive)),
    "cho_solve": (1, lambda: linalg.cho_solve(cho, b)),
    "solve_triangular": (1, lambda: linalg.solve_triangular(positive, b)),
}}
if {n} <= 128:  # else, they wait once in each sweep over the columns
    CALLS["pinv"] = 0, lambda: linalg.pinv(a)
    if a.ndim == 2:
        CALLS["lstsq"] = 1, lambda: linalg.lstsq(a, b)
for name, (most, call) in CALLS.items():
    call()  # loads the kernels
    cp.cuda.Device().synchronize()
    counts.clear()
    call()
    assert sum(waits(counts).values()) <= most, (name, most, waits(counts))
print("checked", len(CALLS))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("emulated_targets")
@pytest.mark.parametrize(
    ("shape", "count"), [((40, 40), 15), ((150, 150), 13), ((2, 40, 40), 14)], ids=str
)
def test_a_call_waits_at_most_once(run_python, shape, count):
    """At its end, to learn whether a matrix is singular; in one launch, by blocks, in a stack."""
    assert f"checked {count}" in run_python(PROGRAM.format(shape=shape, n=shape[-1]))
