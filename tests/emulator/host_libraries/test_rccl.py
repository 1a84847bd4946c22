"""Collective operations between emulated devices: groups, processes, and errors."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

from cupygemm.emulator.host_libraries.collectives import TYPES, Operation, reduced, results
from cupygemm.emulator.host_libraries.rendezvous import CommunicatorError, Link, Rendezvous
from tests.processes import run_ranks

GROUPS = """
import cupygemm, cupy as cp, numpy as np
from cupy.cuda import nccl

comms = nccl.NcclCommunicator.initAll(3)
assert [c.rank_id() for c in comms] == [c.device_id() for c in comms] == [0, 1, 2]
assert comms[0].size() == 3
N = 60_000  # more than a socket holds
data = np.random.default_rng(0).integers(-9, 9, (3, N)).astype("float32")

def buffers(size, received):
    found = []
    for rank in range(3):
        with cp.cuda.Device(rank):
            found.append((cp.asarray(data[rank, :size]), cp.zeros(received, "float32")))
    return found

def group(name, size, received, *rest):
    arrays = buffers(size, received)
    nccl.groupStart()
    for comm, (x, y) in zip(comms, arrays):
        count = received if name == "reduceScatter" else size
        getattr(comm, name)(x.data.ptr, y.data.ptr, count, nccl.NCCL_FLOAT32, *rest, 0)
    nccl.groupEnd()
    return [y.get() for _, y in arrays]

total = data.sum(0)
for y in group("allReduce", N, N, nccl.NCCL_SUM):
    assert (y == total).all()
assert all((y == data.max(0)).all() for y in group("allReduce", N, N, nccl.NCCL_MAX))
reduced = group("reduce", N, N, nccl.NCCL_SUM, 1)
assert (reduced[1] == total).all() and not reduced[0].any() and not reduced[2].any()
assert all((y == data[2]).all() for y in group("broadcast", N, N, 2))
assert all((y == data[:, :100].ravel()).all() for y in group("allGather", 100, 300))
parts = group("reduceScatter", 300, 100, nccl.NCCL_SUM)
assert (np.concatenate(parts) == total[:300]).all()

# A ring: sends and receives of one group match in any order.
arrays = buffers(50, 50)
nccl.groupStart()
for rank, (comm, (x, y)) in enumerate(zip(comms, arrays)):
    comm.send(x.data.ptr, 50, nccl.NCCL_FLOAT32, (rank + 1) % 3, 0)
    comm.recv(y.data.ptr, 50, nccl.NCCL_FLOAT32, (rank - 1) % 3, 0)
nccl.groupEnd()
assert all((y.get() == data[rank - 1, :50]).all() for rank, (_, y) in enumerate(arrays))

# What is wrong has a name.
def reason(call):
    try:
        call()
    except nccl.NcclError as err:
        return str(err)

x, y = arrays[0]
wrong = reason(lambda: comms[1].allReduce(x.data.ptr, y.data.ptr, 5, nccl.NCCL_FLOAT32, 0, 0))
assert "a buffer is on device 0, and the communicator's rank 1 is on device 1" in wrong, wrong
wrong = reason(lambda: comms[0].allReduce(x.data.ptr, y.data.ptr, 5, 77, 0, 0))
assert "77 is no ncclDataType_t" in wrong, wrong
wrong = reason(lambda: comms[0].broadcast(x.data.ptr, y.data.ptr, 5, nccl.NCCL_FLOAT32, 3, 0))
assert "rank 3: there are 3 ranks" in wrong, wrong

def mismatched():
    nccl.groupStart()
    for rank, (comm, (x, y)) in enumerate(zip(comms, arrays)):
        count = 5 + (rank == 2)
        comm.allReduce(x.data.ptr, y.data.ptr, count, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    nccl.groupEnd()

assert "rank 2 ncclAllReduce (6 x float32, sum)" in reason(mismatched)
assert "destroy the communicator and make a new one" in reason(mismatched)
assert "REMOTE_ERROR" in reason(comms[0].check_async_error)
for comm in comms:
    comm.destroy()
print("passed")
"""

PROCESS = """
import os, sys
import cupygemm, cupy as cp
from cupyx.distributed import init_process_group

rank, size, port = map(int, sys.argv[1:])
cp.cuda.Device(rank).use()
group = init_process_group(size, rank, port=port)
x = cp.full((40, 30), rank + 1, "float32")
y = cp.empty_like(x)
group.all_reduce(x, y)
assert (y.get() == 3).all()
gathered = cp.empty((2, 40, 30), "float32")
group.all_gather(x, gathered, x.size)
assert (gathered.get()[:, 0, 0] == [1, 2]).all()
if rank == 0:
    group.send(x, 1)
else:
    group.recv(y, 0)
    assert (y.get() == 1).all()
group.barrier()
if rank == 1:
    os._exit(3)
try:
    group.all_reduce(x, y)
except Exception as err:
    print(err, flush=True)
os._exit(0)  # at an ordinary exit, CuPy's store would wait for rank 1
"""


def test_a_group_of_devices_in_one_thread(run_python, device):
    assert str(run_python(GROUPS, target=f"{device.target}:3")).split()[-1] == "passed"


@pytest.mark.slow
def test_processes_and_the_death_of_one(device, tmp_path):
    """The survivor gets an error that names the rank; nothing hangs."""
    ended = run_ranks(PROCESS, 2, f"{device.target}:2", tmp_path)
    assert ended[1].returncode == 3, ended[1].output
    assert "rank 1 has left the communicator" in ended[0].output, ended[0].output


@pytest.fixture
def ranks(monkeypatch):
    """Return the links of three ranks that have joined."""

    class Links(list):
        rendezvous = Rendezvous()

    links = Links(Link(Links.rendezvous.unique_id, rank, 3) for rank in range(3))
    for link in links:
        link.joined()
    monkeypatch.setenv("CUPYGEMM_EMULATE_RCCL_TIMEOUT", "0.3")
    yield links
    for link in links:
        link.close()


def test_sends_that_wait_for_each_other_are_a_deadlock(ranks, monkeypatch):
    """Without a group, each rank sends before it receives."""
    monkeypatch.delenv("CUPYGEMM_EMULATE_RCCL_TIMEOUT")
    for rank, link in enumerate(ranks):
        link.send([Operation(name="ncclSend", count=2, root=(rank + 1) % 3)], [b"ab"])
    for link in ranks:
        with pytest.raises(CommunicatorError, match=r"all ranks wait .* rank 2 in ncclSend \(2 x"):
            link.receive(1)


def test_a_rank_that_does_not_come_is_named(ranks):
    operation = Operation(name="ncclAllReduce", count=2, op=0)
    for link in ranks[:2]:
        link.send([operation], [b"ab"])
    while not all(ranks.rendezvous._ranks[rank].waits for rank in range(2)):
        time.sleep(0.001)  # the messages are on the way
    with pytest.raises(CommunicatorError, match=r"waited 0.3 s .*missing ranks: 2 \(see CUPYGEMM"):
        ranks[0].receive(1)
    with pytest.raises(CommunicatorError, match="missing ranks: 2"):
        ranks[1].receive(1)
    ranks[2].send([operation], [b"ab"])
    with pytest.raises(CommunicatorError, match="missing ranks: 2"):
        ranks[2].receive(1)
    with pytest.raises(CommunicatorError, match="make a new one"):
        ranks[0].send([operation], [b"ab"])


def test_sends_and_receives_must_fit(ranks, monkeypatch):
    monkeypatch.delenv("CUPYGEMM_EMULATE_RCCL_TIMEOUT")
    ranks[0].send([Operation(name="ncclSend", count=2, root=1)], [b"ab"])
    ranks[1].send([Operation(name="ncclRecv", count=3, root=0)], [b""])
    with pytest.raises(CommunicatorError, match=r"rank 0 sends ncclSend .2 x .* peer 1.*receives"):
        ranks[0].receive(1)


def test_ranks_must_fit(monkeypatch):
    rendezvous = Rendezvous()
    first = Link(rendezvous.unique_id, 0, 3)
    while 0 not in rendezvous._ranks:  # its greeting is on the way
        time.sleep(0.01)
    for rank, size, message in ((0, 3, "two ranks have the number 0"), (1, 2, "are 2 ranks")):
        with pytest.raises(CommunicatorError, match=message):
            Link(rendezvous.unique_id, rank, size).joined()
    monkeypatch.setenv("CUPYGEMM_EMULATE_RCCL_TIMEOUT", "0.3")
    with pytest.raises(CommunicatorError, match="to join; missing ranks: 1, 2"):
        first.joined()
    with pytest.raises(CommunicatorError, match="does not answer"):
        Link(b"\1\0" + bytes(126), 0, 1)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("op", "function"),
    [("sum", np.add), ("prod", np.multiply), ("max", np.maximum), ("min", np.minimum)],
)
def test_reductions(dtype, op, function):
    arrays = [np.array([1, 2, 3], dtype), np.array([3, 1, 2], dtype), np.array([2, 2, 5], dtype)]
    expected = function(function(arrays[0], arrays[1]), arrays[2])
    np.testing.assert_array_equal(reduced(op, arrays), expected)


def test_averages_and_sums_of_halves_are_rounded_once():
    one, tiny = np.array([2048], np.float16), np.array([1], np.float16)
    assert reduced("sum", [one, tiny, tiny]) == 2050
    assert reduced("avg", [one, tiny, tiny, tiny]).dtype == np.float16
    assert reduced("avg", [np.array([5], np.int32), np.array([2], np.int32)]) == 3
    half = np.array([3], ml_dtypes.bfloat16)
    assert reduced("avg", [half, half]) == 3


def test_results_by_rank():
    sent = [np.array([rank, 10 * rank], np.int32).tobytes() for rank in range(2)]
    scattered = Operation(name="ncclReduceScatter", count=1, type=2, op=0)
    assert [np.frombuffer(each, np.int32).tolist() for each in results(scattered, sent)] == [
        [1],
        [10],
    ]
    assert results(Operation(name="ncclReduce", count=2, type=2, op=0, root=1), sent)[0] == b""
