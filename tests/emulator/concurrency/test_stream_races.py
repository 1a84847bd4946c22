"""Races between streams: missing waits are found, and nothing that is ordered is reported."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator

SIZE = 512  # elements of float32


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    """The check is on, whatever its default is."""
    with emulator.checks(stream_races="error"):
        yield


@pytest.fixture
def pair(cp: ModuleType) -> Iterator[Any]:
    """Two non-blocking streams; all earlier work is done."""
    made = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    yield made
    cp.cuda.Device().synchronize()


@pytest.fixture
def array(cp: ModuleType) -> Any:
    """An array that is ready for every stream."""
    found = cp.arange(SIZE, dtype=np.float32)
    cp.cuda.Device().synchronize()
    return found


def race(cp: ModuleType, match: str) -> Any:
    """Expect the report of a race."""
    errors = cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError
    return pytest.raises(errors, match="stream race: (.|\n)*" + match)


def double(cp: ModuleType, array: Any, stream: Any) -> Any:
    with stream:
        return array * 2


def test_a_missing_wait_is_reported(cp: ModuleType, pair: Any, array: Any) -> None:
    first, second = pair
    b = double(cp, array, first)
    with second, race(cp, "") as found:
        b + 1
    text = str(found.value)
    assert "read after another stream's write" in text
    assert f"which kernel cupy_multiply__float32_float_float32 in stream 0x{first.ptr:x}" in text
    assert f"and let stream 0x{second.ptr:x} wait for it" in text
    assert f"{4 * SIZE} bytes at 0x{b.data.ptr:x}" in text
    assert "global_store_dword" in text, "the instruction of the other kernel"
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    assert fault.check == "stream_races"


def event(cp: ModuleType, first: Any, second: Any) -> None:
    second.wait_event(first.record())


def host(cp: ModuleType, first: Any, second: Any) -> None:
    first.synchronize()


def device(cp: ModuleType, first: Any, second: Any) -> None:
    cp.cuda.Device().synchronize()


def host_event(cp: ModuleType, first: Any, second: Any) -> None:
    first.record().synchronize()


def query(cp: ModuleType, first: Any, second: Any) -> None:
    assert first.done


def callback(cp: ModuleType, first: Any, second: Any) -> None:
    done = threading.Event()
    first.launch_host_func(lambda _: done.set(), None)
    assert done.wait(600)


def third(cp: ModuleType, first: Any, second: Any) -> None:
    between = cp.cuda.Stream(non_blocking=True)
    between.wait_event(first.record())
    second.wait_event(between.record())


def free(cp: ModuleType, first: Any, second: Any) -> None:
    cp.cuda.runtime.free(cp.cuda.runtime.malloc(16))


@pytest.mark.parametrize("wait", [event, host, device, host_event, query, callback, third, free])
def test_what_waits_is_no_race(
    cp: ModuleType, pair: Any, array: Any, wait: Callable[..., None]
) -> None:
    b = double(cp, array, pair[0])
    wait(cp, *pair)
    with pair[1]:
        c = b + 1
    pair[1].synchronize()
    np.testing.assert_array_equal(c.get(), 2 * np.arange(SIZE) + 1)


def test_an_event_orders_only_what_comes_before_it(cp: ModuleType, pair: Any, array: Any) -> None:
    early = pair[0].record()
    b = double(cp, array, pair[0])
    pair[1].wait_event(early)
    with pair[1], race(cp, "read after another stream's write"):
        b + 1


def test_the_default_stream_waits_for_blocking_streams(
    cp: ModuleType, pair: Any, array: Any
) -> None:
    blocking = cp.cuda.Stream(), cp.cuda.Stream()
    b = double(cp, array, blocking[0])
    c = b + 1  # in the default stream
    with blocking[1]:
        c += 1
        b += 1  # after the default stream's work, which came after the other stream's
    with pair[0], race(cp, "after another stream's write"):
        b += 1  # a non-blocking stream does not wait
    cp.cuda.Device().synchronize()
    d = double(cp, array, blocking[0])
    with blocking[1], race(cp, "in stream 0x"):
        d + 1


def test_halves_of_an_array_are_no_race(cp: ModuleType, pair: Any, array: Any) -> None:
    out = cp.zeros(SIZE, np.float32)
    cp.cuda.Device().synchronize()
    cut = SIZE // 2 + 1  # inside one of the 16-byte blocks of a record
    with pair[0]:
        cp.add(array[:cut], 1, out=out[:cut])
    with pair[1]:
        cp.add(array[cut:], 1, out=out[cut:])
        cp.cuda.runtime.memsetAsync(out[cut:].data.ptr, 0, 4, pair[1].ptr)
    with pair[1], race(cp, "write after another stream's write"):
        cp.cuda.runtime.memsetAsync(out[cut - 8 :].data.ptr, 0, 4, pair[1].ptr)


def test_readers_do_not_race(cp: ModuleType, pair: Any, array: Any) -> None:
    for stream in (*pair, *pair):
        with stream:
            array + 1
            array.copy()


def test_a_write_races_with_an_earlier_read(cp: ModuleType, pair: Any, array: Any) -> None:
    double(cp, array, pair[0])
    with pair[1]:
        array + 1  # later readers do not hide the first one
        with race(cp, "write after another stream's read(.|\n)*cupy_multiply"):
            array.fill(0)


def test_copies_and_fills(cp: ModuleType, pair: Any, array: Any) -> None:
    first, second = pair
    runtime = cp.cuda.runtime
    out = cp.zeros(SIZE, np.float32)
    cp.cuda.Device().synchronize()

    def copy(to: Any, source: Any, stream: Any) -> None:
        runtime.memcpyAsync(to.data.ptr, source.data.ptr, to.nbytes, 3, stream.ptr)

    copy(out, array, first)
    with second, race(cp, f"which copy of {4 * SIZE} bytes in stream 0x{first.ptr:x}"):
        out + 1  # a kernel after a copy
    with second, race(cp, "write after another stream's read"):
        array += 1
    with race(cp, f"in copy of {4 * SIZE} bytes"):
        copy(array, out, second)
    with race(cp, "in fill of 4 bytes"):
        runtime.memsetAsync(out.data.ptr + 8, 0, 4, second.ptr)
    cp.cuda.Device().synchronize()
    copy(out, array, first)
    copy(array, out, first)  # its own stream


def test_memory_that_another_stream_still_uses_is_reused(
    cp: ModuleType, pair: Any, array: Any
) -> None:
    first, second = pair
    b = double(cp, array, first)
    second.wait_event(first.record())
    c = double(cp, b, second)
    b = None  # back to the pool, which gives it to the next array in its stream
    with race(cp, "write after another stream's read(.|\n)*given back and used again"):
        c = double(cp, array, first)
    assert c is not None


def test_memory_of_one_stream_is_reused_without_a_race(
    cp: ModuleType, pair: Any, array: Any
) -> None:
    for _ in range(3):
        for stream in pair:
            b = double(cp, array, stream)
            b = double(cp, b, stream)
    del b


def test_library_calls(cp: ModuleType, pair: Any) -> None:
    first, second = pair
    a = cp.eye(8, dtype=np.float64) * 4
    whole = cp.zeros((16, 16))
    cp.cuda.Device().synchronize()
    with first:
        a *= 2
    with second, pytest.raises(Exception, match="stream race: read after") as found:
        cp.linalg.cholesky(a)
    assert "rocsolver" in str(found.value) or "copy" in str(found.value)
    cp.cuda.Device().synchronize()
    with first:
        cp.fft.fft(whole[:, :8], axis=0)
    with second:
        whole[:, 8:] = 1  # other columns of the same matrix


def test_blocks_of_one_matrix_are_told_apart(cp: ModuleType, pair: Any) -> None:
    left, right = np.s_[:, :4], np.s_[:, 4:]
    from cupygemm.emulator.host_libraries.memory import stretches

    host = np.zeros((6, 8))
    base = host.ctypes.data
    parts = [
        stretches(base + view.ctypes.data - base, view, writes=True)
        for view in (host[left], host[right], host[2, 3:5], host[::-1, :4])
    ]
    (a,), (b,), (row,), (backwards,) = parts
    assert a.first_common(b) is None
    assert b.first_common(a) is None
    assert a.first_common(row) == base + 8 * 19
    assert row.first_common(b) == base + 8 * 20
    assert backwards == a


def test_streams_of_a_graph(cp: ModuleType, pair: Any, array: Any) -> None:
    first, second = pair
    b, c = cp.zeros_like(array), cp.zeros_like(array)
    cp.cuda.Device().synchronize()

    def capture(*, joined_early: bool) -> Any:
        first.begin_capture()
        second.wait_event(first.record())
        with second:
            cp.add(array, 1, out=b)
        if joined_early:
            first.wait_event(second.record())
        with first:
            cp.add(b, 1, out=c)
        if not joined_early:
            first.wait_event(second.record())
        return first.end_capture()

    good = capture(joined_early=True)
    good.launch(first)
    good.launch(second)  # after the first launch
    second.synchronize()
    np.testing.assert_array_equal(c.get(), np.arange(SIZE) + 2)
    cp.cuda.Device().synchronize()
    bad = capture(joined_early=False)
    with race(cp, "of a graph"):
        bad.launch(first)


def test_severities(cp: ModuleType, pair: Any, array: Any) -> None:
    b = double(cp, array, pair[0])
    with pair[1]:
        with emulator.checks(stream_races="warn"), pytest.warns(emulator.KernelWarning) as told:
            c = b + 1
        assert "stream race" in str(told[0].message)
        with emulator.checks(stream_races="warn"), pytest.warns(emulator.KernelWarning) as told:
            b.get()
        assert "copy" in str(told[0].message)
        with warnings.catch_warnings(), emulator.checks(races="off"):
            warnings.simplefilter("error")
            b + 1
            b.get()
    np.testing.assert_array_equal(c.get(stream=pair[1]), 2 * np.arange(SIZE) + 1)


def test_atomics_of_two_streams(cp: ModuleType, pair: Any) -> None:
    kernel = cp.RawKernel('extern "C" __global__ void add(int *x) { atomicAdd(x, 1); }', "add")
    x = cp.zeros(1, np.int32)
    cp.cuda.Device().synchronize()
    for stream in pair:
        with stream:
            kernel((1,), (64,), (x,))
    with pair[0], race(cp, "read after another stream's write"):
        x + 1
    cp.cuda.Device().synchronize()
    assert int(x[0]) == 128


def test_pinned_memory(cp: ModuleType, pair: Any, array: Any) -> None:
    import cupyx

    pinned = cupyx.empty_pinned(SIZE, np.float32)
    with pair[0]:
        array.get(out=pinned, blocking=False)
    with pair[1], race(cp, "write after another stream's write|read after"):
        array.set(pinned)
    cp.cuda.Device().synchronize()
    np.testing.assert_array_equal(pinned, np.arange(SIZE))
