"""Every configuration gives exact products, whatever the operands' order and the tails.

The configuration is not selected but forced, so each kernel that may ever be chosen runs here.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.backend import CdnaBackend
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._records.problem import GemmProblem
from cupygemm._request.call import operand_of
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from tests.tables import rows_of

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
ORDERS = ["CC", "CF", "FC", "FF"]


@pytest.fixture
def run(cp, device):
    """Return a function that multiplies host operands by one configuration, forced."""

    def multiply(config, x1, x2, orders, out):
        a, b = (
            cp.asarray(x) if order == "C" else cp.asarray(np.ascontiguousarray(x.T)).T
            for x, order in zip((x1, x2), orders, strict=True)
        )
        options = Options(casting="unsafe")
        request = make_request(operand_of(a), operand_of(b), operand_of(out), options=options)
        backend = CdnaBackend(ARCHS[device.target])
        assert check(config, backend.problem(request), backend.arch) is None
        compiled = backend.compile(request, config, reason="forced")
        assert compiled.resources().scratch_bytes == 0
        assert compiled.resources().vgpr_spills == compiled.resources().sgpr_spills == 0
        return backend.launch(request, compiled)(a, b, out)

    return multiply


def whole(config):
    """Return extents of whole tiles, with one step of k more than the stages.

    The loop's prologue, body and drain all run.
    """
    return [(config.tile_m, 2 * config.tile_n, (config.num_stages + 2) * config.tile_k)]


def ragged(config):
    """Return extents of a tile and a bit along each axis, and of less than a tile."""
    return [
        (config.tile_m + 1, config.tile_n + 3, config.tile_k + 5),
        (config.tile_m - 3, config.tile_n - 1, config.tile_k - 7),
        (1, 3, 1),
    ]


def batched(config):
    return [(config.tile_m // 2 + 1, config.tile_n // 2 + 8, config.tile_k + 8)]


def pytest_generate_tests(metafunc):
    target = metafunc.config.getoption("--target")
    extents, align, orders = metafunc.function.taken
    table = rows_of(lambda: taken(target, extents, align, orders), width=2)
    metafunc.parametrize(("config", "orders"), table)


def taken(target, extents, align, orders):
    """Yield each configuration, with the orders of operands in which it takes the products."""
    for config, (first, second) in itertools.product(configs_for("bf16", target), orders):
        problems = [
            GemmProblem(
                m=m,
                n=n,
                k=k,
                batch=(),
                a_dtype="bf16",
                b_dtype="bf16",
                out_dtype="bf16",
                a_major="k" if first == "C" else "m",
                b_major="n" if second == "C" else "k",
                a_align=align,
                b_align=align,
                c_align=align,
            )
            for m, n, k in extents(config)
        ]
        if all(check(config, problem, ARCHS[target]) is None for problem in problems):
            yield pytest.param(config, first + second, id=f"{config.name}-{first}{second}")


def of(extents, *, align, orders, one_in=1):
    """Mark a test that runs for the configurations that take products of some extents."""

    def marked(test):
        test.taken = extents, align, orders
        return pytest.mark.one_in(one_in)(pytest.mark.covering(test))

    return marked


@pytest.mark.slow
@of(whole, align=16, orders=ORDERS)
def test_whole_tiles(cp, device, run, config, orders):
    dtype = (BF16, F16)[configs_for("bf16", device.target).index(config) % 2]
    for m, n, k in whole(config):
        x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
        out = cp.empty((m, n), dtype)
        testing.assert_gemm_exact(run(config, x1, x2, orders, out), x1, x2)


@pytest.mark.slow
@of(ragged, align=2, orders=ORDERS, one_in=2)
def test_tails(cp, device, run, config, orders):
    """Rows begin at odd addresses."""
    dtype = (F16, BF16)[configs_for("bf16", device.target).index(config) % 2]
    for m, n, k in ragged(config):
        x1, x2 = testing.integer_operands((m, k), (k, n), dtype, seed=m)
        out = cp.asarray(np.full((m, n), np.nan, np.float32))
        testing.assert_gemm_exact(run(config, x1, x2, orders, out), x1, x2)


@of(batched, align=16, orders=["CC"], one_in=2)
def test_batches(cp, run, config, orders):
    for m, n, k in batched(config):
        x1, x2 = testing.integer_operands((2, 1, m, k), (3, k, n), BF16)
        out = cp.empty((2, 3, m, n), BF16)
        testing.assert_gemm_exact(run(config, x1, x2, orders, out), x1, x2)
