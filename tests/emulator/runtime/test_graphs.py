"""Captures of streams and launches of graphs, through CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cupygemm


@pytest.fixture
def stream(cp: ModuleType) -> Any:
    return cp.cuda.Stream(non_blocking=True)


@contextmanager
def invalid(cp: ModuleType, stream: Any, name: str, match: str) -> Iterator[None]:
    """Expect an error, after which the capture is invalid."""
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match=f"{name}: .*{match}"):
        yield
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="Invalidated.*" + match):
        stream.end_capture()
    assert not stream.is_capturing()


def test_captured_work_runs_when_the_graph_is_launched(cp: ModuleType, stream: Any) -> None:
    a, out = cp.arange(100, dtype=np.float32), cp.zeros(100, np.float32)
    cp.cuda.Device().synchronize()
    with stream:
        cp.add(a, out, out=out)  # compiled
        stream.begin_capture()
        assert stream.is_capturing()
        cp.add(a, out, out=out)
        out.data.memset_async(0, 4 * 10, stream)
        cp.multiply(out, 2, out=out)
        graph = stream.end_capture()
    assert not stream.is_capturing()
    stream.synchronize()
    expected = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(out.get(), expected)
    for _ in range(2):
        graph.launch(stream)
        expected += np.arange(100)
        expected[:10] = 0
        expected *= 2
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), expected)
    assert graph.debug_dot_str().count("->") == 2


def test_arguments_are_those_of_the_capture(cp: ModuleType, stream: Any) -> None:
    out = cp.zeros(4, np.int32)
    cp.cuda.Device().synchronize()
    with stream:
        cp.add(out, 1, out=out)
        stream.begin_capture()
        for value in (1, 10, 100):
            cp.add(out, value, out=out)
        graph = stream.end_capture()
    stream.synchronize()
    out[...] = 0
    graph.launch()
    assert out.get().tolist() == [111] * 4


def test_products_can_be_captured(cp: ModuleType, stream: Any) -> None:
    a = cp.asarray(np.random.default_rng(1).integers(-3, 4, (40, 30)).astype(np.float16))
    out = cp.zeros((40, 40), np.float16)
    cp.cuda.Device().synchronize()
    with stream:
        cupygemm.matmul(a, a.T, out)
        stream.begin_capture()
        cupygemm.matmul(a, a.T, out)
        graph = stream.end_capture()
    stream.synchronize()
    expected = a.get().astype("f4") @ a.get().T.astype("f4")
    a *= 2
    assert (out.get() == expected).all(), "nothing runs before the launch"
    graph.launch()
    assert (out.get() == 4 * expected).all()


def test_a_second_stream_joins_by_events(cp: ModuleType, stream: Any) -> None:
    other = cp.cuda.Stream(non_blocking=True)
    a, b = cp.zeros(4, np.int32), cp.zeros(4, np.int32)
    cp.add(a, 1, out=a)
    stream.begin_capture()
    forked = cp.cuda.Event(disable_timing=True)
    forked.record(stream)
    other.wait_event(forked)
    assert other.is_capturing()
    with other:
        cp.add(b, 2, out=b)
    joined = cp.cuda.Event(disable_timing=True)
    joined.record(other)
    with stream:
        cp.add(a, 1, out=a)
        stream.wait_event(joined)
        cp.add(a, b, out=a)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="Unmatched"):
        cp.cuda.runtime.streamEndCapture(other.ptr)
    graph = stream.end_capture()
    assert b.get().tolist() == [0] * 4
    graph.launch()
    assert (a.get().tolist(), b.get().tolist()) == ([4] * 4, [2] * 4)


def test_work_that_nothing_waits_for_is_told(cp: ModuleType, stream: Any) -> None:
    other = cp.cuda.Stream(non_blocking=True)
    array = cp.zeros(4, np.int32)
    stream.begin_capture()
    event = cp.cuda.Event(disable_timing=True)
    event.record(stream)
    other.wait_event(event)
    event.record(other)
    stream.wait_event(event)
    with other:
        array.data.memset_async(1, 4, other)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match=f"Unjoined.*0x{other.ptr:x}"):
        stream.end_capture()
    assert not other.is_capturing()


def test_waiting_for_a_captured_stream_ends_the_capture(cp: ModuleType, stream: Any) -> None:
    stream.begin_capture()
    with invalid(cp, stream, "hipErrorStreamCaptureUnsupported", "a wait for"):
        stream.synchronize()
    stream.begin_capture()
    with invalid(cp, stream, "hipErrorStreamCaptureUnsupported", "a wait for all streams"):
        cp.cuda.Device().synchronize()
    event = cp.cuda.Event()
    event.record()
    stream.begin_capture()
    with invalid(cp, stream, "hipErrorStreamCaptureIsolation", "outside of the capture"):
        stream.wait_event(event)


def test_the_legacy_stream_is_not_for_blocking_captures(cp: ModuleType) -> None:
    blocking = cp.cuda.Stream()
    array = cp.zeros(4)
    blocking.begin_capture()
    with invalid(cp, blocking, "hipErrorStreamCaptureImplicit", "legacy default stream"):
        cp.cuda.runtime.memset(array.data.ptr, 0, 8)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="stream of your own"):
        cp.cuda.runtime.streamBeginCapture(0, 2)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="is not being captured"):
        cp.cuda.runtime.streamEndCapture(blocking.ptr)


def test_a_fault_in_a_graph_is_raised_by_its_launch(cp: ModuleType, stream: Any) -> None:
    kernel = cp.RawKernel('extern "C" __global__ void k(int *x) { x[threadIdx.x] = 1; }', "k")
    array = cp.zeros(32, np.int32)
    with stream:
        kernel.compile()
        stream.begin_capture()
        kernel((1,), (64,), (array,))
        graph = stream.end_capture()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="out-of-bounds global write"):
        graph.launch()


def test_host_computed_calls_cannot_be_captured(cp: ModuleType, stream: Any) -> None:
    array = cp.eye(4, dtype=np.float32)
    cp.cuda.Device().synchronize()
    with stream:
        array @ array
        stream.begin_capture()
        with pytest.raises(Exception, match="hipblasSgemm in a stream that is being captured"):
            array @ array
        stream.end_capture()
