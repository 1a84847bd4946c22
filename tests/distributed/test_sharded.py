"""Sharded products: of a group of ranks by stated layouts, and of distributed arrays of CuPy.

Integers are small, so that every order of summation gives the exact sum.
"""

import pytest

from tests.processes import devices_of

SHARDED = """
import cupy as cp, numpy as np
from cupygemm import distributed as cd
from cupygemm._distributed import sharded_plan, transport
from tests.distributed.threads import Ranks

PANELS = sharded_plan.PANELS
ranks = Ranks(4)
rng = np.random.default_rng(0)
def integers(*shape):
    return rng.integers(-3, 4, shape).astype("f")

def block(array, grid, rank):
    rows = np.array_split(array, grid[0])[rank // grid[1]]
    return np.array_split(rows, grid[1], axis=1)[rank % grid[1]]

def joined(blocks, grid):
    rows = [blocks[i * grid[1] : (i + 1) * grid[1]] for i in range(grid[0])]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows])

m, n, k = 22, 18, 41
a, b, bias, addend = integers(m, k), integers(k, n), integers(n), integers(m, n)
NAMES = {"rows": (4, 1), "columns": (1, 4)}
for layouts, out_layout, cube in (
    (("rows", "rows"), "rows", None),
    (((2, 2), (2, 2)), (2, 2), (2, 2, 1)),
    (("columns", "rows"), "columns", (2, 1, 2)),
):
    sharded_plan.PANELS = (2,) if cube == (2, 1, 2) else PANELS
    grids = [NAMES.get(each, each) for each in (*layouts, out_layout)]
    def run(rank, group, **more):
        x, y = (cp.asarray(block(z, g, rank)) for z, g in zip((a, b), grids))
        c = cp.asarray(block(addend, grids[2], rank))
        part = cp.asarray(block(np.broadcast_to(bias, (m, n)), grids[2], rank)[0])
        return cd.matmul(x, y, group=group, layouts=layouts, out_layout=out_layout, cube=cube,
                         bias=part, c=c, activation="relu", **more)
    blocks = [c.get() for c in ranks.values(run)]
    np.testing.assert_array_equal(
        joined(blocks, grids[2]), np.maximum(a @ b + addend + bias, 0), err_msg=str(layouts))
print("exact")

# Panels in 16 bits are summed in float32; results are written to out, in any order in memory.
def halves(rank, group):
    x = cp.asarray(block(np.array([[2048, 1, 1, 0]] * 4), (4, 1), rank).astype("e"))
    y = cp.asarray(block(np.ones((4, 4)), (4, 1), rank).astype("e"))
    out = cp.empty((1, 4), "f")[:, ::-1]
    assert cd.matmul(x, y, out, group=group, cube=(1, 1, 4)) is out
    return out.get()
assert (np.concatenate(ranks.values(halves)) == 2050).all()

def same(errors, text):
    assert all(text in each for each in errors), errors

def asking(shape, **options):
    return ranks.errors(lambda rank, group: cd.matmul(
        cp.zeros(shape if rank == 3 else (2, 8), "f"), cp.zeros((2, 5), "f"), group=group,
        **{name: value(rank) for name, value in options.items()}))

same(asking((3, 8)), "rank 0 has a block of a of shape (2, 8)")
same(asking((2, 8), layouts=lambda r: ("rows", (1, 4) if r == 1 else "rows")), "rank 1 calls with")
same(asking((2, 8), out_layout=lambda r: "diagonal"), "a layout is 'rows', 'columns'")
same(asking((2, 8), cube=lambda r: (2, 1, 1)), "three numbers whose product is 4")
errors = asking((2, 8), out=lambda r: cp.empty((2, 5 + (r == 2)), "f"))
assert "rank 2 has refused its call: ValueError" in errors[0], errors
assert "(2, 6)" in errors[2], errors
same(ranks.errors(lambda r, g: cd.matmul(cp.zeros((2, 7), "f"), cp.zeros((2, 5), "f"), group=g)),
     "the inner extents differ: a has shape (8, 7) and b has shape (8, 5)")
ranks.values(lambda r, g: g.barrier())

# Without the wait for the product, the exchange would send what is not there yet.
at_once = transport._at_once
transport._at_once = lambda *given: (float("inf"), at_once(*given)[1])
def unordered(rank, group):
    group.stream.wait_event = lambda event: None
    cd.matmul_reduce_scatter(cp.zeros((8, 8), "f"), cp.zeros((8, 8), "f"), group=group)
if EMULATED:
    assert any("nothing orders the two" in each for each in ranks.errors(unordered))
print("passed")
"""

ARRAYS = """
import cupygemm, cupy as cp, numpy as np
from cupyx.distributed.array import (
    DistributedArray, SUM, distributed_array, make_2d_index_map)

rng = np.random.default_rng(0)
def integers(*shape):
    return rng.integers(-3, 4, shape).astype("f")

a, b = integers(22, 40), integers(40, 18)
s = slice
MAPS = {
    "blocks": (
        make_2d_index_map([0, 12, 22], [0, 7, 40], [[{0}, {1, 2}], [{2}, {0}]]),
        make_2d_index_map([0, 20, 40], [0, 9, 18], [[{3}, {1}], [{1}, {2}]]),
    ),
    "k": ({d: (s(None), s(10 * d, 10 * d + 10)) for d in range(4)},
          {d: (s(10 * d, 10 * d + 10), s(None)) for d in range(4)}),
    "replicas": ({0: s(None), 1: s(0, 11), 2: s(5, 22)}, {1: s(None), 3: s(None)}),
}
for name, (map_a, map_b) in MAPS.items():
    x, y = distributed_array(a, map_a), distributed_array(b, map_b)
    c = cupygemm.matmul(x, y)
    assert isinstance(c, DistributedArray) and c.dtype == "f" and c.shape == (22, 18)
    np.testing.assert_array_equal(c.get(), a @ b, err_msg=name)
    assert {chunk.device.id for d in c.all_chunks().values() for chunk in d} <= set(range(4))
bias, addend = integers(18), integers(22, 18)
with cp.cuda.Device(2):
    options = {"bias": cp.asarray(bias), "c": cp.asarray(addend), "activation": "relu", "alpha": 2}
c = cupygemm.matmul(x, y, **options)
np.testing.assert_array_equal(c.get(), np.maximum(2 * (a @ b) + addend + bias, 0))
first, again = (cupygemm.matmul(x, y, dtype="float64", casting="same_kind").get() for _ in "ab")
assert first.dtype == "d" and first.tobytes() == again.tobytes()
total = distributed_array(a, MAPS["k"][0]).change_mode(SUM)
np.testing.assert_array_equal(cupygemm.matmul(total, y).get(), a @ b)
chained = cupygemm.matmul(cupygemm.matmul(x, y), distributed_array(b.T.copy(), {0: s(None)}))
np.testing.assert_array_equal(chained.get(), a @ b @ b.T)

for call, error, text in (
    (lambda: cupygemm.matmul(x, cp.asarray(b)), TypeError, "x2 is a cupy.ndarray, next to a"),
    (lambda: cupygemm.matmul(x, y, out=x), TypeError, "takes no out: assign the result"),
    (lambda: cupygemm.matmul(x, x), ValueError, "inner extents differ"),
    (lambda: cupygemm.matmul(x, y, bias=cp.ones(3, "f")), ValueError, "bias has shape (3,)"),
    (lambda: cupygemm.matmul(x, y, turbo=1), TypeError, "unexpected keyword argument 'turbo'"),
    (lambda: cupygemm.matmul(x, y, stream=cp.cuda.Stream()), TypeError, "takes no stream"),
    (lambda: cupygemm.matmul(x, distributed_array(b[:, 0], {0: s(None)})), ValueError, "two axes"),
    (lambda: cupygemm.dot(x, y), TypeError, "which only matmul takes"),
    (lambda: cupygemm.einsum("ij,jk", x, y), TypeError, "only matmul takes distributed arrays"),
):
    try:
        call()
    except error as err:
        assert text in str(err), err
    else:
        raise AssertionError(text)
print("passed")
"""


@pytest.mark.slow
def test_four_devices(run_python, device):
    checks = {"CUPYGEMM_EMULATE_CHECKS": "stream_races=error"}  # a missing event is an error
    code = f"EMULATED = {device.emulated}\n{SHARDED}\n{ARRAYS}"
    printed = str(run_python(code, target=devices_of(device, 4), env=checks, timeout=600))
    assert printed.split() == ["exact", "passed", "passed"]
