"""The constants of Hopper's cost model, and the network that corrects it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.select import select
from cupygemm._backends.hopper.cost import correction
from cupygemm._backends.hopper.cost.constants import KERNELS
from cupygemm._backends.hopper.cost.model import kernel_cost
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from tests.backends.hopper.test_hopper_config import ARCH, PROBLEM


@pytest.mark.parametrize("change", [{"launch": None}, {"latency": 1.0}])
def test_the_constants_of_the_model_are_all_given(change):
    values = vars(KERNELS) | change
    kept = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(TypeError, match="other fields than launch, "):
        KernelConstants(**kept)


def test_costs_of_other_operands_are_averaged_with_the_first():
    weights = correction.network()
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(100, len(weights.mean)))
    rows = (weights.mean + weights.deviation * normal).astype("f4")
    others = rows.copy()
    others[:, -3:] += rng.normal(size=(100, 3)).astype("f4") / 10
    mean = weights(rows, others[:, -3:])
    assert mean == pytest.approx((weights(rows) + weights(others)) / 2, abs=1e-5)
    slow = np.tanh(normal @ weights.hidden + weights.hidden_bias) @ weights.out + weights.bias
    assert weights(rows) == pytest.approx(slow, abs=1e-5)


def test_the_properties_of_a_product_become_weights():
    """Kernels with and without the transpose have the properties of two products."""
    weights, rng = correction.network(), np.random.default_rng(0)
    first = len(correction.OF_CONFIGS) + len(correction.OF_KERNELS)
    product = slice(first, first + len(correction.OF_PRODUCTS))
    transposed = correction.OF_CONFIGS.index("transposed")
    normal = rng.normal(size=(100, len(weights.mean)))
    rows = (weights.mean + weights.deviation * normal).astype("f4")
    rows[:, transposed] = np.arange(100) % 2
    rows[:, product] = rows[:2, product][np.arange(100) % 2]
    of_kernels = np.delete(rows, product, axis=1)
    inputs = np.insert(of_kernels, product.start, 1, axis=1)
    others = rows[:, -3:] + np.float32(0.1)
    of_both = correction.layers_of_product(weights, rows[:2, product])
    assert of_both(inputs, others) == pytest.approx(weights(rows, others), abs=1e-5)
    of_plain = correction.layers_of_product(weights, rows[:1, product])
    assert of_plain(inputs[::2], others[::2]) == pytest.approx(
        weights(rows[::2], others[::2]), abs=1e-5
    )


def test_the_correction_is_read_as_it_was_written_and_names_its_features():
    weights = correction.network()
    text = correction.to_json(weights, {"device": "a GPU"})
    again = correction.from_json(text)
    for name in ("mean", "deviation", "hidden", "hidden_bias", "out", "bias"):
        assert np.array_equal(getattr(again, name), getattr(weights, name))
    with pytest.raises(ValueError, match="weights were fitted to other features"):
        correction.from_json(text.replace("three consumers", "four consumers"))


def test_the_correction_moves_costs_within_bounds():
    """It corrects the model; it does not replace it."""
    for shape in ((128, 4096, 4096), (8192, 2560, 320), (1, 4096, 4096), (4096, 4096, 4096)):
        problem = replace(PROBLEM, m=shape[0], n=shape[1], k=shape[2], b_major="k")
        for candidate in select(problem, ARCH).candidates[:20]:
            computed = as_computed(problem, transposed_c=candidate.config.transposed_c)
            modelled = kernel_cost(candidate.config, computed, ARCH).cycles
            assert 0.5 < candidate.cycles / modelled < 2
