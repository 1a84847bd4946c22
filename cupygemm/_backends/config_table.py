"""Configurations as a text table: a line that names the columns, then one line for each row.

A table is parsed when it is first used, not when its module is imported. An invalid row therefore
fails where the row is needed, with an error that quotes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

Row = TypeVar("Row")


class ConfigTable(Sequence[Row], Generic[Row]):
    """A sequence of rows that are written as text.

    Parameters
    ----------
    name : str
        The name of the table, for error messages.
    make : callable
        ``make(**columns)`` returns the record of a row; it may raise ValueError.
    text : str
        The table. The words of its first line are the names of the columns. The words of every
        other line are integers, each at least 1. Empty lines are ignored.
    """

    def __init__(self, name: str, make: Callable[..., Row], text: str) -> None:
        self.name = name
        self._make = make
        self._text = text

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """Return the records of all rows.

        Raises
        ------
        ValueError
            A row is invalid; the message quotes it.
        """
        lines = [line.split() for line in self._text.splitlines() if line.strip()]
        columns = lines[0]
        return tuple(
            self._row(number, columns, words) for number, words in enumerate(lines[1:], start=1)
        )

    def _row(self, number: int, columns: list[str], words: list[str]) -> Row:
        row = f"row {number} of {self.name}, {' '.join(words)!r}"
        if len(words) != len(columns):
            raise ValueError(
                f"{row}: has {len(words)} values for the {len(columns)} columns {' '.join(columns)}"
            )
        for column, word in zip(columns, words, strict=True):
            if not word.isdecimal() or int(word) < 1:
                raise ValueError(f"{row}: {column} = {word} is not a positive integer")
        try:
            return self._make(**dict(zip(columns, map(int, words), strict=True)))
        except (TypeError, ValueError, ArithmeticError) as err:
            raise ValueError(f"{row}: {err}") from err

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        return f"ConfigTable({self.name!r})"
