"""The order of streams of several devices by RCCL, events and the default streams."""

import pytest

from cupygemm.emulator.concurrency.stream_order import StreamOrder, Stretch

PROGRAM = """
import cupy as cp
from cupy.cuda import nccl

add = cp.RawKernel('extern "C" __global__ void add(float *x) { x[threadIdx.x] += 1; }', "add")
runtime = cp.cuda.runtime
first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
with cp.cuda.Device(1):
    third, fourth = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
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

def reduce(stream, start=0):
    nccl.groupStart()
    at = x.data.ptr + 4 * start
    comms[0].allReduce(at, at, 16, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
    with cp.cuda.Device(1):
        comms[1].allReduce(
            y.data.ptr, y.data.ptr, 16, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, third.ptr)
    nccl.groupEnd()

def use(stream, start=0):  # what the peer has received
    with cp.cuda.Device(1), stream:
        add((1,), (16,), (y[start:],))

comms = nccl.NcclCommunicator.initAll(2)

def races(before, after, between=lambda: None, start=0, streams=(first, second)):
    for stream in (first, second, third, fourth):
        stream.synchronize()
    before(streams[0])
    between()
    try:
        after(streams[1], start)
    except Exception as err:
        return str(err)
    return ""

for before, after in ((kernel, copy), (copy, kernel), (kernel, fill), (fill, copy), (copy, fill),
                      (kernel, send), (send, kernel), (fill, kernel), (kernel, kernel),
                      (kernel, reduce), (reduce, kernel)):
    text = races(before, after)
    assert "nothing orders the two" in text, (before, after, text)
    assert f"stream 0x{first.ptr:x}" in text and f"stream 0x{second.ptr:x}" in text, text
    assert not races(before, after, lambda: second.wait_event(first.record()))
    assert not races(before, after, first.synchronize)
    assert not races(before, after, lambda: first.record().synchronize())
    assert not races(before, after, runtime.deviceSynchronize)
    assert not races(before, after, start=16), "they touch other bytes"
    assert "nothing orders" in races(before, after, lambda: first.wait_event(second.record()))

# The stream that receives is another device's; it comes after what the sender's stream has done.
text = races(send, use, streams=(first, fourth))
assert f"which ncclRecv in stream 0x{third.ptr:x} of device 1" in text, text
assert "in ncclRecv" in races(use, send, streams=(fourth, first))
assert not races(send, use, streams=(first, third))
for exchange in (send, reduce):
    def through_peer(stream):
        kernel(stream)
        exchange(stream)
    assert not races(through_peer, kernel, lambda: second.wait_event(third.record())), exchange
assert "nothing orders" in races(kernel, kernel, lambda: second.wait_event(third.record()))

# The default stream of a device waits for the blocking streams of that device only.
with cp.cuda.Device(1):
    blocking = cp.cuda.Stream()
null = cp.cuda.Stream.null
assert not races(use, use, streams=(blocking, null))
assert not races(use, use, streams=(null, blocking))
def copy_from_device_0(stream, start):
    runtime.memcpyPeerAsync(x.data.ptr, 0, y.data.ptr, 1, 64, stream.ptr)
text = races(use, copy_from_device_0, streams=(blocking, null))
assert f"which kernel add in stream 0x{blocking.ptr:x} of device 1 wrote" in text, text
print("passed")
"""


def test_what_is_not_ordered_is_reported(run_python, device):
    checks = {"CUPYGEMM_EMULATE_CHECKS": "stream_races=error"}
    output = run_python(PROGRAM, target=f"{device.target}:2", env=checks)
    assert str(output).split() == ["passed"]


@pytest.fixture
def order():
    found = StreamOrder()
    for stream, is_blocking in ((16, True), (32, True), (48, False)):
        found.add(stream, 0, is_blocking=is_blocking)
    return found


def rivals(order, stream, device=0):
    """Write in a stream, and return earlier work that is not ordered before it."""
    operation = order.begin(order.queue(stream, device), "fill")
    operation.stretches.append(Stretch.plain(1000, 8, writes=True))
    found = order.rivals(operation)
    return [] if found is None else [other.queue for other, _ in found.touched]


def test_the_null_stream_waits_for_blocking_streams(order):
    assert not rivals(order, 16)
    assert not rivals(order, 0)
    assert not rivals(order, 32)
    assert rivals(order, 0, device=1) == [order.queue(each, 0) for each in (16, 0, 32)]
    assert order.queue(16, 0) in rivals(order, 48)


def test_order_is_transitive(order):
    rivals(order, 16)
    order.wait(order.queue(48, 0), order.record(order.queue(16, 0)))
    order.wait(order.queue(32, 0), order.record(order.queue(48, 0)))
    assert not rivals(order, 32)


def test_an_event_covers_what_was_before_it(order):
    clock = order.record(order.queue(16, 0))
    rivals(order, 16)
    order.wait(order.queue(48, 0), clock)
    assert rivals(order, 48)


def test_a_device_is_waited_for_alone(order):
    rivals(order, 16)
    rivals(order, 0, device=1)
    order.synchronise_device(1)
    assert rivals(order, 48) == [order.queue(16, 0)]
    order.synchronise_device()
    assert not rivals(order, 32)
