"""Time the contenders of a case, warm and cold, in turns in one process.

First, each contender with several calls picks its fastest. Then the contenders take turns, so that
all run at the same clocks, and the median over the rounds counts. Before any time is taken, every
call has used every set of operands several times, so that kernels are compiled and loaded, and
caches that are keyed by addresses are filled.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.models.peers import Calls, Case, Sets, contenders
from benchmarks.models.rotation import Arena, Operand, Rotating
from cupygemm._tuning.timer import DeviceTimer

STATES = ("warm", "cold")
COLD_BYTES = 256 << 20
"""Bytes between two uses of a set of cold operands: several times the L2 of a Hopper GPU."""
ROUNDS = 7
WARM_TURNS = 3
BATCH_SECONDS, LEAST_CALLS, MOST_CALLS = 0.002, 5, 100


def operands_of(case: Case) -> tuple[list[Operand], Operand]:
    """Return the operands of a case, and its result."""
    shape = (case.n, case.k) if case.w_transposed else (case.k, case.n)
    inputs = [
        Operand((case.m, case.k), case.dtype),
        Operand(shape, case.dtype, transposed=case.w_transposed),
    ]
    return inputs, Operand((case.m, case.n), case.dtype)


def measure(
    case: Case, arena: Arena, peers: tuple[str, ...], rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return the microseconds of each contender by cache state, and the size of the operands."""
    found: dict[str, Any] = {"sets": {}, "bytes": {}, "us": {}, "fastest": {}, "errors": {}}
    for state in STATES:
        inputs, output = operands_of(case)
        sets = arena.sets(inputs, output, COLD_BYTES if state == "cold" else 0)
        one = sum(each.nbytes for each in (*inputs, output))
        found["sets"][state], found["bytes"][state] = len(sets), one * len(sets)
        groups = contenders(case, sets, peers)
        if state == "warm":
            found["errors"] = errors(sets, groups)
        calls = _fastest_of(groups)
        timers = {name: _timer(call) for name, (_, call) in calls.items()}
        turns: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, (timer, count) in timers.items():
                turns[name].append(timer.seconds(count))
        found["us"][state] = {
            name: round(statistics.median(times) * 1e6, 3) for name, times in turns.items()
        }
        found["fastest"][state] = {name: which for name, (which, _) in calls.items()}
    return found


def errors(sets: Sets, groups: dict[str, Calls]) -> dict[str, float]:
    """Return the largest error of each contender, relative to the largest sum in fp32 or wider."""
    import cupy as cp

    x, w, out = sets[0]
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    exact = cp.matmul(x.astype(wide, copy=False), w.astype(wide, copy=False))
    scale, found = float(cp.abs(exact).max()), {}
    for name, calls in groups.items():
        out[...] = np.nan
        next(iter(calls.values())).warm_up(1)
        found[name] = float(cp.abs(out.astype(wide, copy=False) - exact).max()) / scale
    return found


def _timer(call: Callable[[], Any]) -> tuple[DeviceTimer, int]:
    """Return a timer for a call, and the number of calls in a batch."""
    timer = DeviceTimer(call)
    seconds = max(timer.seconds(3), 1e-6)
    return timer, max(LEAST_CALLS, min(MOST_CALLS, round(BATCH_SECONDS / seconds)))


def _fastest_of(groups: dict[str, Calls]) -> dict[str, tuple[str, Rotating]]:
    """Return the fastest call of each contender with its name; calls that fail do not count."""
    found = {}
    for contender, calls in groups.items():
        times = {}
        for name, call in calls.items():
            try:
                call.warm_up(WARM_TURNS)
            except RuntimeError:  # an offered algorithm may fail to run
                continue
            if len(calls) > 1:
                timer, count = _timer(call)
                times[name] = min(timer.seconds(count) for _ in range(2))
            else:
                times[name] = 0.0
        if times:
            best = min(times, key=times.__getitem__)
            found[contender] = best, calls[best]
    return found
