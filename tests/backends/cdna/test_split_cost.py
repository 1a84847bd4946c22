"""The cost model of long k, against the timing model of the emulated device.

The timing model knows the instructions, the cost model a few constants: for products of few tiles,
cut into parts of k, they must agree on the cycles and on the number of parts. What is an assumption
of the cost model alone is left out: the gap between two kernels, and what memory gives one CU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupygemm import emulator
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.backend import CdnaBackend
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.constants import KERNELS
from cupygemm._backends.cdna.mainloops import MAINLOOPS
from cupygemm._backends.cdna.select import estimate
from cupygemm._request.call import operand_of
from cupygemm._request.options import Options
from cupygemm._request.request import make_request

BF16 = np.dtype(ml_dtypes.bfloat16)
# m, n, k; the mainloop, and a side of its tile
PRODUCTS = {
    "gfx942": [
        (64, 64, 4096, "register_double_buffer", 64),
        (128, 64, 2048, "register_double_buffer", 64),
        (64, 32, 4096, "register_double_buffer", 32),
    ],
    "gfx950": [(128, 128, 4096, "direct_to_lds", 64)],
}
PARTS = (1, 4, 9, 32)


@pytest.fixture
def target(cp: Any, device: Any) -> str:
    if not device.kind.startswith("emulated") or device.target not in PRODUCTS:
        pytest.skip("the timing model is of emulated devices, and few products are of others")
    return str(device.target)


def cycles(
    cp: Any, target: str, product: tuple[int, int, int, str, int], parts: int
) -> tuple[float, list[float]]:
    """Return the cycles of a product in parts by the cost model, and by the timing model each."""
    m, n, k, name, side = product
    a, b, out = cp.ones((m, k), BF16), cp.ones((k, n), BF16), cp.empty((m, n), BF16)
    options = Options(casting="unsafe")
    request = make_request(operand_of(a), operand_of(b), operand_of(out), options=options)
    backend = CdnaBackend(ARCHS[target])
    problem = backend.problem(request)
    base = next(c for c in MAINLOOPS[name].configs("bf16", target) if c.tile_n == side)
    config = replace(base, split_k=parts)
    assert check(config, problem, ARCHS[target]) is None
    compiled = backend.compile(request, config, reason="forced")
    with emulator.profile() as profile:
        backend.launch(request, compiled)(a, b, out)
    modelled = [launch.timing.cycles for launch in profile.launches if launch.timing]
    gaps = KERNELS.next_kernel_cycles if parts > 1 else 0
    return estimate(config, problem, ARCHS[target]).cycles - gaps, modelled


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_the_cost_of_parts(cp: Any, target: str, number: int) -> None:
    """Within a quarter, each; and what the cost model likes best is 5 % off the best at most."""
    if number >= len(PRODUCTS[target]):
        pytest.skip("fewer products")
    costs = [cycles(cp, target, PRODUCTS[target][number], parts) for parts in PARTS]
    for parts, (estimated, modelled) in zip(PARTS, costs, strict=True):
        assert estimated == pytest.approx(sum(modelled), rel=0.25), f"{parts} parts"
    chosen = sum(min(costs)[1])
    assert chosen <= 1.05 * min(sum(modelled) for _, modelled in costs)


@pytest.mark.slow
def test_up_to_sixteen_parts_are_loaded_at_once(cp: Any, target: str) -> None:
    """Three parts of a wave used to wait for memory one after the other, 1180 cycles each."""
    product = PRODUCTS[target][-1]
    few, many = (cycles(cp, target, product, parts)[1][1] for parts in (4, 13))
    assert many < few + 400
