"""How many workgroups of a launch fit on an SM."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cupygemm._solvers.common import residency


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "count"),
    [
        (256, 128, 36 << 10, 2),
        (256, 129, 36 << 10, 1),  # registers are given out by eights
        (128, 32, 56 << 10, 4),
        (128, 32, 57 << 10, 3),  # with what the system takes of shared memory
        (1024, 16, 0, 2),
    ],
)
def test_resident(threads, registers, shared_bytes, count):
    function = SimpleNamespace(resources=lambda: (registers, shared_bytes))
    launch = SimpleNamespace(threads=threads, function=function)
    assert residency.resident(launch) == count
