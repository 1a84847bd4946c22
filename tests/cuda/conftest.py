"""Tests of what only a Hopper GPU can run; they are collected with ``--device cuda`` alone."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out where the session's device is another."""
    return None if config.getoption("--device") == "cuda" else True
