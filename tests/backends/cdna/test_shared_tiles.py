"""Calls whose sums several workgroups share: split-k, stream-k and atomic, as `matmul` runs them.

The selector takes them of its own accord for long k and small results; elsewhere they are forced.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.cdna import backend
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._plan.table import PLANS

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
LONG = (40, 30, 4100)  # m, n, k


@pytest.fixture
def cdna(device):
    if device.kind == "cuda":
        pytest.skip("kernels of CDNA: Hopper's have tests of their own")
    return device


@pytest.fixture
def forced(cdna, monkeypatch):
    """Return a function that has every call use a small configuration, changed so."""

    def force(**changes):
        select = backend.select

        def selected(problem, arch, *, reproducible=True):
            configs = (replace(c, **changes) for c in configs_for(problem.a_dtype, arch.name))
            usable = [c for c in configs if check(c, problem, arch) is None]
            config = min(usable, key=lambda c: c.tile_m * c.tile_n)
            return replace(select(problem, arch, reproducible=reproducible), config=config)

        monkeypatch.setattr(backend, "select", selected)
        PLANS.clear()

    return force


def long_operands(cp, dtype, *, exact=True):
    m, n, k = LONG
    draw = testing.integer_operands if exact else testing.random_operands
    x1, x2 = draw((m, k), (k, n), dtype)
    return cp.asarray(x1), cp.asarray(x2), x1, x2


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [BF16, F32, np.dtype(np.float64), np.dtype(np.int8)], ids=str)
def test_long_k_is_selected_in_parts(cp, cdna, dtype):
    a, b, x1, x2 = long_operands(cp, dtype)
    result = np.dtype(np.int32) if dtype == np.int8 else dtype
    explanation = cupygemm.explain(a, b, dtype=result)
    assert explanation.config.split_k > 1
    assert "added by a second kernel" in explanation.why
    assert f"k in {explanation.config.split_k} parts" in str(explanation)
    for _ in range(2):
        testing.assert_gemm_exact(cupygemm.matmul(a, b, dtype=result), x1, x2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"split_k": 3}, {"split_k": 3, "atomic": True}, {"stream_k": 5}],
    ids=["split_k", "atomic", "stream_k"],
)
def test_results_in_place_and_apart(cp, forced, changes):
    forced(**changes)
    x1, x2 = testing.integer_operands((33, 500), (500, 35), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    wide = cp.asarray(np.full((33, 80), 7, F32))
    cupygemm.matmul(a, b, wide[:, 3:38])
    testing.assert_gemm_exact(wide[:, 3:38], x1, x2)
    assert (cp.asnumpy(wide)[:, [0, 2, 38, 79]] == 7).all()


@pytest.mark.slow
def test_ways_to_pass_operands_and_results(cp, forced):
    """Transposed and aliased ``out``; a batch that takes several launches, each a workspace."""
    forced(split_k=3)
    x1, x2 = testing.integer_operands((33, 500), (500, 35), F16)
    turned = cp.empty((35, 33), F16).T
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), turned), x1, x2)

    square, other = testing.integer_operands((40, 40), (40, 40), F16)
    s = cp.asarray(np.tile(square, (1, 8)))
    t = cp.asarray(np.tile(other, (8, 1)))
    aliased = s[:, :40]
    expected = testing.reference_matmul(s, t)
    cupygemm.matmul(s, t, aliased)
    np.testing.assert_array_equal(cp.asnumpy(aliased).astype(np.float64), expected)

    x1, x2 = testing.integer_operands((2, 1, 2, 1, 9, 400), (2, 1, 2, 1, 400, 10), BF16)
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2)), x1, x2)


def test_the_same_bits_each_time(cp, cdna):
    a, b, x1, x2 = long_operands(cp, BF16, exact=False)
    results = [cupygemm.matmul(a, b, dtype=F32) for _ in range(3)]
    testing.assert_gemm_close(results[0], x1, x2)
    assert len({cp.asnumpy(result).tobytes() for result in results}) == 1


@pytest.mark.slow
def test_not_reproducible_is_within_the_bound(cp, cdna, forced):
    forced(split_k=7, atomic=True)
    a, b, x1, x2 = long_operands(cp, BF16, exact=False)
    for dtype in (BF16, F32):
        result = cupygemm.matmul(a, b, dtype=dtype, reproducible=False)
        testing.assert_gemm_close(result, x1, x2)


def test_no_workspace_outlives_its_call(cp, forced):
    """It goes back to CuPy's pool, from which the next call takes it."""
    forced(split_k=3)
    a, b, _, _ = long_operands(cp, F16)
    out = cp.empty(LONG[:2], F16)
    pool = cp.get_default_memory_pool()
    cupygemm.matmul(a, b, out)
    used, total = pool.used_bytes(), pool.total_bytes()
    for _ in range(3):
        cupygemm.matmul(a, b, out)
    assert (pool.used_bytes(), pool.total_bytes()) == (used, total)
