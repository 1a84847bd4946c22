"""Times of calls on the current device, and the facts on which they depend."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cupygemm._tuning.timer import DeviceTimer

ROUNDS = 3
# Seconds of a batch of calls: more for long calls, whose clock depends on their power.
_SHORT, _LONG, _CALLS = 0.002, 0.012, 30
_MOST_CALLS = 100
_NEAR = 32  # next-ranked candidates, from which half of the random ones are drawn


def times(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the microseconds of calls, medians over rounds in which they take turns."""
    timers = [DeviceTimer(call) for call in calls]
    counts = []
    for call, timer in zip(calls, timers, strict=True):
        call()  # loads the kernel
        seconds = max(timer.seconds(2), 1e-6)
        batch = min(_LONG, max(_SHORT, _CALLS * seconds))
        counts.append(max(2, min(_MOST_CALLS, round(batch / seconds))))
    rounds = [
        [timer.seconds(count) for timer, count in zip(timers, counts, strict=True)]
        for _ in range(ROUNDS)
    ]
    return [statistics.median(turns) * 1e6 for turns in zip(*rounds, strict=True)]


def is_emulated() -> bool:
    """Whether this process emulates its device, for which it must have imported the emulator."""
    emulator = sys.modules.get("cupygemm.emulator")
    return emulator is not None and bool(emulator.is_enabled())


def operand(shape: tuple[int, ...], dtype: np.dtype[Any], letter: str) -> Any:
    """Return an array of random numbers: in C order ("N"), or a transposed view of one ("T").

    On the emulated device, where times do not depend on data, all numbers are 1.
    """
    import cupy as cp

    *batch, rows, columns = shape
    extents = shape if letter == "N" else (*batch, columns, rows)
    if is_emulated():
        values = cp.ones(extents, dtype)
    elif dtype.itemsize == 1:  # both signs, and no NaN of an 8-bit float
        values = cp.random.randint(0, 120, extents) + 128 * cp.random.randint(0, 2, extents)
        values = values.astype(np.uint8)
    else:
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        values = cp.random.uniform(-0.5, 0.5, extents, dtype=wide).astype(dtype, copy=False)
    return values if letter == "N" else cp.swapaxes(values, -1, -2)


def result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return an array for a result; CuPy has no 8-bit floats."""
    import cupy as cp

    return cp.empty(shape, np.uint8 if dtype.itemsize == 1 else dtype)


def bound(launch: Callable[..., None], *arrays: Any) -> Callable[[], None]:
    """Return a call that launches a kernel with the addresses of arrays."""
    addresses = tuple(array.data.ptr for array in arrays)
    return lambda: launch(*addresses)


def draw(ranked: Sequence[Any], first: int, others: int, key: str) -> list[Any]:
    """Return a model's highest-ranked candidates and random others, half of them ranked next.

    The same `key` gives the same candidates.
    """
    rng = random.Random(key)  # noqa: S311
    chosen, rest = list(ranked[:first]), ranked[first:]
    near, far = rest[:_NEAR], rest[_NEAR:]
    chosen += rng.sample(near, min(len(near), (others + 1) // 2))
    return chosen + rng.sample(far, min(len(far), others // 2))
