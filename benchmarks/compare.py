"""Compare matmul with CuPy's and torch's on a CUDA device: ``python -m benchmarks.compare``.

Contenders take turns, so that all run at the same clocks, and the median over the rounds counts.
Each has two times. The device time is measured between events, after a kernel that occupies the
stream while the host enqueues. The time of a call is measured by the host's clock, over consecutive
calls and one wait.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders import CASES, Call, Case, contenders
from benchmarks.output import print_line
from cupygemm._tuning.timer import MAX_CALLS, DeviceTimer

ROUNDS = 7
SECONDS = 0.03  # seconds of work in one measurement


def seconds_of_call(call: Call, count: int) -> float:
    """Return seconds of the host's clock for a call."""
    import cupy as cp

    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    cp.cuda.Device().synchronize()
    return (time.perf_counter() - start) / count


def measure(calls: dict[str, Call]) -> dict[str, dict[str, float]]:
    """Return both times of each contender."""
    counts, timers = {}, {name: DeviceTimer(call) for name, call in calls.items()}
    for name, call in calls.items():
        for _ in range(3):
            call()
        counts[name] = max(2, min(MAX_CALLS, int(SECONDS / timers[name].seconds(2))))
    times: dict[str, dict[str, list[float]]] = {name: {"device": [], "call": []} for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name]["device"].append(timers[name].seconds(counts[name]))
            times[name]["call"].append(seconds_of_call(call, counts[name]))
            if not timers[name].held:
                print_line(f"{name}: the host is slower than the device, whose time this is not")
    return {
        name: {kind: statistics.median(each) for kind, each in kinds.items()}
        for name, kinds in times.items()
    }


def run(dtypes: list[str], names: list[str] | None) -> list[dict[str, Any]]:
    """Measure every case, or those of these names, printing a line for each."""
    import cupy as cp

    records = []
    for dtype in dtypes:
        print_line(f"\n{dtype:24s} {'TFLOP/s on the device':>31s}    {'ratio: device (call)':>20s}")
        print_line(f"{'':24s} {'cupygemm':>9s} {'cupy':>10s} {'torch':>10s}    to torch, to cupy")
        for case in CASES[dtype]:
            if names and case.name not in names:
                continue
            times = measure(contenders(case, dtype))
            record = {"dtype": dtype, "case": case.name, "flops": case.flops, "seconds": times}
            records.append(record)
            for suffix in dict.fromkeys(name.partition(",")[2] for name in times):
                print_line(_line(case, times, suffix))
            cp.get_default_memory_pool().free_all_blocks()
    return records


def _line(case: Case, times: dict[str, dict[str, float]], suffix: str) -> str:
    """Return a line of the contenders with this suffix, or without it for those that lack it."""
    chosen = {
        name: times.get(f"{name},{suffix}" if suffix else name, times.get(name))
        for name in ("cupygemm", "cupy", "torch")
    }
    ours = chosen["cupygemm"]
    rates = [
        f"{case.flops / each['device'] / 1e12:10.1f}" if each else f"{'-':>10s}"
        for each in chosen.values()
    ]
    ratios = [
        f"{each['device'] / ours['device']:6.2f} ({each['call'] / ours['call']:.2f})"
        for each in (chosen["torch"], chosen["cupy"])
        if each and ours
    ]
    return f"{case.name:23s} {' '.join(rates)}    {'  '.join(ratios)}{suffix}"


def geometric_means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the geometric means of torch's device time divided by ours, by dtype."""
    means = {}
    for dtype in dict.fromkeys(record["dtype"] for record in records):
        logs = [
            math.log(times["torch"]["device"] / times["cupygemm"]["device"])
            for record in records
            if record["dtype"] == dtype and "torch" in (times := record["seconds"])
        ]
        if logs:
            means[dtype] = math.exp(statistics.fmean(logs))
    return means


def environment() -> dict[str, str]:
    """Return the facts on which figures depend; `benchmarks.history add` keeps them."""
    import cupy as cp

    import cupygemm

    found = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        **_driver(),
        **_commit(),
        "cuda_driver": str(cp.cuda.runtime.driverGetVersion()),
        "cupygemm": cupygemm.__version__,
        "cupy": cp.__version__,
    }
    try:
        import torch

        found["torch"] = torch.__version__
    except ImportError:
        pass
    return found


def _driver() -> dict[str, str]:
    """Return the driver, the highest clocks and the power limit, from nvidia-smi."""
    names = ("driver_version", "clocks.max.sm", "clocks.max.memory", "power.limit")
    text = _output("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i0")
    if not text:
        return {}
    driver, sm, memory, power = text.split(", ")
    return {"driver": driver, "clocks": f"at most {sm}, memory {memory}, power limit {power}"}


def _commit() -> dict[str, str]:
    """Return the commit of the checkout, with "-dirty" if files differ from it."""
    root = str(Path(__file__).parents[1])
    text = _output(
        "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )
    return {"commit": text} if text else {}


def _output(*command: str) -> str:
    """Return the output of a command, or "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--dtypes", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--cases", nargs="+", help="names, as the table prints them")
    parser.add_argument("--output", type=Path, help="write all figures here, as JSON")
    options = parser.parse_args()
    machine = environment()
    print_line(", ".join(f"{name} {value}" for name, value in machine.items()))
    records = run(options.dtypes, options.cases)
    means = geometric_means(records)
    for dtype, mean in means.items():
        print_line(f"\n{dtype}: geometric mean of torch's device time over cupygemm's: {mean:.3f}")
    if options.output:
        document = {"environment": machine, "geometric_means": means, "records": records}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
