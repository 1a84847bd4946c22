"""Parametrize tests by the product's tables, robustly, and run samples of the longest sweeps.

pytest evaluates the arguments of `parametrize` when it collects, and an exception there loses the
whole module, tests of other rows included. `rows_of` catches it and returns one row that stands for
the broken table; the test that takes it fails with the table's own exception.

Some tests run for every row of a long table, such as every configuration of a GEMM kernel, and
each row is a kernel to compile. Those are marked ``one_in(number)``: ``make test`` runs every
`number`-th of their cases, and ``make test-all``, which is what CI runs, all of them. A test of two
tables takes a number that is coprime to the length of the one that varies faster, so that each row
of either is met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class BrokenTable:
    """Stands for the rows of a table that raised an exception."""

    error: Exception


def rows_of(
    table: Callable[[], Iterable[Any]],
    *,
    width: int = 1,
    name: Callable[[Any], str] | None = None,
) -> list[Any]:
    """Return the rows of a table, for `pytest.mark.parametrize`.

    Parameters
    ----------
    table : callable
        Returns the rows: values, tuples of `width` values, or ``pytest.param(...)``.
    width : int
        How many arguments of a test a row fills.
    name : callable, optional
        Returns the name of the test from a row. It may raise, too.
    """
    try:
        found = list(table())
        if name is not None:
            found = [pytest.param(*(row if width > 1 else (row,)), id=name(row)) for row in found]
    except Exception as error:  # noqa: BLE001, whatever it is, the tests of the table fail with it
        return [pytest.param(*[BrokenTable(error)] * width, id="a broken table")]
    return found


def fail_for_broken_tables(item: pytest.Item) -> None:
    """Raise the exception of the table that gave a test its row, if there was one."""
    call = getattr(item, "callspec", None)
    for value in () if call is None else call.params.values():
        if isinstance(value, BrokenTable):
            raise value.error


def mark_sweeps(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of ``one_in`` tests that ``make test`` leaves out as parts of a sweep."""
    met: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("one_in")
        if mark is not None:
            test = item.nodeid.split("[")[0]
            if met[test] % mark.args[0]:
                item.add_marker("sweep")
            met[test] += 1
