"""Measure the time that calls take on the device.

Calls are timed between two events. If the host takes longer to enqueue a call than the device takes
to compute it, the events would measure the host. Therefore another kernel first occupies the stream
until all calls are enqueued. After each batch the timer checks whether that kernel ran long enough.
If not, the batch is timed again after a longer kernel and with fewer calls, since the host also
waits when the queue of a stream is full.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_CALLS = 300
"""The most calls of a batch: a stream takes about 1000 launches, and a call makes up to three."""
_HOLD = r"""
extern "C" __global__ void hold(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
_CYCLES = 40_000  # cycles for each call in the first attempt: 20 us on an H200, for a launch or two
_TRIES = 8


class DeviceTimer:
    """Times calls on the current device, in the current stream.

    Parameters
    ----------
    call : callable
        ``call()`` enqueues work.

    Attributes
    ----------
    held : bool
        Whether the stream was occupied while the last batch was enqueued, so that its time is the
        device's.
    max_calls : int
        The most calls of a batch for which the stream's queue seems to have room.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.held, self.max_calls = True, MAX_CALLS
        self._call = call
        self._cycles, self._tries = _CYCLES, _TRIES

    def seconds(self, count: int) -> float:
        """Return the seconds of a call, the mean over `count` calls but at most `max_calls`."""
        for attempt in range(self._tries):
            calls = min(count, self.max_calls)
            elapsed, self.held = self.batch(calls, (calls + 1) * self._cycles)
            if self.held:
                return elapsed / calls
            self._cycles *= 2
            if attempt:  # the first attempt may fail only because its kernel is too short
                self.max_calls = max(1, calls // 2)
        # The call waits for the device, so no better time can be measured.
        self._cycles, self._tries, self.max_calls = _CYCLES, 1, MAX_CALLS
        return elapsed / calls

    def batch(self, calls: int, cycles: int) -> tuple[float, bool]:
        """Return the device's seconds for a batch, and whether the stream was occupied throughout.

        A kernel of `cycles` cycles occupies the stream before the calls.
        """
        from cupy import RawKernel
        from cupy.cuda import Event, get_elapsed_time

        before, start, end = Event(), Event(), Event()
        hold = RawKernel(_HOLD, "hold")
        hold.compile()
        # By the host's clock, the kernel ends at this time plus its duration, or later. Asking the
        # device whether it has ended would leave the error "not ready" in the runtime.
        begun = time.perf_counter()
        before.record()
        hold((1,), (1,), (np.int64(cycles),))
        start.record()
        for _ in range(calls):
            self._call()
        end.record()
        enqueued = time.perf_counter() - begun
        end.synchronize()
        held = enqueued < get_elapsed_time(before, start) / 1e3
        return float(get_elapsed_time(start, end)) / 1e3, bool(held)
