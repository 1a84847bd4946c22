"""Run the deterministic benchmarks of the suite in this process: ``worker.py OUTPUT``.

asv starts a process for each combination of parameters, which takes minutes for thousands of
figures that already exist. These benchmarks read a cache and need no separate processes. The output
is JSON: each benchmark's parameters, results and version by its name, in asv's format. Modules of
the suite that an old commit cannot import are omitted.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

SUITE = Path(__file__).parents[1] / "suite"
DETERMINISTIC = ("computed", "computed_hopper", "emulated", "modelled", "wheel")
"""The modules of the suite whose figures are the same on every machine."""


def evaluate() -> dict[str, dict[str, Any]]:
    """Return the results of all deterministic benchmarks for the installed package."""
    from asv_runner.discovery import disc_benchmarks

    sys.path.insert(0, str(SUITE.parent))
    caches: dict[Any, Any] = {}
    found = {}
    for benchmark in disc_benchmarks(str(SUITE), ignore_import_errors=True):
        if benchmark.name.partition(".")[0] not in DETERMINISTIC:
            continue
        key = benchmark.setup_cache_key
        if key not in caches:
            caches[key] = benchmark.do_setup_cache() if key else None
        arguments = () if caches[key] is None else (caches[key],)
        results = [
            _value(benchmark.func, *arguments, *case)
            for case in itertools.product(*benchmark._params)
        ]
        found[benchmark.name] = {
            "params": benchmark.params,
            "result": results,
            "version": benchmark.version,
        }
    return found


def _value(track: Any, *arguments: Any) -> float | None:
    """Return a figure; None, which asv shows as n/a, if it does not exist."""
    try:
        value = float(track(*arguments))
    except NotImplementedError:
        return None
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else round(value, 6)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(evaluate()), encoding="utf-8")
