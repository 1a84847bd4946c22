"""cuBLASLt's products: layouts, batches, workspaces and configurations, by a substitute library.

The substitute multiplies in host memory, and the arrays are those of the modelled GPU.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from cupygemm._backends.cublaslt import algorithm, backend, library, product
from cupygemm._backends.protocol import DeviceProperties
from cupygemm._request.layout import Operand, contiguous
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from tests.backends.cublaslt.fake_library import ALGORITHMS, WORKSPACE_BYTES, FakeLibrary
from tests.conftest import ROOT

GPU = DeviceProperties(index=0, name="a GPU", is_hip=False, is_emulated=False, values={})


@pytest.fixture
def lt(monkeypatch):
    """The substitute, in the place of the library."""
    fake = FakeLibrary()
    library.handle.cache_clear()
    for module in (library, algorithm):
        monkeypatch.setattr(module, "library", lambda: fake)
    yield fake
    library.handle.cache_clear()


@pytest.fixture
def memory(monkeypatch):
    """The memory and the stream of a device, on the host; records what is allocated."""
    made = []

    def alloc(num_bytes):
        made.append(np.zeros(num_bytes, np.uint8))
        return SimpleNamespace(ptr=made[-1].ctypes.data)

    runtime = SimpleNamespace(streamIsCapturing=lambda stream: False)
    cuda = SimpleNamespace(
        alloc=alloc, get_current_stream=lambda: SimpleNamespace(ptr=3), runtime=runtime
    )
    monkeypatch.setitem(__import__("sys").modules, "cupy.cuda", cuda)
    return made


def described(array):
    return Operand(array.shape, array.strides, array.dtype, array.ctypes.data)


def run(x1, x2, out, config=None):
    """Compute a product into `out`; return the record of what was compiled."""
    request = make_request(described(x1), described(x2), described(out))
    lt_backend = backend.create(GPU)
    compiled = lt_backend.compile(request, config)
    chosen = compiled.handle
    launch = product.launch_of(
        chosen.product,
        chosen.algorithm.algorithm,
        chosen.algorithm.workspace_bytes,
        chosen.stack,
        x1.dtype.itemsize,
    )
    layout = chosen.placement.layout
    first, second = (x2, x1) if layout.swapped else (x1, x2)
    launch(*(array.ctypes.data for array in (first, second, out)))
    return compiled


def numbers(shape, dtype, *, turned=False):
    rng = np.random.default_rng(len(shape))
    if turned:
        shape = (*shape[:-2], shape[-1], shape[-2])
    x = rng.integers(-4, 5, shape).astype(dtype)
    if x.dtype.kind == "c":
        x += 1j * rng.integers(-4, 5, shape).astype(x.real.dtype)
    return x.swapaxes(-1, -2) if turned else x


@pytest.mark.parametrize("dtype", ["f4", "f8", "F", "D"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("columns", [False, True])
def test_every_order_of_the_operands_and_of_the_result(lt, memory, dtype, turned, columns):
    x1, x2 = numbers((5, 7), dtype, turned=turned[0]), numbers((7, 3), dtype, turned=turned[1])
    out = np.full((5, 3), np.nan, dtype, order="F" if columns else "C")
    compiled = run(x1, x2, out)
    np.testing.assert_array_equal(out, x1 @ x2)
    assert compiled.computed_by == "cuBLASLt"
    assert lt.calls == [(ALGORITHMS[0][0], 0)]
    assert not memory


@pytest.mark.parametrize(
    ("first", "second", "launches"),
    [
        ((6, 4, 5), (6, 5, 3), 1),
        ((6, 4, 5), (5, 3), 1),
        ((2, 3, 4, 5), (2, 3, 5, 3), 1),  # the axes are one
        ((2, 1, 4, 5), (3, 5, 3), 2),
        ((2, 1, 7, 4, 5), (5, 1, 5, 3), 10),
    ],
)
def test_batches_are_stacks_and_loops(lt, memory, first, second, launches):
    x1, x2 = numbers(first, "f8"), numbers(second, "f8")
    expected = x1 @ x2
    out = np.full(expected.shape, np.nan)
    compiled = run(x1, x2, out)
    np.testing.assert_array_equal(out, expected)
    assert compiled.num_launches == len(lt.calls) == launches


def test_a_split_algorithm_has_a_workspace(lt, memory):
    x1, x2, out = numbers((4, 9), "D"), numbers((9, 4), "D"), np.empty((4, 4), "D")
    request = make_request(described(x1), described(x2), described(out))
    split = next(
        each.config for each in backend.create(GPU).candidates(request) if each.config.split_k > 1
    )
    compiled = run(x1, x2, out, split)
    np.testing.assert_array_equal(out, x1 @ x2)
    assert compiled.config == split
    assert lt.calls == [(split.algorithm, WORKSPACE_BYTES)]
    assert [len(each) for each in memory] == [WORKSPACE_BYTES]


def test_a_captured_call_has_memory_of_its_own(lt, memory, monkeypatch):
    import sys

    cuda, log = sys.modules["cupy.cuda"], []
    buffer = np.zeros(WORKSPACE_BYTES, np.uint8)
    cuda.runtime = SimpleNamespace(
        streamIsCapturing=lambda stream: True,
        mallocAsync=lambda size, stream: log.append(("malloc", size, stream)) or buffer.ctypes.data,
        freeAsync=lambda address, stream: log.append(("free", address, stream)),
    )
    x = numbers((4, 4), "f8")
    request = make_request(described(x), described(x))
    split = next(
        each.config for each in backend.create(GPU).candidates(request) if each.config.split_k > 1
    )
    out = np.empty((4, 4))
    run(x, x, out, split)
    np.testing.assert_array_equal(out, x @ x)
    assert log == [("malloc", WORKSPACE_BYTES, 3), ("free", buffer.ctypes.data, 3)]
    assert not memory


def test_an_unknown_algorithm_is_refused(lt, memory):
    x = numbers((4, 4), "f8")
    known = backend.create(GPU).candidates(make_request(described(x), described(x)))[0].config
    unknown = algorithm.LtConfig(**{**vars(known), "algorithm": 999})
    with pytest.raises(ValueError, match=r"cuBLASLt does not support .*algorithm 999"):
        run(x, x, np.empty((4, 4)), unknown)


def test_which_requests_it_takes(lt):
    def support(*dtypes, **options):
        operands = [contiguous((8, 8), np.dtype(dtype)) for dtype in dtypes]
        return backend.create(GPU).supports(make_request(*operands, options=Options(**options)))

    assert support("f8", "f8")
    assert support("D", "f4")
    assert support("f8", "f8", dtype=np.dtype("f4"))
    assert "not asked for products of float16" in support("f2", "f2").reason
    assert "not asked for products of int64" in support("i8", "i8").reason
    float8 = np.dtype(ml_dtypes.float8_e4m3fn)
    assert "8-bit floats" in support("f4", "f4", dtype=float8).reason


def test_without_the_library_the_reason_says_so(monkeypatch):
    def absent():
        raise OSError("cuBLASLt was not found")

    monkeypatch.setattr(library, "library", absent)
    request = make_request(*[contiguous((8, 8), np.dtype("f8"))] * 2)
    assert backend.create(GPU).supports(request).reason == "cuBLASLt was not found"
    assert backend.create(GPU).problem(request) is None


def test_everything_that_is_made_is_destroyed(lt, memory):
    x = numbers((4, 4), "f8")
    run(x, x, np.empty((4, 4)))
    assert all(record == {} for record in lt.records.values())  # the handle is left


def test_a_heuristic_result_has_the_size_of_the_struct():
    """``cublasLtMatmulHeuristicResult_t``: 64 + 8 + 4 + 4 + 16 bytes."""
    assert ctypes.sizeof(library.HeuristicResult) == 96


def test_descriptions_are_destroyed_with_their_owners(lt):
    before = set(lt.records)
    matrices = library.Matrices("float32", 4, 4, 4)
    described = library.LtProduct(
        matrices,
        matrices,
        matrices,
        operations=(library.OP_N, library.OP_N),
        compute=library.COMPUTE_32F,
        scale=np.dtype(np.float32),
    )
    created = set(lt.records) - before - {described.handle.value}
    assert len(created) == 2
    del described, matrices
    assert not created & set(lt.records)


def test_descriptions_that_outlive_the_interpreter_print_nothing():
    program = """
import atexit

@atexit.register  # first, so it is the last to be called
def take_apart():
    library.library = None
    kept.clear()

from cupygemm._backends.cublaslt import library
from tests.backends.cublaslt.fake_library import FakeLibrary
fake = FakeLibrary()
library.library = lambda: fake
kept = [library.Matrices("float32", 4, 4, 4)]
print(len(fake.records))
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


@pytest.mark.parametrize(("rows", "taken"), [((1 << 31) - 1, True), (1 << 31, False)])
def test_extents_that_no_blas_takes_are_refused(lt, rows, taken):
    tall = Operand((rows, 1), (0, 8), np.dtype("d"), 0)
    support = backend.create(GPU).supports(make_request(tall, contiguous((1, 4), np.dtype("d"))))
    assert bool(support) == taken
    assert taken or support.reason == (
        "m = 2147483648 is more than 2**31 - 1, the most that BLAS takes"
    )
