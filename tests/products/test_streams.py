"""Streams and threads: where work is enqueued, that nothing waits, and many of both together."""

import threading

import numpy as np
import pytest

import cupygemm

# Every function once, on arrays that were made before.
CALLS = """
import cupygemm, numpy as np
a, b, v = cp.ones((48, 40), "f4"), cp.ones((40, 56), "f4"), cp.ones(40, "f4")
stack, w = cp.ones((3, 48, 40), "f4"), cp.ones((56, 40), "f4")
out, c, scale = cp.zeros((48, 56), "f4"), cp.ones((48, 56), "f4"), cp.ones((3, 3), "f4")
g = cp.zeros((48, 56), "f4")
odd = cp.ones((80, 48), "f4")[::2].T  # is copied
CALLS = {
    "matmul": lambda **on: cupygemm.matmul(a, b, **on),
    "matmul out": lambda **on: cupygemm.matmul(a, b, out, **on),
    "matmul copied": lambda **on: cupygemm.matmul(odd[:, ::-1], b, **on),
    "matmul epilogue": lambda **on: cupygemm.matmul(a, b, bias=b[0], activation="relu", **on),
    "matmul axes": lambda **on: cupygemm.matmul(a, v, axes=[(0, 1), 0, 0], order="F", **on),
    "dot": lambda **on: cupygemm.dot(stack, b, **on),
    "vdot": lambda **on: cupygemm.vdot(v, v, **on),
    "vecdot": lambda **on: cupygemm.vecdot(a, a, **on),
    "inner": lambda **on: cupygemm.inner(a, w, **on),
    "outer": lambda **on: cupygemm.outer(v, v, **on),
    "matvec": lambda **on: cupygemm.matvec(a, v, **on),
    "vecmat": lambda **on: cupygemm.vecmat(v, b, **on),
    "tensordot": lambda **on: cupygemm.tensordot(stack, b, 1, **on),
    "einsum": lambda **on: cupygemm.einsum("bij,jk->kbi", stack, b, **on),
    "gemm": lambda **on: cupygemm.gemm(2, a, b, 1, c, out=c, **on),
    "syrk": lambda **on: cupygemm.syrk(1, a, **on),
    "linear": lambda **on: cupygemm.linear(stack, w, b[0], "relu", **on),
    "scaled_matmul": lambda **on: cupygemm.scaled_matmul(a, b, scale, 2.0, block=16, **on),
    "grouped_matmul": lambda **on: cupygemm.grouped_matmul([a, a], [b, b], [out, g], **on),
    "multi_dot": lambda **on: cupygemm.linalg.multi_dot([a, b, b.T], **on),
    "matrix_power": lambda **on: cupygemm.linalg.matrix_power(a[:40], 5, **on),
    "linalg.matmul": lambda **on: cupygemm.linalg.matmul(a, b, **on),
    "linalg.outer": lambda **on: cupygemm.linalg.outer(v, v, **on),
    "linalg.tensordot": lambda **on: cupygemm.linalg.tensordot(stack, b, axes=1, **on),
    "linalg.vecdot": lambda **on: cupygemm.linalg.vecdot(a, a, **on),
}
"""

PROGRAM = """
from tests.runtime_calls import counted, waits

streams = set()

def seen(name, args):
    if name == "hipModuleLaunchKernel":
        streams.add(args[8])

counts = counted("hipMalloc", "hipModuleLaunchKernel", seen=seen)
import cupygemm.emulator
cupygemm.emulator.enable("gfx942")
import cupy as cp
{calls}
def check(name, call, stream):
    for _ in range(6):  # compile, and fill the pool, which passes over blocks that were dropped
        call()
    counts.clear(), streams.clear()
    kept = call()
    assert not waits(counts), (name, waits(counts))
    assert not counts["hipMalloc"], (name, "allocates past the pool")
    assert counts["hipModuleLaunchKernel"], (name, "launches nothing")
    assert streams == {{stream.ptr}}, (name, streams, stream.ptr)

stream = cp.cuda.Stream(non_blocking=True)
cp.cuda.Device().synchronize()  # the arrays are ready
for name, call in CALLS.items():
    with stream:
        check(name, call, stream)
    check(name + " stream=", lambda: call(stream=stream), stream)
    assert cp.cuda.get_current_stream().ptr == 0, name
print("checked", len(CALLS))
"""


@pytest.mark.slow
def test_nothing_waits_and_all_is_on_the_stream_that_was_asked_for(run_python):
    """Counted by the emulated runtime: no synchronisation, no allocation outside the pool.

    The stream is the current one, then one named by ``stream=``.
    """
    assert "checked 25" in run_python(PROGRAM.format(calls=CALLS))


def test_many_threads_and_streams(cp):
    """Each thread has its own stream, operands and results; all use one table of plans."""
    threads, rounds = 6, 4
    start, wrong = threading.Barrier(threads), []

    def work(index):
        generator = np.random.default_rng(index)
        start.wait()
        with cp.cuda.Stream(non_blocking=True) as stream:
            for turn in range(rounds):
                m, k, n = (int(extent) for extent in generator.integers(1, 40, 3))
                a, b = (generator.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n)))
                ours = cp.asarray(a), cp.asarray(b)
                for name, expected in (
                    ("matmul", a @ b),
                    ("dot", a @ b),
                    ("inner", None),
                    ("einsum", None),
                    ("grouped_matmul", None),
                ):
                    if name == "inner":
                        result = cupygemm.inner(ours[0], ours[1].T)
                    elif name == "einsum":
                        result = cupygemm.einsum("ij,jk->ik", *ours)
                    elif name == "grouped_matmul":
                        result = cupygemm.grouped_matmul([ours[0]], [ours[1]])[0]
                    else:
                        result = getattr(cupygemm, name)(*ours)
                    stream.synchronize()
                    if not (cp.asnumpy(result) == (a @ b if expected is None else expected)).all():
                        wrong.append((index, turn, name))

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.parametrize("name", ["matmul", "dot", "inner", "einsum", "grouped_matmul", "vecdot"])
def test_arrays_on_different_devices_are_refused(cp, monkeypatch, name):
    """There is one device here, so one array claims to be on another."""

    class Elsewhere(cp.ndarray):
        @property
        def data(self):
            memory = super().data
            return type("Memory", (), {"device_id": 1, "ptr": memory.ptr})()

    a = cp.ones((4, 4), np.float32)
    b = a.view(Elsewhere)
    arguments = {"einsum": ("ij,jk", a, b), "grouped_matmul": ([a], [b])}.get(name, (a, b))
    with pytest.raises(ValueError, match=f"{name}: the arrays must be on one device: .* device 1"):
        getattr(cupygemm, name)(*arguments)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["d", "f", "F", "e"])
@pytest.mark.parametrize(("m", "k"), [(40, 40), (5, 300)])
def test_a_product_does_not_read_the_columns_beside_its_operand(cp, device, dtype, m, k):
    """Another stream may write them at the same time. (8 columns are whole vectors.)"""
    if not device.emulated:
        pytest.skip("only the emulated device tells which memory a kernel reads")
    from cupygemm import emulator

    a, (b, t) = cp.ones((m, k), dtype), cp.ones((2, k, 256), dtype)
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with emulator.checks(stream_races="error"):
        with one:
            c, d = cupygemm.matmul(a, b[:, :24]), cupygemm.matmul(t[:, 8:48].T, a.T)
        with other:
            b[:, 24:] = 2
            t[:, 48:] = 2
        cp.cuda.Device().synchronize()
    assert (c.get() == k).all()
    assert (d.get() == k).all()
