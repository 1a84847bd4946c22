"""A repeated call with copied operands or a split k costs the host as little as any other.

Each launch has a list of parameters, which takes longer to pack than to launch; so has each tensor
map. A call whose arrays, copies and workspaces lie where those of an earlier one did makes none.
"""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper import launch
from cupygemm._backends.hopper.choice import tf32x3
from cupygemm._backends.hopper.cuda import enqueue, tensormap
from cupygemm._plan.table import PLANS
from tests.hopper_model.arrays import Memory

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, I8 = map(np.dtype, (np.float16, np.float32, np.int8))
LIBRARY = str(Path(cupygemm.__file__).parent)
EPILOGUES = {"k split, epilogue": {"alpha": 2.0}}
CASES = {
    "aligned": ((64, 64, 64), F16, {}),
    "padded": ((255, 257, 259), BF16, {}),
    "one padded": ((256, 257, 256), F16, {}),
    "transposed": ((64, 64, 64), I8, {}),
    "in tf32 parts": ((64, 72, 64), F32, {"precision": "tf32x3"}),
    "k split": ((16, 16, 8192), F16, {}),
    "padded, k split": ((15, 17, 8191), F16, {}),
    "k split, epilogue": ((16, 16, 8192), F16, EPILOGUES["k split, epilogue"]),
}
LAUNCHES = dict(zip(CASES, (1, 2, 2, 2, 3, 2, 3, 2), strict=True))


class Pool:
    """Memory that returns to where it came from, as CuPy's pool for a stream."""

    def __init__(self) -> None:
        self._free: dict[int, list[Memory]] = {}

    def __call__(self, num_bytes: int) -> Lent:
        """Return memory, of those that were given back the latest."""
        free = self._free.setdefault(num_bytes, [])
        return Lent(free.pop() if free else Memory(num_bytes), free)


class Lent:
    """Memory that goes back to a list when it is dropped."""

    def __init__(self, memory: Memory, free: list[Memory]) -> None:
        self.ptr = memory.ptr
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)


@pytest.fixture
def pool(cp, monkeypatch):
    """The modelled GPU with memory that is used again."""
    monkeypatch.setattr(cp.cuda, "alloc", Pool())
    monkeypatch.setattr(tf32x3, "require", lambda *_: None)  # cuBLAS is sooner with so small ones
    PLANS.clear()
    yield
    PLANS.clear()


@pytest.fixture
def nothing_packed(monkeypatch):
    """Return what makes packing and encoding raise from then on."""

    def forbid():
        for module, name in ((enqueue, "pointed"), (launch, "pointed"), (tensormap, "encode")):
            monkeypatch.setattr(module, name, None)

    return forbid


def call_of(cp, name):
    """Return operands and result of a case, and the call."""
    (m, n, k), dtype, options = CASES[name]
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
    a, b, out = cp.asarray(x1), cp.asarray(x2), cp.zeros((m, n), np.int32 if dtype == I8 else F32)
    return x1, x2, out, lambda: cupygemm.matmul(a, b, out, dtype=out.dtype, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_repeated_call_packs_nothing(cp, model, pool, nothing_packed, name):
    x1, x2, out, call = call_of(cp, name)
    call()
    out[...] = 7
    nothing_packed()
    launched = model.num_launches
    call()
    assert model.num_launches == launched + LAUNCHES[name]
    testing.assert_gemm_exact(out, x1, x2, **EPILOGUES.get(name, {}))


def steps(call):
    """Return how many functions code of the library calls, its own and others."""
    seen = []

    def note(frame, event, argument):
        code = frame.f_code if event == "c_call" else frame.f_back and frame.f_back.f_code
        if event in ("call", "c_call") and code and code.co_filename.startswith(LIBRARY):
            seen.append(argument if event == "c_call" else frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(seen)


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name][2]])
def test_another_launch_adds_few_steps(cp, pool, name):
    """The ten steps are for a workspace, a look-up and a launch; none packs or computes."""
    counts = []
    for which in ("aligned", name):
        *_, call = call_of(cp, which)
        call()
        counts.append(steps(call))
    aligned, counted = counts
    assert counted <= aligned + 10 * (LAUNCHES[name] - 1)


def test_a_tensor_map_is_made_once_for_each_place(cp, pool, monkeypatch):
    """Operands that occur with other results need no new tensor map."""
    seen = []
    encode = tensormap.encode
    monkeypatch.setattr(
        tensormap, "encode", lambda *args: seen.append((args[1], args[4])) or encode(*args)
    )
    x1, x2 = testing.integer_operands((64, 40), (40, 72), F16)
    a, b, *outs = cp.asarray(x1), cp.asarray(x2), *(cp.zeros((64, 72), F16) for _ in range(3))
    for out in outs:
        cupygemm.matmul(a, b, out)
        testing.assert_gemm_exact(out, x1, x2)
    assert {place for place, _ in seen} == {array.data.ptr for array in (a, b, *outs)}
    assert len(set(seen)) == len(seen)  # an array may have narrower boxes, too


def test_other_addresses_are_packed(cp, pool):
    """Addresses that were dropped from the cache are packed again."""
    x1, x2 = testing.integer_operands((15, 17), (17, 9), F16)
    kept = []
    for _ in range(3):
        a, b = cp.asarray(x1), cp.asarray(x2)
        kept.append((a, b))
        testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    for a, b in kept:
        testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)


def test_parameters_outlive_their_place(monkeypatch):
    """Threads that launch while others have the table start anew find their own addresses."""
    monkeypatch.setattr(enqueue, "MAX_PACKED", 2)
    record = np.dtype([("pitch", np.int64), ("source", np.uint64), ("destination", np.uint64)])
    arguments = np.zeros(1, record)
    arguments["pitch"] = 5
    table = enqueue.Parameters(arguments, *enqueue.offsets(record, "source", "destination"))

    def read(number):
        address, *_kept = table[number % 7, number, b"epilogue"]
        (place,) = (ctypes.c_void_p * 1).from_address(address)
        return ctypes.string_at(place, record.itemsize + 8)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(read, range(3000)))
    for number, given in enumerate(found):
        assert given == np.array([5, number % 7, number]).tobytes() + b"epilogue"
    assert len(table) <= 5  # each thread may add one more
