"""For the tests of this folder, the modelled GPU replaces the session's device."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Device
from tests.hopper_model.device import Model, modelled


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the folder on processors other than x86-64, on which its coroutines cannot run."""
    return None if platform.machine() == "x86_64" else True


@pytest.fixture(scope="module")
def _modelled() -> Iterator[tuple[Any, Model]]:
    with modelled() as both:
        yield both


@pytest.fixture(scope="module")
def cp(_modelled: tuple[Any, Model]) -> Any:
    """The substitute for CuPy on the modelled GPU."""
    return _modelled[0]


@pytest.fixture(scope="module")
def device() -> Device:
    """The modelled GPU, in the place of the session's device."""
    return Device("cuda", "sm_90")


@pytest.fixture
def model(_modelled: tuple[Any, Model]) -> Iterator[Model]:
    """The modelled GPU. Its seed and its fault are reset after each test."""
    model = _modelled[1]
    yield model
    model.seed, model.fault = 0, None
