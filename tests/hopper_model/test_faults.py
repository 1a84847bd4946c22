"""The model finds the fault in each of many kernels that have one fault, and says where it is.

A fault changes a kernel's text before it is compiled: it drops a wait, a fence or an arrival, or
alters a parity or an address. With some of these faults, an H200 would still compute the right
result most of the time.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from cupygemm import testing
from cupygemm._records.formats import as_stored
from tests.cuda.variants import BF16, F16, F32, multiply
from tests.hopper_model import kernel_faults as faults
from tests.hopper_model.device import Model, ModelError
from tests.hopper_model.kernel_faults import FAULTS, Fault


def run(cp: object, fault: Fault) -> None:
    """Multiply by the faulty kernel: several tiles, and several rounds of the ring of stages."""
    variant, odd = fault.variant, int(not fault.variant.aligned)
    m, n, k = 136, 144 + odd, 4 * variant.config.tile_k + 8
    x1, x2 = testing.integer_operands((m, k), (k, n), variant.dtype)
    a, b = (
        cp.asarray(np.array(as_stored(x), order=order))
        for x, order in zip((x1, x2), variant.orders, strict=True)
    )
    options = {}
    if fault.epilogue:
        options = {
            "scale_a": np.float32(2.0) ** (np.arange(m) % 3),
            "c": np.ones((m, n), F32),
            "bias": np.arange(n).astype(BF16),
        }
    on_device = {name: cp.asarray(value) for name, value in options.items()}
    testing.assert_gemm_exact(multiply(variant, a, b, **on_device), x1, x2, **options)


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(cp, model: Model, fault):
    def changed(text: str) -> str:
        if "cupygemm_gemm(" not in text:
            return text
        assert fault.text in text
        return text.replace(fault.text, fault.instead)

    model.fault = changed
    found = (finding(cp, model, fault, seed) for seed in range(4))
    assert re.search(fault.said, next(filter(None, found), "nothing in four schedules"))


def finding(cp, model: Model, fault: Fault, seed: int) -> str:
    """Return the fault that shows in the schedule of a seed, or an empty string."""
    model.seed = seed
    try:
        run(cp, fault)
    except (ModelError, AssertionError) as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "variant",
    [
        faults.HALVES,
        faults.CLUSTER,
        faults.TWO_CONSUMERS,
        faults.DIRECT,
        faults.PROMOTED,
        faults.REGISTERS,
        faults.TURNED,
        faults.NARROW,
        faults.FP64,
        faults.BYTES,
        faults.BYTES_DIRECT,
    ],
)
def test_without_a_fault_nothing_is_found(cp, model, variant):
    for seed in range(3):
        model.seed = seed
        fused = variant.dtype == F16 and not variant.config.transposed_c
        run(cp, Fault("none", text="", instead="", said="", variant=variant, epilogue=fused))
