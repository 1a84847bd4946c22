"""What calls take the device: between events, behind a kernel that holds the stream meanwhile.

Where the host takes longer to enqueue a call than the device to compute it, events around calls
would show the host's time. So a kernel runs first, and ends when all calls are enqueued. Whether it
ran so long is seen after each batch, and a batch that it did not outlast is timed again: behind a
longer one, and of fewer calls, because the host waits where a stream takes no more launches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_CALLS = 300
"""Of a batch: a stream takes about a thousand launches, and a call is up to three as a rule."""
_HOLD = r"""
extern "C" __global__ void hold(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
_CYCLES = 40_000  # for each call at first: 20 us of an H200, of one launch or two
_TRIES = 8


class DeviceTimer:
    """Times calls on the current device, in the current stream.

    Parameters
    ----------
    call : callable
        Takes nothing, and enqueues work.

    Attributes
    ----------
    held : bool
        The stream was held while the last batch was enqueued, so that its time is the device's.
    max_calls : int
        Of a batch, as many as the stream seems to take.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.held, self.max_calls = True, MAX_CALLS
        self._call = call
        self._cycles, self._tries = _CYCLES, _TRIES

    def seconds(self, count: int) -> float:
        """Return the seconds of a call, the mean of a batch of `count`, or of `max_calls`."""
        for attempt in range(self._tries):
            calls = min(count, self.max_calls)
            elapsed, self.held = self.batch(calls, (calls + 1) * self._cycles)
            if self.held:
                return elapsed / calls
            self._cycles *= 2
            if attempt:  # it was not only that the first guess is short for this call
                self.max_calls = max(1, calls // 2)
        # The call waits for the device itself: no other time is to be had.
        self._cycles, self._tries, self.max_calls = _CYCLES, 1, MAX_CALLS
        return elapsed / calls

    def batch(self, calls: int, cycles: int) -> tuple[float, bool]:
        """Return the seconds of the device for calls, and whether it was held until then.

        It waits for some cycles before them.
        """
        from cupy import RawKernel
        from cupy.cuda import Event, get_elapsed_time

        before, start, end = Event(), Event(), Event()
        hold = RawKernel(_HOLD, "hold")
        hold.compile()
        # By the clock of the host, it ends no sooner than it took after this. To ask the device
        # whether it has ended would leave an error behind, that it has not.
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
