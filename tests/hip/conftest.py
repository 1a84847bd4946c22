"""The corpus of HIP kernels: tests run for every target and optimisation level.

``make test`` runs each target, each level and each order of waves; CI runs all combinations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hip.harness import ORDERS, SAMPLE, VARIANTS, Program, compile_source


@pytest.fixture(
    params=[
        pytest.param(variant, marks=() if variant in SAMPLE else pytest.mark.sweep)
        for variant in VARIANTS
    ],
    ids="".join,
)
def variant(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Target and optimisation level."""
    value: tuple[str, str] = request.param
    return value


@pytest.fixture
def program(variant: tuple[str, str]) -> Callable[[str], Program]:
    """Return the program of a file of kernels, freshly loaded."""
    target, level = variant
    order = ORDERS.get(variant, "lockstep")
    return lambda name: Program(compile_source(name, target, level), target, order)
