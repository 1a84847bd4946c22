"""Parametrize tests by a table of the product, so that an error in the table is one failing test.

pytest evaluates the arguments of `parametrize` when it collects, and an exception there loses the
whole module, tests of other rows included. `rows_of` catches it and returns one row that stands for
the broken table; the test that takes it fails with the table's own exception.
"""

from __future__ import annotations

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
