"""Tests of what only a Hopper GPU can run, or the model of one, and of no other session."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out where the session's device is another."""
    return None if config.getoption("--device") in ("cuda", "modelled") else True
