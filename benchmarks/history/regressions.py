"""Compare the deterministic figures of this checkout with the last kept ones.

A figure that is more than 2 % worse, or that no longer exists, fails the comparison, unless a
commit since then or `ACCEPTED` gives the reason. For all of these figures, less is better. The size
of the wheel and the times of the host are tracked but not compared.
"""

from __future__ import annotations

import fnmatch
import gc
import itertools
import multiprocessing
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.history.commits import git, log
from benchmarks.history.install import ROOT
from benchmarks.history.kept import ABSENT, Line, Machine
from benchmarks.history.run import MACHINE, last_kept
from benchmarks.history.site import benchmarks
from benchmarks.history.worker import SUITE, evaluate

COMPARED = ("computed.", "computed_hopper.", "emulated.", "modelled.")
TOLERANCE = 0.02
ACCEPTED = Path(__file__).with_name("accepted.toml")
_TRAILER = re.compile(
    r"^Accept-regression:\s*(?P<figures>[^:]+?)\s*:\s*(?P<reason>\S.*)$", re.MULTILINE
)
_SHOWN = 20
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A figure that is worse than the kept one; `after` is None if it no longer exists."""

    name: str
    before: float
    after: float | None
    unit: str

    @property
    def increase(self) -> float:
        """Return the increase of the figure, as a share of the kept one."""
        if self.after is None or not self.before:
            return float("inf")
        return self.after / self.before - 1

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.name}: {self.before:.10g} {self.unit}, and no figure any more"
        percent = f" (+{self.increase:.1%})" if self.before else ""
        return f"{self.name}: {self.before:.10g} -> {self.after:.10g} {self.unit}{percent}"


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A pattern of figures that may be worse, and why."""

    figures: str
    reason: str
    where: str

    def covers(self, regression: Regression) -> bool:
        """Whether a regression is accepted."""
        return fnmatch.fnmatchcase(regression.name, self.figures)


def regressions(kept: Results, found: Results, units: dict[str, str]) -> list[Regression]:
    """Return the figures that are worse, the worst first."""
    worse = []
    for benchmark in sorted(kept):
        if not benchmark.startswith(COMPARED):
            continue
        after = figures(found.get(benchmark, {"params": [], "result": []}))
        for case, before in figures(kept[benchmark]).items():
            value = after.get(case)
            if value is None or value > before * (1 + TOLERANCE):
                name = f"{benchmark}({', '.join(case)})"
                unit = units.get(benchmark, "")
                worse.append(Regression(name=name, before=before, after=value, unit=unit))
    return sorted(worse, key=lambda each: -each.increase)


def figures(results: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """Return the figures of a benchmark that exist, by the values of its parameters."""
    cases = itertools.product(*results["params"])
    return {
        tuple(part.strip("'") for part in case): value
        for case, value in zip(cases, results["result"], strict=False)
        if value is not None
    }


def accepted(messages: list[tuple[str, str]], kept: str, file: Path = ACCEPTED) -> list[Acceptance]:
    """Return the acceptances in the file and in commits (hash, message) since the kept results."""
    found = [
        Acceptance(figures=match["figures"], reason=match["reason"], where=commit[:10])
        for commit, message in messages
        for match in _TRAILER.finditer(message)
    ]
    entries = (
        tomllib.loads(file.read_text(encoding="utf-8")).get("accepted", []) if file.exists() else []
    )
    return found + [
        Acceptance(figures=entry["figures"], reason=entry["reason"], where=file.name)
        for entry in entries
        if kept.startswith(entry["kept"])
    ]


def check() -> int:
    """Print the comparison; return 1 if a figure is worse and not accepted, else 0."""
    machine = Machine(MACHINE)
    line = last_kept(machine)
    messages = log(f"{line.commit}..HEAD") if line else log("-1")
    line = line or _newest(machine)
    _warm()
    units = {name: each["unit"] for name, each in benchmarks().items()}
    worse = regressions(machine.results(line.file), evaluate(), units)
    known = accepted([(each.hash, each.message) for each in messages], line.commit)
    lines, status = report(worse, known, _describe(line))
    sys.stdout.write("\n".join(lines) + "\n")
    return status


def report(worse: list[Regression], known: list[Acceptance], kept: str) -> tuple[list[str], int]:
    """Return the lines about regressions, and the exit status."""
    reasons = {each: next((a for a in known if a.covers(each)), None) for each in worse}
    lines = [
        f"regressions: accepted ({found.where}: {found.reason}): {each}"
        for each, found in reasons.items()
        if found
    ]
    failed = [each for each, found in reasons.items() if not found]
    if not failed:
        return [*lines, f"regressions: no figure is more than 2 % worse than at {kept}"], 0
    lines.append(
        f"regressions: error: {len(failed)} figures are more than 2 % worse than at {kept}"
    )
    lines += [f"  {each}" for each in failed[:_SHOWN]]
    lines += [f"  ... and {len(failed) - _SHOWN} more"] * (len(failed) > _SHOWN)
    return [*lines, *_remedy(failed[0], kept)], 1


def _remedy(regression: Regression, kept: str) -> Iterator[str]:
    yield "regressions: remedy: undo it, or say why in a commit's message (* matches anything):"
    yield f"    Accept-regression: {regression.name}: <why>"
    yield f"or in {ACCEPTED.relative_to(ROOT)}:"
    yield "    [[accepted]]"
    yield f'    kept = "{kept.partition(" ")[0]}"'
    yield f'    figures = "{regression.name}"'
    yield '    reason = "<why>"'


def _describe(line: Line) -> str:
    try:
        subject = git("log", "-1", "--format=%s", line.commit).strip()
    except subprocess.CalledProcessError:  # a shallow clone
        subject = "not in this clone"
    return f"{line.commit[:10]} ({subject})"


def _newest(machine: Machine) -> Line:
    """Return the newest kept results; a shallow clone may lack their commit."""
    lines = [line for line in machine.lines() if line.file != ABSENT]
    if not lines:
        raise SystemExit("regressions: error: no results are kept; remedy: make history")
    return lines[-1]


def _warm() -> None:
    """Fill the cache of figures, with one process for each architecture.

    The processes are forks, which share the modules and the digest of the emulator's sources. Their
    millions of objects live until they end, so Python's garbage collector is off in them.
    """
    sys.path.insert(0, str(SUITE.parent))
    from suite import kernels

    kernels.emulator_digest()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(len(kernels.TARGETS), gc.disable) as pool:
        pool.map(_compute, kernels.TARGETS, chunksize=1)


def _compute(target: str) -> None:
    """Compute the figures of all kernels for an architecture."""
    from suite import kernels

    for case in itertools.product(kernels.TYPES, kernels.MAINLOOPS):
        kernels.figures(target, *case)
