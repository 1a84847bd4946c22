"""The tests' own machinery: broken tables fail tests, and helpers' assertions show operands."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tests.kernels.gemm import Case, config_of
from tests.tables import SHARES, cover, mark_drawn, mark_sweeps, rows_of, shows

RUN = """
import json
import sys
from collections import Counter

import pytest

class Outcomes:
    def __init__(self):
        self.seen = []

    def pytest_collectreport(self, report):
        if report.failed:
            self.seen.append("error")

    def pytest_runtest_logreport(self, report):
        broken = "a broken table" in report.nodeid
        if report.failed:
            named = "ZeroDivisionError" in str(report.longrepr)
            self.seen.append("named" if broken and named else "failed")
        elif report.when == "call":
            self.seen.append("passed")

outcomes = Outcomes()
options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
# pytest cannot rewrite the modules that are imported already.
rewriting = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
pytest.main([*rewriting, *options, *sys.argv[1:]], plugins=[outcomes])
print(json.dumps(Counter(outcomes.seen)))
"""
BREAK_CDNA = """
from dataclasses import replace
from cupygemm._backends.cdna.mainloops import register_double_buffer as mainloop

built = mainloop.configs
def broken(dtype, arch):
    first, *others = built(dtype, arch)
    return replace(first, waves_m=0), *others
mainloop.configs = broken
"""
BREAK_HOPPER = """
from cupygemm._backends.hopper import config

def raises(*columns, **named):
    raise ZeroDivisionError("a row of the table")
config.HopperConfig = raises
"""


@pytest.mark.slow
def test_a_broken_row_of_a_table_fails_its_tests_and_no_others(run_python) -> None:
    """Waves are divided by, so a CDNA row without waves raises when the tests are collected.

    Each of the three tests of that table fails with the cause. Hopper's tables are parsed at their
    first use, which in that module is on import, so a broken row fails the module. All tests of
    other modules pass.
    """
    arguments = [
        "tests/kernels/test_transposed_layout.py",
        "tests/backends/hopper/test_hopper_config.py",
        "tests/request/test_formats.py",
    ]
    code = f"{BREAK_CDNA}\n{BREAK_HOPPER}\nimport sys; sys.argv[1:] = {arguments}\n{RUN}"
    outcomes = json.loads(run_python(code).splitlines()[-1])
    passed = outcomes.pop("passed")
    assert outcomes == {"error": 1, "named": 3}
    assert passed > 30


def test_rows_of_a_table_that_raises_are_one_row() -> None:
    assert rows_of(lambda: (1, 2)) == [1, 2]
    (row,) = rows_of(lambda: (1 // x for x in (1, 0)), width=2)
    first, second = row.values
    assert first is second
    assert isinstance(first.error, ZeroDivisionError)
    (row,) = rows_of(lambda: (1, 2), name=lambda number: number.name)
    assert isinstance(row.values[0].error, AttributeError)


def test_a_sample_shows_each_value_and_each_pair() -> None:
    @dataclass(frozen=True)
    class Config:
        tile: tuple[int, int]
        stages: int

    cases = [
        {"config": Config((m, n), stages), "layout": layout}
        for m, n, stages, layout in itertools.product((64, 128), (32, 64), (2, 3, 4), "ab")
    ]
    for pairs, fewest in ((False, 3), (True, 6)):
        shown = [shows(case, pairs=pairs) for case in cases]
        sample = cover(shown)
        assert fewest <= len(sample) <= fewest + 2
        assert set().union(*(shown[case] for case in sample)) == set().union(*shown)
    assert shows({"k": 3}, pairs=True) == {("k", "3")}
    assert shows(cases[0], apart_from=("stages", "layout")) == {
        ("config.tile.0", "64"),
        ("config.tile.1", "32"),
    }
    assert cover([]) == []


def test_assertions_of_helpers_show_their_operands() -> None:
    """Pytest rewrites only the assertions of test modules, unless others are registered."""
    case = Case(
        config_of("gfx942", 64, 64), "gfx942", m=64, n=64, k=64, dtype="e4m3fn", out_dtype="f32"
    )
    with pytest.raises(AssertionError, match="'inputs of type e4m3fn have no kernel on gfx942"):
        case.run()


def test_all_helpers_are_rewritten() -> None:
    helpers = {name for name in sys.modules if name.startswith("tests.") and name.count(".") > 1}
    loaders = {name: type(sys.modules[name].__spec__.loader) for name in helpers}
    plain = [
        name
        for name, loader in loaders.items()
        if loader is not AssertionRewritingHook and "NamespaceLoader" not in loader.__name__
    ]
    assert plain == []
    assert "tests.kernels.gemm" in helpers


class MarkedCase:
    """The attributes of a test's case that `mark_sweeps` uses."""

    nodeid = "test_it[case]"

    def __init__(self, value: int, marks: dict[str, pytest.Mark], **others: int) -> None:
        self.callspec = SimpleNamespace(params={"value": value} | others)
        self.marks = dict(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = getattr(pytest.mark, name).mark


@pytest.mark.parametrize(
    ("names", "kept"),
    [({"covering"}, [1, 2, 3]), ({"one_in"}, [1, 2, 3]), ({"covering", "one_in"}, [1, 3])],
)
def test_every_second_case_and_every_second_of_those_that_cover(
    names: set[str], kept: list[int]
) -> None:
    both = {"covering": pytest.mark.covering.mark, "one_in": pytest.mark.one_in(2).mark}
    marks = {name: both[name] for name in names}
    cases = [MarkedCase(value, marks) for value in (1, 1, 2, 2, 3, 3)]
    mark_sweeps(cast("list[pytest.Item]", cases))
    assert [case.callspec.params["value"] for case in cases if "sweep" not in case.marks] == kept


def drawn(cases: list[MarkedCase], turn: int) -> list[MarkedCase]:
    for case in cases:
        case.marks.pop("drawn", None)
    mark_drawn(cast("list[pytest.Item]", cases), turn)
    return [case for case in cases if "drawn" in case.marks]


def test_ci_runs_a_share_of_a_sweep_and_in_time_all_of_it() -> None:
    sweep = {"sweep": pytest.mark.sweep.mark}
    cases = [MarkedCase(value, sweep if value else {}) for value in range(3 * SHARES + 2)]
    turns = [drawn(cases, turn) for turn in range(SHARES)]
    assert {len(chosen) for chosen in turns} == {3, 4}
    assert set().union(*turns) == set(cases[1:])
    assert turns[1] == drawn(cases, SHARES + 1)
