"""Work of different streams on the same memory: reported unless an event or the host orders it."""

import numpy as np
import pytest

from cupygemm.emulator.stream_order import Span, StreamOrder, stream_order

PROGRAM = """
import cupy as cp
from cupy.cuda import nccl

add = cp.RawKernel('extern "C" __global__ void add(float *x) { x[threadIdx.x] += 1; }', "add")
runtime = cp.cuda.runtime
first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
with cp.cuda.Device(1):
    third = cp.cuda.Stream(non_blocking=True)
    y = cp.zeros(64, "f")
x = cp.zeros(64, "f")
with cp.cuda.Device(1):
    runtime.deviceSynchronize()
runtime.deviceSynchronize()

def kernel(stream, start=0):
    with stream:
        add((1,), (16,), (x[start:],))

def copy(stream, start=0):  # to the other device
    runtime.memcpyPeerAsync(y.data.ptr, 1, x.data.ptr + 4 * start, 0, 64, stream.ptr)

def fill(stream, start=0):
    runtime.memsetAsync(x.data.ptr + 4 * start, 0, 64, stream.ptr)

def send(stream, start=0):
    nccl.groupStart()
    comms[0].send(x.data.ptr + 4 * start, 16, nccl.NCCL_FLOAT32, 1, stream.ptr)
    with cp.cuda.Device(1):
        comms[1].recv(y.data.ptr, 16, nccl.NCCL_FLOAT32, 0, third.ptr)
    nccl.groupEnd()

comms = nccl.NcclCommunicator.initAll(2)

def synchronised():
    first.synchronize(), second.synchronize(), third.synchronize()

def races(before, after, between=lambda: None, start=0):
    synchronised()
    before(first)
    between()
    try:
        after(second, start)
    except Exception as err:
        return str(err)
    return ""

for before, after in ((kernel, copy), (copy, kernel), (kernel, fill), (fill, copy), (copy, fill),
                      (kernel, send), (send, kernel), (fill, kernel)):
    text = races(before, after)
    assert "nothing orders the two" in text, (before, after, text)
    assert f"stream 0x{first.ptr:x} of device 0" in text and f"0x{second.ptr:x}" in text, text
    assert not races(before, after, lambda: second.wait_event(first.record()))
    assert not races(before, after, first.synchronize)
    assert not races(before, after, lambda: first.record().synchronize())
    assert not races(before, after, runtime.deviceSynchronize)
    assert not races(before, after, start=16), "they touch other bytes"
    assert "nothing orders" in races(before, after, lambda: first.wait_event(second.record()))
"""


def test_what_is_not_ordered_is_reported(run_python, device):
    code = PROGRAM + 'print("passed")'
    output = run_python(
        code, target=f"{device.target}:2", env={"CUPYGEMM_EMULATE_STREAM_ORDER": "1"}
    )
    assert str(output).split() == ["passed"]


def test_it_is_off_unless_asked_for(monkeypatch):
    monkeypatch.delenv("CUPYGEMM_EMULATE_STREAM_ORDER", raising=False)
    assert stream_order(None) is None
    monkeypatch.setenv("CUPYGEMM_EMULATE_STREAM_ORDER", "1")
    assert isinstance(stream_order(None), StreamOrder)


@pytest.fixture
def order():
    found = StreamOrder(None)
    for stream, flags in ((16, 0), (32, 0), (48, 1)):
        found.created(stream, 0, flags)
    return found


def writes(order, stream, device=0):
    return order.touches(stream, device, "fill", [Span(1000, 8, True)])


def test_the_null_stream_waits_for_blocking_streams(order):
    assert not writes(order, 16)
    assert not writes(order, 0)
    assert not writes(order, 32)
    assert "stream 0x30 of device 0 touches memory that fill on stream 0x10" in writes(order, 48)


def test_order_is_transitive(order):
    writes(order, 16)
    order.waits(48, 0, order.recorded(16, 0))
    order.waits(32, 0, order.recorded(48, 0))
    assert not writes(order, 32)


def test_an_event_covers_what_was_before_it(order):
    clock = order.recorded(16, 0)
    writes(order, 16)
    order.waits(48, 0, clock)
    assert writes(order, 48)


def test_memory_that_is_freed_is_ordered(order):
    writes(order, 16)
    order.freed()
    assert not writes(order, 48)


def test_reads_do_not_race(order):
    spans = [Span(np.int64(1000), 8, False)]
    assert not order.touches(16, 0, "copy", spans)
    assert not order.touches(48, 0, "copy", spans)
    assert writes(order, 32)
