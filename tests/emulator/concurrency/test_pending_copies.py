"""Only pinned memory that the host changes while a copy from it is pending is reported."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator import _session
from cupygemm.emulator._session import finish_streams
from cupygemm.emulator.errors import KernelWarning

SIZE = 256


class Parts:
    """A stream, pinned memory, an array, and another stream."""

    def __init__(self, cp: ModuleType) -> None:
        self.cp = cp
        self.stream, self.other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
        self.memory = cp.cuda.alloc_pinned_memory(4 * SIZE)
        self.buffer = np.frombuffer(self.memory, np.float32, SIZE)
        self.array = cp.zeros(SIZE, np.float32)
        cp.cuda.Device().synchronize()

    def copy(self) -> None:
        """Begin a copy from the pinned memory."""
        self.array.set(self.buffer, stream=self.stream)

    def change(self) -> None:
        """Write to it."""
        self.buffer[7] += 1


@pytest.fixture
def parts() -> Parts:
    """Parts on the emulated device."""
    cp = pytest.importorskip("cupy")
    if not emulator.is_enabled():
        pytest.skip("pinned memory is looked at on the emulated device")
    return Parts(cp)


def found(run: Callable[[], Any]) -> list[str]:
    """Return the check's reports for a program."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", KernelWarning)
        run()
    return [str(each.message) for each in seen if "pending_copies" in str(each.message)]


def waits(parts: Parts) -> list[Callable[[], Any]]:
    """Return a function that makes the host wait for the copy, or begins another one."""
    return [
        parts.stream.synchronize,
        parts.cp.cuda.Device().synchronize,
        lambda: parts.stream.record().synchronize(),
        lambda: parts.stream.record().done,
        lambda: parts.stream.done,
        parts.copy,
    ]


@pytest.mark.parametrize("wait", range(6))
def test_a_change_before_a_wait_is_a_finding(parts: Parts, wait: int) -> None:
    parts.buffer[:] = 1
    parts.copy()
    parts.change()
    (text,) = found(waits(parts)[wait])
    assert "copy of 1024 bytes in stream" in text
    assert "test_pending_copies.py:" in text
    assert "from its byte 24 on: 0000803f 0000803f at that time, 0000803f 00000040 now" in text
    assert found(waits(parts)[wait]) == []


@pytest.mark.parametrize("wait", range(5))
def test_a_change_behind_a_wait_is_no_finding(parts: Parts, wait: int) -> None:
    def run() -> None:
        for _ in range(3):
            parts.copy()
            waits(parts)[wait]()
            parts.change()
        parts.stream.synchronize()

    assert found(run) == []


def test_two_buffers_in_turns_are_no_finding(parts: Parts) -> None:
    second = Parts(parts.cp)

    def run() -> None:
        for each in (parts, second) * 3:
            each.stream.synchronize()
            each.change()
            each.copy()

    assert found(run) == []


def test_what_the_device_writes_is_no_finding(parts: Parts) -> None:
    write = parts.cp.RawKernel(
        'extern "C" __global__ void write(float* x) { x[threadIdx.x] = 9; }', "write"
    )

    ones = parts.cp.ones(SIZE, np.float32)
    parts.cp.cuda.Device().synchronize()

    def by_copy() -> None:
        parts.copy()
        parts.cp.cuda.runtime.memcpyAsync(
            parts.memory.ptr, ones.data.ptr, 4 * SIZE, 2, parts.stream.ptr
        )
        parts.stream.synchronize()

    def by_kernel() -> None:
        parts.copy()
        write((1,), (SIZE,), (np.uintp(parts.memory.ptr),), stream=parts.stream)
        parts.stream.synchronize()

    def by_host_function() -> None:
        parts.copy()
        parts.stream.launch_host_func(lambda _: parts.change(), None)
        parts.stream.synchronize()

    assert found(by_copy) == found(by_host_function) == found(by_kernel) == []
    assert parts.buffer[0] == 9


def test_memory_that_is_given_back_is_no_finding(parts: Parts) -> None:
    runtime = parts.cp.cuda.runtime

    def run() -> None:
        pointer = runtime.hostAlloc(4 * SIZE, 0)
        ctypes.memset(pointer, 1, 4 * SIZE)
        runtime.memcpyAsync(parts.array.data.ptr, pointer, 4 * SIZE, 1, parts.stream.ptr)
        runtime.freeHost(pointer)
        parts.stream.synchronize()

    assert found(run) == []


def test_arrays_of_the_program_s_own_memory_are_no_finding(parts: Parts) -> None:
    def run() -> None:
        for value in range(20):
            ours = np.full(SIZE, value, np.float32)
            array = parts.cp.asarray(ours)
            ours[:] = -1
            assert float(array.sum()) == value * SIZE

    assert found(run) == []


def unawaited(parts: Parts, *then: Callable[[], Any]) -> list[str]:
    """Copy to the pinned memory; return the report at the end of the program."""
    copies = _session._devices.order.copies
    finish_streams()

    def run() -> None:
        parts.array.get(stream=parts.stream, out=parts.buffer, blocking=False)
        for each in then:
            each()
        copies.report_unawaited()

    return found(run)


def test_a_copy_to_the_host_that_nothing_awaits_is_a_finding(parts: Parts) -> None:
    (text,) = unawaited(parts)
    assert text.split("\n", 1)[1].startswith(
        "the host never waited for a copy to its pinned memory"
    )
    assert "copy of 1024 bytes in stream" in text
    assert "test_pending_copies.py:" in text
    assert len(unawaited(parts, parts.other.synchronize)) == 1
    for wait in waits(parts)[:5]:
        assert unawaited(parts, wait) == []
    assert unawaited(parts, lambda: parts.stream.launch_host_func(lambda _: None, None)) == []
