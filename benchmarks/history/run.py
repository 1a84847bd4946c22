"""Compute missing deterministic figures of commits, each commit in a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.history.commits import Commit, git, log, package_of
from benchmarks.history.install import InstallError, export, install
from benchmarks.history.kept import ABSENT, RESULTS, Line, Machine

MACHINE = "deterministic"
FACTS = {
    "arch": "gfx90a, gfx942, gfx950",
    "cpu": "any: computed, emulated and modelled figures",
    "num_cpu": "any",
    "os": "any",
    "ram": "any",
}
WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 3600


def run(revisions: Iterable[str], *, every: int = 1, jobs: int = 1, folder: Path = RESULTS) -> int:
    """Compute and keep missing figures; return the number of commits that have results now.

    Parameters
    ----------
    revisions : iterable of str
        Arguments of `git log`: a range, or options such as ``-n 20``.
    every : int
        First compute every N-th commit, then halve the distance repeatedly down to every commit:
        if it is stopped, the history is coarse but complete.
    jobs : int
        The number of commits computed in parallel.
    folder : Path
        The kept results.
    """
    machine = Machine(MACHINE, folder)
    machine.describe(**FACTS)
    kept = {line.commit: line.file for line in machine.lines()}
    wanted = log(*revisions)
    missing = [commit for commit in wanted if commit.hash not in kept]
    groups = _by_package(missing)
    packages = {package_of(commit): file for commit, file in kept.items()}
    for package in [package for package in groups if package is None or package in packages]:
        file = packages[package] if package else ABSENT
        for commit in groups.pop(package):
            results = {} if file == ABSENT else machine.results(file)
            _say(commit, machine.add(commit.hash, commit.date, results), "as another commit")
    firsts = [commits[-1] for commits in groups.values()]  # the oldest of each group
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(measure, commit): commit for commit in coarse_first(firsts, every)}
        for future in as_completed(futures):
            first = futures[future]
            results, note = future.result()
            for commit in groups[package_of(first.hash)]:
                _say(commit, machine.add(commit.hash, commit.date, results), note)
    return len(machine.lines())


def measure(commit: Commit) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the results of a commit and a note; no results if it cannot be built or run."""
    with tempfile.TemporaryDirectory(prefix="cupygemm-history-") as name:
        folder = Path(name)
        export(commit.hash, folder / "source")
        try:
            environment = install(folder / "source", folder / "environment")
        except InstallError as error:
            return {}, f"not built: {str(error).splitlines()[-1]}"
        output = folder / "results.json"
        command = [sys.executable, str(WORKER), str(output)]
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        if done.returncode:
            return {}, f"not run: {(done.stderr.splitlines() or ['no output'])[-1]}"
        failed = sum(line.startswith(("gfx", "sm_")) for line in done.stderr.splitlines())
        return json.loads(output.read_text()), f"{failed} kernels failed"


def coarse_first(commits: list[Commit], every: int) -> Iterator[Commit]:
    """Yield every N-th commit, then the commits between them at ever smaller distances."""
    seen: set[str] = set()
    while every >= 1:
        for commit in commits[::every]:
            if commit.hash not in seen:
                seen.add(commit.hash)
                yield commit
        every //= 2


def known_commits() -> set[str]:
    """Return the commits of this clone that HEAD descends from."""
    return set(git("rev-list", "HEAD").split())


def last_kept(machine: Machine) -> Line | None:
    """Return the newest ancestor of HEAD, or HEAD itself, that has results."""
    lines = {line.commit: line for line in machine.lines() if line.file != ABSENT}
    ancestors = git("rev-list", "--topo-order", "HEAD").split()
    return next((lines[commit] for commit in ancestors if commit in lines), None)


def _by_package(commits: list[Commit]) -> dict[str | None, list[Commit]]:
    """Group the commits, the newest first, by the package that they build."""
    groups: dict[str | None, list[Commit]] = {}
    for commit in commits:
        groups.setdefault(package_of(commit.hash), []).append(commit)
    return groups


def _say(commit: Commit, file: str, note: str) -> None:
    subject = commit.message.partition("\n")[0]
    sys.stdout.write(f"{commit.hash[:10]} {file:10s} {note:20s} {subject[:60]}\n")
    sys.stdout.flush()


def be_nice() -> None:
    """Lower the priority of this process and its children."""
    os.nice(max(0, 19 - os.nice(0)))
