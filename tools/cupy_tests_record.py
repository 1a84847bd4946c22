"""Record the outcomes of CuPy's own tests: the part of `run_cupy_tests` in the test process.

A process runs a few files of tests with `Recorder` as a pytest plugin.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

RESULTS_VARIABLE = "CUPYGEMM_CUPY_RESULTS"
SAMPLE_VARIABLE = "CUPYGEMM_CUPY_SAMPLE"
KNOWN = "a known fault of CuPy's, as a warning"
POPULATION = "(collected)"  # the record of the number of tests of a file
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Warning|Exit)\b")


class Recorder:
    """Writes a line for each test that starts, and one for each outcome.

    Parameters
    ----------
    results : Path
        The directory of the outcomes, which has a file for each file of tests.
    fraction : float
        The share of a file's tests to run.
    seed : str
        Determines which tests are run.
    least : int
        The minimum number of tests of a file; with 0, each test is chosen independently.
    """

    def __init__(self, results: Path, fraction: float, seed: str, least: int) -> None:
        self._results, self._fraction, self._seed = results, fraction, seed
        self._least = least
        self._problem: dict[str, str] = {}
        self._began: dict[str, float] = {}  # seconds of processor time
        self._passed: dict[str, Any] = {}  # the latest record of a test that passed

    def _write(self, test: str, outcome: str, reason: str, *, of: str = "") -> None:
        record = record_of(self._results, of or test)
        record.parent.mkdir(parents=True, exist_ok=True)
        line: dict[str, Any] = {"test": test, "outcome": outcome, "reason": reason}
        if test in self._began and outcome != "began":
            line["seconds"] = round(processor_time() - self._began[test], 2)
        if outcome == "passed":
            self._passed = line
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Deselect tests that are not in the sample or already have an outcome."""
        files: dict[str, list[Any]] = {}
        for item in items:
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        chosen = set()
        for name, tests in files.items():
            known = outcomes(record_of(self._results, name))
            if POPULATION not in known:
                self._write(POPULATION, "collected", str(len(tests)), of=name)
            by_chance = functools.partial(rank, self._seed)
            ordered = sorted((item.nodeid for item in tests), key=by_chance)
            if self._least:
                count = max(self._least, math.ceil(self._fraction * len(tests)))
            else:
                ranks = [int(rank(self._seed, name), 16) for name in ordered]
                count = sum(each < self._fraction * 2**256 for each in ranks)
            wanted = set(ordered[:count])
            chosen |= wanted - set(known)
        items[:] = [item for item in items if item.nodeid in chosen]

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that cannot be imported, or is skipped as a whole."""
        if report.outcome != "passed":
            self._write(report.nodeid, report.outcome, reason_of(report))

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        """Record that a test starts; without a later outcome, it has ended the process."""
        self._began = {nodeid: processor_time()}
        self._write(nodeid, "began", "the process ended")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a test's outcome after its last phase."""
        if report.outcome == "failed":
            self._problem.setdefault(report.nodeid, reason_of(report))
        if report.when == "setup" and report.outcome == "skipped":
            self._write(report.nodeid, "skipped", reason_of(report))
        elif report.when == "call" and report.outcome == "skipped":
            outcome = "passed" if hasattr(report, "wasxfail") else "skipped"
            self._write(report.nodeid, outcome, reason_of(report))
        elif report.when == "call" and report.outcome == "passed":
            self._write(report.nodeid, "passed", "")
        if report.when == "teardown" and report.nodeid in self._problem:
            reason = self._problem.pop(report.nodeid)
            self._write(report.nodeid, "failed", reason)

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        """Record that a passed test ran a CuPy kernel with a known fault."""
        known, latest = "known fault" in str(warning_message.message), self._passed
        if known and latest.get("test") == nodeid and latest["reason"] != KNOWN:
            self._write(nodeid, "passed", KNOWN)


def processor_time() -> float:
    """Return the processor time in seconds of this process and the compilers that it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def rank(seed: str, name: str) -> str:
    """Return a sort key that puts names in a random order."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def reason_of(report: Any) -> str:
    """Return the lines that say why a test failed or was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else str(report.longrepr)).splitlines()
    if lines and "raises error" in lines[0]:  # CuPy's tests quote a traceback; its end matters
        last = max((i for i, line in enumerate(lines) if _EXCEPTION.match(line)), default=0)
        lines = lines[last:]
    return " ".join(line.strip() for line in lines[:3])[:300]


def run_files() -> int:
    """Run the tests for which this process was started."""
    importlib.import_module("cupygemm")  # enables the emulated device before CuPy is imported
    fraction, seed, least = os.environ[SAMPLE_VARIABLE].split()
    recorder = Recorder(Path(os.environ[RESULTS_VARIABLE]), float(fraction), seed, int(least))
    return int(pytest.main(sys.argv[2:], plugins=[recorder]))


def record_of(results: Path, test: str) -> Path:
    """Return the file that holds the outcomes of a test's file."""
    return results / Path(test.partition("::")[0]).with_suffix(".jsonl")


def outcomes(path: Path) -> dict[str, dict[str, str]]:
    """Return the last record of each test in a file of outcomes."""
    if not path.exists():
        return {}
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {record["test"]: record for record in records}


def tests_of(path: Path) -> dict[str, dict[str, str]]:
    """Return the records of tests alone."""
    found = outcomes(path)
    found.pop(POPULATION, None)
    return found
