"""Run CuPy's own tests on the emulated device, and make a table of what passes.

    git clone --branch v14.2.0 https://github.com/cupy/cupy /tmp/cupy
    python tools/run_cupy_tests.py run /tmp/cupy --results /tmp/results --only linalg --limit 3600
    python tools/run_cupy_tests.py table --results /tmp/results > table.csv
    python tools/run_cupy_tests.py estimate --results /tmp/results

A process runs a few files of tests. Each outcome is written as soon as it is known, so that an
interrupted run can be continued: the same command runs the missing tests. A test that ends its
process counts as failed, and another process runs the rest. `--shard 1/4` runs every fourth file.
`--sample 0.01 --seed 0` runs a hundredth of the tests of each file, at least two, chosen at random;
a larger fraction with the same seed adds tests to those. With `--least 0`, each test is chosen
independently, so that large files have more weight: this gives the best estimate. `estimate` prints
the share of all tests that pass, with a confidence interval. CuPy's sources are only read: its
installed wheel is tested.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cupy_tests_record import (
    KNOWN,
    POPULATION,
    RESULTS_VARIABLE,
    SAMPLE_VARIABLE,
    outcomes,
    rank,
    record_of,
    run_files,
    tests_of,
)

HERE = Path(__file__).resolve()
SUITES = ("cupy_tests", "cupyx_tests")
FILES_TOGETHER = 50  # files of a process


def files_of(sources: Path, only: list[str]) -> list[Path]:
    """Return the files of tests whose paths contain one of some words."""
    folders = [sources / "tests" / suite for suite in SUITES]
    found = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    return [path for path in found if not only or any(word in str(path) for word in only)]


def run(arguments: argparse.Namespace) -> None:
    """Run a shard of CuPy's tests within a time limit."""
    sources, results = arguments.sources.resolve(), arguments.results.resolve()
    number, count = (int(part) for part in arguments.shard.split("/"))
    files = files_of(sources, arguments.only)[number - 1 :: count]
    names = [str(path.relative_to(sources / "tests")) for path in files]
    if arguments.sample < 1:  # an unfinished sample has tests of all files, too
        names.sort(key=functools.partial(rank, arguments.seed))
    deadline = time.monotonic() + arguments.limit
    environment = os.environ | {
        "CUPYGEMM_EMULATE": arguments.target,
        "PYTHONPATH": str(HERE.parents[1]),
        "CUPY_TEST_GPU_LIMIT": "1",
        RESULTS_VARIABLE: str(results),
        SAMPLE_VARIABLE: f"{arguments.sample} {arguments.seed} {arguments.least}",
    }
    for name in names if arguments.again else ():
        forget_failures(record_of(results, name))
    for first in range(0, len(names), FILES_TOGETHER):
        run_together(arguments, names[first : first + FILES_TOGETHER], environment, deadline)


def run_together(
    arguments: argparse.Namespace, names: list[str], environment: dict[str, str], deadline: float
) -> None:
    """Run the tests of a few files that have no outcome yet; restart processes that they end."""
    sources, results = arguments.sources.resolve(), arguments.results.resolve()
    records = [record_of(results, name) for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
    options += [f"--timeout={arguments.seconds}", "-m", "not slow and not multi_gpu"]
    options += ["--rootdir=.", "--continue-on-collection-errors"]
    while (left := deadline - time.monotonic()) > 0:
        before = sum(len(outcomes(record)) for record in records)
        try:
            done = subprocess.run(
                [sys.executable, str(HERE), "files", *options, *names],
                cwd=sources / "tests",
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            for record in records:
                drop_unfinished(record)
            break
        if done.returncode in {0, 1, 5}:
            break
        if sum(len(outcomes(record)) for record in records) == before:
            if len(names) > 1:  # find the file at fault
                for name in names:
                    run_together(arguments, [name], environment, deadline)
                return
            reason = f"pytest ended with status {done.returncode}"
            line = json.dumps({"test": names[0], "outcome": "failed", "reason": reason})
            records[0].parent.mkdir(parents=True, exist_ok=True)
            records[0].write_text(line + "\n", encoding="utf-8")
            break
    for name, record in zip(names, records, strict=True):
        sys.stdout.write(f"{name}: {summary(record)}\n")
    sys.stdout.flush()


def forget_failures(record: Path) -> None:
    """Remove the outcomes of failed tests, so that they run again."""
    kept = [
        each for each in outcomes(record).values() if each["outcome"] not in {"failed", "began"}
    ]
    if record.exists():
        record.write_text("".join(json.dumps(each) + "\n" for each in kept), encoding="utf-8")


def drop_unfinished(record: Path) -> None:
    """Remove the record of the test that was running when the time limit was reached."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    if lines and json.loads(lines[-1])["outcome"] == "began":
        record.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")


def summary(record: Path) -> str:
    """Return the number of tests by outcome."""
    counts: dict[str, int] = {}
    for each in tests_of(record).values():
        counts[each["outcome"]] = counts.get(each["outcome"], 0) + 1
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))


def rows(results: Path) -> Iterator[tuple[str, str, int, int, int, str]]:
    """Return the table: module, function, passed, failed, skipped, and the most common remark."""
    for path in sorted(results.rglob("*.jsonl")):
        module = str(path.relative_to(results).with_suffix(""))
        functions: dict[str, list[dict[str, str]]] = {}
        for record in tests_of(path).values():
            parts = record["test"].partition("::")[2].split("[")[0].split("::")
            name = "::".join(part.split("_param_")[0] for part in parts) or "(the file)"
            functions.setdefault(name, []).append(record)
        for function, records in sorted(functions.items()):
            failed = [each["reason"] for each in records if each["outcome"] in {"failed", "began"}]
            passed = sum(each["outcome"] == "passed" for each in records)
            remarks = failed or [KNOWN for each in records if each["reason"] == KNOWN] or [""]
            reason = max(set(remarks), key=remarks.count)
            skipped = len(records) - passed - len(failed)
            yield module, function, passed, len(failed), skipped, reason


def table(arguments: argparse.Namespace) -> None:
    """Print the functions with remarks, and the totals of each module."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("Module", "Function", "Passed", "Failed", "Skipped", "Remark"))
    modules: dict[str, list[int]] = {}
    remarkable = []
    for row in rows(arguments.results):
        totals = modules.setdefault(row[0], [0, 0, 0])
        for place in range(3):
            totals[place] += int(row[2 + place])
        if row[5]:
            remarkable.append(row)
    for module, totals in modules.items():
        if not sum(totals):  # none of its tests is in the sample
            continue
        writer.writerow((module, "all", *totals, ""))
        writer.writerows(row for row in remarkable if row[0] == module)
    sums = [sum(totals[place] for totals in modules.values()) for place in range(3)]
    writer.writerow(("all", "all", *sums, ""))


def estimate(arguments: argparse.Namespace) -> None:
    """Print how many tests ran, and the estimated share of unskipped tests that would pass.

    If each test was chosen independently (``--least 0``), all tests have the same weight, and the
    interval is the exact one of Clopper and Pearson. Otherwise, the tests of a file that ran also
    represent those that did not run, and the interval is Wilson's, with Kish's effective number of
    tests for the unequal weights; it is too wide rather than too narrow, because the sample is
    stratified by file. Both are for 95 %.
    """
    ran = population = passed = failed = known = 0
    weights: list[tuple[float, bool]] = []
    for path in sorted(arguments.results.rglob("*.jsonl")):
        tests = list(tests_of(path).values())
        collected = outcomes(path).get(POPULATION)
        size = max(int(collected["reason"]) if collected else len(tests), len(tests))
        population += size
        ran += len(tests)
        known += sum(each["reason"] == KNOWN for each in tests)
        for each in tests:
            if each["outcome"] != "skipped":
                is_passed = each["outcome"] == "passed"
                passed, failed = passed + is_passed, failed + (not is_passed)
                weight = 1.0 if arguments.least == 0 else size / len(tests)
                weights.append((weight, is_passed))
    total = sum(weight for weight, _ in weights)
    if not total:
        sys.stdout.write(f"{ran} of {population} tests have an outcome, and none is known to run\n")
        return
    share = sum(weight for weight, is_passed in weights if is_passed) / total
    effective = total**2 / sum(weight**2 for weight, _ in weights)
    if arguments.least == 0:
        low, high = exact(passed, passed + failed)
    else:
        low, high = wilson(share, effective)
    sys.stdout.write(
        f"{ran} of {population} tests ran: {passed} passed ({known} of them with {KNOWN}), "
        f"{failed} failed, {ran - passed - failed} skipped.\n"
        f"Of all tests that are not skipped, an estimated {share:.2%} pass "
        f"(95 % interval {low:.2%} to {high:.2%}).\n"
    )


def exact(passed: int, count: int, error: float = 0.05) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for `passed` of `count` independent trials.

    >>> [round(end, 4) for end in exact(419, 426)]
    [0.9664, 0.9934]
    """

    def at_most(seen: int, share: float) -> float:
        return sum(
            math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(seen + 1)
        )

    def root(seen: int, wanted: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):  # `at_most` decreases with the share
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(seen, middle) > wanted else (low, middle)
        return low

    low = root(passed - 1, 1 - error / 2) if passed else 0.0
    return low, root(passed, error / 2) if passed < count else 1.0


def wilson(share: float, count: float, deviations: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval for a share observed in `count` independent trials.

    >>> [round(end, 3) for end in wilson(1.0, 100)]
    [0.963, 1.0]
    """
    square = deviations**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = deviations / (1 + square / count)
    half *= math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return middle - half, min(middle + half, 1.0)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="run tests that have no outcome yet")
    command.add_argument("sources", type=Path, help="CuPy's sources, at the tag of the wheel")
    command.add_argument("--results", type=Path, required=True, help="directory of the outcomes")
    command.add_argument("--only", nargs="*", default=[], help="words in the paths of files")
    command.add_argument("--shard", default="1/1", help="as 2/4: the second quarter of the files")
    command.add_argument("--sample", type=float, default=1.0, help="share of a file's tests")
    command.add_argument("--least", type=int, default=2, help="tests of each file in a sample")
    command.add_argument("--seed", default="0", help="which tests a sample holds")
    command.add_argument("--again", action="store_true", help="also run what failed before")
    command.add_argument("--target", default="gfx942")
    command.add_argument("--seconds", type=int, default=600, help="limit of a test")
    command.add_argument("--limit", type=float, default=1e9, help="seconds")
    command.set_defaults(call=run)
    command = commands.add_parser("table", help="print the outcomes by module and function, as CSV")
    command.add_argument("--results", type=Path, required=True)
    command.set_defaults(call=table)
    command = commands.add_parser("estimate", help="print what share of all tests pass")
    command.add_argument("--results", type=Path, required=True)
    command.add_argument("--least", type=int, default=2, help="as in the run")
    command.set_defaults(call=estimate)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["files"]:
        sys.exit(run_files())
    main()
