"""Keep the figures that `benchmarks.compare` or `benchmarks.solvers` measured, as asv's results.

A document is JSON. ``environment`` holds the facts on which figures depend: device, driver, clocks,
date and commit. ``records`` are those of `benchmarks.compare`. ``figures`` are others, each with
the name of a benchmark of ``suite/measured.py``, the values of its parameters, and a value. Runs of
one commit on one device are merged; a later figure replaces an earlier one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.history.commits import log
from benchmarks.history.kept import ABSENT, RESULTS, Machine
from benchmarks.history.site import benchmarks

PREFIX = "measured."
_REQUIRED = ("device", "date")
Figure = tuple[str, tuple[str, ...], float]  # benchmark, parameters, value


def add(paths: list[Path], commit: str | None = None, folder: Path = RESULTS) -> list[str]:
    """Keep the figures of documents, and return a line about each.

    Parameters
    ----------
    paths : list of Path
        Documents.
    commit : str, optional
        The measured commit; by default, the one that a document names.
    folder : Path
        The kept results.

    Raises
    ------
    ValueError
        A document does not name its device, date or commit, comes from another program, or has a
        figure of an unknown benchmark.
    """
    known = {name: each for name, each in benchmarks().items() if name.startswith(PREFIX)}
    return [_add(path, commit, known, folder) for path in paths]


def _add(path: Path, commit: str | None, known: dict[str, Any], folder: Path) -> str:
    document = json.loads(path.read_text(encoding="utf-8"))
    environment = document.get("environment", {})
    name = commit or environment.get("commit")
    missing = [key for key in _REQUIRED if key not in environment]
    if missing or not name:
        absent = ", ".join([*missing, *(() if name else ("commit",))])
        raise ValueError(f"{path}: the environment does not say {absent}; --commit names a commit")
    if name.endswith("-dirty"):
        raise ValueError(f"{path}: measured with changes to {name}; --commit names a commit")
    if any("seconds" not in record for record in document.get("records", ())):
        raise ValueError(
            f"{path}: its records have no seconds; what is kept is the output of "
            "benchmarks.compare and benchmarks.solvers"
        )
    (found,) = log("-1", name)
    device = environment["device"]
    machine = Machine(device, folder)
    if not machine.folder.exists():
        machine.describe(arch="sm_90a", cpu="unknown", num_cpu="unknown", os="Linux", ram="unknown")
    runs: list[dict[str, Any]] = []
    results: dict[str, dict[str, Any]] = {}
    for line in machine.lines():
        if line.commit == found.hash and line.file != ABSENT:
            results = machine.results(line.file)
            runs = machine.document(line.file).get("runs", [])
    put = [_put(figure, results, known) for figure in _figures(document)]
    runs = [*runs, environment | {"figures": sum(put)}]
    machine.add(found.hash, found.date, results, {"runs": runs})
    others = put.count(False)
    note = f"; {others} of cases that suite/measured.py does not list are left out" * (others > 0)
    return f"{device}: {sum(put)} figures of {environment['date']} at {found.hash[:10]}{note}"


def _figures(document: dict[str, Any]) -> Iterator[Figure]:
    """Yield the figures of a document."""
    for record in document.get("records", ()):
        product = f"{record['dtype']} {record['case']}"
        for library, times in record["seconds"].items():
            for kind, seconds in times.items():
                yield f"measured.Measured.track_{kind}_time", (product, library), seconds
    for each in document.get("figures", ()):
        yield each["benchmark"], tuple(each["params"]), each["value"]


def _put(figure: Figure, results: dict[str, dict[str, Any]], known: dict[str, Any]) -> bool:
    """Store a figure in the results of its benchmark; return whether that has its case."""
    name, case, value = figure
    if name not in known:
        raise ValueError(f"no benchmark is named {name!r}; those are {', '.join(sorted(known))}")
    ids = known[name]["params"]
    if name not in results:
        count = len(list(itertools.product(*ids)))
        results[name] = {"params": ids, "result": [None] * count, "version": known[name]["version"]}
    row = results[name]
    if row["params"] != ids:  # stored when the suite had other cases
        old = dict(zip(itertools.product(*row["params"]), row["result"], strict=True))
        row["params"] = ids
        row["result"] = [old.get(each) for each in itertools.product(*ids)]
    cases = {each: number for number, each in enumerate(itertools.product(*ids))}
    wanted = tuple(repr(part) for part in case)
    if wanted in cases:
        row["result"][cases[wanted]] = float(f"{value:.4g}")
    return wanted in cases
