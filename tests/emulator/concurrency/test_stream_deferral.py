"""Seeded orders of streams: missing waits change results, and nothing else does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.concurrency.stream_deferral import DeferredFault, seed_of
from cupygemm.emulator.concurrency.stream_order import Queue, StreamOrder

SEEDS = range(8)
SIZE = 256
X = np.arange(SIZE, dtype=np.float32)


def streams(cp: ModuleType) -> tuple[Any, Any]:
    """Two non-blocking streams; all earlier work is done."""
    made = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    return made


def pinned(cp: ModuleType, values: Any) -> Any:
    """An array in pinned memory."""
    found = np.frombuffer(cp.cuda.alloc_pinned_memory(values.nbytes), values.dtype, values.size)
    found[:] = values
    return found


# -- programs: with the wait they are right, without it they are not --


def two_kernels(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, out = cp.asarray(X), cp.zeros_like(X)
    first, second = streams(cp)
    with first:
        a *= 2
    wait(first, second)
    with second:
        cp.add(a, 1, out=out)
    cp.cuda.Device().synchronize()
    return out.get() - (2 * X + 1)


def fill_then_copy(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, out = cp.asarray(X), cp.zeros_like(X)
    first, second = streams(cp)
    a.data.memset_async(0, a.nbytes, first)
    wait(first, second)
    out.data.copy_from_device_async(a.data, a.nbytes, second)
    cp.cuda.Device().synchronize()
    return out.get()


def memory_of_another_stream(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, out = cp.asarray(X), cp.zeros_like(X)
    first, second = streams(cp)
    with first:
        b = a * 2
    second.wait_event(first.record())
    with second:
        cp.add(b, 1, out=out)
    wait(second, first)
    del b
    with first:
        a * 0  # in the same memory
    cp.cuda.Device().synchronize()
    return out.get() - (2 * X + 1)


def pinned_memory(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, host = cp.zeros_like(X), pinned(cp, X)
    first, second = streams(cp)
    with first:
        a.set(host)
    wait(first, second)
    with second:
        b = a + 1
    cp.cuda.Device().synchronize()
    return b.get() - (X + 1)


def a_product(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, b = cp.ones((16, 16), np.float32), cp.ones((16, 16), np.float32)
    first, second = streams(cp)
    with first:
        a *= 2
    wait(first, second)
    with second:
        c = a @ b
    cp.cuda.Device().synchronize()
    return c.get() - 32


def a_graph(cp: ModuleType, wait: Callable[[Any, Any], None]) -> Any:
    a, out = cp.asarray(X), cp.zeros_like(X)
    first, second = streams(cp)
    first.begin_capture()
    second.wait_event(first.record())
    with first:
        cp.add(a, 1, out=a)
    wait(first, second)
    with second:
        cp.multiply(a, 2, out=out)
    first.wait_event(second.record())
    graph = first.end_capture()
    graph.launch(first)
    first.synchronize()
    return out.get() - 2 * (X + 1)


PROGRAMS = [
    two_kernels, fill_then_copy, memory_of_another_stream, pinned_memory, a_product, a_graph
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_missing_wait_is_wrong_for_some_seeds(
    cp: ModuleType, program: Callable[..., Any]
) -> None:
    right = set()
    for seed in SEEDS:
        with emulator.checks(stream_races="off", uninitialised="off"), emulator.streams(seed):
            right.add(not program(cp, lambda first, second: None).any())
    assert right == {True, False}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_missing_wait_is_reported_for_every_seed(
    cp: ModuleType, program: Callable[..., Any]
) -> None:
    for seed in SEEDS:
        with pytest.raises(Exception, match="nothing orders"), emulator.streams(seed):
            program(cp, lambda first, second: None)


@pytest.mark.parametrize("program", PROGRAMS)
def test_with_the_wait_every_seed_is_right(cp: ModuleType, program: Callable[..., Any]) -> None:
    for seed in (None, *SEEDS):
        with emulator.streams(seed):
            assert not program(cp, lambda first, second: second.wait_event(first.record())).any()


@pytest.mark.slow
def test_correct_programs_have_the_same_bits(cp: ModuleType) -> None:
    def program() -> bytes:
        a, blocking = cp.asarray(X), cp.cuda.Stream()
        first, second = streams(cp)
        with first:
            b = (a + 1) * 2 - 3  # temporaries, whose memory is reused
        event = first.record()
        with second:
            c = cp.linspace(0, 1, SIZE, dtype=np.float32) * 5
            second.wait_event(event)
            c += b
        with blocking:
            d = cp.sort(a[::-1])
        e = d + 1  # in the default stream, which waits
        first.wait_event(second.record())
        with first:
            f = cp.linalg.cholesky(cp.eye(4) * c[0])
        found = [each.get(stream=s).tobytes() for each, s in [(c, second), (f, first)]]
        return b"".join([*found, e.get().tobytes(), cp.fft.fft(e).get().tobytes()])

    def run(seed: int | None) -> bytes:
        with emulator.streams(seed):
            return program()

    assert {run(seed) for seed in (None, *SEEDS)} == {run(None)}


def test_queries_tell_the_truth(cp: ModuleType) -> None:
    answers = set()
    for seed in SEEDS:
        with emulator.streams(seed):
            a, (stream, _) = cp.asarray(X), streams(cp)
            host = pinned(cp, X)
            with stream:
                a *= 2
                a.get(out=host, blocking=False)
            event = stream.record()
            while not event.done:
                answers.add("not yet")
            assert host[1] == 2 * X[1]
            answers.add("already" if stream.done else "the stream has more")
    assert answers == {"not yet", "already"}


def test_times_of_events(cp: ModuleType) -> None:
    with emulator.streams(0):
        first, _ = streams(cp)
        with first:
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            cp.asarray(X) * 2
            stop.record()
        stop.synchronize()
        assert cp.cuda.get_elapsed_time(start, stop) > 0


def test_host_functions_come_after_what_is_before_them(cp: ModuleType) -> None:
    for seed in SEEDS:
        with emulator.streams(seed):
            a, (stream, _) = cp.asarray(X), streams(cp)
            host, seen = pinned(cp, X), []
            with stream:
                a *= 2
                a.get(out=host, blocking=False)
            stream.launch_host_func(lambda _: seen.append(float(host[1])), None)  # noqa: B023
            assert seen == [2.0], "the program may wait for it without a call"


def test_a_fault_names_its_launch_and_is_raised_by_the_next_wait(cp: ModuleType) -> None:
    source = 'extern "C" __global__ void far(float *x) { x[threadIdx.x + 1000] = 1; }'
    kernel = cp.RawKernel(source, "far")
    caught = 0
    for seed in SEEDS:
        with emulator.streams(seed):
            x, (stream, _) = cp.asarray(X), streams(cp)
            with stream:
                kernel((1,), (64,), (x,))
                line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
                y = x + 1
            with pytest.raises(cp.cuda.runtime.CUDARuntimeError) as found:
                stream.synchronize()
            text = str(found.value)
            assert "hipErrorLaunchFailure: out-of-bounds global write" in text
            assert f"kernel far was submitted at {__file__}:{line}, in test_a_fault" in text
            caught += "1 later piece of work after it did not begin" in text
            stream.synchronize()
            assert y.shape == x.shape
            assert isinstance(emulator.last_fault(), emulator.KernelFault)
    assert caught


def test_a_fault_that_nothing_waited_for(cp: ModuleType) -> None:
    source = 'extern "C" __global__ void far2(float *x) { x[threadIdx.x + 1000] = 1; }'
    kernel, x = cp.RawKernel(source, "far2"), cp.asarray(X)
    with pytest.raises(DeferredFault, match="out-of-bounds"), emulator.streams(0):
        kernel((1,), (64,), (x,))


def test_a_wrong_copy_is_refused_at_once(cp: ModuleType) -> None:
    with emulator.streams(0):
        a, (stream, _) = cp.asarray(X), streams(cp)
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="hipErrorInvalidValue"):
            a.data.memset_async(0, a.nbytes + 1, stream)


def test_settings() -> None:
    assert seed_of("") is None
    assert seed_of("12") == 12
    with pytest.raises(ValueError, match="ORDER=x: the seed must be an integer"):
        seed_of("x")
    with pytest.raises(ValueError, match="seed=-1"), emulator.streams(-1):
        pass


# -- without a device: queues and functions --


class Work:
    """Streams of two devices, and the order in which their work was executed."""

    def __init__(self, seed: int) -> None:
        self.order = StreamOrder()
        self.order.deferral.choose(seed)
        self.done: list[str] = []

    def queue(self, stream: int, device: int = 0) -> Queue:
        if stream > 2:
            self.order.add(stream, device, is_blocking=False)
        return self.order.queue(stream, device)

    def submit(self, queue: Queue, label: str, error: BaseException | None = None) -> None:
        place = self.order.begin(queue, label)

        def run() -> None:
            self.done.append(label)
            if error is not None:
                raise error

        self.order.deferral.add(queue, place.clock(), label, run)


def test_all_orders_of_two_devices_occur_and_events_hold_between_them() -> None:
    seen = set()
    for seed in range(40):
        work = Work(seed)
        first, second = work.queue(0, 0), work.queue(0, 1)
        work.submit(first, "a")
        work.submit(second, "x")
        work.order.wait(second, work.order.record(first))
        work.submit(second, "y")
        work.order.synchronise_device(1)
        seen.add("".join(work.done))
        assert work.order.deferral.is_idle
    assert seen == {"axy", "xay"}


def test_a_wait_executes_no_more_than_it_must_of_the_stream() -> None:
    work = Work(0)
    queue = work.queue(16)
    work.submit(queue, "a")
    event = work.order.record(queue)
    work.submit(queue, "b")
    work.order.reach(event)
    assert work.done == ["a"]


def test_failures_end_what_comes_after_them() -> None:
    work = Work(0)
    first, second, third = work.queue(16), work.queue(32), work.queue(48)
    work.submit(first, "a", ValueError("broken"))
    work.submit(first, "b")
    work.order.wait(second, work.order.record(first))
    work.submit(second, "c")
    work.submit(third, "d")
    work.order.synchronise_device()
    assert sorted(work.done) == ["a", "d"]
    with pytest.raises(DeferredFault, match="2 later pieces of work"):
        work.order.deferral.raise_failure()
    work.order.deferral.raise_failure()


def test_failures_are_printed_at_the_end(capsys: Any) -> None:
    work = Work(0)
    work.submit(work.queue(16), "a", ValueError("broken"))
    work.order.synchronise_device()
    work.order.deferral.report_unheard()
    assert "nothing waited for work that failed:\nbroken" in capsys.readouterr().err


def test_an_interruption_ends_the_wait_and_what_comes_after() -> None:
    work = Work(0)
    first, second = work.queue(16), work.queue(32)
    work.submit(first, "a", KeyboardInterrupt())
    work.submit(first, "b")
    with pytest.raises(KeyboardInterrupt):
        work.order.synchronise(first)
    work.submit(second, "c")
    work.order.synchronise_device()
    assert work.done == ["a", "c"]


def test_memory_that_is_freed_in_the_middle_of_work_is_freed_after_it() -> None:
    work = Work(0)
    queue = work.queue(16)
    deferral = work.order.deferral
    place = work.order.begin(queue, "a")
    run = work.done.append

    def work_that_frees() -> None:
        deferral.after_running(lambda: run("free"))
        run("a")

    deferral.add(queue, place.clock(), "a", work_that_frees)
    deferral.run_all()
    assert work.done == ["a", "free"]
