"""Products of two ranks whose rows travel by copies to each other's memory, and their faults."""

import contextlib
import textwrap
from types import SimpleNamespace

import pytest

from tests.processes import devices_of

PRODUCTS = """
import cupygemm, cupy as cp, ml_dtypes, numpy as np
from cupygemm import distributed as cd
from cupygemm._distributed import transport
from tests.distributed.threads import Ranks

ranks = Ranks(2, exchange=EXCHANGE)
rng = np.random.default_rng(3)
def same_bits(found, expected):
    if EMULATED:  # on GPUs, another library may multiply some rows by another kernel
        assert found.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
a, b = (rng.standard_normal(s).astype("f") for s in ((22, 96), (96, 20)))
K = slice(0, 40), slice(40, 96)
INTEGERS = np.arange(22 * 5).reshape(22, 5)

# The bits are those of one device and of the sum in order.
with cp.cuda.Device(0):
    whole = cupygemm.matmul(cp.asarray(a), cp.asarray(b)).get()
    parts = [cupygemm.matmul(cp.asarray(a[:, k]), cp.asarray(b[k])).get() for k in K]
transport._host_seconds = lambda steps: 0.0  # so that no copies are recorded
for share in (0, 1e9):  # one stream of a scatter's products, and two
    transport._SHORT_COPIES = share
    def products(rank, group):
        group.transports.clear()
        x, y = cp.asarray(a[:, K[rank]]), cp.asarray(b[K[rank]])
        own = slice(0, 15) if rank == 0 else slice(15, 22)
        full = cp.empty((22, 96), "f")
        gathered = cd.all_gather_matmul(
            cp.asarray(a[own]), cp.asarray(b), group=group, rows=[15, 7], gathered=full)
        scattered = cd.matmul_reduce_scatter(x, y, group=group, rows=[15, 7])
        half = cd.matmul_reduce_scatter(x, y, group=group, partial_dtype=ml_dtypes.bfloat16)
        reduced = cd.matmul_all_reduce(x, y, group=group, activation="relu")
        for _ in range(2):  # what was kept of a call
            z, own_rows = cp.empty((11, 20), "f"), cp.asarray(a[own])
            cd.matmul_reduce_scatter(x, y, z, group=group)
            same_bits(z.get(), (parts[0] + parts[1])[11 * rank :][:11])
            again = cd.all_gather_matmul(own_rows, cp.asarray(b), group=group, rows=[15, 7])
            assert again.get().tobytes() == whole.tobytes()
            # No kernel multiplies int64 by rows, so all rows must have arrived.
            x64, y64 = cp.asarray(INTEGERS[own]), cp.asarray(INTEGERS.T)
            exact = cd.all_gather_matmul(x64, y64, group=group, rows=[15, 7])
            assert (exact.get() == INTEGERS @ INTEGERS.T).all()
        assert group._calls.of("all_gather_matmul") and group._calls.of("matmul_reduce_scatter")
        return [each.get() for each in (gathered, full, scattered, half, reduced)]
    for rank, found in enumerate(ranks.values(products)):
        own = slice(0, 15) if rank == 0 else slice(15, 22)
        assert found[0].tobytes() == whole.tobytes()
        assert found[1].tobytes() == a.tobytes()
        same_bits(found[2], (parts[0] + parts[1])[own])
        halves = [part.astype(ml_dtypes.bfloat16).astype("f") for part in parts]
        own = slice(11 * rank, 11 * rank + 11)
        same_bits(found[3], (halves[0] + halves[1])[own])
        same_bits(found[4], np.maximum(parts[0] + parts[1], 0))
assert ranks.groups[0].peers.capacity == 2 << 20
print("bits")

# Larger operands make the segments grow, on all ranks; without memory, NCCL takes their place.
def last_rows(group, rank, rows):
    x = cp.zeros((rows, 2048), "e")
    x[-1, -1] = rank + 1
    c = cd.all_gather_matmul(x, cp.ones((2048, 1), "e"), group=group).get()
    return group.peers.capacity >> 20, float(c[rows - 1, 0]), float(c[-1, 0])
assert ranks.values(lambda rank, group: last_rows(group, rank, 300)) == [(4, 1.0, 2.0)] * 2
def refused(rank, group):
    group.peers._refused = 5 << 20
    return last_rows(group, rank, 700)
assert ranks.values(refused) == [(4, 1.0, 2.0)] * 2
print("grown")

# Without the wait for a flag, a product would race with the copy of its rows.
def careless(rank, group):
    group.peers.receive = lambda peer, stream: None
    group.peers.exchange_flags = lambda stream: None
    x, y = cp.asarray(a[11 * rank : 11 * rank + 11]), cp.asarray(b)
    for _ in range(3):  # in which the host waits for no stream
        cd.all_gather_matmul(x, y, group=group)
# With one half of the segments for all calls, a copy would overtake the reader of the call before.
def overtaking(rank, group):
    peers = group.peers
    def in_the_first_half(begin):
        def call(stream):
            begin(stream)
            peers._half = 0
        return call
    peers.begin, peers.begin_on = map(in_the_first_half, (peers.begin, peers.begin_on))
    x, y = cp.asarray(a[11 * rank : 11 * rank + 11]), cp.asarray(b)
    for _ in range(3):
        cd.all_gather_matmul(x, y, group=group)
if EMULATED:
    for fault in (careless, overtaking):
        results = Ranks(2, exchange=EXCHANGE)(fault)
        assert any("race" in str(each) for each in results), (fault, results)
print("named")
"""


def run_each_way(run_python, device, body, size, *calls):
    """Run a program as the body of a function, which `calls` call one after another.

    CuPy is then imported once.
    """
    checks = {"CUPYGEMM_EMULATE_CHECKS": "stream_races=error"}
    function = f"def run(EXCHANGE, RECORDED=0):\n{textwrap.indent(body, '    ')}"
    code = "\n".join([f"EMULATED = {device.emulated}", function, *calls])
    return str(run_python(code, target=devices_of(device, size), env=checks, timeout=600)).split()


@pytest.mark.slow
def test_products_at_peers(run_python, device):
    ways = "run('copies')", "run('stores')"
    assert run_each_way(run_python, device, PRODUCTS, 2, *ways) == ["bits", "grown", "named"] * 2


def test_the_driver_s_refusal_is_an_error(monkeypatch):
    from cupygemm._backends import stream_flags

    with pytest.raises(RuntimeError, match="write to a flag: error 801"):
        stream_flags._check("write to a flag", 801)
    assert stream_flags._check("write to a flag", 0) is None


class QueuedCalls:
    """Calls in a stream that wait for flags; the end of each lowers those of its half."""

    def __init__(self, count):
        self.count = count

    @property
    def done(self):
        return self.count == 0

    def raise_flags(self, *_):
        self.count -= min(self.count, 2)  # one for each half


def test_all_queued_calls_are_released(monkeypatch):
    """However many calls wait for a rank that is gone, none waits for ever."""
    from cupy import cuda

    from cupygemm._distributed import peers as module
    from cupygemm._distributed.peers import Peers

    monkeypatch.setattr(module, "_RELEASE_PAUSES", (0.0, 0.01, 0.02))
    calls = QueuedCalls(100)
    monkeypatch.setattr(cuda.runtime, "memsetAsync", calls.raise_flags)
    monkeypatch.setattr(cuda, "Device", lambda _: contextlib.nullcontext())
    peers = Peers.__new__(Peers)
    peers._rank, peers._size, peers._ended = 0, 2, calls
    peers.stream = peers._release_stream = SimpleNamespace(ptr=0, done=True)
    peers._flags = SimpleNamespace(addresses=[0, 0], device=0)
    peers._release()
    assert calls.done


REPEATED = """
import cupy as cp, ml_dtypes, numpy as np
from cupygemm import distributed as cd
from cupygemm._distributed.recordings import _Recording
from cupygemm._distributed.shortcuts import Shortcut
from tests.distributed.threads import Ranks

SIZE = 3
ranks = Ranks(SIZE, exchange=EXCHANGE)
if EMULATED:  # whose functions let no thread wait for the work of a device
    for group in ranks.groups:
        group.peers._meet = None
launched, launch = [], Shortcut.launch
Shortcut.launch = lambda *given: launched.append(launch(*given)) or launched[-1]
rng = np.random.default_rng(3)
def integers(*shape):
    return rng.integers(-3, 4, shape).astype("e")
def recorded(group):
    return [each for each in group.recordings._table._plans.values() if type(each) is _Recording]

# New numbers in the same arrays, on streams that take turns. Each function writes its own half.
rounds = [(integers(24, 96), integers(96, 32)) for _ in range(10)]
def products(rank, group):
    rows, k = slice(8 * rank, 8 * rank + 8), slice(32 * rank, 32 * rank + 32)
    a, b, c = cp.empty((8, 96), "e"), cp.empty((96, 32), "e"), cp.empty((24, 32), "e")
    x, y, z = cp.empty((24, 32), "e"), cp.empty((32, 32), "e"), cp.empty((8, 32), "e")
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    cp.cuda.Device().synchronize()
    found = []
    for number, (left, right) in enumerate(rounds):
        with streams[number % 2] as stream:
            a.set(left[rows], stream), b.set(right, stream)
            cd.all_gather_matmul(a, b, c, group=group)
            x.set(np.ascontiguousarray(left[:, k]), stream), y.set(right[k], stream)
            cd.matmul_reduce_scatter(x, y, z, group=group, partial_dtype="e")
            found.append((c.get(stream), z.get(stream)))
    return found, len(recorded(group))
for rank, (found, count) in enumerate(ranks.values(products)):
    assert count == RECORDED, count
    for (left, right), (c, z) in zip(rounds, found, strict=True):
        exact = (left.astype("f") @ right.astype("f")).astype("e")
        assert (c == exact).all()
        assert (z == exact[8 * rank : 8 * rank + 8]).all()
assert launched.count(True) == SIZE * RECORDED * (len(rounds) - 3), launched
print("replayed")

# Larger segments take the place of those that the recorded calls use.
a, b = integers(24, 96), integers(96, 32)
def grown(rank, group):
    part, right, c = cp.asarray(a[8 * rank :][:8]), cp.asarray(b), cp.empty((24, 32), "e")
    def small():
        return cd.all_gather_matmul(part, right, c, group=group).get()
    found = [small() for _ in range(6)]
    large = cp.ones((500, 2048), "e")
    cd.all_gather_matmul(large, cp.ones((2048, 1), "e"), group=group)
    return [*found, *(small() for _ in range(6))]
for found in ranks.values(grown):
    assert all((c == a @ b).all() for c in found)
print("grown")
"""


@pytest.mark.slow
def test_repeated_calls(run_python, device):
    """Calls with the same arrays launch graphs, unless the driver refuses to capture them."""
    ways = "run('copies', 2)", f"run('stores', {2 * device.emulated})", REFUSES, "run('copies', 0)"
    assert run_each_way(run_python, device, REPEATED, 3, *ways) == ["replayed", "grown"] * 3


THREADS = """
import threading, time
import cupy as cp, numpy as np
from cupygemm import distributed as cd
from cupygemm._backends.stream_flags import StreamFlags
from cupygemm._distributed.group import Group
from tests.distributed.threads import Ranks

SIZE = 3
events = []
def noting(what, function):
    def call(self, stream, address, value):
        if value == 0:  # a flag is lowered
            return function(self, stream, address, value)
        if what == "sends" and cp.cuda.runtime.getDevice() == 1:
            time.sleep(0.1)
        function(self, stream, address, value)
        events.append(what)
    return call
meet = Group.meet_threads
def meeting(self):
    if self.rank == 1:
        time.sleep(0.1)
    events.append("comes")
    meet(self)
    events.append("goes")
StreamFlags.write = noting("sends", StreamFlags.write)
StreamFlags.wait = noting("waits", StreamFlags.wait)
a, b = np.ones((12, 16), "f"), np.ones((16, 8), "f")
def gathered(rank, group):
    return cd.all_gather_matmul(cp.asarray(a[4 * rank :][:4]), cp.asarray(b), group=group).get()
def scattered(rank, group):
    return cd.matmul_reduce_scatter(cp.asarray(a), cp.asarray(b), group=group).get()
def reduced(rank, group):
    return cd.matmul_all_reduce(cp.asarray(a), cp.asarray(b), group=group).get()
for way in ("copies", "stores", "nccl"):
    # No rank prepares its call, or goes on after it, while another one enqueues its exchange.
    Group.meet_threads = meeting if way == "nccl" else meet
    first, second = ("comes", "goes") if way == "nccl" else ("sends", "waits")
    each = SIZE if way == "nccl" else SIZE * (SIZE - 1)
    ranks = Ranks(SIZE, exchange=way)
    assert all(group.shares_process for group in ranks.groups)
    for function, value in ((gathered, 16), (scattered, 48), (reduced, 48)):
        events.clear()
        assert all((c == value).all() for c in ranks.values(function))
        seen = 0
        for event in events:
            seen += event == first
            # An exchange is complete on all ranks before any of them waits.
            assert event != second or seen % each == 0 or function is reduced, (way, events)
        assert first in events, (way, events)
    print(way)
"""


@pytest.mark.slow
def test_threads_wait_when_all_have_sent(run_python, device):
    """Where ranks share a process, nothing waits for what another rank has yet to enqueue.

    A driver may let an allocation of that rank wait for it.
    """
    if not device.emulated:
        pytest.skip("the order is that of the host")
    ways = run_python(THREADS, target=devices_of(device, 3)).split()
    assert ways == ["copies", "stores", "nccl"]


REFUSES = """
from cupy.cuda import runtime
from cupygemm._backends import stream_flags
StreamFlags = stream_flags.StreamFlags
writes = StreamFlags.write
def refused(self, stream, address, value):
    if runtime.streamIsCapturing(stream):
        stream_flags._check("write to a flag", 900)
    writes(self, stream, address, value)
StreamFlags.write = refused
"""
