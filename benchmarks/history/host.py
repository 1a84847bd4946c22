"""Keep the times of this host for commits: asv runs the benchmarks of ``suite/host_*.py``.

The machine is named after its processor, not after its host name. Times of a shared machine are
noisy; asv keeps the median and compares nothing.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from asv.machine import Machine as AsvMachine
from asv.results import iter_results_for_machine_and_hash

from benchmarks.history.commits import log
from benchmarks.history.install import ROOT
from benchmarks.history.kept import RESULTS, Machine

CONFIG = ROOT / "benchmarks" / "asv.conf.json"
_FACTS = ("arch", "cpu", "num_cpu", "os", "ram")


def time_commits(revisions: list[str], folder: Path = RESULTS) -> list[str]:
    """Time commits that `git log` lists with ``--no-walk``, and return a line about each."""
    facts = AsvMachine.get_defaults()
    name = f"{facts['cpu']} x {facts['num_cpu']}".replace("/", "-")
    described = {**{key: str(facts[key]) for key in _FACTS}, "os": platform.system()}
    options = [part for key, value in described.items() for part in (f"--{key}", value)]
    _asv("machine", "--machine", name, *options)
    machine = Machine(name, folder)
    machine.describe(**described)
    lines = []
    for commit in log("--no-walk", *revisions):
        _asv("run", "--machine", name, "--quick", "--bench", "^host_", f"{commit.hash}^!")
        found = {}
        for results in iter_results_for_machine_and_hash(
            str(ROOT / ".asv" / "results"), name, commit.hash
        ):
            for key in results.get_all_result_keys():
                found[key] = {
                    "params": results.get_result_params(key),
                    "result": results.get_result_value(key, results.get_result_params(key)),
                    "version": results.benchmark_version[key],
                }
        machine.add(commit.hash, commit.date, found)
        lines.append(f"{name}: {len(found)} benchmarks at {commit.hash[:10]}")
    return lines


def _asv(command: str, *arguments: str) -> None:
    """Run a command of asv on the suite."""
    asv = [sys.executable, "-m", "asv", command, "--config", str(CONFIG), *arguments]
    subprocess.run(asv, check=command != "run")  # asv fails if one benchmark does
