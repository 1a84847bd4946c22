"""Run CuPy's own tests on the emulated device, and make a table of what passes.

    git clone --branch v14.2.0 https://github.com/cupy/cupy /tmp/cupy
    python tools/run_cupy_tests.py run /tmp/cupy --results /tmp/results --only linalg --limit 3600
    python tools/run_cupy_tests.py table --results /tmp/results > table.csv

Each file of tests runs in a process of its own. Each outcome is written as soon as it is known, so
that an interrupted run goes on where it ended: the same command runs what is missing. A test that
ends its process counts as failed, and the file goes on after it. `--shard 1/4` runs every fourth
file, and `--at-most 20` that many tests of a file, evenly spread. CuPy's sources are only read:
its installed wheel is tested.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve()
SUITES = ("cupy_tests", "cupyx_tests")
PLUGIN_VARIABLE = "CUPYGEMM_CUPY_TESTS"
LIMIT_VARIABLE = "CUPYGEMM_CUPY_LIMIT"
SECONDS_OF_A_TEST = 120


# -- in the process of one file: a pytest plugin --


class Recorder:
    """Writes a line for each test that begins, and one for each outcome.

    Parameters
    ----------
    path : Path
        The file that holds the outcomes.
    limit : int
        How many tests to run at most, evenly spread; 0 for all.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._limit = limit
        self._known = outcomes(path)
        self._file = path.open("a", encoding="utf-8")
        self._problem: dict[str, str] = {}

    def _write(self, **record: object) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leave out what is beyond the limit, and what has an outcome."""
        step = -(-len(items) // self._limit) if self._limit else 1
        items[:] = [item for item in items[:: max(step, 1)] if item.nodeid not in self._known]

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that cannot be imported, or is skipped as a whole."""
        if report.outcome != "passed":
            self._write(test=report.nodeid, outcome=report.outcome, reason=reason_of(report))

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        """Record that a test begins: if nothing follows, it ended the process."""
        self._write(test=nodeid, outcome="began", reason="the process ended")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a test's outcome, once its last phase is over."""
        if report.outcome == "failed":
            self._problem.setdefault(report.nodeid, reason_of(report))
        if report.when == "setup" and report.outcome == "skipped":
            self._write(test=report.nodeid, outcome="skipped", reason=reason_of(report))
        elif report.when == "call" and report.outcome == "skipped":
            outcome = "passed" if hasattr(report, "wasxfail") else "skipped"
            self._write(test=report.nodeid, outcome=outcome, reason=reason_of(report))
        elif report.when == "call" and report.outcome == "passed":
            self._write(test=report.nodeid, outcome="passed", reason="")
        if report.when == "teardown" and report.nodeid in self._problem:
            reason = self._problem.pop(report.nodeid)
            self._write(test=report.nodeid, outcome="failed", reason=reason)


def reason_of(report: Any) -> str:
    """Return the line that says why a test failed or was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.splitlines()[:3])[:300]


def run_file() -> int:
    """Run the tests that this process was started for."""
    importlib.import_module("cupygemm")  # enables the emulated device before CuPy is imported
    limit = int(os.environ[LIMIT_VARIABLE])
    recorder = Recorder(Path(os.environ[PLUGIN_VARIABLE]), limit)
    return int(pytest.main(sys.argv[2:], plugins=[recorder]))


# -- in the process that starts the others --


def outcomes(path: Path) -> dict[str, dict[str, str]]:
    """Return the last record of each test in a file of outcomes."""
    if not path.exists():
        return {}
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {record["test"]: record for record in records}


def files_of(sources: Path, only: list[str]) -> list[Path]:
    """Return the files of tests whose paths hold one of some words."""
    folders = [sources / "tests" / suite for suite in SUITES]
    found = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    return [path for path in found if not only or any(word in str(path) for word in only)]


def run(arguments: argparse.Namespace) -> None:
    """Run a shard of CuPy's tests, until its time is over."""
    sources, results = arguments.sources.resolve(), arguments.results.resolve()
    number, count = (int(part) for part in arguments.shard.split("/"))
    files = files_of(sources, arguments.only)[number - 1 :: count]
    deadline = time.monotonic() + arguments.limit
    environment = os.environ | {
        "CUPYGEMM_EMULATE": arguments.target,
        "PYTHONPATH": str(HERE.parents[1]),
        "CUPY_TEST_GPU_LIMIT": "1",
        LIMIT_VARIABLE: str(arguments.at_most),
    }
    for path in files:
        name = path.relative_to(sources / "tests")
        record = results / name.with_suffix(".jsonl")
        record.parent.mkdir(parents=True, exist_ok=True)
        while (left := deadline - time.monotonic()) > 0:
            before = len(outcomes(record))
            options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
            options += [f"--timeout={SECONDS_OF_A_TEST}", "-m", "not slow and not multi_gpu"]
            command = [sys.executable, str(HERE), "file", *options, str(name)]
            try:
                done = subprocess.run(
                    command,
                    cwd=sources / "tests",
                    env=environment | {PLUGIN_VARIABLE: str(record)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=left,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                drop_unfinished(record)
                break
            ended_well = done.returncode in {0, 1, 5}
            if ended_well or len(outcomes(record)) == before:
                if not ended_well:
                    reason = f"pytest ended with status {done.returncode}"
                    line = json.dumps({"test": str(name), "outcome": "failed", "reason": reason})
                    record.write_text(line + "\n", encoding="utf-8")
                break
        sys.stdout.write(f"{name}: {summary(record)}\n")
        sys.stdout.flush()


def drop_unfinished(record: Path) -> None:
    """Forget the test that was running when the time was over."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    if lines and json.loads(lines[-1])["outcome"] == "began":
        record.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")


def summary(record: Path) -> str:
    """Return the number of tests by outcome."""
    counts: dict[str, int] = {}
    for each in outcomes(record).values():
        counts[each["outcome"]] = counts.get(each["outcome"], 0) + 1
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))


def rows(results: Path) -> Iterator[tuple[str, str, int, int, int, str]]:
    """Return the table: module, function, passed, failed, skipped, and the commonest reason."""
    for path in sorted(results.rglob("*.jsonl")):
        module = str(path.relative_to(results).with_suffix(""))
        functions: dict[str, list[dict[str, str]]] = {}
        for record in outcomes(path).values():
            parts = record["test"].partition("::")[2].split("[")[0].split("::")
            name = "::".join(part.split("_param_")[0] for part in parts) or "(the file)"
            functions.setdefault(name, []).append(record)
        for function, records in sorted(functions.items()):
            failed = [each["reason"] for each in records if each["outcome"] in {"failed", "began"}]
            passed = sum(each["outcome"] == "passed" for each in records)
            reason = max(set(failed), key=failed.count) if failed else ""
            skipped = len(records) - passed - len(failed)
            yield module, function, passed, len(failed), skipped, reason


def table(arguments: argparse.Namespace) -> None:
    """Print the functions with failures, and the totals of each module."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("Module", "Function", "Passed", "Failed", "Skipped", "Reason"))
    modules: dict[str, list[int]] = {}
    failures = []
    for row in rows(arguments.results):
        totals = modules.setdefault(row[0], [0, 0, 0])
        for place in range(3):
            totals[place] += int(row[2 + place])
        if row[3]:
            failures.append(row)
    for module, totals in modules.items():
        writer.writerow((module, "all", *totals, ""))
        writer.writerows(row for row in failures if row[0] == module)
    sums = [sum(totals[place] for totals in modules.values()) for place in range(3)]
    writer.writerow(("all", "all", *sums, ""))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="run tests that have no outcome yet")
    command.add_argument("sources", type=Path, help="CuPy's sources, at the tag of the wheel")
    command.add_argument("--results", type=Path, required=True, help="directory of the outcomes")
    command.add_argument("--only", nargs="*", default=[], help="words in the paths of files")
    command.add_argument("--shard", default="1/1", help="as 2/4: the second quarter of the files")
    command.add_argument("--at-most", type=int, default=0, help="tests of a file; 0 for all")
    command.add_argument("--target", default="gfx942")
    command.add_argument("--limit", type=float, default=1e9, help="seconds")
    command.set_defaults(call=run)
    command = commands.add_parser("table", help="print the outcomes by module and function, as CSV")
    command.add_argument("--results", type=Path, required=True)
    command.set_defaults(call=table)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["file"]:
        sys.exit(run_file())
    main()
