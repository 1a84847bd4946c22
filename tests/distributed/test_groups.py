"""Products of a group of ranks: exact results, one GPU's bits, epilogues, errors, and faults.

Ranks are threads of one process with an emulated device each, or processes. Integers are small, so
that every order of summation gives the exact sum.
"""

from __future__ import annotations

import signal
import threading
import time
from functools import partial

import pytest

from cupygemm import distributed
from cupygemm._distributed.rendezvous import GroupError, Membership, Rendezvous
from tests.processes import devices_of, run_ranks

PRODUCTS = """
import cupygemm, cupy as cp, numpy as np
from cupygemm import distributed as cd
from tests.distributed.threads import Ranks

if OVERLAPS:
    from cupygemm._distributed import transport
    transport._by_nccl_at_once = transport._by_nccl
ranks = Ranks(3, exchange=EXCHANGE)
rng = np.random.default_rng(0)
def integers(*shape, dtype):
    return rng.integers(-3, 4, shape).astype(dtype)

def same_bits(found, expected):
    if EMULATED:  # on GPUs, another library may multiply some rows by another kernel
        assert found.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)

ROWS, CUTS = [5, 0, 32], [0, 20, 20, 50]
for dtype, options in TYPES:
    a, b = integers(37, 50, dtype=dtype), integers(50, 18, dtype=dtype)
    wide = "int32" if dtype == "int8" else "complex64" if dtype == "complex64" else "float32"
    exact = a.astype(wide) @ b.astype(wide)
    if "format_a" in options:
        a, b = a.view("u1"), b.view("u1")
    starts = np.cumsum([0, *ROWS])

    def gathered(rank, group):
        part = cp.asarray(a[starts[rank]:starts[rank + 1]])
        return cd.all_gather_matmul(part, cp.asarray(b), group=group, rows=ROWS, **options).get()

    def scattered(rank, group):
        k = slice(CUTS[rank], CUTS[rank + 1])
        return cd.matmul_reduce_scatter(cp.asarray(a[:, k]), cp.asarray(b[k]), group=group,
                                        rows=ROWS, **options).get()

    def reduced(rank, group):
        k = slice(CUTS[rank], CUTS[rank + 1])
        return cd.matmul_all_reduce(cp.asarray(a[:, k]), cp.asarray(b[k]), group=group,
                                    **options).get()

    for c in ranks.values(gathered):
        np.testing.assert_array_equal(c, exact)
    parts = ranks.values(scattered)
    assert [len(c) for c in parts] == ROWS
    np.testing.assert_array_equal(np.concatenate(parts), exact)
    for c in ranks.values(reduced):
        np.testing.assert_array_equal(c, exact)
print("exact")

# One GPU's bits, with an epilogue, into arrays of the caller, and the gathered operand.
a, b = rng.standard_normal((36, 300)).astype("f"), rng.standard_normal((300, 20)).astype("f")
bias, addend, scale = (rng.standard_normal(s).astype("f") for s in ((20,), (36, 20), (36,)))
def epilogue(rows=slice(None)):
    return dict(alpha=0.5, scale_a=cp.asarray(scale[rows]), c=cp.asarray(addend[rows]),
                bias=cp.asarray(bias), activation="relu")
with cp.cuda.Device(0):
    whole = cupygemm.matmul(cp.asarray(a), cp.asarray(b), **epilogue()).get()
def gathered(rank, group):
    out, full = cp.empty((36, 20), "f"), cp.empty((36, 300), "f")
    part = cp.asarray(a[12 * rank : 12 * rank + 12].T.copy()).T  # in F order
    c = cd.all_gather_matmul(part, cp.asarray(b), out, group=group, gathered=full, **epilogue())
    assert c is out
    return c.get(), full.get()
for c, full in ranks.values(gathered):
    assert c.tobytes() == whole.tobytes()
    assert full.tobytes() == a.tobytes()

# Sums are added in the order of the ranks; the epilogue follows the sum, once.
def partial(rank):
    k = slice(100 * rank, 100 * rank + 100)
    return cp.asarray(a[:, k]), cp.asarray(b[k])
def scattered(rank, group, rows=None, n=36, **options):
    counts = rows or [12] * 3
    start = sum(counts[:rank])
    return cd.matmul_reduce_scatter(*partial(rank), group=group, rows=rows,
                                    **epilogue(slice(start, start + counts[rank])), **options).get()
def reduced(rank, group):
    out = cp.empty((20, 36), "f").T
    return cd.matmul_all_reduce(*partial(rank), out, group=group, **epilogue()).get()
with cp.cuda.Device(0):
    terms = [cupygemm.matmul(*partial(rank)) for rank in range(3)]
    total = ((terms[0] + terms[1]) + terms[2]) * cp.asarray(0.5 * scale[:, None]).astype("f")
    near = cp.maximum(total + cp.asarray(addend) + cp.asarray(bias), 0).get()
first = np.concatenate(ranks.values(scattered))
np.testing.assert_allclose(first, near, rtol=1e-5, atol=1e-5)
again = np.concatenate(ranks.values(lambda r, g: scattered(r, g, rows=[1, 30, 5])))
same_bits(again, first)
for c in ranks.values(reduced):
    same_bits(np.ascontiguousarray(c), first)
sums = [t.get() for t in terms]
plain = ranks.values(lambda r, g: cd.matmul_all_reduce(*partial(r), group=g).get())
same_bits(plain[2], (sums[0] + sums[1]) + sums[2])
rounded = ranks.values(
    lambda r, g: cd.matmul_all_reduce(*partial(r), group=g, partial_dtype="float16").get())
halves = [t.astype("e").astype("f") for t in sums]
same_bits(rounded[1], (halves[0] + halves[1]) + halves[2])
with cp.cuda.Device(0):
    short = [cupygemm.matmul(*(x.astype("e") for x in partial(rank)), dtype="f").get()
             for rank in range(3)]
rounded = ranks.values(lambda r, g: cd.matmul_all_reduce(
    *(x.astype("e") for x in partial(r)), group=g))
same_bits(rounded[1].get(), ((short[0] + short[1]) + short[2]).astype("e"))
# Parts of a bfloat16 result travel in bfloat16, unless the caller asks for float32.
import ml_dtypes
BF16 = np.dtype(ml_dtypes.bfloat16)
def short(rank):
    return [x.astype(BF16) for x in partial(rank)]
with cp.cuda.Device(0):
    parts = [cupygemm.matmul(*short(rank), dtype="f").get() for rank in range(3)]
for options, sent in ({}, BF16), ({"partial_dtype": "float32"}, np.dtype("f")):
    summed = ranks.values(lambda r, g: cd.matmul_all_reduce(*short(r), group=g, **options).get())
    first, second, third = (part.astype(sent).astype("f") for part in parts)
    same_bits(summed[1].astype("f"), ((first + second) + third).astype(BF16).astype("f"))
print("bits")

# What does not fit is refused on all ranks, which then go on.
x, y = integers(6, 8, dtype="f"), integers(8, 6, dtype="f")
def asking(function, change):
    def run(rank, group):
        given = {"a": x, "b": y, "options": {}}
        if rank == 1:
            change(given)
        with cp.cuda.Device(group.device):
            function(cp.asarray(given["a"]), cp.asarray(given["b"]), group=group,
                     **given["options"])
    return ranks.errors(run)

def same(errors, text):
    assert all(text in each for each in errors), errors

same(asking(cd.all_gather_matmul, lambda g: g.update(a=x.astype("d"))),
     'ValueError: all_gather_matmul: rank 1 calls with dtype = "float64", and rank 0 with "flo')
same(asking(cd.all_gather_matmul, lambda g: g.update(a=x[:5])),
     "rank 1 calls with rows = [5, 5, 5]")
same(asking(cd.matmul_reduce_scatter, lambda g: g.update(b=y[:, 1:])), "(m, n) = [6, 5]")
same(asking(cd.matmul_all_reduce, lambda g: g.update(options={"alpha": 2})), "alpha")
errors = asking(cd.matmul_all_reduce, lambda g: g.update(b=y[1:]))
same(errors, "inner extents differ")
assert errors[1].startswith("ValueError: matmul_all_reduce:")
assert "rank 1 has refused its call" in errors[0]
same(asking(cd.all_gather_matmul, lambda g: g.update(a=x[0])), "shape (8,); it must be a matrix")
same(asking(cd.all_gather_matmul, lambda g: g.update(options={"turbo": 1})), "'turbo'")
same(asking(cd.matmul_reduce_scatter, lambda g: g.update(options={"rows": [1, 2]})), "3 ranks")
same(asking(cd.matmul_reduce_scatter, lambda g: g.update(options={"partial_dtype": "d"})),
     "cannot hold")
same(ranks.errors(lambda r, g: g.barrier() if r else cd.matmul_all_reduce(
    cp.asarray(x), cp.asarray(y), group=g)), 'rank 0 calls with function = "matmul_all_reduce"')
try:
    cd.all_gather_matmul(cp.asarray(x), cp.asarray(y), group=ranks.communicators[0])
except TypeError as err:
    assert "call cupygemm.distributed.connect(communicator) once" in str(err)
try:
    cd.connect(object())
except TypeError as err:
    assert "the communicator is an object" in str(err), err
ranks.values(lambda r, g: g.barrier())
assert ranks.groups[0].broken is None

# What fails after the agreement ends the group, and says so on all ranks.
def failing(rank, group):
    if rank == 2:
        group.transports = None  # a fault of the library's own
    cd.matmul_all_reduce(cp.asarray(x), cp.asarray(y), group=group)
errors = ranks.errors(failing)
assert all("rank 2 failed: AttributeError" in each for each in errors[:2]), errors
same(ranks.errors(lambda r, g: g.barrier()), "make a new communicator and connect again")
assert ranks.groups[0].broken.ranks == (2,)
print("passed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exchange", "overlaps"),
    [
        ("nccl", True),
        pytest.param("nccl", False, marks=pytest.mark.sweep),
        pytest.param("copies", True, marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize(
    "types",
    [
        '("float16", {"dtype": "float32"})',
        pytest.param(
            '("complex64", {}), ("int8", {"dtype": "int32"}), '
            '(getattr(ml_dtypes, "float8_" + FLOAT8), {"format_a": FLOAT8, "format_b": FLOAT8})',
            marks=pytest.mark.sweep,
        ),
    ],
    ids=["float16", "others"],
)
def test_products_of_three_ranks(run_python, device, types, exchange, overlaps):
    float8 = "e4m3fnuz" if device.target == "gfx942" else "e4m3fn"
    choices = f"FLOAT8, EXCHANGE, OVERLAPS = {float8!r}, {exchange!r}, {overlaps}"
    choices += f"\nEMULATED, TYPES = {device.emulated}, [{types}]"
    code = f"import ml_dtypes\n{choices}\n{PRODUCTS}"
    checks = {"CUPYGEMM_EMULATE_CHECKS": "stream_races=error"}  # a missing event is an error
    output = str(run_python(code, target=devices_of(device, 3), env=checks, timeout=600))
    assert output.split() == ["exact", "bits", "passed"]


PROCESS = """
import os, signal, sys, traceback
import numpy as np
import cupy as cp, cupyx.distributed
from cupygemm import distributed as cd

def leave(*error):  # at an ordinary exit, CuPy's store would wait for the other ranks
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)

sys.excepthook = leave
rank, size, port = map(int, sys.argv[1:])
cp.cuda.Device(rank).use()
process_group = cupyx.distributed.init_process_group(size, rank, port=port)

class Mpi:  # what `connect` asks of a communicator of mpi4py; the process group carries it
    Get_rank, Get_size = (lambda self: rank), (lambda self: size)
    def bcast(self, value, root):
        buffer = cp.asarray(np.frombuffer(value if rank == root else bytes(128), "u1"))
        process_group.broadcast(buffer, root)
        return buffer.get().tobytes()

group = cd.connect(process_group, timeout=600)
a = np.arange(12 * 9).reshape(12, 9).astype("f") % 7
k = slice(3 * rank, 3 * rank + 3)
c = cd.matmul_reduce_scatter(cp.asarray(a[:, k]), cp.asarray(a.T[k]), group=group)
assert (c.get() == (a @ a.T)[4 * rank : 4 * rank + 4]).all()
c = cd.all_gather_matmul(cp.asarray(a[4 * rank : 4 * rank + 4]), cp.asarray(a.T), group=group)
assert (c.get() == a @ a.T).all()
with cd.connect(Mpi(), timeout=600) as second:
    c = cd.matmul_all_reduce(cp.asarray(a[:, k]), cp.asarray(a.T[k]), group=second)
    assert (c.get() == a @ a.T).all()
    second.barrier()
print("right", flush=True)
group.barrier()
if rank == 1:  # the others are in a call, or will be
    os.kill(os.getpid(), signal.SIGKILL)
for _ in range(2):
    try:
        cd.all_gather_matmul(cp.asarray(a), cp.asarray(a.T), group=group)
    except cd.GroupError as err:
        print(err.ranks, err, flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_processes_and_the_death_of_one(device, tmp_path):
    """The survivors get an error that names the rank; nothing hangs."""
    ended = run_ranks(PROCESS, 3, devices_of(device, 3), tmp_path)
    assert ended[1].returncode == -signal.SIGKILL, ended[1].output
    for output in (ended[0].output, ended[2].output):
        assert output.startswith("right"), output
        assert output.count("(1,) rank 1 has left the group") == 2, output
        assert output.count("make a new communicator and connect again") == 2, output


@pytest.fixture
def rendezvous():
    """Return where three ranks meet."""
    found = Rendezvous(3)
    yield found
    found.close()


@pytest.fixture
def members(rendezvous):
    """Return the memberships of three ranks, of which rank 0 waits 0.3 s for the others."""
    timeouts = (0.3, 600, 600)
    found = [Membership(rendezvous.address, rank, each) for rank, each in enumerate(timeouts)]
    yield found
    for member in found:
        member.close()


def in_threads(calls):
    """Run calls at the same time and return their results, or their exceptions."""
    results = [None] * len(calls)

    def run(number):
        try:
            results[number] = calls[number]()
        except GroupError as err:
            results[number] = err

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_rank_that_makes_no_call_is_named(members, rendezvous):
    def calls_after_rank_2():
        while not rendezvous._waits(2):  # its message is on the way
            time.sleep(0.001)
        return members[0].agree({"function": "f"})

    first, second = in_threads([calls_after_rank_2, partial(members[2].agree, {"function": "f"})])
    for error in (first, second):
        assert "rank 1 did not make the matching call to f within 0.3 s (rank" in str(error)
        assert error.ranks == (1,)
    with pytest.raises(GroupError, match="rank 1 did not make the matching call"):
        members[1].agree({"function": "f"})


def test_a_rank_that_leaves_or_fails_ends_the_group(members):
    members[2].close()
    with pytest.raises(GroupError, match=r"rank 2 has left the group; .* not usable any more"):
        members[1].agree({})
    with pytest.raises(GroupError, match="closed on this rank"):
        members[2].agree({})
    assert members[0].wait_until_broken(60) is not None


def test_operations_in_progress_are_aborted_by_a_fault_only():
    for leave, aborted in ((Membership.close, False), (lambda m: m.fail("out of memory"), True)):
        rendezvous, aborts = Rendezvous(2), []
        first = Membership(rendezvous.address, 0, 60, on_break=lambda: aborts.append(1))  # noqa: B023
        second = Membership(rendezvous.address, 1, 60)
        in_threads([lambda: first.agree({}), lambda: second.agree({})])  # noqa: B023
        leave(second)
        with pytest.raises(GroupError, match="rank 1"):
            first.agree({})
        assert bool(aborts) == aborted
        first.close()
        rendezvous.close()


def test_connect_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="exchange must be one of 'auto', 'nccl', 'copies'"):
        distributed.connect(None, exchange="mpi")
    with pytest.raises(ValueError, match="timeout is 0; it must be a positive number of seconds"):
        distributed.connect(None, timeout=0)


def test_an_address_that_does_not_answer():
    with pytest.raises(GroupError, match=r"rank 0, on 127\.0\.0\.1, does not answer.*pass host="):
        Membership("elsewhere:1:00", 0, 1, host="127.0.0.1")  # nobody listens at port 1
