"""Parametrize tests by the product's tables, robustly, and run samples of the longest sweeps.

pytest evaluates the arguments of `parametrize` during collection, and an exception there skips the
whole module, including tests of other rows. `rows_of` catches it and returns one row in place of
the broken table; the test that gets this row fails with the table's exception.

Some tests run for every row of a long table, such as every configuration of a GEMM kernel, and
each row is a kernel to compile. ``make test`` runs samples of them, ``make test-ci`` larger ones,
which differ from commit to commit (`mark_drawn`), and ``make test-all`` all. Tests that are marked
``slow`` are in the last two.

Of the cases of a test that is marked ``covering``, the sample of ``make test`` shows each value of
each parameter; of a record, such as a configuration, each value of each field. With
``covering(pairs=True)``, it shows each pair of values that two parameters take together; with
``covering(apart_from=("tile_n",))``, it need not show each value of the fields named. Of a test
that is marked ``one_in(number)``, the sample is every `number`-th case; if it has two tables, the
number is coprime to the length of the one that varies faster, so that each row of either is met.
Of a test with both marks, the sample is every `number`-th of the cases that ``covering`` chooses.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from zlib import crc32

import pytest

# CI runs one of this many cases of a sweep.
SHARES = 32


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
        The number of arguments of a test that a row fills.
    name : callable, optional
        Returns the name of the test from a row. It may raise, too.
    """
    try:
        found = list(table())
        if name is not None:
            found = [pytest.param(*(row if width > 1 else (row,)), id=name(row)) for row in found]
    except Exception as error:  # noqa: BLE001, the tests of the table fail with any exception
        return [pytest.param(*[BrokenTable(error)] * width, id="a broken table")]
    return found


def swept(*values: Any, width: int = 1) -> list[Any]:
    """Return values for `parametrize` whose cases only ``make test-all`` runs.

    If a row fills several arguments of a test, each value is a tuple of `width` values.
    """
    rows = values if width > 1 else [(value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.sweep) for row in rows]


def fail_for_broken_tables(item: pytest.Item) -> None:
    """Raise the exception of the table that provides a test's row, if there was one."""
    call = getattr(item, "callspec", None)
    for value in () if call is None else call.params.values():
        if isinstance(value, BrokenTable):
            raise value.error


def mark_sweeps(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that ``make test`` leaves out of its samples as parts of a sweep."""
    met: Counter[str] = Counter()
    covered: dict[str, list[pytest.Item]] = {}
    for item in items:
        test = item.nodeid.split("[")[0]
        mark = item.get_closest_marker("one_in")
        if item.get_closest_marker("covering"):
            if not item.get_closest_marker("sweep"):
                covered.setdefault(test, []).append(item)
        elif mark is not None:
            if met[test] % mark.args[0]:
                item.add_marker("sweep")
            met[test] += 1
    for cases in covered.values():
        mark = cases[0].get_closest_marker("covering")
        assert mark is not None
        shown = [shows(getattr(case, "callspec").params, **mark.kwargs) for case in cases]  # noqa: B009
        fewer = cases[0].get_closest_marker("one_in")
        chosen = cover(shown)[:: 1 if fewer is None else fewer.args[0]]
        for index in set(range(len(cases))).difference(chosen):
            cases[index].add_marker("sweep")


def mark_drawn(items: Iterable[pytest.Item], turn: int) -> None:
    """Mark the cases of sweeps that CI runs in addition to ``make test``: one in `SHARES`.

    Parameters
    ----------
    items : iterable of pytest.Item
        The items of `mark_sweeps`.
    turn : int
        Selects the cases. `SHARES` consecutive turns run all.
    """
    met: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("sweep"):
            test = item.nodeid.split("[")[0]
            # Tests of one module often share the rows of a table, and what is compiled for them;
            # tests of few cases in different modules have their turns at different times.
            if (met[test] - turn - crc32(test.partition("::")[0].encode())) % SHARES == 0:
                item.add_marker("drawn")
            met[test] += 1


def shows(
    parameters: dict[str, Any], *, pairs: bool = False, apart_from: Sequence[str] = ()
) -> set[Any]:
    """Return the named values that a case covers, or pairs of them.

    Parameters
    ----------
    parameters : dict
        A test's arguments by name.
    pairs : bool
        Whether to return pairs of values of different parameters.
    apart_from : sequence of str
        Fields, or parameters, whose values are ignored.
    """
    values = {
        name: [
            (path, its)
            for path, its in _values(name, value)
            if path.split(".")[-1] not in apart_from
        ]
        for name, value in parameters.items()
    }
    if not pairs or len(values) == 1:
        return set(itertools.chain.from_iterable(values.values()))
    combined = itertools.combinations(values.values(), 2)
    return {pair for first, second in combined for pair in itertools.product(first, second)}


def _values(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a value under its name, or those of its fields or elements under theirs."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _values(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _values(f"{name}.{index}", element)
    else:
        yield name, repr(value)


def cover(shown: Sequence[set[Any]]) -> list[int]:
    """Return the numbers of a few cases that together cover everything, always the same ones.

    Each is the first of those that add most to the previous ones.
    """
    left = set().union(*shown)
    chosen = []
    # A case's addition only shrinks, so most cases need not be examined again.
    most = [(-len(values), case) for case, values in enumerate(shown)]
    heapq.heapify(most)
    while left:
        _, case = heapq.heappop(most)
        added = len(shown[case] & left)
        if most and (-added, case) > most[0]:
            heapq.heappush(most, (-added, case))
            continue
        chosen.append(case)
        left -= shown[case]
    return chosen
