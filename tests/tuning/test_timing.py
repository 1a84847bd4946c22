"""`DeviceTimer`: figures are the device's, also of calls that take the host longer.

The stream is a simulated one: the host enqueues launches, each in its time, and waits where the
stream takes no more; the device runs one after the other.
"""

import collections
from dataclasses import dataclass, field

import pytest

from cupygemm._tuning import timer as _timing
from cupygemm._tuning.timer import MAX_CALLS, DeviceTimer

CYCLES_PER_SECOND = 1.98e9  # of an H200
DEPTH = 1000


@dataclass
class Stream:
    """A stream of which the host and the device each have their time."""

    now: float = 0.0
    device: float = 0.0
    begins: collections.deque = field(default_factory=lambda: collections.deque(maxlen=DEPTH))

    def enqueue(self, host, device):
        """Enqueue a launch; return when the device has run it."""
        if len(self.begins) == DEPTH:
            self.now = max(self.now, self.begins[0])
        self.now += host
        begin = max(self.now, self.device)
        self.begins.append(begin)
        self.device = begin + device
        return self.device

    def wait(self):
        """Let the host wait for the device."""
        self.now = max(self.now, self.device)


class Simulated(DeviceTimer):
    """A timer of calls of some launches each."""

    def __init__(self, launches, host, device, *, waits=False, stalls=()):
        super().__init__(lambda: None)
        self.stream, self.batches, self._of_call = Stream(), [], (launches, host, device)
        self._waits, self._stalls = waits, list(stalls)

    def batch(self, calls, cycles):
        launches, host, device = self._of_call
        self.batches.append(calls)
        start = self.stream.enqueue(5e-6, cycles / CYCLES_PER_SECOND)
        for _ in range(calls):
            for _ in range(launches):
                end = self.stream.enqueue(host / launches, device / launches)
            if self._waits:
                self.stream.wait()
        self.stream.now += self._stalls.pop() if self._stalls else 0
        held = self.stream.now < start
        self.stream.wait()
        return end - start, held


@pytest.mark.parametrize("count", [2, 30, 300])
@pytest.mark.parametrize("launches", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("host", [4e-6, 34e-6, 400e-6])
@pytest.mark.parametrize("device", [3e-6, 12e-6, 2e-3])
def test_figures_are_the_devices(launches, host, device, count):
    timer = Simulated(launches, host, device)
    for _ in range(3):
        assert timer.seconds(count) == pytest.approx(device)
        assert timer.held
    assert timer.batches[-2:] == [timer.batches[-1]] * 2, "it has learnt how long to hold"
    assert timer.batches[-1] * launches <= DEPTH


def test_a_call_of_few_launches_keeps_its_batches():
    timer = Simulated(2, 34e-6, 12e-6)
    for _ in range(5):
        timer.seconds(1000)
    assert timer.batches == [MAX_CALLS] * (1 + 5)


def test_a_host_that_stalls_once_is_timed_again():
    timer = Simulated(1, 4e-6, 12e-6, stalls=[20e-3])
    assert timer.seconds(300) == pytest.approx(12e-6)
    assert timer.max_calls >= MAX_CALLS // 2


def test_a_call_that_waits_is_not_held_for_ever():
    """Its time is that of host and device, and says so."""
    timer = Simulated(1, 10e-6, 50e-6, waits=True)
    for _ in range(3):
        assert timer.seconds(4) > 49e-6
        assert not timer.held
    assert len(timer.batches) == _timing._TRIES + 2


def test_a_batch_on_the_device(cp, device):
    """The kernel that holds it compiles and ends; what is called in between is called so often."""
    calls = []
    seconds, held = DeviceTimer(lambda: calls.append(1)).batch(3, 1000)
    assert seconds >= 0
    assert len(calls) == 3
    assert isinstance(held, bool)
    if device.kind in ("cuda", "rocm"):
        one = cp.ones(1)
        timer = DeviceTimer(lambda: cp.add(one, one, one))
        assert 0 < timer.seconds(50) < 1e-3
        assert timer.held
