"""Commits from git: their order, dates and messages, and which of them share a package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.history.install import ROOT

PACKAGE = ("cupygemm", "kernels", "pyproject.toml")
"""What the deterministic figures of a commit depend on; the size of the wheel takes README too."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit, its date in milliseconds since 1970 as asv writes it, and its message."""

    hash: str
    date: int
    message: str


def log(*arguments: str) -> list[Commit]:
    """Return the commits that `git log` lists, the newest first."""
    text = git("log", "--format=%H%x00%ct%x00%B%x01", *arguments)
    found = []
    for record in text.split("\x01"):
        if record.strip():
            name, seconds, message = record.strip("\n").split("\0")
            found.append(Commit(hash=name, date=1000 * int(seconds), message=message))
    return found


def package_of(commit: str, parts: Sequence[str] = PACKAGE) -> str | None:
    """Return the git identifiers of a commit's package, or None if it has no package yet."""
    try:
        return " ".join(git("rev-parse", *(f"{commit}:{part}" for part in parts)).split())
    except subprocess.CalledProcessError:
        return None


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
