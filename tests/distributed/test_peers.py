"""Products of two ranks whose rows travel by copies to each other's memory, and their faults."""

import pytest

from tests.processes import devices_of

PRODUCTS = """
import cupygemm, cupy as cp, ml_dtypes, numpy as np
from cupygemm import distributed as cd
from cupygemm._distributed import steps
from tests.distributed.threads import Ranks

ranks = Ranks(2, exchange="copies")
rng = np.random.default_rng(3)
def same_bits(found, expected):
    if EMULATED:  # on GPUs, another library may multiply some rows by another kernel
        assert found.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
a, b = (rng.standard_normal(s).astype("f") for s in ((22, 96), (96, 20)))
K = slice(0, 40), slice(40, 96)
INTEGERS = np.arange(22 * 5).reshape(22, 5)

# In one slice and in several, the bits are those of one device and of the sum in order.
with cp.cuda.Device(0):
    whole = cupygemm.matmul(cp.asarray(a), cp.asarray(b)).get()
    parts = [cupygemm.matmul(cp.asarray(a[:, k]), cp.asarray(b[k])).get() for k in K]
for slices in ((1,), (4,)):
    import cupygemm._distributed.ways as ways
    ways.SLICES = slices
    def products(rank, group):
        group.ways.clear()
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
    x, y = cp.asarray(a[11 * rank : 11 * rank + 11]), cp.asarray(b)
    for _ in range(3):  # in which the host waits for no stream
        cd.all_gather_matmul(x, y, group=group)
# With one half of the segments for all calls, a copy would overtake the reader of the call before.
def overtaking(rank, group):
    peers, begin = group.peers, group.peers.begin
    def begin_in_the_first_half(stream):
        begin(stream)
        peers._half = 0
    peers.begin = begin_in_the_first_half
    x, y = cp.asarray(a[11 * rank : 11 * rank + 11]), cp.asarray(b)
    for _ in range(3):
        cd.all_gather_matmul(x, y, group=group)
if EMULATED:
    for fault in (careless, overtaking):
        results = Ranks(2, exchange="copies")(fault)
        assert any("race" in str(each) for each in results), (fault, results)
print("named")
"""


def test_products_by_copies(run_python, device):
    checks = {"CUPYGEMM_EMULATE_CHECKS": "stream_races=error"}
    code = f"EMULATED = {device.emulated}\n{PRODUCTS}"
    output = str(run_python(code, target=devices_of(device, 2), env=checks, timeout=300))
    assert output.split() == ["bits", "grown", "named"]


def test_the_driver_s_refusal_is_an_error(monkeypatch):
    from cupygemm._backends import stream_flags

    with pytest.raises(RuntimeError, match="write to a flag: error 801"):
        stream_flags._check("write to a flag", 801)
    assert stream_flags._check("write to a flag", 0) is None
