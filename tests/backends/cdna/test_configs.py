"""Every configuration gives exact products, whatever the operands' order and the tails.

The configuration is not selected but forced, so each kernel that may ever be chosen runs here.
"""

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.backend import CdnaBackend
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._request.call import operand_of
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from tests.tables import rows_of

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
ORDERS = [("C", "C"), ("C", "F"), ("F", "C"), ("F", "F")]


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
        if reason := check(config, backend.problem(request), backend.arch):
            pytest.skip(reason)
        compiled = backend.compile(request, config, reason="forced")
        assert compiled.resources().scratch_bytes == 0
        assert compiled.resources().vgpr_spills == compiled.resources().sgpr_spills == 0
        return backend.launch(request, compiled)(a, b, out)

    return multiply


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        target = metafunc.config.getoption("--target")
        metafunc.parametrize("number", rows_of(lambda: numbers(target)))


def numbers(target):
    """Yield the number of each configuration, under its name."""
    for number, config in enumerate(configs_for("bf16", target)):
        yield pytest.param(number, id=config.name)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("orders", ORDERS, ids="".join)
def test_whole_tiles(cp, device, run, number, orders):
    config = configs_for("bf16", device.target)[number]
    dtype = (BF16, F16)[number % 2]
    # One step of k more than the stages: the loop's prologue, body and drain all run.
    m, n, k = config.tile_m, 2 * config.tile_n, (config.num_stages + 2) * config.tile_k
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
    out = cp.empty((m, n), dtype)
    testing.assert_gemm_exact(run(config, x1, x2, orders, out), x1, x2)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("orders", ORDERS, ids="".join)
def test_tails(cp, device, run, number, orders):
    """A tile and a bit along each axis, rows at odd addresses; also less than a tile of each."""
    config = configs_for("bf16", device.target)[number]
    dtype = (F16, BF16)[number % 2]
    for m, n, k in (
        (config.tile_m + 1, config.tile_n + 3, config.tile_k + 5),
        (config.tile_m - 3, config.tile_n - 1, config.tile_k - 7),
        (1, 3, 1),
    ):
        x1, x2 = testing.integer_operands((m, k), (k, n), dtype, seed=m)
        out = cp.asarray(np.full((m, n), np.nan, np.float32))
        testing.assert_gemm_exact(run(config, x1, x2, orders, out), x1, x2)


def test_batches(cp, device, run, number):
    config = configs_for("bf16", device.target)[number]
    m, n, k = config.tile_m // 2 + 1, config.tile_n // 2 + 8, config.tile_k + 8
    x1, x2 = testing.integer_operands((2, 1, m, k), (3, k, n), BF16)
    out = cp.empty((2, 3, m, n), BF16)
    testing.assert_gemm_exact(run(config, x1, x2, ("C", "C"), out), x1, x2)
