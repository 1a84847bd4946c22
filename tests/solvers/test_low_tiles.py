"""Tiles of few rows, for triangular systems with few right-hand sides."""

from __future__ import annotations

import pytest

from cupygemm._solvers.common import tiles


@pytest.mark.parametrize(
    ("n", "columns", "faster"),
    [
        (128, 512, 64),
        (256, 8192, 64),
        (512, 4096, 64),
        (512, 7680, 128),
        (1024, 2048, 64),
        (1024, 4096, 128),
        (1024, 15000, 128),
    ],
)
def test_tiles_have_the_rows_that_took_less_time(n, columns, faster):
    """Measured on an H200, in float64."""
    assert tiles._rows_of_tile(columns, n, 1, 132) == faster


def test_tiles_of_many_matrices_or_for_few_workgroups_are_not_low():
    assert tiles._rows_of_tile(512, 512, 16, 132) == 128
    assert tiles._rows_of_tile(512, 512, 1, 8) == 128
