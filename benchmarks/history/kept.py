"""The results that the repository keeps: asv's result files, compressed, without duplicates.

    results/
        <machine>/machine.json          asv's description of a machine
        <machine>/commits.txt           commit, date (ms since 1970), and the file with its results
        <machine>/<file>.json.xz        results in asv's format

Most commits change no figure: they share the file of the first commit with these results, after
which the file is named. "-" stands for a commit whose package cannot be built or run. `expand`
writes the tree that asv reads, with a file for each commit.

BUDGET bounds the folder; a test enforces it. A file of the deterministic benchmarks takes 2.4 kB,
so the budget is enough for some 800 commits that change the package.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BUDGET = 2 << 20
ABSENT = "-"
ENVIRONMENT = "wheel"
"""The name of the environment in asv's files."""
COLUMNS = ("result", "params", "version")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of commits.txt."""

    commit: str
    date: int
    file: str


class Machine:
    """The results of one machine."""

    def __init__(self, name: str, folder: Path = RESULTS) -> None:
        self.name, self.folder = name, folder / name

    def describe(self, **facts: str) -> None:
        """Write asv's description of the machine."""
        self.folder.mkdir(parents=True, exist_ok=True)
        document = {"machine": self.name, **facts, "version": 1}
        (self.folder / "machine.json").write_text(json.dumps(document, indent=4) + "\n")

    def lines(self) -> list[Line]:
        """Return the commits with results or known to have none, the oldest first."""
        path = self.folder / "commits.txt"
        if not path.exists():
            return []
        rows = (row.split() for row in path.read_text().splitlines())
        return [Line(commit=commit, date=int(date), file=file) for commit, date, file in rows]

    def results(self, file: str) -> dict[str, dict[str, Any]]:
        """Return results by benchmark: parameters, values and version."""
        document = self.document(file)
        columns = document["result_columns"]
        rows: dict[str, list[Any]] = document["results"]
        return {name: dict(zip(columns, row, strict=False)) for name, row in rows.items()}

    def document(self, file: str) -> dict[str, Any]:
        """Return a file in asv's format."""
        found: dict[str, Any] = json.loads(lzma.decompress(self._path(file).read_bytes()))
        return found

    def add(
        self,
        commit: str,
        date: int,
        results: dict[str, dict[str, Any]],
        more: dict[str, Any] | None = None,
    ) -> str:
        """Store the results of a commit, with more entries for its file; return the file's name.

        Results without more entries may share the file of another commit.
        """
        others = {line.commit: line for line in self.lines() if line.commit != commit}
        if not results:
            file = ABSENT
        else:
            near = sorted(others.values(), key=lambda line: abs(line.date - date))
            files = dict.fromkeys(line.file for line in near if line.file != ABSENT)
            same = (f for f in files if more is None and self.results(f) == results)
            file = next(same, commit[:10])
            if file not in files or more is not None:
                self._write(file, commit, date, results, more or {})
        self._write_lines([*others.values(), Line(commit=commit, date=date, file=file)])
        return file

    def _write(
        self,
        file: str,
        commit: str,
        date: int,
        results: dict[str, Any],
        more: dict[str, Any],
    ) -> None:
        document = {
            **more,
            "commit_hash": commit,
            "env_name": ENVIRONMENT,
            "date": date,
            "params": {"machine": self.name},
            "python": "3",
            "requirements": {},
            "env_vars": {},
            "result_columns": list(COLUMNS),
            "results": {name: [row[c] for c in COLUMNS] for name, row in sorted(results.items())},
            "durations": {},
            "version": 2,
        }
        text = json.dumps(document, separators=(",", ":"))
        self._path(file).write_bytes(lzma.compress(text.encode(), preset=9))

    def _write_lines(self, lines: list[Line]) -> None:
        lines.sort(key=lambda line: (line.date, line.commit))
        text = "".join(f"{line.commit} {line.date} {line.file}\n" for line in lines)
        (self.folder / "commits.txt").write_text(text)

    def _path(self, file: str) -> Path:
        return self.folder / f"{file}.json.xz"


def machines(folder: Path = RESULTS) -> Iterator[Machine]:
    """Yield the machines that have results."""
    for path in sorted(folder.glob("*/commits.txt")):
        yield Machine(path.parent.name, folder)


def expand(target: Path, known: set[str], folder: Path = RESULTS) -> int:
    """Write asv's tree of results below a folder, and return the number of its results.

    Parameters
    ----------
    target : Path
    known : set of str
        The commits of the clone; asv cannot order others.
    folder : Path
        The kept results.
    """
    count = 0
    for machine in machines(folder):
        place = target / machine.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "machine.json").write_bytes((machine.folder / "machine.json").read_bytes())
        for line in machine.lines():
            if line.file == ABSENT or line.commit not in known:
                continue
            document = machine.document(line.file) | {
                "commit_hash": line.commit,
                "date": line.date,
                "params": {"machine": machine.name},
            }
            path = place / f"{line.commit[:8]}-{ENVIRONMENT}.json"
            path.write_text(json.dumps(document))
            count += 1
    return count
